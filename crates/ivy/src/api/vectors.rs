//! Vectors from the bytes of the wire to JSON, without numbers in between where they stay bytes.

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use half::{bf16, f16};
use serde::ser::{Serialize, SerializeSeq as _, Serializer};
use tulip_proto::v1::{DType, Tensor};

/// How a vector is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// A list of numbers.
    Numbers,
    /// The bytes of the wire, little-endian.
    Base64,
}

/// One vector.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    data: Bytes,
    dtype: DType,
    encoding: Encoding,
}

/// The rows of `[rows, width]`; `rows` of them, whatever the tensor says.
pub(crate) fn rows(tensor: &Tensor, count: usize, encoding: Encoding) -> Vec<Row> {
    let bytes = tensor.data.len() / count.max(1);
    let row = |index: usize| Row {
        data: tensor.data.slice(index * bytes..(index + 1) * bytes),
        dtype: tensor.dtype(),
        encoding,
    };
    (0..count).map(row).collect()
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.encoding == Encoding::Base64 {
            return serializer.collect_str(&Base64Display::new(&self.data, &STANDARD));
        }
        match self.dtype {
            DType::DtypeUnspecified | DType::DtypeFloat32 => {
                let (values, _) = self.data.as_chunks::<4>();
                numbers(serializer, values, |&value| f32::from_le_bytes(value))
            }
            DType::DtypeFloat16 => {
                let (values, _) = self.data.as_chunks::<2>();
                numbers(serializer, values, |&value| {
                    f16::from_le_bytes(value).to_f32()
                })
            }
            DType::DtypeBfloat16 => {
                let (values, _) = self.data.as_chunks::<2>();
                numbers(serializer, values, |&value| {
                    bf16::from_le_bytes(value).to_f32()
                })
            }
            DType::DtypeInt8 | DType::DtypeBinary => {
                numbers(serializer, &self.data, |&value| i8::from_le_bytes([value]))
            }
            DType::DtypeUint8 | DType::DtypeUbinary => numbers(serializer, &self.data, |&b| b),
        }
    }
}

fn numbers<S: Serializer, T, N: Serialize>(
    serializer: S,
    values: &[T],
    number: impl Fn(&T) -> N,
) -> Result<S::Ok, S::Error> {
    let mut sequence = serializer.serialize_seq(Some(values.len()))?;
    for value in values {
        sequence.serialize_element(&number(value))?;
    }
    sequence.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(dtype: DType, data: &'static [u8], encoding: Encoding) -> String {
        let tensor = Tensor {
            data: Bytes::from_static(data),
            dtype: dtype.into(),
            shape: vec![2, 1],
        };
        serde_json::to_string(&rows(&tensor, 2, encoding)).unwrap()
    }

    #[test]
    fn every_type_as_numbers() {
        let float32 = [0, 0, 0x80, 0x3f, 0xcd, 0xcc, 0xcc, 0x3d];
        let data = Box::leak(Box::new(float32));
        assert_eq!(
            written(DType::DtypeFloat32, data, Encoding::Numbers),
            "[[1.0],[0.1]]"
        );
        let halves = [0, 0x3c, 0, 0xc0];
        let data = Box::leak(Box::new(halves));
        assert_eq!(
            written(DType::DtypeFloat16, data, Encoding::Numbers),
            "[[1.0],[-2.0]]"
        );
        let bytes = b"\x80\x7f";
        assert_eq!(
            written(DType::DtypeInt8, bytes, Encoding::Numbers),
            "[[-128],[127]]"
        );
        assert_eq!(
            written(DType::DtypeBinary, bytes, Encoding::Numbers),
            "[[-128],[127]]"
        );
        assert_eq!(
            written(DType::DtypeUbinary, bytes, Encoding::Numbers),
            "[[128],[127]]"
        );
    }

    #[test]
    fn base64_is_the_bytes() {
        let found = written(
            DType::DtypeUint8,
            b"\x01\x02\x03\x04\x05\x06",
            Encoding::Base64,
        );
        assert_eq!(found, r#"["AQID","BAUG"]"#);
    }
}
