//! How near two vectors are.

use crate::engine::Similarity;

/// Independent sums, so that the compiler can keep them in one vector register.
const LANES: usize = 8;

impl Similarity {
    /// Similarity of two vectors of equal length; larger is nearer. Cosine with a vector of zeros is 0.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "scores are float32 on the wire"
    )]
    pub fn between(self, a: &[f32], b: &[f32]) -> f32 {
        let similarity = match self {
            Self::Dot => dot(a, b),
            Self::Cosine => {
                let lengths = (dot(a, a) * dot(b, b)).sqrt();
                if lengths > 0.0 {
                    (dot(a, b) / lengths).clamp(-1.0, 1.0)
                } else {
                    0.0
                }
            }
            Self::Euclidean => -sum(a, b, |x, y| (x - y) * (x - y)).sqrt(),
            Self::Manhattan => -sum(a, b, |x, y| (x - y).abs()),
        };
        similarity as f32
    }
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    sum(a, b, |x, y| x * y)
}

/// Sum of `term(a[i], b[i])`: products of float32 in float64 neither overflow nor lose digits.
fn sum(a: &[f32], b: &[f32], term: impl Fn(f64, f64) -> f64) -> f64 {
    let mut lanes = [0.0; LANES];
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest = a_chunks.remainder().iter().zip(b_chunks.remainder());
    let rest: f64 = rest.map(|(&x, &y)| term(x.into(), y.into())).sum();
    for (x, y) in a_chunks.zip(b_chunks) {
        for lane in 0..LANES {
            lanes[lane] += term(x[lane].into(), y[lane].into());
        }
    }
    lanes.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: [f32; 11] = [1.0, -2.0, 3.0, 0.5, 0.25, 4.0, -1.0, 2.0, 8.0, -3.0, 0.5];
    const B: [f32; 11] = [2.0, 1.0, -1.0, 4.0, 8.0, 0.5, 3.0, -0.5, 0.25, 2.0, -4.0];

    fn plain(term: impl Fn(f64, f64) -> f64) -> f64 {
        A.iter()
            .zip(&B)
            .map(|(&x, &y)| term(x.into(), y.into()))
            .sum()
    }

    #[test]
    fn equals_the_plain_sums() {
        let dot = plain(|x, y| x * y);
        let lengths =
            (A.iter().map(|x| x * x).sum::<f32>() * B.iter().map(|x| x * x).sum::<f32>()).sqrt();
        let cases = [
            (Similarity::Dot, dot),
            (Similarity::Cosine, dot / f64::from(lengths)),
            (Similarity::Euclidean, -plain(|x, y| (x - y).powi(2)).sqrt()),
            (Similarity::Manhattan, -plain(|x, y| (x - y).abs())),
        ];
        for (similarity, expected) in cases {
            let found = f64::from(similarity.between(&A, &B));
            assert!(
                (found - expected).abs() < 1e-6,
                "{similarity:?}: {found} is not {expected}"
            );
        }
    }

    #[test]
    fn cosine_of_nothing_is_zero_and_of_itself_one() {
        assert_eq!(Similarity::Cosine.between(&[0.0; 3], &[1.0, 2.0, 3.0]), 0.0);
        assert_eq!(Similarity::Cosine.between(&A, &A), 1.0);
        assert_eq!(Similarity::Cosine.between(&[1e30; 9], &[1e30; 9]), 1.0);
    }
}
