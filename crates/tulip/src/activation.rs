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

    /// Whether scores are probabilities.
    #[must_use]
    pub fn gives_probabilities(self) -> bool {
        match self {
            Self::Identity => false,
            Self::Sigmoid | Self::Softmax => true,
        }
    }

    /// Of the probability `p` of a label its `ln(p / (1 - p))`, by a row of logits; finite for
    /// finite logits. Where there is one label only, its own logit.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "clamped to float32")]
    pub fn logit(self, row: &[f32], label: usize) -> f32 {
        let logit = row[label];
        if self != Self::Softmax || row.len() == 1 {
            return logit;
        }
        let others = row.iter().enumerate().filter(|(at, _)| *at != label);
        let others = others.map(|(_, &value)| f64::from(value));
        let max = others.clone().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = others.map(|value| (value - max).exp()).sum();
        let odds = f64::from(logit) - max - sum.ln();
        odds.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32
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

    #[test]
    fn logits_are_those_of_the_probabilities() {
        for (activation, row, label) in [
            (Activation::Sigmoid, vec![1.5], 0),
            (Activation::Sigmoid, vec![1.5, -0.5], 1),
            (Activation::Softmax, vec![1.5, -0.5], 1),
            (Activation::Softmax, vec![0.3, 2.0, -1.0], 0),
        ] {
            let logit = f64::from(activation.logit(&row, label));
            let mut probabilities = row.clone();
            activation.apply(&mut probabilities);
            let p = f64::from(probabilities[label]);
            assert!((logit - (p / (1.0 - p)).ln()).abs() < 1e-5, "{row:?}");
        }
        let softmax = |row: &[f32]| Activation::Softmax.logit(row, 1);
        assert_eq!(softmax(&[-10.0, 20.0]), 30.0);
        assert_eq!(softmax(&[f32::MIN, f32::MAX]), f32::MAX);
        assert_eq!(Activation::Softmax.logit(&[7.0], 0), 7.0);
    }
}
