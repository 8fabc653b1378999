//! Options of a request, checked and in our own terms.

use tokenization::{OverlongPolicy, PairTruncation, Side, TruncationOptions};
use tulip_proto::v1;

use crate::error::{Error, Result};
use crate::job::Priority;

/// The value of an enum field. Numbers that a newer client knows and we do not are refused:
/// guessing would give a wrong answer.
pub(crate) fn enum_value<E: TryFrom<i32>>(field: impl FnOnce() -> String, value: i32) -> Result<E> {
    E::try_from(value).map_err(|_| {
        let name = std::any::type_name::<E>()
            .rsplit("::")
            .next()
            .unwrap_or_default();
        Error::invalid(field(), format!("{value} is no value of {name}"))
    })
}

/// The lane of a request.
pub(crate) fn priority(value: i32) -> Result<Priority> {
    Ok(match enum_value(|| "priority".into(), value)? {
        v1::Priority::Unspecified | v1::Priority::Interactive => Priority::Interactive,
        v1::Priority::Bulk => Priority::Bulk,
    })
}

/// Limits of a request's sequences; none is above the model's own.
pub(crate) fn truncation(
    given: Option<&v1::Truncation>,
    max_sequence_tokens: usize,
) -> Result<TruncationOptions> {
    let mut options = TruncationOptions::to(max_sequence_tokens);
    let Some(given) = given else {
        return Ok(options);
    };
    options.policy = match enum_value(|| "truncation.policy".into(), given.policy)? {
        v1::TruncationPolicy::Unspecified | v1::TruncationPolicy::Cut => OverlongPolicy::Cut,
        v1::TruncationPolicy::Error => OverlongPolicy::Error,
        v1::TruncationPolicy::ChunkMax => {
            let message = "truncation.policy: CHUNK_MAX is not supported by this model";
            return Err(Error::WrongTask(message.into()));
        }
    };
    options.side = match enum_value(|| "truncation.side".into(), given.side)? {
        v1::TruncationSide::Unspecified | v1::TruncationSide::Right => Side::Right,
        v1::TruncationSide::Left => Side::Left,
    };
    options.pair = match enum_value(|| "truncation.pair".into(), given.pair)? {
        v1::PairTruncation::Unspecified | v1::PairTruncation::ProtectQuery => {
            PairTruncation::ProtectQuery
        }
        v1::PairTruncation::LongestFirst => PairTruncation::LongestFirst,
    };
    if let Some(max_tokens) = ceiling(given.max_tokens) {
        options.max_tokens = max_tokens.min(max_sequence_tokens);
    }
    options.max_query_tokens = ceiling(given.max_query_tokens);
    options.max_document_tokens = ceiling(given.max_document_tokens);
    Ok(options)
}

/// 0 on the wire = none.
fn ceiling(value: u32) -> Option<usize> {
    (value > 0).then_some(value as usize)
}

/// Documents or inputs of a request: at least one, not too many.
pub(crate) fn check_count(field: &str, count: usize, max_items_per_request: usize) -> Result<()> {
    if count == 0 {
        return Err(Error::invalid(field, "is empty, at least 1 is needed"));
    }
    if count > max_items_per_request {
        let message =
            format!("has {count} entries, limit max_items_per_request={max_items_per_request}");
        return Err(Error::invalid(field, message));
    }
    Ok(())
}

/// An instruction needs a template with a place for it.
pub(crate) fn check_instruction(instruction: &str) -> Result<()> {
    if instruction.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(
        "instruction",
        "this model's template has no place for an instruction",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_are_named() {
        let error = priority(7).unwrap_err();
        assert_eq!(error.to_string(), "priority: 7 is no value of Priority");
    }

    #[test]
    fn truncation_defaults() {
        let expected = TruncationOptions::to(512);
        assert_eq!(truncation(None, 512), Ok(expected.clone()));
        assert_eq!(
            truncation(Some(&v1::Truncation::default()), 512),
            Ok(expected)
        );
    }

    #[test]
    fn truncation_as_given() {
        let given = v1::Truncation {
            policy: v1::TruncationPolicy::Error.into(),
            side: v1::TruncationSide::Left.into(),
            pair: v1::PairTruncation::LongestFirst.into(),
            max_tokens: 100,
            max_query_tokens: 20,
            max_document_tokens: 0,
            chunk_overlap_tokens: 0,
        };
        let options = truncation(Some(&given), 512).unwrap();
        let expected = TruncationOptions {
            policy: OverlongPolicy::Error,
            side: Side::Left,
            pair: PairTruncation::LongestFirst,
            max_tokens: 100,
            max_query_tokens: Some(20),
            max_document_tokens: None,
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn the_models_limit_is_the_ceiling() {
        let given = v1::Truncation {
            max_tokens: 100_000,
            ..v1::Truncation::default()
        };
        assert_eq!(truncation(Some(&given), 512).unwrap().max_tokens, 512);
    }
}
