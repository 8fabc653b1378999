//! What all answers carry, brought together: errors, reports and tensors.

use bytes::BytesMut;
use tulip_proto::v1::{InputRole, ItemError, LoadReport, Tensor, Timings, TruncationReport, Usage};

use super::{Mismatch, path};

/// Notices of several answers, with the places of the whole request.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    pub(crate) item_errors: Vec<ItemError>,
    pub(crate) truncations: Vec<TruncationReport>,
    /// One report stands for the query of all chunks: the one that lost most.
    query: Option<TruncationReport>,
    usage: Option<Usage>,
    timings: Option<Timings>,
    load: Option<LoadReport>,
}

impl Notices {
    /// Takes up what one answer says; its items begin at `start`.
    pub(crate) fn add(
        &mut self,
        items: &str,
        start: usize,
        item_errors: Vec<ItemError>,
        truncations: Vec<TruncationReport>,
    ) {
        let offset = u32::try_from(start).unwrap_or(u32::MAX);
        self.item_errors
            .extend(item_errors.into_iter().map(|mut error| {
                error.index = error.index.saturating_add(offset);
                if let Some(message) = path::shift(&error.message, items, start) {
                    error.message = message;
                }
                error
            }));
        for mut report in truncations {
            if report.role() == InputRole::Query {
                let heavier = |known: &TruncationReport| known.tokens_used <= report.tokens_used;
                if !self.query.as_ref().is_some_and(heavier) {
                    self.query = Some(report);
                }
            } else {
                report.index = report.index.saturating_add(offset);
                self.truncations.push(report);
            }
        }
    }

    pub(crate) fn account(
        &mut self,
        usage: Option<Usage>,
        timings: Option<Timings>,
        load: Option<LoadReport>,
    ) {
        if let Some(usage) = usage {
            let sum = self.usage.get_or_insert_default();
            sum.input_tokens += usage.input_tokens;
            sum.padding_tokens += usage.padding_tokens;
            sum.sequences = sum.sequences.saturating_add(usage.sequences);
        }
        if let Some(timings) = timings {
            // Chunks are worked on at the same time: the longest is what was waited for.
            let max = self.timings.get_or_insert_default();
            max.tokenize_us = max.tokenize_us.max(timings.tokenize_us);
            max.queue_us = max.queue_us.max(timings.queue_us);
            max.compute_us = max.compute_us.max(timings.compute_us);
            max.total_us = max.total_us.max(timings.total_us);
        }
        if let Some(load) = load {
            // For one who balances over gateways: the fullest replica.
            let queued = |load: &LoadReport| load.queued_tokens + load.running_tokens;
            if self
                .load
                .as_ref()
                .is_none_or(|known| queued(known) < queued(&load))
            {
                self.load = Some(load);
            }
        }
    }

    pub(crate) fn close(mut self) -> Closed {
        self.truncations.extend(self.query);
        Closed {
            item_errors: self.item_errors,
            truncations: self.truncations,
            usage: self.usage,
            timings: self.timings,
            load: self.load,
        }
    }
}

/// Ready for the answer.
#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) item_errors: Vec<ItemError>,
    pub(crate) truncations: Vec<TruncationReport>,
    pub(crate) usage: Option<Usage>,
    pub(crate) timings: Option<Timings>,
    pub(crate) load: Option<LoadReport>,
}

/// Rows of several tensors below one another. None of none.
pub(crate) fn stack(field: &str, tensors: Vec<Option<Tensor>>) -> Result<Option<Tensor>, Mismatch> {
    if tensors.iter().all(Option::is_none) {
        return Ok(None);
    }
    let size = tensors
        .iter()
        .flatten()
        .map(|tensor| tensor.data.len())
        .sum();
    let mut data = BytesMut::with_capacity(size);
    let mut kind: Option<(i32, Vec<u32>)> = None;
    let mut rows = 0_u32;
    for tensor in tensors {
        let tensor = tensor.ok_or_else(|| Mismatch(format!("{field} is missing in one")))?;
        let (&own_rows, rest) = tensor
            .shape
            .split_first()
            .ok_or_else(|| Mismatch(format!("{field} has no shape in one")))?;
        match &kind {
            None => kind = Some((tensor.dtype, rest.to_vec())),
            Some((dtype, shape)) if *dtype == tensor.dtype && shape == rest => {}
            Some((dtype, shape)) => {
                let (dtype2, shape2) = (tensor.dtype, rest);
                let message = format!("{field} is {dtype} {shape:?} and {dtype2} {shape2:?}");
                return Err(Mismatch(message));
            }
        }
        rows = rows.saturating_add(own_rows);
        data.extend_from_slice(&tensor.data);
    }
    let (dtype, mut shape) = kind.unwrap_or_default();
    shape.insert(0, rows);
    Ok(Some(Tensor {
        data: data.freeze(),
        dtype,
        shape,
    }))
}

/// Offsets of rows in several lists below one another: each begins with 0 and ends with the
/// number of its entries.
pub(crate) fn append_offsets(all: &mut Vec<u32>, offsets: &[u32]) {
    let base = match all.last() {
        Some(&last) => last,
        None => {
            all.push(0);
            0
        }
    };
    all.extend(
        offsets
            .iter()
            .skip(1)
            .map(|offset| base.saturating_add(*offset)),
    );
}
