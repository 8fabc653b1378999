//! The model that is served: what every call needs once it is loaded.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokenization::{LoadError, Pool, Tokenizer};
use tokio_util::sync::CancellationToken;
use tulip_proto::v1::{GraphReport, LoadReport, Timings, Usage};

use super::parts::Spent;
use crate::config::ServerConfig;
use crate::deadline::Deadline;
use crate::dispatch::Dispatch;
use crate::engine::{GraphCounters, ModelInfo, Output, Outputs, Task};
use crate::error::{Error, Result};
use crate::job::{JobOutput, Priority, Submission};
use crate::load::Load;
use crate::metrics::{self, Answered};
use crate::prompt::check_templates;
use crate::sequence::Sequence;
use crate::text_encoder::load_tokenizer;

/// Jobs that may wait for each tokenizer thread; what comes then waits in its own call.
const JOBS_PER_TOKENIZER_THREAD: usize = 64;

/// Why a model cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// Its tokenizer cannot be used.
    #[error(transparent)]
    Tokenizer(#[from] LoadError),
    /// The system gives no tokenizer threads.
    #[error("tokenizer_threads={threads}: {source}")]
    Threads {
        /// Threads wanted.
        threads: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// The description contradicts itself.
    #[error("model: {0}")]
    Description(String),
    /// A template of single texts cannot be used.
    #[error("{0}")]
    Template(String),
}

/// One loaded model.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) info: Arc<ModelInfo>,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) pool: Pool,
    pub(crate) dispatch: Dispatch,
    pub(crate) config: Arc<ServerConfig>,
    /// SHA-256 of `tokenizer.json`, hexadecimal.
    pub(crate) tokenizer_sha256: String,
    /// Cancelled when no more requests are taken.
    pub(crate) stopping: CancellationToken,
}

impl Serving {
    pub(crate) fn new(
        info: ModelInfo,
        dispatch: Dispatch,
        config: Arc<ServerConfig>,
        stopping: CancellationToken,
    ) -> Result<Self, ModelError> {
        check(&info)?;
        let tokenizer = Arc::new(load_tokenizer(&info)?);
        let threads = config.tokenizer_threads;
        let pool = Pool::new(
            threads,
            "tulip-tokenizer",
            threads * JOBS_PER_TOKENIZER_THREAD,
        )
        .map_err(|source| ModelError::Threads { threads, source })?;
        let mut tokenizer_sha256 = String::new();
        for byte in Sha256::digest(&info.tokenizer_json) {
            // Writing to a string cannot fail.
            let _ = write!(tokenizer_sha256, "{byte:02x}");
        }
        Ok(Self {
            info: Arc::new(info),
            tokenizer,
            pool,
            dispatch,
            config,
            tokenizer_sha256,
            stopping,
        })
    }

    /// Whether the name in a request means this model.
    pub(crate) fn check_model(&self, requested: &str) -> Result<()> {
        let served = &self.info.name;
        if requested.is_empty() || requested == served || !self.config.strict_model_name {
            return Ok(());
        }
        Err(Error::UnknownModel {
            requested: requested.into(),
            served: served.clone(),
        })
    }

    /// The load at this moment.
    pub(crate) fn load(&self) -> LoadReport {
        self.report(&self.dispatch.load())
    }

    fn report(&self, load: &Load) -> LoadReport {
        load_report(load, self.stopping.is_cancelled())
    }

    /// Runs the sequences; no sequences are no work.
    pub(crate) async fn compute(
        &self,
        sequences: Vec<Sequence>,
        priority: Priority,
        deadline: &Deadline,
    ) -> Result<JobOutput> {
        if sequences.is_empty() {
            return Ok(JobOutput {
                rows: Vec::new(),
                starts: vec![0],
                width: self.info.output_width,
                not_finite: Vec::new(),
                queue: Duration::ZERO,
                compute: Duration::ZERO,
                padding_tokens: 0,
            });
        }
        let num_rows = if self.info.layout.token_rows {
            sequences.iter().map(Sequence::num_tokens).sum()
        } else {
            sequences.len()
        };
        let submission = Submission {
            sequences,
            priority,
            deadline: deadline.at,
        };
        let output = self.dispatch.submit(submission).await?;
        let width = self.info.output_width;
        if output.width != width || output.rows.len() != num_rows * width {
            return Err(Error::Internal(format!(
                "the engine gave {} values in rows of {}, {num_rows} rows of {width} are expected",
                output.rows.len(),
                output.width
            )));
        }
        Ok(output)
    }
}

/// What later code relies on.
fn check(info: &ModelInfo) -> Result<(), ModelError> {
    let wrong = |message: String| Err(ModelError::Description(message));
    if info.output_width == 0 {
        return wrong("output_width must be at least 1, is 0".into());
    }
    let (width, num_labels) = (info.output_width, info.labels.len());
    if num_labels != 0 && num_labels != width {
        return wrong(format!("{num_labels} labels for output_width={width}"));
    }
    if info.task != Task::Embed && info.positive_label >= width {
        return wrong(format!(
            "positive_label={} for output_width={width}",
            info.positive_label
        ));
    }
    let Outputs {
        kinds,
        dimensions,
        dense_start,
        ..
    } = &info.outputs;
    if kinds.is_empty() || dense_start + dimensions > width {
        return wrong(format!(
            "outputs {kinds:?} with {dimensions} dimensions from {dense_start} for \
             output_width={width}"
        ));
    }
    if !info.layout.token_rows && (kinds.len() > 1 || kinds[0] == Output::Tokens) {
        return wrong(format!("outputs {kinds:?} need a row for each token"));
    }
    if let Some(name) = &info.prompts.default_name
        && !info.prompts.named.contains_key(name)
    {
        return wrong(format!(
            "the default prompt {name:?} is not among the prompts"
        ));
    }
    check_templates(info).map_err(ModelError::Template)
}

/// Counts and times of one Score or Embed request, while it is worked on.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) method: &'static str,
    pub(crate) items: usize,
    pub(crate) input_tokens: u64,
    pub(crate) sequences: usize,
    pub(crate) tokenize: Duration,
}

/// What every answer carries beside its results.
#[derive(Debug)]
pub(crate) struct Reports {
    pub(crate) usage: Usage,
    pub(crate) timings: Timings,
    pub(crate) load: LoadReport,
}

impl Account {
    pub(crate) fn close(
        &self,
        serving: &Serving,
        deadline: &Deadline,
        spent: &Spent,
        item_errors: usize,
    ) -> Reports {
        let load = serving.dispatch.load();
        let answered = Answered {
            method: self.method,
            items: self.items,
            item_errors,
            input_tokens: self.input_tokens,
            tokenize: self.tokenize,
            queue: spent.queue,
        };
        metrics::answered(&answered, &load);
        Reports {
            usage: Usage {
                input_tokens: self.input_tokens,
                padding_tokens: spent.padding_tokens,
                sequences: wire_u32(self.sequences),
            },
            timings: Timings {
                tokenize_us: whole_us(self.tokenize),
                queue_us: whole_us(spent.queue),
                compute_us: whole_us(spent.compute),
                total_us: whole_us(deadline.arrived.elapsed()),
            },
            load: serving.report(&load),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate, far below 2^64"
)]
fn load_report(load: &Load, draining: bool) -> LoadReport {
    LoadReport {
        queued_tokens: load.queued_tokens,
        running_tokens: load.running_tokens,
        max_queued_tokens: load.max_queued_tokens,
        queued_sequences: wire_u32(load.queued_sequences),
        steps_in_flight: wire_u32(load.steps_in_flight),
        draining,
        tokens_per_second: load.tokens_per_second as u64,
        graphs: load.graphs.as_ref().map(graph_report),
    }
}

fn graph_report(counters: &GraphCounters) -> GraphReport {
    let wire = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    GraphReport {
        graphs: wire(counters.captures),
        failed_captures: wire(counters.failed_captures),
        eager_steps: counters.eager_steps,
        replayed_steps: counters.replayed_steps,
        bytes: counters.bytes,
    }
}

/// Counts are far below 2³²: a message has at most 2³² bytes.
pub(crate) fn wire_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn whole_us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_engine::FakeEngine;

    fn refused(change: impl FnOnce(&mut ModelInfo)) -> String {
        let mut info = FakeEngine::model_info(Task::Classify, 2, b"");
        assert!(check(&info).is_ok());
        change(&mut info);
        check(&info).unwrap_err().to_string()
    }

    #[test]
    fn contradictions_are_named() {
        let cases = [
            (
                refused(|info| info.output_width = 0),
                "output_width must be at least 1, is 0",
            ),
            (
                refused(|info| info.output_width = 3),
                "2 labels for output_width=3",
            ),
            (
                refused(|info| info.positive_label = 2),
                "positive_label=2 for output_width=2",
            ),
            (
                refused(|info| info.prompts.default_name = Some("sts".into())),
                "the default prompt \"sts\" is not among the prompts",
            ),
            (
                refused(|info| info.outputs.kinds = vec![Output::Dense, Output::Sparse]),
                "outputs [Dense, Sparse] need a row for each token",
            ),
            (
                refused(|info| info.outputs.dimensions = 3),
                "outputs [Dense] with 3 dimensions from 0 for output_width=2",
            ),
        ];
        for (found, expected) in cases {
            assert_eq!(found, format!("model: {expected}"));
        }
    }
}
