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

/// Limits of a request's sequences; none is above the model's own, which hold where the request
/// does not say.
pub(crate) fn truncation(
    given: Option<&v1::Truncation>,
    own: TruncationOptions,
) -> Result<TruncationOptions> {
    let mut options = own;
    let Some(given) = given else {
        return Ok(options);
    };
    options.policy = match enum_value(|| "truncation.policy".into(), given.policy)? {
        v1::TruncationPolicy::Unspecified | v1::TruncationPolicy::Cut => OverlongPolicy::Cut,
        v1::TruncationPolicy::Error => OverlongPolicy::Error,
        v1::TruncationPolicy::ChunkMax => {
            let message = "is CHUNK_MAX, which is for the documents of Score";
            return Err(Error::invalid("truncation.policy", message));
        }
    };
    options.side = match enum_value(|| "truncation.side".into(), given.side)? {
        v1::TruncationSide::Unspecified => options.side,
        v1::TruncationSide::Right => Side::Right,
        v1::TruncationSide::Left => Side::Left,
    };
    options.pair = match enum_value(|| "truncation.pair".into(), given.pair)? {
        v1::PairTruncation::Unspecified | v1::PairTruncation::ProtectQuery => {
            PairTruncation::ProtectQuery
        }
        v1::PairTruncation::LongestFirst => PairTruncation::LongestFirst,
    };
    if let Some(max_tokens) = ceiling(given.max_tokens) {
        options.max_tokens = max_tokens.min(options.max_tokens);
    }
    options.max_query_tokens = ceiling(given.max_query_tokens);
    options.max_document_tokens = ceiling(given.max_document_tokens);
    Ok(options)
}

/// Refuses a ceiling that leaves no token of any text beside the special ones.
pub(crate) fn check_max_tokens(
    given: Option<&v1::Truncation>,
    special_tokens: usize,
) -> Result<()> {
    match given.and_then(|given| ceiling(given.max_tokens)) {
        Some(max_tokens) if max_tokens <= special_tokens => {
            let least = special_tokens + 1;
            let message = format!(
                "is {max_tokens}, must be at least {least}: {special_tokens} special tokens and one of the text"
            );
            Err(Error::invalid("truncation.max_tokens", message))
        }
        _ => Ok(()),
    }
}

/// How long documents are read in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunking {
    /// Tokens that neighbours share; none = an eighth of a chunk.
    pub(crate) overlap: Option<usize>,
}

/// As [`truncation`], for requests whose documents may be read in parts. The query of such a
/// request is cut as by CUT.
pub(crate) fn score_truncation(
    given: Option<&v1::Truncation>,
    own: TruncationOptions,
) -> Result<(TruncationOptions, Option<Chunking>)> {
    let chunked =
        |given: &&v1::Truncation| given.policy == i32::from(v1::TruncationPolicy::ChunkMax);
    let Some(chunked) = given.filter(chunked) else {
        return Ok((truncation(given, own)?, None));
    };
    let as_cut = v1::Truncation {
        policy: v1::TruncationPolicy::Cut.into(),
        ..*chunked
    };
    let options = truncation(Some(&as_cut), own)?;
    if options.pair == PairTruncation::LongestFirst {
        let message = "is LONGEST_FIRST, but with CHUNK_MAX the query is the same in all chunks";
        return Err(Error::invalid("truncation.pair", message));
    }
    let overlap = ceiling(chunked.chunk_overlap_tokens);
    Ok((options, Some(Chunking { overlap })))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> TruncationOptions {
        TruncationOptions::to(512)
    }

    #[test]
    fn unknown_values_are_named() {
        let error = priority(7).unwrap_err();
        assert_eq!(error.to_string(), "priority: 7 is no value of Priority");
    }

    #[test]
    fn truncation_defaults() {
        let expected = TruncationOptions::to(512);
        assert_eq!(truncation(None, own()), Ok(expected.clone()));
        assert_eq!(
            truncation(Some(&v1::Truncation::default()), own()),
            Ok(expected)
        );
    }

    #[test]
    fn the_models_side_is_the_default() {
        let left = TruncationOptions {
            side: Side::Left,
            ..own()
        };
        let side = |side: v1::TruncationSide| {
            let given = v1::Truncation {
                side: side.into(),
                ..v1::Truncation::default()
            };
            truncation(Some(&given), left.clone()).unwrap().side
        };
        assert_eq!(truncation(None, left.clone()).unwrap().side, Side::Left);
        assert_eq!(side(v1::TruncationSide::Unspecified), Side::Left);
        assert_eq!(side(v1::TruncationSide::Left), Side::Left);
        assert_eq!(side(v1::TruncationSide::Right), Side::Right);
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
        let options = truncation(Some(&given), own()).unwrap();
        let expected = TruncationOptions {
            policy: OverlongPolicy::Error,
            side: Side::Left,
            pair: PairTruncation::LongestFirst,
            max_tokens: 100,
            max_query_tokens: Some(20),
            max_document_tokens: None,
            max_request_tokens: None,
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn the_models_limit_is_the_ceiling() {
        let given = v1::Truncation {
            max_tokens: 100_000,
            ..v1::Truncation::default()
        };
        assert_eq!(truncation(Some(&given), own()).unwrap().max_tokens, 512);
    }

    #[test]
    fn chunking_is_for_documents_with_one_query() {
        let mut given = v1::Truncation {
            policy: v1::TruncationPolicy::ChunkMax.into(),
            max_tokens: 100,
            ..v1::Truncation::default()
        };
        let (options, chunking) = score_truncation(Some(&given), own()).unwrap();
        assert_eq!(options, TruncationOptions::to(100));
        assert_eq!(chunking, Some(Chunking { overlap: None }));
        given.chunk_overlap_tokens = 7;
        let (_, chunking) = score_truncation(Some(&given), own()).unwrap();
        assert_eq!(chunking, Some(Chunking { overlap: Some(7) }));
        let error = truncation(Some(&given), own()).unwrap_err();
        let expected = "truncation.policy: is CHUNK_MAX, which is for the documents of Score";
        assert_eq!(error.to_string(), expected);
        given.pair = v1::PairTruncation::LongestFirst.into();
        assert!(score_truncation(Some(&given), own()).is_err());
        assert_eq!(
            score_truncation(None, own()),
            Ok((TruncationOptions::to(512), None))
        );
    }
}
