//! An engine without a model: rows are a pure function of the token ids, time and faults are scripted.
//!
//! The whole serving path runs on it, in tests and in benches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::batch::{Batch, BatchLayout};
use crate::engine::{
    Activation, Engine, GraphCounters, ModelInfo, Outputs, Prompts, Side, Similarity, StepError,
    Task, Templates,
};
use crate::lazy_tensor::{Event, LazyTensor};
use crate::sequence::Sequence;

/// What the next step does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FakeStep {
    /// Returns rows.
    Rows,
    /// Raises: the batch fails.
    Fail(String),
    /// Breaks the engine for good.
    Fatal(String),
    /// Returns rows, but the event reports a broken device.
    FatalEvent(String),
    /// Returns NaN in the row of this index.
    NotFinite(usize),
    /// Returns fewer rows than sequences.
    TooFewRows,
}

/// How long a step keeps the pretended device busy.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FakeLatency {
    /// For each step.
    pub step: Duration,
    /// For each token.
    pub token: Duration,
}

/// Holds steps back until a test lets them go.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<(Mutex<GateState>, Condvar)>);

#[derive(Debug, Default)]
struct GateState {
    permits: usize,
    open: bool,
    waiting: usize,
}

impl Gate {
    /// Lets `steps` more steps pass.
    pub fn release(&self, steps: usize) {
        self.0.0.lock().permits += steps;
        self.0.1.notify_all();
    }

    /// Lets all steps pass from now on.
    pub fn open(&self) {
        self.0.0.lock().open = true;
        self.0.1.notify_all();
    }

    /// Blocks until a step waits at the gate.
    pub fn wait_for_step(&self) {
        let mut state = self.0.0.lock();
        while state.waiting == 0 {
            self.0.1.wait(&mut state);
        }
    }

    fn pass(&self) {
        let mut state = self.0.0.lock();
        state.waiting += 1;
        self.0.1.notify_all();
        while !state.open && state.permits == 0 {
            self.0.1.wait(&mut state);
        }
        state.waiting -= 1;
        state.permits = state.permits.saturating_sub(1);
    }
}

/// Lengths of the sequences of each step so far.
pub type StepLog = Arc<Mutex<Vec<Vec<usize>>>>;

/// See the module.
#[derive(Debug)]
pub struct FakeEngine {
    info: ModelInfo,
    script: VecDeque<FakeStep>,
    latency: Option<FakeLatency>,
    gate: Option<Gate>,
    busy_until: Option<Instant>,
    log: Option<StepLog>,
    rows: Option<fn(&Sequence) -> Vec<f32>>,
    graphs: Option<GraphCounters>,
}

impl FakeEngine {
    /// An engine for `info` whose steps are ready at birth.
    #[must_use]
    pub fn new(info: ModelInfo) -> Self {
        Self {
            info,
            script: VecDeque::new(),
            latency: None,
            gate: None,
            busy_until: None,
            log: None,
            rows: None,
            graphs: None,
        }
    }

    /// The next steps, in order; afterwards all return rows.
    #[must_use]
    pub fn with_script(mut self, script: impl IntoIterator<Item = FakeStep>) -> Self {
        self.script = script.into_iter().collect();
        self
    }

    /// Results come that much later, one step after the other, as on a device.
    #[must_use]
    pub fn with_latency(mut self, latency: FakeLatency) -> Self {
        self.latency = Some(latency);
        self
    }

    /// Steps wait at the gate before they begin.
    #[must_use]
    pub fn with_gate(mut self, gate: Gate) -> Self {
        self.gate = Some(gate);
        self
    }

    /// Steps are written down.
    #[must_use]
    pub fn with_log(mut self, log: StepLog) -> Self {
        self.log = Some(log);
        self
    }

    /// Sequences get these rows, `output_width` values each, not those of [`FakeEngine::row`].
    #[must_use]
    pub fn with_rows(mut self, rows: fn(&Sequence) -> Vec<f32>) -> Self {
        self.rows = Some(rows);
        self
    }

    /// Steps count as replayed, beside what `before` has.
    #[must_use]
    pub fn with_graphs(mut self, before: GraphCounters) -> Self {
        self.graphs = Some(before);
        self
    }

    /// A model description for tests: `width` values a row, `tokenizer_json` as given.
    #[must_use]
    pub fn model_info(task: Task, width: usize, tokenizer_json: &[u8]) -> ModelInfo {
        let labels = match task {
            Task::Embed => Vec::new(),
            Task::Score | Task::Classify => {
                (0..width).map(|label| format!("LABEL_{label}")).collect()
            }
        };
        ModelInfo {
            name: "fake".into(),
            architecture: "FakeModel".into(),
            task,
            output_width: width,
            max_sequence_tokens: 512,
            vocab_size: 30_522,
            pooling: "mean".into(),
            normalized: task == Task::Embed,
            similarity: Similarity::Cosine,
            activation: if task == Task::Classify {
                Activation::Softmax
            } else {
                Activation::Sigmoid
            },
            labels,
            positive_label: usize::from(task == Task::Classify),
            outputs: Outputs::default(),
            matryoshka_dimensions: Vec::new(),
            prompts: Prompts::default(),
            templates: Templates::default(),
            truncation_side: Side::Right,
            strip: true,
            lower_case: false,
            dtype: "float32".into(),
            device: "fake".into(),
            fingerprint: "fake-fingerprint".into(),
            tokenizer_json: tokenizer_json.into(),
            layout: BatchLayout::default(),
        }
    }

    /// The row that a step returns for `sequence`: of length 1 for normalized models, else
    /// values in -4..4. A pure function of token ids and token types.
    #[must_use]
    pub fn row(info: &ModelInfo, sequence: &Sequence) -> Vec<f32> {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ u64::from(sequence.second_segment_start);
        for &id in &sequence.token_ids {
            hash = (hash ^ u64::from(id)).wrapping_mul(0x0100_0000_01b3);
        }
        let mut row: Vec<f32> = (0..info.output_width)
            .map(|_| {
                hash = hash
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                ((hash >> 40) as f32 / (1_u64 << 24) as f32 - 0.5) * 8.0
            })
            .collect();
        if info.normalized {
            let length = row.iter().map(|value| value * value).sum::<f32>().sqrt();
            row.iter_mut().for_each(|value| *value /= length);
        }
        row
    }

    /// When the pretended device finishes this batch.
    fn finish(&mut self, latency: FakeLatency, num_tokens: usize) -> (Instant, Duration) {
        let duration = latency.step + latency.token * u32::try_from(num_tokens).unwrap_or(u32::MAX);
        let now = Instant::now();
        let finish = self.busy_until.map_or(now, |busy| busy.max(now)) + duration;
        self.busy_until = Some(finish);
        (finish, duration)
    }
}

impl Engine for FakeEngine {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn graphs(&self) -> Option<GraphCounters> {
        self.graphs
    }

    fn step(&mut self, batch: &Batch) -> Result<LazyTensor, StepError> {
        if let Some(gate) = &self.gate {
            gate.pass();
        }
        if let Some(log) = &self.log {
            log.lock()
                .push(batch.sequences().map(Sequence::num_tokens).collect());
        }
        if let Some(graphs) = &mut self.graphs {
            graphs.replayed_steps += 1;
        }
        let step = self.script.pop_front().unwrap_or(FakeStep::Rows);
        let width = self.info.output_width;
        let mut rows = Vec::with_capacity(batch.num_sequences() * width);
        for sequence in batch.sequences() {
            if self.info.layout.token_rows {
                // Each token by itself, so that tests can tell rows apart.
                let tokens = sequence.token_ids.iter().map(|&id| vec![id].into());
                rows.extend(tokens.flat_map(|token| Self::row(&self.info, &token)));
            } else if let Some(row) = self.rows {
                rows.extend(row(sequence));
            } else {
                rows.extend(Self::row(&self.info, sequence));
            }
        }
        let mut num_rows = rows.len() / width.max(1);
        let mut broken = None;
        match step {
            FakeStep::Rows => {}
            FakeStep::Fail(message) => return Err(StepError::Batch(message)),
            FakeStep::Fatal(message) => return Err(StepError::Fatal(message)),
            FakeStep::FatalEvent(message) => broken = Some(message),
            FakeStep::NotFinite(row) => {
                if let Some(value) = rows.get_mut(row * width) {
                    *value = f32::NAN;
                }
            }
            FakeStep::TooFewRows => num_rows -= 1,
        }
        let latency = match (self.latency, &broken) {
            (Some(latency), _) => latency,
            (None, Some(_)) => FakeLatency::default(),
            (None, None) => return LazyTensor::ready(Box::new(rows), num_rows, width),
        };
        let (finish, duration) = self.finish(latency, batch.num_tokens());
        let event = Box::new(FakeEvent { finish, broken });
        LazyTensor::pending(Box::new(rows), num_rows, width, event, Some(duration))
    }
}

/// Completes at a point in time.
struct FakeEvent {
    finish: Instant,
    broken: Option<String>,
}

impl Event for FakeEvent {
    fn is_complete(&self) -> Result<bool, StepError> {
        match &self.broken {
            Some(message) => Err(StepError::Fatal(message.clone())),
            None => Ok(Instant::now() >= self.finish),
        }
    }

    fn wait(&self) -> Result<(), StepError> {
        while !self.is_complete()? {
            std::thread::sleep(self.finish.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }
}
