//! `Embed` in parts: vectors below one another.

use std::ops::Range;

use tonic::Request;
use tulip_proto::v1::{EmbedRequest, EmbedResponse, OutputKind, SparseVectors, TokenVectors};

use super::merge::{Notices, append_offsets, stack};
use super::weight::Weight;
use super::{Mismatch, Part, Report, Split};
use crate::replica::connection::{Answer, Connection};

impl Split for EmbedRequest {
    type Answer = EmbedResponse;
    const ITEMS: &'static str = "inputs";

    fn weights(&self, max_sequence_tokens: usize) -> Vec<Weight> {
        let weight = |input| Weight::of(input, 0, max_sequence_tokens);
        self.inputs.iter().map(weight).collect()
    }

    /// Vectors of tokens stay together: only a replica that sees all of them can tell, before
    /// anything is computed, that no message holds the answer.
    fn is_divisible(&self) -> bool {
        !self.outputs.contains(&OutputKind::Tokens.into())
    }

    fn part(&self, items: Range<usize>, model: &str) -> Self {
        Self {
            request_id: self.request_id.clone(),
            model: model.into(),
            inputs: self.inputs[items].to_vec(),
            input_type: self.input_type,
            prompt_name: self.prompt_name.clone(),
            prompt: self.prompt.clone(),
            instruction: self.instruction.clone(),
            truncation: self.truncation,
            dimensions: self.dimensions,
            dtype: self.dtype,
            normalization: self.normalization,
            priority: self.priority,
            strict: self.strict,
            outputs: self.outputs.clone(),
        }
    }

    fn send(connection: &dyn Connection, call: Request<Self>) -> Answer<EmbedResponse> {
        connection.embed(call)
    }

    fn report(answer: &EmbedResponse) -> Report<'_> {
        Report {
            fingerprint: &answer.fingerprint,
            load: answer.load,
            timings: answer.timings,
        }
    }

    fn merge(&self, parts: Vec<Part<EmbedResponse>>) -> Result<EmbedResponse, Mismatch> {
        let mut merged = EmbedResponse::default();
        let mut notices = Notices::default();
        let (mut embeddings, mut sparse, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
        for Part { items, answer } in parts {
            if items.start == 0 {
                merged.request_id = answer.request_id;
                merged.model = answer.model;
                merged.fingerprint = answer.fingerprint;
            }
            if let Some(tensor) = &answer.embeddings {
                let rows = tensor.shape.first().map_or(0, |rows| *rows as usize);
                check_rows("embeddings", rows, items.len())?;
            }
            embeddings.push(answer.embeddings);
            sparse.push((items.len(), answer.sparse));
            tokens.push((items.len(), answer.tokens));
            notices.add(
                Self::ITEMS,
                items.start,
                answer.item_errors,
                answer.truncations,
            );
            notices.account(answer.usage, answer.timings, answer.load);
        }
        let notices = notices.close();
        merged.embeddings = stack("embeddings", embeddings)?;
        merged.sparse = merge_sparse(sparse)?;
        merged.tokens = merge_tokens(tokens)?;
        merged.item_errors = notices.item_errors;
        merged.truncations = notices.truncations;
        merged.usage = notices.usage;
        merged.timings = notices.timings;
        merged.load = notices.load;
        Ok(merged)
    }
}

fn check_rows(field: &str, found: usize, expected: usize) -> Result<(), Mismatch> {
    if found == expected {
        return Ok(());
    }
    let message = format!("{field} has {found} rows for {expected} inputs");
    Err(Mismatch(message))
}

fn merge_sparse(
    parts: Vec<(usize, Option<SparseVectors>)>,
) -> Result<Option<SparseVectors>, Mismatch> {
    if parts.iter().all(|(_, part)| part.is_none()) {
        return Ok(None);
    }
    let mut merged = SparseVectors::default();
    for (inputs, part) in parts {
        let part = part.ok_or_else(|| Mismatch("sparse is missing in one".into()))?;
        check_rows("sparse", part.row_offsets.len().saturating_sub(1), inputs)?;
        append_offsets(&mut merged.row_offsets, &part.row_offsets);
        merged.indices.extend(part.indices);
        merged.values.extend(part.values);
    }
    Ok(Some(merged))
}

fn merge_tokens(
    parts: Vec<(usize, Option<TokenVectors>)>,
) -> Result<Option<TokenVectors>, Mismatch> {
    if parts.iter().all(|(_, part)| part.is_none()) {
        return Ok(None);
    }
    let mut row_offsets = Vec::new();
    let mut vectors = Vec::with_capacity(parts.len());
    for (inputs, part) in parts {
        let part = part.ok_or_else(|| Mismatch("tokens is missing in one".into()))?;
        check_rows("tokens", part.row_offsets.len().saturating_sub(1), inputs)?;
        append_offsets(&mut row_offsets, &part.row_offsets);
        vectors.push(part.vectors);
    }
    Ok(Some(TokenVectors {
        row_offsets,
        vectors: stack("tokens", vectors)?,
    }))
}
