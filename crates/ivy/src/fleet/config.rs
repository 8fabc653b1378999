//! Options of the fleet, checked before anything is connected.

use std::time::Duration;

use crate::hedge::HedgeConfig;
use crate::replica::connection::ReplicaTls;
use crate::resolve::ReplicaName;

/// Replicas, and how work is spread over them.
#[derive(Debug, Clone)]
pub struct FleetConfig {
    /// Where the replicas are; a name with several addresses means them all.
    pub replicas: Vec<ReplicaName>,
    /// TLS towards the replicas; none = plain.
    pub tls: Option<ReplicaTls>,
    /// With one model: refuse requests that name another.
    pub strict_model_name: bool,
    /// Replicas at the most, over all names.
    pub max_replicas: usize,
    /// Calls of this gateway in flight at one replica at the most.
    pub max_calls_per_replica: usize,
    /// Time to connect.
    pub connect_timeout: Duration,
    /// Time to answer a probe.
    pub probe_timeout: Duration,
    /// Time to look a name up.
    pub resolve_timeout: Duration,
    /// Time to send the tokenizer, once for each model.
    pub model_timeout: Duration,
    /// How often a replica in use is asked whether it still serves the same.
    pub probe_interval: Duration,
    /// Longest pause between two attempts to get a replica back.
    pub max_backoff: Duration,
    /// Steps that fail one after the other until a replica is ejected.
    pub eject_after: u32,
    /// How often names are looked up.
    pub resolve_interval: Duration,
    /// How long a request waits for a replica when the last one has just gone.
    pub wait_for_replica: Duration,
    /// How requests are cut.
    pub split: SplitConfig,
    /// Times that one piece of work is sent at the most, the first one included.
    pub max_attempts: u32,
    /// Retries for each call, on average.
    pub retry_ratio: f64,
    /// Retries that may come at once, as when a replica dies.
    pub retry_reserve: u32,
    /// Second calls for late work; none = off.
    pub hedge: Option<HedgeConfig>,
}

/// How requests are cut into chunks, in tokens with special tokens and query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitConfig {
    /// Smaller chunks cost more in calls than they gain.
    pub min_chunk_tokens: u64,
    /// Larger chunks make a late replica expensive.
    pub max_chunk_tokens: u64,
    /// Chunks of one request at one replica at the same time: one computes, one is on its way.
    pub chunks_in_flight: usize,
}

impl Default for SplitConfig {
    fn default() -> Self {
        Self {
            min_chunk_tokens: 2_048,
            max_chunk_tokens: 65_536,
            chunks_in_flight: 2,
        }
    }
}

impl Default for FleetConfig {
    fn default() -> Self {
        Self {
            replicas: Vec::new(),
            tls: None,
            strict_model_name: false,
            max_replicas: 256,
            max_calls_per_replica: 1_024,
            connect_timeout: Duration::from_millis(500),
            probe_timeout: Duration::from_secs(2),
            resolve_timeout: Duration::from_secs(2),
            model_timeout: Duration::from_secs(30),
            probe_interval: Duration::from_secs(5),
            max_backoff: Duration::from_secs(1),
            eject_after: 5,
            resolve_interval: Duration::from_secs(5),
            wait_for_replica: Duration::from_millis(500),
            split: SplitConfig::default(),
            max_attempts: 3,
            retry_ratio: 0.2,
            retry_reserve: 200,
            hedge: None,
        }
    }
}

/// An option that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{option}: {message}")]
pub struct FleetConfigError {
    /// Name of the option, as in the struct.
    pub option: &'static str,
    /// What is wrong, with limit and value.
    pub message: String,
}

impl FleetConfig {
    /// Checks every option.
    ///
    /// # Errors
    /// The first option that cannot be.
    pub fn validate(&self) -> Result<(), FleetConfigError> {
        let wrong = |option, message: String| Err(FleetConfigError { option, message });
        let at_least_one: [(&'static str, u64); 7] = [
            ("max_replicas", self.max_replicas as u64),
            ("max_calls_per_replica", self.max_calls_per_replica as u64),
            ("eject_after", self.eject_after.into()),
            ("max_attempts", self.max_attempts.into()),
            ("min_chunk_tokens", self.split.min_chunk_tokens),
            ("max_chunk_tokens", self.split.max_chunk_tokens),
            ("chunks_in_flight", self.split.chunks_in_flight as u64),
        ];
        for (option, value) in at_least_one {
            if value == 0 {
                return wrong(option, "must be at least 1, is 0".into());
            }
        }
        if self.replicas.is_empty() {
            return wrong("replicas", "is empty, at least 1 is needed".into());
        }
        let (min, max) = (self.split.min_chunk_tokens, self.split.max_chunk_tokens);
        if min > max {
            let message = format!("must be at most max_chunk_tokens={max}, is {min}");
            return wrong("min_chunk_tokens", message);
        }
        let times = [
            ("connect_timeout", self.connect_timeout),
            ("probe_timeout", self.probe_timeout),
            ("resolve_timeout", self.resolve_timeout),
            ("model_timeout", self.model_timeout),
            ("probe_interval", self.probe_interval),
            ("max_backoff", self.max_backoff),
            ("resolve_interval", self.resolve_interval),
        ];
        for (option, time) in times {
            if time.is_zero() {
                return wrong(option, "must be above 0".into());
            }
        }
        if !(0.0..=1.0).contains(&self.retry_ratio) {
            let message = format!("must be between 0 and 1, is {}", self.retry_ratio);
            return wrong("retry_ratio", message);
        }
        if let Some(hedge) = &self.hedge {
            if !hedge.factor.is_finite() || hedge.factor < 1.0 {
                let message = format!("must be at least 1, is {}", hedge.factor);
                return wrong("hedge.factor", message);
            }
            if !(0.0..=1.0).contains(&hedge.ratio) {
                let message = format!("must be between 0 and 1, is {}", hedge.ratio);
                return wrong("hedge.ratio", message);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> FleetConfig {
        FleetConfig {
            replicas: vec!["replica:50051".parse().unwrap()],
            ..FleetConfig::default()
        }
    }

    #[test]
    fn defaults_are_valid() {
        assert_eq!(config().validate(), Ok(()));
    }

    #[test]
    fn what_cannot_be_is_named() {
        let refused = |change: fn(&mut FleetConfig)| {
            let mut config = config();
            change(&mut config);
            config.validate().unwrap_err().to_string()
        };
        let cases = [
            (
                refused(|config| config.replicas.clear()),
                "replicas: is empty, at least 1 is needed",
            ),
            (
                refused(|config| config.max_attempts = 0),
                "max_attempts: must be at least 1, is 0",
            ),
            (
                refused(|config| config.split.max_chunk_tokens = 5),
                "min_chunk_tokens: must be at most max_chunk_tokens=5, is 2048",
            ),
            (
                refused(|config| config.max_backoff = Duration::ZERO),
                "max_backoff: must be above 0",
            ),
            (
                refused(|config| config.retry_ratio = 1.5),
                "retry_ratio: must be between 0 and 1, is 1.5",
            ),
            (
                refused(|config| {
                    config.hedge = Some(HedgeConfig {
                        factor: 0.5,
                        ..HedgeConfig::default()
                    });
                }),
                "hedge.factor: must be at least 1, is 0.5",
            ),
        ];
        for (found, expected) in cases {
            assert_eq!(found, expected);
        }
    }
}
