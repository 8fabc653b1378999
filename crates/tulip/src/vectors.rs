//! Vectors as bytes: cut, normalized, in the number format that the caller wants.

use bytes::Bytes;
use half::{bf16, f16};
use tulip_proto::v1::{DType, Tensor};

/// What becomes of each row that the model gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VectorFormat {
    /// Values kept of each row, from the start.
    pub(crate) dimensions: usize,
    /// Scale to Euclidean length 1 (a vector of zeros stays).
    pub(crate) normalize: bool,
    pub(crate) dtype: DType,
    /// 8-bit formats take the hyperbolic tangent of each value first.
    pub(crate) tanh: bool,
}

impl VectorFormat {
    /// Elements of one row in the answer: binary formats hold eight dimensions in one.
    fn row_elements(&self) -> usize {
        match self.dtype {
            DType::DtypeBinary | DType::DtypeUbinary => self.dimensions.div_ceil(8),
            _ => self.dimensions,
        }
    }

    fn row_bytes(&self) -> usize {
        let element_bytes = match self.dtype {
            DType::DtypeUnspecified | DType::DtypeFloat32 => 4,
            DType::DtypeFloat16 | DType::DtypeBfloat16 => 2,
            DType::DtypeInt8 | DType::DtypeUint8 | DType::DtypeBinary | DType::DtypeUbinary => 1,
        };
        self.row_elements() * element_bytes
    }

    /// `[num_items, row elements]`, row-major, little-endian: the rows of `rows` (each `width`
    /// long) at the places that `items` names, in order; zero bytes elsewhere.
    ///
    /// 8-bit formats are for vectors of length 1, or `tanh`: INT8 is `round(127 x)`, UINT8 the same
    /// plus 128.
    /// In BINARY and UBINARY a bit is 1 where the value is above 0, the first dimension in the
    /// highest bit; BINARY bytes are int8, the unsigned byte less 128.
    pub(crate) fn tensor(
        &self,
        num_items: usize,
        rows: &[f32],
        width: usize,
        items: &[u32],
    ) -> Tensor {
        let row_bytes = self.row_bytes();
        let mut data = Vec::with_capacity(num_items * row_bytes);
        let mut scaled = Vec::new();
        for (row, &item) in rows.chunks_exact(width.max(1)).zip(items) {
            data.resize(item as usize * row_bytes, 0);
            let mut row = &row[..self.dimensions];
            if self.normalize {
                normalize_into(row, &mut scaled);
                row = &scaled;
            }
            self.append(row, &mut data);
        }
        data.resize(num_items * row_bytes, 0);
        let shape = vec![
            u32::try_from(num_items).unwrap_or(u32::MAX),
            u32::try_from(self.row_elements()).unwrap_or(u32::MAX),
        ];
        let dtype = if self.dtype == DType::DtypeUnspecified {
            DType::DtypeFloat32
        } else {
            self.dtype
        };
        Tensor {
            data: Bytes::from(data),
            dtype: dtype.into(),
            shape,
        }
    }

    fn append(&self, row: &[f32], data: &mut Vec<u8>) {
        match self.dtype {
            DType::DtypeUnspecified | DType::DtypeFloat32 => {
                data.extend(row.iter().flat_map(|value| value.to_le_bytes()));
            }
            DType::DtypeFloat16 => {
                data.extend(
                    row.iter()
                        .flat_map(|&value| f16::from_f32(value).to_le_bytes()),
                );
            }
            DType::DtypeBfloat16 => {
                data.extend(
                    row.iter()
                        .flat_map(|&value| bf16::from_f32(value).to_le_bytes()),
                );
            }
            DType::DtypeInt8 => data.extend(row.iter().map(|&value| self.int8(value))),
            DType::DtypeUint8 => {
                data.extend(row.iter().map(|&value| self.int8(value) ^ 0x80));
            }
            DType::DtypeUbinary => data.extend(row.chunks(8).map(sign_bits)),
            DType::DtypeBinary => data.extend(row.chunks(8).map(|chunk| sign_bits(chunk) ^ 0x80)),
        }
    }

    fn int8(&self, value: f32) -> u8 {
        int8(if self.tanh { value.tanh() } else { value })
    }
}

/// `round(127 x)`, ties to even, in two's complement. Flipping the highest bit adds 128.
#[expect(clippy::cast_possible_truncation, reason = "clamped")]
fn int8(value: f32) -> u8 {
    ((value * 127.0).round_ties_even().clamp(-127.0, 127.0) as i8).cast_unsigned()
}

/// Up to eight dimensions in a byte, the first in the highest bit.
fn sign_bits(values: &[f32]) -> u8 {
    let bits = values
        .iter()
        .enumerate()
        .map(|(at, &value)| u8::from(value > 0.0) << (7 - at));
    bits.fold(0, |byte, bit| byte | bit)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the model's own precision is float32"
)]
fn normalize_into(row: &[f32], scaled: &mut Vec<f32>) {
    let length = row
        .iter()
        .map(|&value| f64::from(value) * f64::from(value))
        .sum::<f64>()
        .sqrt();
    let scale = if length > 0.0 { length.recip() } else { 0.0 };
    scaled.clear();
    scaled.extend(row.iter().map(|&value| (f64::from(value) * scale) as f32));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(dtype: DType, row: &[f32]) -> Vec<u8> {
        let format = VectorFormat {
            dimensions: row.len(),
            normalize: false,
            dtype,
            tanh: false,
        };
        format.tensor(1, row, row.len(), &[0]).data.to_vec()
    }

    #[test]
    fn floats_are_little_endian_and_round_to_nearest() {
        assert_eq!(
            bytes_of(DType::DtypeFloat32, &[1.0, -2.5]),
            [0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0]
        );
        assert_eq!(
            bytes_of(DType::DtypeFloat16, &[1.0, -2.5]),
            [0x00, 0x3c, 0x00, 0xc1]
        );
        // 1 + 2^-8 lies between two bfloat16: ties go to the even one; a little more goes up.
        assert_eq!(
            bytes_of(DType::DtypeBfloat16, &[257.0 / 256.0, 1.003_907]),
            [0x80, 0x3f, 0x81, 0x3f]
        );
    }

    #[test]
    fn eight_bits() {
        let row = [1.0, -1.0, 0.0, 0.5, -0.25, 2.0, -2.0];
        let signed: Vec<i8> = bytes_of(DType::DtypeInt8, &row)
            .into_iter()
            .map(u8::cast_signed)
            .collect();
        assert_eq!(signed, [127, -127, 0, 64, -32, 127, -127]);
        assert_eq!(
            bytes_of(DType::DtypeUint8, &row),
            [255, 1, 128, 192, 96, 255, 1]
        );
    }

    #[test]
    fn sign_bits_pack_the_first_dimension_highest() {
        let row = [1.0, -1.0, 0.5, 0.0, -0.0, 3.0, -3.0, 1.0, 0.1, 0.2];
        assert_eq!(
            bytes_of(DType::DtypeUbinary, &row),
            [0b1010_0101, 0b1100_0000]
        );
        let signed: Vec<i8> = bytes_of(DType::DtypeBinary, &row)
            .into_iter()
            .map(u8::cast_signed)
            .collect();
        assert_eq!(
            signed,
            [(0b1010_0101_i16 - 128) as i8, (0b1100_0000_i16 - 128) as i8]
        );
    }

    #[test]
    fn shapes_count_elements() {
        for (dtype, elements, bytes) in [
            (DType::DtypeUnspecified, 10, 40),
            (DType::DtypeBfloat16, 10, 20),
            (DType::DtypeBinary, 2, 2),
        ] {
            let format = VectorFormat {
                dimensions: 10,
                normalize: false,
                dtype,
                tanh: false,
            };
            let tensor = format.tensor(3, &[0.5; 36], 12, &[0, 1, 2]);
            assert_eq!(tensor.shape, [3, elements], "{dtype:?}");
            assert_eq!(tensor.data.len(), 3 * bytes, "{dtype:?}");
        }
    }

    #[test]
    fn cut_vectors_are_normalized_again() {
        let format = VectorFormat {
            dimensions: 2,
            normalize: true,
            dtype: DType::DtypeFloat32,
            tanh: false,
        };
        let tensor = format.tensor(2, &[3.0, 4.0, 100.0, 0.0, 0.0, 1.0], 3, &[0, 1]);
        let values: Vec<f32> = tensor
            .data
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
            .collect();
        assert_eq!(values, [0.6, 0.8, 0.0, 0.0]);
    }

    #[test]
    fn failed_items_are_zeros() {
        let format = VectorFormat {
            dimensions: 1,
            normalize: false,
            dtype: DType::DtypeInt8,
            tanh: false,
        };
        let tensor = format.tensor(5, &[1.0, -1.0], 1, &[1, 3]);
        assert_eq!(tensor.data, [0, 127, 0, 129, 0].as_slice());
    }

    #[test]
    fn eight_bits_of_the_tangent_have_no_bound() {
        let format = VectorFormat {
            dimensions: 4,
            normalize: false,
            dtype: DType::DtypeInt8,
            tanh: true,
        };
        let tensor = format.tensor(1, &[0.0, 0.5, -3.0, 90.0], 4, &[0]);
        let signed: Vec<i8> = tensor.data.iter().map(|byte| byte.cast_signed()).collect();
        // 127 tanh(0.5) = 58.69, 127 tanh(-3) = -126.37
        assert_eq!(signed, [0, 59, -126, 127]);
    }
}
