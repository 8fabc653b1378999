//! What a simulated replica answers.

use std::sync::Arc;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status};
use tulip_proto::v1::*;

use super::Host;
use crate::replica::connection::{Answer, Connection};

/// As the transport reports a connection that broke.
pub(crate) fn broken() -> Status {
    let mut status = Status::unknown("transport error");
    let error = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    status.set_source(Arc::new(error));
    status
}

pub(super) struct Connected {
    pub(super) host: Host,
    pub(super) killed: CancellationToken,
}

fn packed(input: &Input) -> &[u8] {
    match &input.content {
        Some(input::Content::TokenIds(packed)) => packed,
        _ => &[],
    }
}

/// The score is the first token id: what came back for whom can be seen. 0 = a bad document.
fn score(input: &Input) -> f32 {
    let id = packed(input)
        .first_chunk()
        .map(|id| u32::from_le_bytes(*id));
    id.unwrap_or(0) as f32
}

impl Connection for Connected {
    fn score(&self, call: Request<ScoreRequest>) -> Answer<ScoreResponse> {
        let (host, killed) = (self.host.clone(), self.killed.clone());
        let request = call.into_inner();
        Box::pin(async move {
            let documents = &request.documents;
            let tokens = documents.iter().map(|d| packed(d).len() as u64 / 4).sum();
            let computed = host.compute(&killed, documents.len(), tokens).await?;
            let (timings, load, fingerprint) = computed;
            let scores: Vec<f32> = documents.iter().map(score).collect();
            let bad = (0..).zip(&scores).filter(|(_, score)| **score == 0.0);
            let item_error = |(index, _): (u32, &f32)| ItemError {
                index,
                reason: ErrorReason::InvalidInput.into(),
                message: format!("documents[{index}]: is empty"),
            };
            let item_errors: Vec<ItemError> = bad.map(item_error).collect();
            if request.strict
                && let Some(error) = item_errors.first()
            {
                return Err(Status::invalid_argument(error.message.clone()));
            }
            let report = |index, role: InputRole, tokens_used| TruncationReport {
                index,
                role: role.into(),
                tokens_given: 600,
                tokens_used,
                side: TruncationSide::Right.into(),
            };
            Ok(ScoreResponse {
                request_id: request.request_id,
                model: request.model,
                // The last document, and the query by as much as there are documents.
                truncations: vec![
                    report(documents.len() as u32 - 1, InputRole::Document, 500),
                    report(
                        0,
                        InputRole::Query,
                        512_u32.saturating_sub(documents.len() as u32),
                    ),
                ],
                ranking: Vec::new(),
                scores,
                item_errors,
                usage: Some(Usage {
                    input_tokens: tokens,
                    padding_tokens: 1,
                    sequences: documents.len() as u32,
                }),
                timings: Some(timings),
                load: Some(load),
                fingerprint,
                ..ScoreResponse::default()
            })
        })
    }

    fn embed(&self, call: Request<EmbedRequest>) -> Answer<EmbedResponse> {
        let (host, killed) = (self.host.clone(), self.killed.clone());
        let request = call.into_inner();
        Box::pin(async move {
            let inputs = &request.inputs;
            let tokens = inputs.iter().map(|i| packed(i).len() as u64 / 4).sum();
            let computed = host.compute(&killed, inputs.len(), tokens).await?;
            let (timings, load, fingerprint) = computed;
            let rows = inputs.iter().flat_map(|i| [score(i), -score(i)]);
            // As many entries as the input has tokens, at most 3.
            let entries = |input: &Input| (packed(input).len() / 4).min(3) as u32;
            let mut row_offsets = vec![0];
            let mut values = Vec::new();
            for input in inputs {
                values.extend((0..entries(input)).map(|_| score(input)));
                row_offsets.push(values.len() as u32);
            }
            let tensor = |values: Vec<f32>, width| Tensor {
                shape: vec![values.len() as u32 / width, width],
                data: values
                    .iter()
                    .flat_map(|value| value.to_le_bytes())
                    .collect(),
                dtype: DType::DtypeFloat32.into(),
            };
            Ok(EmbedResponse {
                embeddings: Some(tensor(rows.collect(), 2)),
                timings: Some(timings),
                load: Some(load),
                fingerprint,
                sparse: Some(SparseVectors {
                    row_offsets: row_offsets.clone(),
                    indices: (0..values.len() as u32).collect(),
                    values: values.clone(),
                }),
                tokens: Some(TokenVectors {
                    row_offsets,
                    vectors: Some(tensor(values, 1)),
                }),
                ..EmbedResponse::default()
            })
        })
    }

    fn tokenize(&self, call: Request<TokenizeRequest>) -> Answer<TokenizeResponse> {
        let (host, killed) = (self.host.clone(), self.killed.clone());
        Box::pin(async move {
            let inputs = call.into_inner().inputs;
            host.compute(&killed, inputs.len(), 0).await?;
            Ok(TokenizeResponse {
                sequences: vec![TokenizedInput::default(); inputs.len()],
                ..TokenizeResponse::default()
            })
        })
    }

    fn get_model(&self, call: Request<GetModelRequest>) -> Answer<GetModelResponse> {
        let mut info = self.host.0.lock().model.clone();
        let killed = self.killed.is_cancelled();
        Box::pin(async move {
            if killed {
                return Err(broken());
            }
            if !call.into_inner().include_tokenizer
                && let Some(tokenizer) = &mut info.tokenizer
            {
                tokenizer.tokenizer_json = Bytes::new();
            }
            Ok(info)
        })
    }
}
