//! `Score` in parts: documents are scored apart, the ranking is made anew.

use std::cmp::Ordering;
use std::ops::Range;

use tonic::Request;
use tulip_proto::v1::{ScoreRequest, ScoreResponse, Truncation, TruncationPolicy};

use super::merge::{Notices, stack};
use super::weight::{Weight, own_tokens};
use super::{Mismatch, Part, Report, Split};
use crate::replica::connection::{Answer, Connection};

impl Split for ScoreRequest {
    type Answer = ScoreResponse;
    const ITEMS: &'static str = "documents";

    fn weights(&self, max_sequence_tokens: usize) -> Vec<Weight> {
        let query = self.query.as_ref().map_or(0, own_tokens);
        let in_chunks = |truncation: &Truncation| truncation.policy() == TruncationPolicy::ChunkMax;
        // A long document that is read in parts costs all of them.
        let max_sequence_tokens = if self.truncation.as_ref().is_some_and(in_chunks) {
            usize::MAX
        } else {
            max_sequence_tokens
        };
        let weight = |document| Weight::of(document, query, max_sequence_tokens);
        self.documents.iter().map(weight).collect()
    }

    fn part(&self, items: Range<usize>, model: &str) -> Self {
        let is_all = items.len() == self.documents.len();
        Self {
            request_id: self.request_id.clone(),
            model: model.into(),
            query: self.query.clone(),
            documents: self.documents[items].to_vec(),
            instruction: self.instruction.clone(),
            truncation: self.truncation,
            raw_scores: self.raw_scores,
            // The ranking of a part is of no use: the shortest one.
            top_n: if is_all { self.top_n } else { 1 },
            priority: self.priority,
            strict: self.strict,
            label: self.label.clone(),
            all_labels: self.all_labels,
        }
    }

    fn send(connection: &dyn Connection, call: Request<Self>) -> Answer<ScoreResponse> {
        connection.score(call)
    }

    fn report(answer: &ScoreResponse) -> Report<'_> {
        Report {
            fingerprint: &answer.fingerprint,
            load: answer.load,
            timings: answer.timings,
        }
    }

    fn merge(&self, parts: Vec<Part<ScoreResponse>>) -> Result<ScoreResponse, Mismatch> {
        let mut merged = ScoreResponse {
            scores: Vec::with_capacity(self.documents.len()),
            ..ScoreResponse::default()
        };
        let mut notices = Notices::default();
        let mut label_scores = Vec::with_capacity(parts.len());
        for Part { items, answer } in parts {
            let (found, expected) = (answer.scores.len(), items.len());
            if found != expected {
                let message = format!("{found} scores for {expected} documents");
                return Err(Mismatch(message));
            }
            if merged.scores.is_empty() {
                merged.request_id = answer.request_id;
                merged.model = answer.model;
                merged.fingerprint = answer.fingerprint;
                merged.labels = answer.labels;
            }
            merged.scores.extend(answer.scores);
            merged.score_logits.extend(answer.score_logits);
            merged.best_chunk_start.extend(answer.best_chunk_start);
            merged.best_chunk_tokens.extend(answer.best_chunk_tokens);
            label_scores.push(answer.label_scores);
            notices.add(
                Self::ITEMS,
                items.start,
                answer.item_errors,
                answer.truncations,
            );
            notices.account(answer.usage, answer.timings, answer.load);
        }
        for (field, values) in [
            ("best_chunk_start", &merged.best_chunk_start),
            ("best_chunk_tokens", &merged.best_chunk_tokens),
        ] {
            if !values.is_empty() && values.len() != merged.scores.len() {
                return Err(Mismatch(format!("{field} is missing in one")));
            }
        }
        // A replica of an older version says none; then what is the same float is a tie.
        if merged.score_logits.len() != merged.scores.len() {
            merged.score_logits.clear();
        }
        merged.label_scores = stack("label_scores", label_scores)?;
        let notices = notices.close();
        let mut failed = vec![false; merged.scores.len()];
        for error in &notices.item_errors {
            if let Some(failed) = failed.get_mut(error.index as usize) {
                *failed = true;
            }
        }
        merged.ranking = ranking(&merged, &failed, self.top_n as usize);
        merged.item_errors = notices.item_errors;
        merged.truncations = notices.truncations;
        merged.usage = notices.usage;
        merged.timings = notices.timings;
        merged.load = notices.load;
        Ok(merged)
    }
}

/// Indices of the best documents, best first, ties by index, failed ones left out; `top_n` 0 = all.
/// As Tulip ranks: probabilities by their logits.
fn ranking(answer: &ScoreResponse, failed: &[bool], top_n: usize) -> Vec<u32> {
    let mut indices: Vec<u32> = (0..)
        .zip(failed)
        .filter_map(|(index, failed)| (!failed).then_some(index))
        .collect();
    // Zeros are equal whatever their sign; NaN is never sent.
    let compare = |values: &[f32], a: u32, b: u32| {
        let [a, b] = [a, b].map(|index| values.get(index as usize));
        b.partial_cmp(&a).unwrap_or(Ordering::Equal)
    };
    indices.sort_unstable_by(|&a, &b| {
        compare(&answer.score_logits, a, b)
            .then_with(|| compare(&answer.scores, a, b))
            .then(a.cmp(&b))
    });
    if top_n > 0 {
        indices.truncate(top_n);
    }
    indices
}

#[cfg(test)]
mod tests {
    use super::*;
    use tulip_proto::v1::{Input, input};

    #[test]
    fn long_documents_weigh_what_is_read_of_them() {
        let text = |text: String| Input {
            content: Some(input::Content::Text(text)),
            ..Input::default()
        };
        let mut request = ScoreRequest {
            query: Some(text("abc".into())),
            documents: vec![text("abc".repeat(5000))],
            ..ScoreRequest::default()
        };
        assert_eq!(request.weights(512)[0].tokens, 512);
        request.truncation = Some(Truncation {
            policy: TruncationPolicy::ChunkMax.into(),
            ..Truncation::default()
        });
        assert_eq!(request.weights(512)[0].tokens, 5003);
    }

    #[test]
    fn what_is_one_float_as_a_probability_is_ordered_by_the_logit() {
        let request = ScoreRequest {
            documents: vec![Input::default(); 5],
            ..ScoreRequest::default()
        };
        let part = |items: Range<usize>, logits: &[f32]| Part {
            answer: ScoreResponse {
                scores: vec![1.0; items.len()],
                score_logits: logits.to_vec(),
                ..ScoreResponse::default()
            },
            items,
        };
        let merge = |last: &[f32]| {
            let merged = request.merge(vec![part(0..3, &[25.0, 20.0, 30.0]), part(3..5, last)]);
            merged.unwrap()
        };
        let merged = merge(&[35.0, 25.0]);
        assert_eq!(merged.ranking, [3, 2, 0, 4, 1]);
        assert_eq!(merged.score_logits, [25.0, 20.0, 30.0, 35.0, 25.0]);
        // One replica is of an older version.
        let merged = merge(&[]);
        assert_eq!(
            (merged.ranking, merged.score_logits),
            (vec![0, 1, 2, 3, 4], vec![])
        );
    }

    #[test]
    fn chunks_that_won_lie_in_input_order() {
        let request = ScoreRequest {
            documents: vec![Input::default(); 3],
            ..ScoreRequest::default()
        };
        let part = |items: Range<usize>, best: &[u32]| Part {
            answer: ScoreResponse {
                scores: vec![1.0; items.len()],
                best_chunk_start: best.to_vec(),
                best_chunk_tokens: best.to_vec(),
                ..ScoreResponse::default()
            },
            items,
        };
        let merged = request.merge(vec![part(0..2, &[7, 8]), part(2..3, &[9])]);
        assert_eq!(merged.unwrap().best_chunk_start, [7, 8, 9]);
        let missing = request.merge(vec![part(0..2, &[7, 8]), part(2..3, &[])]);
        let error = missing.unwrap_err().to_string();
        assert!(
            error.ends_with("best_chunk_start is missing in one"),
            "{error}"
        );
    }
}
