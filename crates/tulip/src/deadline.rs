//! The deadline of a call: gRPC's own timeout, `grpc-timeout` on the wire.

use std::time::Duration;

use http::HeaderMap;
use tokio::time::Instant;

use crate::error::{Error, Result};

/// Longer timeouts are none: no call lasts that long, and the sum with the clock cannot overflow.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// When a call arrived and until when somebody waits for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    pub(crate) arrived: Instant,
    pub(crate) at: Option<Instant>,
}

impl Deadline {
    /// Reads the timeout of a call whose headers arrive now.
    pub(crate) fn of_call(headers: &HeaderMap) -> Result<Self> {
        let arrived = Instant::now();
        let Some(value) = headers.get("grpc-timeout") else {
            return Ok(Self { arrived, at: None });
        };
        let timeout = value.to_str().ok().and_then(parse).ok_or_else(|| {
            Error::invalid(
                "grpc-timeout",
                format!("must be digits and one of H M S m u n, is {value:?}"),
            )
        })?;
        if timeout.is_zero() {
            return Err(Error::DeadlineExceeded { waited_ms: 0 });
        }
        let at = if timeout < FOREVER {
            arrived.checked_add(timeout)
        } else {
            None
        };
        Ok(Self { arrived, at })
    }

    /// Waits for `work`, but not beyond the deadline; dropped work is cancelled work.
    pub(crate) async fn limit<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        match self.at {
            None => work.await,
            Some(at) => match tokio::time::timeout_at(at, work).await {
                Ok(result) => result,
                Err(_) => Err(self.exceeded()),
            },
        }
    }

    /// Waits until the deadline has passed: without one for ever.
    pub(crate) async fn passed(&self) -> Error {
        match self.at {
            None => std::future::pending().await,
            Some(at) => {
                tokio::time::sleep_until(at).await;
                self.exceeded()
            }
        }
    }

    pub(crate) fn exceeded(&self) -> Error {
        let waited_ms = u64::try_from(self.arrived.elapsed().as_millis()).unwrap_or(u64::MAX);
        Error::DeadlineExceeded { waited_ms }
    }
}

/// `TimeoutValue TimeoutUnit` of the gRPC specification. More than its 8 digits are understood
/// as well: what is meant is plain.
fn parse(value: &str) -> Option<Duration> {
    let unit = value.chars().next_back()?;
    let digits = value.strip_suffix(unit)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Only too many digits can fail here.
    let count: u64 = digits.parse().unwrap_or(u64::MAX);
    match unit {
        'H' => Some(Duration::from_secs(count.saturating_mul(3600))),
        'M' => Some(Duration::from_secs(count.saturating_mul(60))),
        'S' => Some(Duration::from_secs(count)),
        'm' => Some(Duration::from_millis(count)),
        'u' => Some(Duration::from_micros(count)),
        'n' => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(timeout: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-timeout", timeout.parse().unwrap());
        headers
    }

    #[test]
    fn units() {
        let cases = [
            ("2H", Duration::from_secs(7200)),
            ("3M", Duration::from_secs(180)),
            ("4S", Duration::from_secs(4)),
            ("5m", Duration::from_millis(5)),
            ("6u", Duration::from_micros(6)),
            ("7n", Duration::from_nanos(7)),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_timeout_is_refused() {
        for text in ["", "5", "S", "-1S", "+1S", "1.5S", "5x", "5 S", "5é"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        let error = Deadline::of_call(&headers("-5S")).unwrap_err();
        let expected = "grpc-timeout: must be digits and one of H M S m u n, is \"-5S\"";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn absurd_timeouts_are_none() {
        for text in [
            "99999999H",
            "18446744073709551615H",
            "99999999999999999999999S",
        ] {
            assert_eq!(
                Deadline::of_call(&headers(text)).unwrap().at,
                None,
                "{text}"
            );
        }
    }

    #[test]
    fn zero_has_passed_already() {
        let error = Deadline::of_call(&headers("0n")).unwrap_err();
        assert_eq!(error, Error::DeadlineExceeded { waited_ms: 0 });
    }

    #[tokio::test(start_paused = true)]
    async fn work_is_dropped_at_the_deadline() {
        let deadline = Deadline::of_call(&headers("20m")).unwrap();
        let error = deadline
            .limit(std::future::pending::<Result<()>>())
            .await
            .unwrap_err();
        let Error::DeadlineExceeded { waited_ms } = error else {
            panic!("{error}")
        };
        assert!((20..=22).contains(&waited_ms), "{waited_ms}");
    }
}
