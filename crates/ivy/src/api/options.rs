//! Options that several dialects share, in the words of the wire.

use http::HeaderMap;
use tulip_proto::v1::{Priority, Truncation, TruncationPolicy, TruncationSide};

use crate::error::{Error, Result};

/// Over-long inputs are cut.
pub(crate) fn cut() -> Truncation {
    Truncation {
        policy: TruncationPolicy::Cut.into(),
        ..Truncation::default()
    }
}

/// Over-long inputs lose this end, whatever the model's own side is.
pub(crate) fn cut_at(side: TruncationSide) -> Truncation {
    Truncation {
        side: side.into(),
        ..cut()
    }
}

/// Over-long inputs are errors.
pub(crate) fn refuse() -> Truncation {
    Truncation {
        policy: TruncationPolicy::Error.into(),
        ..Truncation::default()
    }
}

/// Over-long inputs are cut, or are errors.
pub(crate) fn cut_if(cut_them: bool) -> Truncation {
    if cut_them { cut() } else { refuse() }
}

/// Whether over-long inputs are errors.
pub(crate) fn refuses(truncation: &Truncation) -> bool {
    truncation.policy() == TruncationPolicy::Error
}

/// `left` or `right`, however it is written; nothing given = the model's own.
pub(crate) fn side(field: &str, given: Option<&str>) -> Result<TruncationSide> {
    let Some(given) = given else {
        return Ok(TruncationSide::Unspecified);
    };
    if given.eq_ignore_ascii_case("left") {
        Ok(TruncationSide::Left)
    } else if given.eq_ignore_ascii_case("right") {
        Ok(TruncationSide::Right)
    } else {
        let message = format!("must be left or right, is {given:?}");
        Err(Error::invalid(field, message))
    }
}

/// A count of at least `least`; nothing given is 0.
pub(crate) fn count(field: &str, given: Option<i64>, least: u32) -> Result<u32> {
    let Some(given) = given else { return Ok(0) };
    match u32::try_from(given) {
        Ok(count) if count >= least => Ok(count),
        _ if given > 0 => Ok(u32::MAX),
        _ => {
            let message = format!("must be at least {least}, is {given}");
            Err(Error::invalid(field, message))
        }
    }
}

/// A number of dimensions; nothing given is 0. The replica says which numbers may be.
pub(crate) fn dimensions(field: &str, given: Option<i64>) -> Result<u32> {
    let most = i64::from(u32::MAX);
    match given {
        Some(given) if given > most => {
            let message = format!("must be at most {most}, is {given}");
            Err(Error::invalid(field, message))
        }
        given => count(field, given, 1),
    }
}

/// Cohere's and vLLM's numbers: 0 goes first, the rest is bulk. The header is for all dialects.
pub(crate) fn priority(headers: &HeaderMap, given: Option<i64>) -> Result<Priority> {
    if let Some(value) = headers.get("x-priority") {
        return match value.to_str() {
            Ok(word) if word.eq_ignore_ascii_case("interactive") => Ok(Priority::Interactive),
            Ok(word) if word.eq_ignore_ascii_case("bulk") => Ok(Priority::Bulk),
            _ => {
                let message = format!("must be interactive or bulk, is {value:?}");
                Err(Error::invalid("x-priority", message))
            }
        };
    }
    Ok(if given.unwrap_or(0) > 0 {
        Priority::Bulk
    } else {
        Priority::Interactive
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_a_floor_and_no_ceiling() {
        assert_eq!(count("top_n", None, 1), Ok(0));
        assert_eq!(count("top_n", Some(3), 1), Ok(3));
        assert_eq!(count("top_n", Some(1 << 40), 1), Ok(u32::MAX));
        for given in [0, -1, i64::MIN] {
            let expected = format!("top_n: must be at least 1, is {given}");
            assert_eq!(
                count("top_n", Some(given), 1).unwrap_err().to_string(),
                expected
            );
        }
        assert_eq!(count("top_n", Some(0), 0), Ok(0));
    }

    #[test]
    fn dimensions_are_not_taken_for_others() {
        assert_eq!(dimensions("dimensions", None), Ok(0));
        assert_eq!(dimensions("dimensions", Some(7)), Ok(7));
        let error = dimensions("dimensions", Some((1 << 32) + 2)).unwrap_err();
        let expected = "dimensions: must be at most 4294967295, is 4294967298";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn the_header_wins() {
        let mut headers = HeaderMap::new();
        assert_eq!(priority(&headers, Some(0)), Ok(Priority::Interactive));
        assert_eq!(priority(&headers, Some(5)), Ok(Priority::Bulk));
        headers.insert("x-priority", "Bulk".parse().unwrap());
        assert_eq!(priority(&headers, None), Ok(Priority::Bulk));
        headers.insert("x-priority", "low".parse().unwrap());
        assert!(priority(&headers, None).is_err());
    }
}
