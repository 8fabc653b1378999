//! Logits become scores.

use crate::engine::Activation;

impl Activation {
    /// Turns a row of logits into scores, in place.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "scores are float32 on the wire"
    )]
    pub fn apply(self, row: &mut [f32]) {
        match self {
            Self::Identity => {}
            Self::Sigmoid => {
                for value in row {
                    *value = (1.0 / (1.0 + (-f64::from(*value)).exp())) as f32;
                }
            }
            Self::Softmax => {
                let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let power = |value: f32| (f64::from(value) - f64::from(max)).exp();
                let sum: f64 = row.iter().map(|&value| power(value)).sum();
                for value in row {
                    *value = (power(*value) / sum) as f32;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied<const N: usize>(activation: Activation, mut row: [f32; N]) -> [f32; N] {
        activation.apply(&mut row);
        row
    }

    #[test]
    fn sigmoid() {
        assert_eq!(
            applied(Activation::Sigmoid, [0.0, 1000.0, -1000.0]),
            [0.5, 1.0, 0.0]
        );
        assert!((applied(Activation::Sigmoid, [1.0])[0] - 0.731_058_6).abs() < 1e-7);
    }

    #[test]
    fn softmax() {
        assert_eq!(applied(Activation::Softmax, [2.0, 2.0]), [0.5, 0.5]);
        let row = applied(Activation::Softmax, [1000.0, 1001.0, -1000.0]);
        assert!(
            (row[0] - 0.268_941_43).abs() < 1e-7
                && (row[1] - 0.731_058_6).abs() < 1e-7
                && row[2] == 0.0
        );
    }

    #[test]
    fn identity() {
        assert_eq!(applied(Activation::Identity, [-3.5, 7.0]), [-3.5, 7.0]);
    }
}
