//! Who gets the next piece of work: expected times, power of two choices, and the fair share.

use std::sync::Arc;

use tokio::time::Instant;

use crate::replica::{Replica, Standing};

/// Rate where none is known of any replica; only the proportions matter then.
const GUESSED_RATE: f64 = 100_000.0;

/// A replica that takes work, with what is expected of it. Times in seconds.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) replica: Arc<Replica>,
    /// Tokens per second; the mean of the others where it is not known.
    pub(crate) rate: f64,
    /// Whether `rate` was seen.
    pub(crate) known: bool,
    /// Until it has done what it was sent already.
    pub(crate) wait: f64,
    /// Tokens that may wait there.
    pub(crate) max_queued_tokens: u64,
    /// Its queue was full a moment ago.
    full: bool,
}

impl Candidate {
    /// Seconds until it would have done `tokens` more.
    pub(crate) fn completion(&self, tokens: u64) -> f64 {
        self.wait + tokens as f64 / self.rate
    }
}

/// Those that take work now; such that were full a moment ago only where there is no other.
pub(crate) fn candidates<'a>(
    replicas: impl IntoIterator<Item = &'a Arc<Replica>>,
    now: Instant,
) -> Vec<Candidate> {
    let standing = |replica: &'a Arc<Replica>| Some((replica, replica.standing(now)?));
    let standings: Vec<(&Arc<Replica>, Standing)> =
        replicas.into_iter().filter_map(standing).collect();
    let rates: Vec<f64> = standings.iter().filter_map(|(_, s)| s.rate).collect();
    let mean = if rates.is_empty() {
        GUESSED_RATE
    } else {
        rates.iter().sum::<f64>() / rates.len() as f64
    };
    let candidate = |(replica, standing): (&Arc<Replica>, Standing)| {
        let rate = standing.rate.unwrap_or(mean);
        Candidate {
            replica: Arc::clone(replica),
            rate,
            known: standing.rate.is_some(),
            wait: standing.ahead / rate,
            max_queued_tokens: standing.max_queued_tokens,
            full: standing.full,
        }
    };
    let mut candidates: Vec<Candidate> = standings.into_iter().map(candidate).collect();
    if candidates.iter().any(|candidate| !candidate.full) {
        candidates.retain(|candidate| !candidate.full);
    }
    candidates
}

/// Power of two choices: of two at random the one that is expected to finish `tokens` sooner.
/// Two see most of what there is to gain, and gateways that know the same do not all run to the
/// same replica.
pub(crate) fn pick(candidates: &[Candidate], tokens: u64) -> Option<&Candidate> {
    let (first, second) = match candidates.len() {
        0 => return None,
        1 => return candidates.first(),
        count => {
            let first = rand::random_range(0..count);
            let second = rand::random_range(0..count - 1);
            (first, second + usize::from(second >= first))
        }
    };
    let (first, second) = (&candidates[first], &candidates[second]);
    if second.completion(tokens) < first.completion(tokens) {
        Some(second)
    } else {
        Some(first)
    }
}

/// When everything is done, in seconds, if `tokens` are shared so that all finish at the same
/// time: those that are busy longer than that get nothing.
pub(crate) fn level(candidates: &[Candidate], tokens: u64) -> f64 {
    let mut by_wait: Vec<(f64, f64)> = candidates.iter().map(|c| (c.wait, c.rate)).collect();
    by_wait.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    // Σ rate·(level − wait) = tokens over those that take part.
    let (mut rates, mut head_start, mut level) = (0.0, 0.0, f64::INFINITY);
    for (wait, rate) in by_wait {
        if wait >= level {
            break;
        }
        rates += rate;
        head_start += rate * wait;
        level = (tokens as f64 + head_start) / rates;
    }
    level
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::connection::Target;

    fn candidate(rate: f64, wait: f64) -> Candidate {
        let target = Target {
            address: ([127, 0, 0, 1], 1).into(),
            host: "replica".into(),
        };
        Candidate {
            replica: Replica::new(target, 1),
            rate,
            known: true,
            wait,
            max_queued_tokens: u64::MAX,
            full: false,
        }
    }

    #[test]
    fn the_level_is_where_all_finish_together() {
        // 3:1, both idle: 400 tokens take one second.
        let idle = [candidate(300.0, 0.0), candidate(100.0, 0.0)];
        assert_eq!(level(&idle, 400), 1.0);
        // The slow one is busy for longer than the fast one needs for it all.
        let busy = [candidate(300.0, 0.0), candidate(100.0, 5.0)];
        assert_eq!(level(&busy, 300), 1.0);
        // It takes part from its own time on.
        assert_eq!(level(&busy, 1900), 6.0);
        assert_eq!(level(&[], 1), f64::INFINITY);
    }

    #[test]
    fn of_two_the_sooner_one_is_picked() {
        let two = [candidate(100.0, 1.0), candidate(100.0, 0.5)];
        for _ in 0..100 {
            assert_eq!(pick(&two, 10).unwrap().wait, 0.5);
        }
        // A fast one with some work is sooner than an idle slow one.
        let two = [candidate(1000.0, 0.1), candidate(10.0, 0.0)];
        for _ in 0..100 {
            assert_eq!(pick(&two, 100).unwrap().rate, 1000.0);
        }
        assert!(pick(&[], 1).is_none());
    }

    #[test]
    fn among_many_the_longest_wait_is_never_picked_and_all_others_are() {
        let many: Vec<Candidate> = (0..5)
            .map(|wait| candidate(100.0, f64::from(wait)))
            .collect();
        let mut seen = [0_u32; 5];
        for _ in 0..2000 {
            seen[pick(&many, 1).unwrap().wait as usize] += 1;
        }
        assert_eq!(seen[4], 0);
        assert!(seen[..4].iter().all(|&count| count > 0), "{seen:?}");
        assert!(seen[0] > seen[3], "{seen:?}");
    }
}
