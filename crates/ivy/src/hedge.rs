//! A second call for work that takes much longer than expected: the first answer counts.

use std::time::Duration;

/// When a second call is made. Off unless configured: it costs work twice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HedgeConfig {
    /// After this many times the expected time, at least 1.
    pub factor: f64,
    /// But not before this time.
    pub min_delay: Duration,
    /// Second calls for each first one at the most, 0 to 1.
    pub ratio: f64,
}

impl Default for HedgeConfig {
    fn default() -> Self {
        Self {
            factor: 2.0,
            min_delay: Duration::from_millis(50),
            ratio: 0.05,
        }
    }
}

impl HedgeConfig {
    /// How long a call that is expected to take `expected` is waited for alone.
    pub(crate) fn delay(&self, expected: Duration) -> Duration {
        let seconds = expected.as_secs_f64() * self.factor;
        // What is expected to take for ever is never hedged.
        let delay = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        delay.max(self.min_delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_is_a_multiple_with_a_floor() {
        let config = HedgeConfig::default();
        let ms = Duration::from_millis;
        assert_eq!(config.delay(ms(100)), ms(200));
        assert_eq!(config.delay(ms(10)), ms(50));
        assert_eq!(config.delay(Duration::MAX), Duration::MAX);
    }
}
