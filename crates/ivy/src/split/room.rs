//! What can never wait at any replica is refused before any of it is sent.

use tonic::Status;

use super::weight::Weight;

/// Compares what a request has for certain with the queues that there are, each of `limits`
/// tokens: whether or not they are full now.
///
/// # Errors
/// `INVALID_ARGUMENT` where one item is more than the largest queue, or all of them are more than
/// all queues together.
pub(crate) fn check(items: &str, weights: &[Weight], limits: &[u64]) -> Result<(), Status> {
    let Some(largest) = limits.iter().max() else {
        return Ok(());
    };
    let certain = || weights.iter().map(|weight| weight.certain_tokens);
    if let Some((index, tokens)) = certain().enumerate().find(|(_, tokens)| tokens > largest) {
        let message =
            format!("{items}[{index}]: has {tokens} tokens, limit max_queued_tokens={largest}");
        return Err(Status::invalid_argument(message));
    }
    let tokens: u64 = certain().sum();
    let all = limits
        .iter()
        .fold(0, |all: u64, limit| all.saturating_add(*limit));
    if tokens <= all {
        return Ok(());
    }
    let replicas = match limits.len() {
        1 => String::new(),
        count => format!(" of {count} replicas together"),
    };
    let message = format!("request: has {tokens} tokens, limit max_queued_tokens={all}{replicas}");
    Err(Status::invalid_argument(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(tokens: &[u64], limits: &[u64]) -> Result<(), String> {
        let weight = |&certain_tokens: &u64| Weight {
            certain_tokens,
            ..Weight::default()
        };
        let weights: Vec<Weight> = tokens.iter().map(weight).collect();
        check("documents", &weights, limits).map_err(|status| status.message().to_owned())
    }

    #[test]
    fn what_fits_nowhere_is_refused_with_its_limit() {
        let refused = |tokens: &[u64], limits: &[u64]| checked(tokens, limits).unwrap_err();
        assert_eq!(
            refused(&[5, 13, 14], &[10, 12]),
            "documents[1]: has 13 tokens, limit max_queued_tokens=12"
        );
        assert_eq!(
            refused(&[5, 6], &[10]),
            "request: has 11 tokens, limit max_queued_tokens=10"
        );
        assert_eq!(
            refused(&[8, 8, 7], &[10, 12]),
            "request: has 23 tokens, limit max_queued_tokens=22 of 2 replicas together"
        );
    }

    #[test]
    fn what_may_fit_goes_on() {
        assert_eq!(checked(&[8, 8, 6], &[10, 12]), Ok(()));
        assert_eq!(checked(&[u64::MAX], &[u64::MAX]), Ok(()), "it never said");
        assert_eq!(checked(&[8], &[]), Ok(()), "nobody is known");
    }
}
