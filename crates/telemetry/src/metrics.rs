//! Metrics of the process: one recorder, read as text in Prometheus' format.

use std::sync::OnceLock;
use std::time::Duration;

use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

/// How often [`upkeep`] should be called: what histograms have gathered waits in memory until then.
pub const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Seconds: from a call within the host to a large request.
const SECONDS: [f64; 16] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0,
];
/// Tokens, sequences, chunks.
const COUNTS: [f64; 12] = [
    1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 65536.0, 262_144.0,
];

static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();

/// Begins to record. Returns whether the process records here, now or since before: `false` when
/// somebody else had set up a recorder.
pub fn install() -> bool {
    if HANDLE.get().is_some() {
        return true;
    }
    let recorder = recorder();
    let handle = recorder.handle();
    // Of two at the same time one wins; the other's recorder is dropped with its handle.
    if metrics::set_global_recorder(recorder).is_ok() {
        return HANDLE.set(handle).is_ok();
    }
    HANDLE.get().is_some()
}

/// All metrics as text in version 0.0.4 of Prometheus' format; `None` when nothing is recorded here.
#[must_use]
pub fn render() -> Option<String> {
    HANDLE.get().map(PrometheusHandle::render)
}

/// Sums up what histograms have gathered.
pub fn upkeep() {
    if let Some(handle) = HANDLE.get() {
        handle.run_upkeep();
    }
}

fn recorder() -> PrometheusRecorder {
    let builder = PrometheusBuilder::new();
    let buckets: [(&str, &[f64]); 4] = [
        ("_seconds", &SECONDS),
        ("_tokens", &COUNTS),
        ("_sequences", &COUNTS),
        ("_chunks", &COUNTS),
    ];
    let builder = buckets
        .into_iter()
        .try_fold(builder, |builder, (suffix, bounds)| {
            builder.set_buckets_for_metric(Matcher::Suffix(suffix.into()), bounds)
        });
    // Only empty lists of bounds are refused.
    builder.unwrap_or_default().build_recorder()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_have_buckets_by_their_unit() {
        let recorder = recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            metrics::counter!("calls_total", "code" => "OK").increment(3);
            metrics::histogram!("call_seconds").record(0.003);
            metrics::histogram!("step_tokens").record(300.0);
        });
        let text = handle.render();
        for line in [
            "calls_total{code=\"OK\"} 3",
            "call_seconds_bucket{le=\"0.0025\"} 0",
            "call_seconds_bucket{le=\"0.005\"} 1",
            "step_tokens_bucket{le=\"256\"} 0",
            "step_tokens_bucket{le=\"1024\"} 1",
            "step_tokens_count 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }

    #[test]
    fn nothing_is_rendered_before_something_is_recorded() {
        // No other test of this crate installs the recorder.
        assert_eq!(render(), None);
        assert!(install() && install());
        metrics::counter!("rendered_total").increment(1);
        upkeep();
        assert!(render().unwrap().contains("rendered_total 1"));
    }
}
