//! The sequences of a request in parts, so that the rows of a large one are never all in memory:
//! a row for each token, or one as wide as a vocabulary, is thousands of times the text.

use std::sync::Arc;
use std::time::Duration;
use std::vec::IntoIter;

use super::forms::Rows;
use super::serving::Serving;
use crate::deadline::Deadline;
use crate::engine::ModelInfo;
use crate::error::Result;
use crate::job::{JobOutput, Priority};
use crate::sequence::Sequence;

/// Values of the rows of one part: 64 MiB. One sequence may have more.
const MAX_VALUES: usize = 16 << 20;

/// Times and padding of the parts so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) queue: Duration,
    pub(crate) compute: Duration,
    pub(crate) padding_tokens: u64,
}

impl Spent {
    pub(crate) fn add(&mut self, output: &JobOutput) {
        self.queue += output.queue;
        self.compute += output.compute;
        self.padding_tokens += output.padding_tokens;
    }
}

/// What the model gave for some of the sequences.
#[derive(Debug)]
pub(crate) struct Part {
    /// Index of its first sequence.
    pub(crate) first: usize,
    output: JobOutput,
    /// Of each sequence, where the model has a row for each token.
    token_ids: Vec<Vec<u32>>,
}

impl Part {
    pub(crate) fn num_sequences(&self) -> usize {
        self.output.starts.len() - 1
    }

    /// The rows of one of its sequences, counted from 0.
    pub(crate) fn rows<'a>(&'a self, info: &'a ModelInfo, sequence: usize) -> Rows<'a> {
        Rows {
            info,
            rows: self.output.of(sequence),
            token_ids: self.token_ids.get(sequence).map_or(&[], Vec::as_slice),
        }
    }

    /// Whether the model gave numbers for it.
    pub(crate) fn is_finite(&self, sequence: usize) -> bool {
        self.output.not_finite.binary_search(&sequence).is_err()
    }
}

/// Runs the sequences of one request, part after part.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    serving: &'a Serving,
    left: IntoIter<Sequence>,
    done: usize,
    priority: Priority,
    deadline: &'a Deadline,
    pub(crate) spent: Spent,
}

impl<'a> Parts<'a> {
    pub(crate) fn new(
        serving: &'a Serving,
        sequences: Vec<Sequence>,
        priority: Priority,
        deadline: &'a Deadline,
    ) -> Self {
        Self {
            serving,
            left: sequences.into_iter(),
            done: 0,
            priority,
            deadline,
            spent: Spent::default(),
        }
    }

    /// The next part; `None` after the last one.
    ///
    /// # Errors
    /// As of [`Serving::compute`].
    pub(crate) async fn next(&mut self) -> Result<Option<Arc<Part>>> {
        let info = &self.serving.info;
        let count = part_length(info, self.left.as_slice());
        if count == 0 {
            return Ok(None);
        }
        let sequences: Vec<Sequence> = self.left.by_ref().take(count).collect();
        // Weights of tokens are told apart by their ids.
        let token_ids = if info.layout.token_rows {
            let ids = sequences.iter().map(|sequence| sequence.token_ids.clone());
            ids.collect()
        } else {
            Vec::new()
        };
        let output = self
            .serving
            .compute(sequences, self.priority, self.deadline)
            .await?;
        self.spent.add(&output);
        let first = self.done;
        self.done += count;
        Ok(Some(Arc::new(Part {
            first,
            output,
            token_ids,
        })))
    }
}

/// How many sequences from the start are one part; at least one, if there is one.
fn part_length(info: &ModelInfo, sequences: &[Sequence]) -> usize {
    let mut values = 0;
    let fits = |sequence: &&Sequence| {
        let rows = if info.layout.token_rows {
            sequence.num_tokens()
        } else {
            1
        };
        values += rows * info.output_width;
        values <= MAX_VALUES
    };
    let count = sequences.iter().take_while(fits).count();
    count.max(sequences.len().min(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Task;
    use crate::fake_engine::FakeEngine;

    #[test]
    fn parts_are_bounded_by_their_values() {
        let mut info = FakeEngine::model_info(Task::Embed, 1 << 20, b"");
        let sequences = |lengths: &[usize]| -> Vec<Sequence> {
            lengths.iter().map(|&n| vec![0; n].into()).collect()
        };
        assert_eq!(part_length(&info, &sequences(&[512; 20])), 16);
        assert_eq!(part_length(&info, &sequences(&[512; 3])), 3);
        assert_eq!(part_length(&info, &[]), 0);
        info.layout.token_rows = true;
        assert_eq!(part_length(&info, &sequences(&[5, 5, 6, 1])), 3);
        assert_eq!(part_length(&info, &sequences(&[512, 1])), 1);
    }
}
