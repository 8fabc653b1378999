//! What an answer tells beside its results: times, tokens, what was cut, what failed.

use std::fmt::Write as _;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use tulip_proto::v1::{InputRole, ItemError, Timings, TruncationReport, TruncationSide, Usage};

/// Of one answer, gathered over all calls that it took.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Report {
    pub(crate) usage: Usage,
    pub(crate) timings: Timings,
    /// Tokenization in this process.
    pub(crate) gateway_tokenize: Duration,
    pub(crate) truncations: Vec<TruncationReport>,
    pub(crate) item_errors: Vec<ItemError>,
    pub(crate) fingerprint: String,
    /// `cpu` or `gpu`.
    pub(crate) device: &'static str,
    pub(crate) items: usize,
    pub(crate) characters: usize,
}

impl Report {
    /// Adds a call that ran beside the others: tokens add up, times are those of the slowest.
    pub(crate) fn add(&mut self, other: Self) {
        self.usage.input_tokens += other.usage.input_tokens;
        self.usage.padding_tokens += other.usage.padding_tokens;
        self.usage.sequences += other.usage.sequences;
        let (ours, theirs) = (&mut self.timings, other.timings);
        ours.tokenize_us = ours.tokenize_us.max(theirs.tokenize_us);
        ours.queue_us = ours.queue_us.max(theirs.queue_us);
        ours.compute_us = ours.compute_us.max(theirs.compute_us);
        ours.total_us = ours.total_us.max(theirs.total_us);
        self.gateway_tokenize = self.gateway_tokenize.max(other.gateway_tokenize);
        self.truncations.extend(other.truncations);
        self.item_errors.extend(other.item_errors);
        self.items += other.items;
        self.characters += other.characters;
        if self.fingerprint.is_empty() {
            self.fingerprint = other.fingerprint;
            self.device = other.device;
        }
    }

    /// One sentence for each cut and each failure, as `meta.warnings` of Cohere carries them.
    pub(crate) fn warnings(&self, item: &str) -> Vec<String> {
        let cuts = self.truncations.iter().map(|cut| sentence(cut, item));
        let failures = self.item_errors.iter();
        let failures = failures.map(|failed| format!("no result: {}", failed.message));
        cuts.chain(failures).collect()
    }

    /// TEI's timing headers, `Server-Timing`, and headers for what was cut or failed.
    pub(crate) fn write_headers(&self, headers: &mut HeaderMap, total: Duration) {
        let tokenize = micros(self.timings.tokenize_us) + self.gateway_tokenize;
        let queue = micros(self.timings.queue_us);
        let compute = micros(self.timings.compute_us);
        for (name, time) in [
            ("x-total-time", total),
            ("x-tokenization-time", tokenize),
            ("x-queue-time", queue),
            ("x-inference-time", compute),
            ("x-compute-time", total),
        ] {
            put(headers, name, HeaderValue::from(whole_ms(time)));
        }
        put(
            headers,
            "x-compute-type",
            HeaderValue::from_static(self.device),
        );
        put(headers, "x-compute-tokens", self.usage.input_tokens.into());
        put(
            headers,
            "x-compute-characters",
            (self.characters as u64).into(),
        );
        let timing = format!(
            "total;dur={:.3}, tokenize;dur={:.3}, queue;dur={:.3}, compute;dur={:.3}",
            ms(total),
            ms(tokenize),
            ms(queue),
            ms(compute)
        );
        put_text(headers, "server-timing", &timing);
        put_text(headers, "x-model-fingerprint", &self.fingerprint);
        put_text(headers, "x-truncated", &self.truncated());
        let failed = self.item_errors.iter().map(|error| error.index);
        put_text(
            headers,
            "x-item-errors",
            &listed(failed.map(|index| index.to_string())),
        );
    }

    /// `0:812>510` is input 0, at least 812 tokens given, 510 used.
    fn truncated(&self) -> String {
        listed(self.truncations.iter().map(|cut| {
            let what = match cut.role() {
                InputRole::Query => "query".to_owned(),
                _ => cut.index.to_string(),
            };
            format!("{what}:{}>{}", cut.tokens_given, cut.tokens_used)
        }))
    }
}

/// Headers have limits everywhere on their way.
const MAX_LISTED: usize = 64;

fn listed(entries: impl ExactSizeIterator<Item = String>) -> String {
    let more = entries.len().saturating_sub(MAX_LISTED);
    let mut text = entries.take(MAX_LISTED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        // Writing to a string cannot fail.
        let _ = write!(text, ", and {more} more");
    }
    text
}

fn sentence(cut: &TruncationReport, item: &str) -> String {
    let what = match cut.role() {
        InputRole::Query => "query".to_owned(),
        _ => format!("{item}[{}]", cut.index),
    };
    let side = match cut.side() {
        TruncationSide::Left => "the beginning was",
        _ => "the end was",
    };
    format!(
        "{what} was truncated: {} of at least {} tokens were used, {side} cut off",
        cut.tokens_used, cut.tokens_given
    )
}

fn put(headers: &mut HeaderMap, name: &'static str, value: HeaderValue) {
    headers.insert(HeaderName::from_static(name), value);
}

fn put_text(headers: &mut HeaderMap, name: &'static str, text: &str) {
    if let (false, Ok(value)) = (text.is_empty(), HeaderValue::from_str(text)) {
        put(headers, name, value);
    }
}

fn micros(us: u64) -> Duration {
    Duration::from_micros(us)
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
