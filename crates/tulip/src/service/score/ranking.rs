//! The best documents first.

use std::cmp::Ordering;

/// What one sequence, or a document as the best of its sequences, is worth.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Value {
    /// As answered.
    pub(crate) score: f32,
    /// What documents are ordered by. Of a probability its logit: above about 17 all
    /// probabilities are one float. Else the score.
    pub(crate) order: f32,
}

impl Value {
    /// A value that is not a probability.
    pub(crate) fn plain(score: f32) -> Self {
        Self {
            score,
            order: score,
        }
    }

    /// The better one is less: sorting puts it first.
    pub(crate) fn best_first(&self, other: &Self) -> Ordering {
        // NaN is set aside before. Zeros are equal whatever their sign.
        let compare = |a: f32, b: f32| b.partial_cmp(&a).unwrap_or(Ordering::Equal);
        // Where probabilities are small, they are the finer ones.
        compare(self.order, other.order).then(compare(self.score, other.score))
    }
}

/// Indices of the best documents, best first, ties by index; `top_n` 0 = all.
pub(super) fn ranking(values: &[Value], failed: &[bool], top_n: usize) -> Vec<u32> {
    let indices = (0..).zip(failed).filter(|(_, failed)| !**failed);
    let mut indices: Vec<u32> = indices.map(|(index, _)| index).collect();
    let best_first = |a: &u32, b: &u32| {
        let by_value = values[*a as usize].best_first(&values[*b as usize]);
        by_value.then(a.cmp(b))
    };
    if top_n > 0 && top_n < indices.len() {
        indices.select_nth_unstable_by(top_n, best_first);
        indices.truncate(top_n);
    }
    indices.sort_unstable_by(best_first);
    indices
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(scores: impl IntoIterator<Item = f32>) -> Vec<Value> {
        scores.into_iter().map(Value::plain).collect()
    }

    #[test]
    fn ties_go_by_index_and_failures_are_left_out() {
        let values = plain([0.5, 0.0, 0.9, 0.5, -0.0, 0.9]);
        let mut failed = [false; 6];
        assert_eq!(ranking(&values, &failed, 0), [2, 5, 0, 3, 1, 4]);
        failed[5] = true;
        assert_eq!(ranking(&values, &failed, 0), [2, 0, 3, 1, 4]);
    }

    #[test]
    fn top_n_is_the_beginning_of_the_whole_ranking() {
        let values = plain((0_u16..100).map(|i| f32::from(i * 37 % 11)));
        let failed = [false; 100];
        let all = ranking(&values, &failed, 0);
        for top_n in [1, 2, 10, 50, 99, 100, 1000] {
            assert_eq!(
                ranking(&values, &failed, top_n),
                all[..top_n.min(100)],
                "{top_n}"
            );
        }
    }

    #[test]
    fn what_is_one_float_as_a_probability_is_ordered_by_the_logit() {
        let value = |order, score| Value { score, order };
        let values = [
            value(20.0, 1.0),
            value(30.0, 1.0),
            value(25.0, 1.0),
            value(25.0, 1.0),
            value(-69.0, 1.1e-30),
            value(-69.0, 1.2e-30),
        ];
        assert_eq!(ranking(&values, &[false; 6], 0), [1, 2, 3, 0, 5, 4]);
    }
}
