//! The best documents first.

use std::cmp::Ordering;

/// Indices of the best documents, best first, ties by index; `top_n` 0 = all.
pub(super) fn ranking(scores: &[f32], failed: &[bool], top_n: usize) -> Vec<u32> {
    let indices = (0..).zip(failed).filter(|(_, failed)| !**failed);
    let mut indices: Vec<u32> = indices.map(|(index, _)| index).collect();
    let best_first = |a: &u32, b: &u32| {
        let by_score = scores[*b as usize].partial_cmp(&scores[*a as usize]);
        by_score.unwrap_or(Ordering::Equal).then(a.cmp(b))
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

    #[test]
    fn ties_go_by_index_and_failures_are_left_out() {
        let scores = [0.5, 0.0, 0.9, 0.5, -0.0, 0.9];
        let mut failed = [false; 6];
        assert_eq!(ranking(&scores, &failed, 0), [2, 5, 0, 3, 1, 4]);
        failed[5] = true;
        assert_eq!(ranking(&scores, &failed, 0), [2, 0, 3, 1, 4]);
    }

    #[test]
    fn top_n_is_the_beginning_of_the_whole_ranking() {
        let scores: Vec<f32> = (0_u16..100).map(|i| f32::from(i * 37 % 11)).collect();
        let failed = [false; 100];
        let all = ranking(&scores, &failed, 0);
        for top_n in [1, 2, 10, 50, 99, 100, 1000] {
            assert_eq!(
                ranking(&scores, &failed, top_n),
                all[..top_n.min(100)],
                "{top_n}"
            );
        }
    }
}
