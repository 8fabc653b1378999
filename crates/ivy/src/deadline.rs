//! Until when somebody waits for the answer of an HTTP request.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use tokio::time::Instant;

use crate::error::{Error, Result};

/// Milliseconds from now; the second is what Baseten's client sends.
const TIMEOUTS: [&str; 2] = ["x-request-timeout-ms", "request-timeout-ms"];
/// Milliseconds since the epoch; Baseten's client sends it as well.
const DEADLINE: &str = "request-deadline-ms";

/// The deadline of a request that arrived at `arrived`: the earliest that its headers name, or
/// `default` from then; never later than `max` from then.
///
/// # Errors
/// A header holds no whole number, or the time is over.
pub(crate) fn of_request(
    headers: &HeaderMap,
    arrived: Instant,
    default: Duration,
    max: Duration,
) -> Result<Instant> {
    let mut timeout = None;
    for name in TIMEOUTS {
        if let Some(ms) = milliseconds(headers, name)? {
            timeout = earlier(timeout, Duration::from_millis(ms));
        }
    }
    if let Some(at_ms) = milliseconds(headers, DEADLINE)? {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default();
        timeout = earlier(timeout, Duration::from_millis(at_ms).saturating_sub(now));
    }
    match timeout {
        Some(timeout) if timeout.is_zero() => Err(Error::DeadlineExceeded(
            "deadline exceeded on arrival".into(),
        )),
        Some(timeout) => Ok(arrived + timeout.min(max)),
        None => Ok(arrived + default),
    }
}

fn earlier(a: Option<Duration>, b: Duration) -> Option<Duration> {
    Some(a.map_or(b, |a| a.min(b)))
}

fn milliseconds(headers: &HeaderMap, name: &str) -> Result<Option<u64>> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let text = value.to_str().ok().map(str::trim);
    let digits = text.filter(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()));
    match digits {
        // Only too many digits can fail here: for ever.
        Some(digits) => Ok(Some(digits.parse().unwrap_or(u64::MAX))),
        None => Err(Error::invalid(
            name,
            format!("must be a whole number of milliseconds, is {value:?}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeout(headers: &[(&'static str, String)]) -> Result<Duration> {
        let arrived = Instant::now();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        let (default, max) = (Duration::from_secs(60), Duration::from_secs(100));
        of_request(&map, arrived, default, max).map(|at| at - arrived)
    }

    #[test]
    fn the_earliest_counts() {
        assert_eq!(timeout(&[]), Ok(Duration::from_secs(60)));
        let ours = ("x-request-timeout-ms", "250".to_owned());
        let baseten = ("request-timeout-ms", "90000".to_owned());
        assert_eq!(
            timeout(std::slice::from_ref(&ours)),
            Ok(Duration::from_millis(250))
        );
        assert_eq!(
            timeout(std::slice::from_ref(&baseten)),
            Ok(Duration::from_secs(90))
        );
        assert_eq!(timeout(&[ours, baseten]), Ok(Duration::from_millis(250)));
        let long = ("request-timeout-ms", "99999999999999999999999".to_owned());
        assert_eq!(timeout(&[long]), Ok(Duration::from_secs(100)));
    }

    #[test]
    fn a_point_in_time_is_one_too() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let at = (now + Duration::from_secs(20)).as_millis().to_string();
        let found = timeout(&[("request-deadline-ms", at)]).unwrap();
        assert!(found > Duration::from_secs(15) && found <= Duration::from_secs(20));
        let past = timeout(&[("request-deadline-ms", "1000".into())]);
        assert!(matches!(past, Err(Error::DeadlineExceeded(_))));
    }

    #[test]
    fn nonsense_is_named() {
        for value in ["", "-5", "1.5", "soon"] {
            let error = timeout(&[("request-timeout-ms", value.into())]).unwrap_err();
            let expected =
                format!("request-timeout-ms: must be a whole number of milliseconds, is {value:?}");
            assert_eq!(error.to_string(), expected);
        }
    }
}
