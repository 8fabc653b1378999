//! Options of the server, checked before a port is bound.

use std::net::SocketAddr;
use std::time::Duration;

use crate::cost::CostModel;

/// Limits of admission and batching.
#[derive(Debug, Clone, PartialEq)]
pub struct SchedulerConfig {
    /// Cost of one step, in token equivalents; a single longer sequence runs alone.
    pub max_batch_cost: u64,
    /// Tokens of one step at the most.
    pub max_batch_tokens: usize,
    /// An interactive request of which so many tokens or fewer are left is one step all the same,
    /// instead of a full one and a small one behind it. Up to `max_batch_tokens` = never.
    pub max_whole_request_tokens: usize,
    /// Sequences of one step at the most.
    pub max_batch_sequences: usize,
    /// Tokens that may wait; more is refused.
    pub max_queued_tokens: u64,
    /// Share of the steps' tokens that bulk work keeps while interactive work waits, 0 to 1.
    pub bulk_share: f64,
    /// How sequences are priced.
    pub cost: CostModel,
    /// Steps handed to the engine and not finished.
    pub max_steps_in_flight: usize,
    /// How long the engine thread stays awake after a request or a step, and a network thread (one
    /// for four cores at the most) after its own calls, so that the next one need not wake them.
    /// Costs a busy core each; zero = sleep at once.
    pub spin: Duration,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            max_batch_cost: 16_384,
            max_batch_tokens: 16_384,
            max_whole_request_tokens: 0,
            max_batch_sequences: 512,
            max_queued_tokens: 4_194_304,
            bulk_share: 0.1,
            cost: CostModel::TOKENS,
            max_steps_in_flight: 2,
            spin: Duration::ZERO,
        }
    }
}

impl SchedulerConfig {
    /// Cost of the largest step that is no single sequence, in token equivalents.
    pub(crate) fn max_step_cost(&self) -> u64 {
        let whole = self.max_whole_request_tokens.max(self.max_batch_tokens) as u128;
        let cost = u128::from(self.max_batch_cost) * whole / self.max_batch_tokens.max(1) as u128;
        u64::try_from(cost).unwrap_or(u64::MAX)
    }
}

/// Options of the gRPC server.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerConfig {
    /// Where to listen; port 0 takes any.
    pub grpc_address: SocketAddr,
    /// Documents or inputs of one request at the most.
    pub max_items_per_request: usize,
    /// Bytes of one message at the most.
    pub max_message_bytes: usize,
    /// Requests in flight on one stream at the most; more wait in the transport.
    pub max_requests_per_stream: usize,
    /// Threads over which connections are spread, and as many workers for what belongs to none.
    pub worker_threads: usize,
    /// Tokenizer threads.
    pub tokenizer_threads: usize,
    /// How long drain waits for what is in flight.
    pub drain_timeout: Duration,
    /// Refuse requests that name another model than the one served.
    pub strict_model_name: bool,
    /// Admission and batching.
    pub scheduler: SchedulerConfig,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            grpc_address: SocketAddr::from(([127, 0, 0, 1], 50051)),
            max_items_per_request: 10_000,
            max_message_bytes: 64 << 20,
            max_requests_per_stream: 128,
            worker_threads: 2,
            tokenizer_threads: 2,
            drain_timeout: Duration::from_secs(30),
            strict_model_name: false,
            scheduler: SchedulerConfig::default(),
        }
    }
}

/// An option that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{option}: {message}")]
pub struct ConfigError {
    /// Name of the option, as in the struct.
    pub option: &'static str,
    /// What is wrong, with limit and value.
    pub message: String,
}

impl ServerConfig {
    /// Checks every option.
    ///
    /// # Errors
    /// The first option that cannot be.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let scheduler = &self.scheduler;
        let positive: [(&'static str, u64); 9] = [
            ("max_items_per_request", self.max_items_per_request as u64),
            ("max_message_bytes", self.max_message_bytes as u64),
            (
                "max_requests_per_stream",
                self.max_requests_per_stream as u64,
            ),
            ("worker_threads", self.worker_threads as u64),
            ("tokenizer_threads", self.tokenizer_threads as u64),
            ("max_batch_cost", scheduler.max_batch_cost),
            ("max_batch_tokens", scheduler.max_batch_tokens as u64),
            ("max_batch_sequences", scheduler.max_batch_sequences as u64),
            ("max_queued_tokens", scheduler.max_queued_tokens),
        ];
        for (option, value) in positive {
            if value == 0 {
                return Err(ConfigError {
                    option,
                    message: "must be at least 1, is 0".into(),
                });
            }
        }
        if !(1..=2).contains(&scheduler.max_steps_in_flight) {
            return Err(ConfigError {
                option: "max_steps_in_flight",
                message: format!("must be 1 or 2, is {}", scheduler.max_steps_in_flight),
            });
        }
        if !(0.0..=1.0).contains(&scheduler.bulk_share) {
            return Err(ConfigError {
                option: "bulk_share",
                message: format!("must be between 0 and 1, is {}", scheduler.bulk_share),
            });
        }
        if !scheduler.cost.attention.is_finite() || scheduler.cost.attention < 0.0 {
            return Err(ConfigError {
                option: "attention",
                message: format!(
                    "must be finite and not negative, is {}",
                    scheduler.cost.attention
                ),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        assert_eq!(ServerConfig::default().validate(), Ok(()));
    }

    #[test]
    fn a_zero_names_its_option() {
        let config = ServerConfig {
            max_items_per_request: 0,
            ..ServerConfig::default()
        };
        let error = config.validate().unwrap_err();
        assert_eq!(
            error.to_string(),
            "max_items_per_request: must be at least 1, is 0"
        );
    }
}
