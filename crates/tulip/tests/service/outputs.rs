//! Sparse vectors and vectors of tokens: each form where the model has it, and clear refusals.

use std::sync::Arc;

use tonic::Code;
use tulip::config::ServerConfig;
use tulip::engine::{ModelInfo, Output, Outputs, Similarity, Task};
use tulip::fake_engine::{FakeEngine, StepLog};
use tulip_proto::v1::{
    DType, EmbedRequest, EmbedResponse, Normalization, OutputKind, ScoreRequest, Truncation,
    TruncationPolicy,
};

use crate::support::{
    CLS, SEP, TestServer, assert_close, config, embed_request, float32, info, score_request,
    segment, sequence, single_row, word,
};

/// Rows of tokens as of bge-m3: a vector of two values and a weight.
fn three_forms(kinds: &[Output]) -> ModelInfo {
    let mut info = info(Task::Embed, 3);
    info.outputs = Outputs {
        kinds: kinds.to_vec(),
        dimensions: 2,
        skip_first_token: true,
        max_sim_mean: true,
        skip_token_ids: vec![CLS, SEP],
        ..Outputs::default()
    };
    info.layout.token_rows = true;
    info
}

fn all_forms() -> ModelInfo {
    three_forms(&[Output::Dense, Output::Sparse, Output::Tokens])
}

fn sparse_model(width: usize) -> ModelInfo {
    let mut info = info(Task::Embed, width);
    info.outputs.kinds = vec![Output::Sparse];
    info.normalized = false;
    info.similarity = Similarity::Dot;
    info
}

/// The row of a token.
fn row(info: &ModelInfo, id: u32) -> Vec<f32> {
    FakeEngine::row(info, &vec![id].into())
}

fn weights(info: &ModelInfo, ids: &[u32]) -> Vec<(u32, f32)> {
    let mut ids: Vec<u32> = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    let weights = ids.iter().map(|&id| (id, row(info, id)[2]));
    weights.filter(|(_, weight)| *weight > 0.0).collect()
}

fn wanting(request: EmbedRequest, forms: &[OutputKind]) -> EmbedRequest {
    EmbedRequest {
        outputs: forms.iter().map(|&form| form.into()).collect(),
        ..request
    }
}

async fn embed(info: ModelInfo, request: EmbedRequest) -> Result<EmbedResponse, tonic::Status> {
    let server = TestServer::start(FakeEngine::new(info));
    let mut client = server.client().await;
    client.embed(request).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn three_forms_of_each_input() {
    let info = all_forms();
    let texts = ["w1 w2 w1", "", "w5"];
    let forms = [OutputKind::Tokens, OutputKind::Sparse, OutputKind::Dense];
    let request = wanting(embed_request(texts), &forms);
    let answer = embed(info.clone(), request).await.unwrap();
    let dense = answer.embeddings.unwrap();
    assert_eq!(dense.shape, [3, 2]);
    let of_first = &row(&info, CLS)[..2];
    assert_close(&float32(&dense.data), &of_first.repeat(3));

    let sparse = answer.sparse.unwrap();
    let expected = [
        weights(&info, &[word(1), word(2)]),
        Vec::new(),
        weights(&info, &[word(5)]),
    ];
    let (first, last) = (expected[0].len() as u32, expected[2].len() as u32);
    assert!(first > 0, "the test needs some weight above 0");
    assert_eq!(sparse.row_offsets, [0, first, first, first + last]);
    let expected = expected.concat();
    let (ids, values): (Vec<u32>, Vec<f32>) = expected.into_iter().unzip();
    assert_eq!(sparse.indices, ids);
    assert_close(&sparse.values, &values);

    // All tokens but the first: those of the text, and the last special one.
    let tokens = answer.tokens.unwrap();
    assert_eq!(tokens.row_offsets, [0, 4, 5, 7]);
    let ids = [word(1), word(2), word(1), SEP, SEP, word(5), SEP];
    let expected: Vec<f32> = ids
        .iter()
        .flat_map(|&id| row(&info, id)[..2].to_vec())
        .collect();
    let vectors = tokens.vectors.unwrap();
    assert_eq!(vectors.shape, [7, 2]);
    assert_close(&float32(&vectors.data), &expected);
}

#[tokio::test]
async fn the_first_form_is_what_nobody_asks_for() {
    let kinds = [Output::Sparse, Output::Tokens];
    let answer = embed(three_forms(&kinds), embed_request(["w1"])).await;
    let answer = answer.unwrap();
    assert!(answer.sparse.is_some());
    assert!(answer.embeddings.is_none() && answer.tokens.is_none());
}

#[tokio::test]
async fn an_input_that_failed_has_no_entries() {
    let forms = [OutputKind::Sparse, OutputKind::Tokens];
    let mut request = wanting(embed_request(["w1", "w2", "w3"]), &forms);
    request.inputs[1] = segment(&[100_000]);
    let answer = embed(all_forms(), request).await.unwrap();
    assert_eq!(answer.item_errors.len(), 1);
    assert_eq!(answer.item_errors[0].index, 1);
    let sparse = answer.sparse.unwrap().row_offsets;
    assert_eq!((sparse.len(), sparse[1]), (4, sparse[2]));
    assert_eq!(answer.tokens.unwrap().row_offsets, [0, 2, 2, 4]);
}

#[tokio::test]
async fn a_form_that_the_model_lacks_is_named() {
    let cases = [
        (
            info(Task::Embed, 4),
            OutputKind::Sparse,
            "outputs[0]: OUTPUT_KIND_SPARSE is not supported by this model, which gives \
             OUTPUT_KIND_DENSE",
        ),
        (
            sparse_model(8),
            OutputKind::Dense,
            "outputs[0]: OUTPUT_KIND_DENSE is not supported by this model, which gives \
             OUTPUT_KIND_SPARSE",
        ),
        (
            three_forms(&[Output::Dense, Output::Sparse]),
            OutputKind::Tokens,
            "outputs[0]: OUTPUT_KIND_TOKENS is not supported by this model, which gives \
             OUTPUT_KIND_DENSE, OUTPUT_KIND_SPARSE",
        ),
    ];
    for (info, form, message) in cases {
        let request = wanting(embed_request(["w1"]), &[form]);
        let status = embed(info, request).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(status.message(), message);
    }
    let mut request = embed_request(["w1"]);
    request.outputs = vec![1, 9];
    let status = embed(all_forms(), request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.message(), "outputs[1]: 9 is no value of OutputKind");
}

#[tokio::test]
async fn sparse_vectors_have_no_format() {
    let sparse = wanting(embed_request(["w1"]), &[OutputKind::Sparse]);
    let cases = [
        (
            EmbedRequest {
                dtype: DType::DtypeInt8.into(),
                ..sparse.clone()
            },
            "dtype: is DTYPE_INT8, but sparse vectors are FLOAT32",
        ),
        (
            EmbedRequest {
                dimensions: 2,
                ..sparse.clone()
            },
            "dimensions: is 2, but sparse vectors cannot be cut",
        ),
        (
            EmbedRequest {
                normalization: Normalization::L2.into(),
                ..sparse.clone()
            },
            "normalization: is L2, but sparse vectors are as the model gives them",
        ),
    ];
    for (request, message) in cases {
        for info in [sparse_model(8), all_forms()] {
            let status = embed(info, request.clone()).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument);
            assert_eq!(status.message(), message);
        }
    }
    // Beside a dense vector the format is the dense one's.
    let mut request = wanting(sparse, &[OutputKind::Dense, OutputKind::Sparse]);
    request.dtype = DType::DtypeInt8.into();
    let answer = embed(all_forms(), request).await.unwrap();
    assert_eq!(answer.embeddings.unwrap().dtype(), DType::DtypeInt8);
    assert!(answer.sparse.is_some());
}

#[tokio::test]
async fn vectors_that_no_message_holds_are_refused_before_they_are_computed() {
    let log = StepLog::default();
    let engine = FakeEngine::new(all_forms()).with_log(Arc::clone(&log));
    let config = ServerConfig {
        max_message_bytes: 4096,
        ..config()
    };
    let server = TestServer::with_config(engine, config);
    let mut client = server.client().await;
    let long = segment(&vec![word(1); 254]);
    let mut request = wanting(embed_request(["w1"]), &[OutputKind::Tokens]);
    request.inputs = vec![long.clone(), long.clone(), segment(&[word(1)])];
    let status = client.embed(request.clone()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(
        status.message(),
        "inputs: have 515 tokens, whose vectors take 4120 bytes as float32, \
         limit max_message_bytes=4096"
    );
    assert!(log.lock().is_empty(), "nothing was computed");
    request.inputs.pop();
    let answer = client.embed(request.clone()).await.unwrap().into_inner();
    assert_eq!(answer.tokens.unwrap().row_offsets, [0, 255, 510]);
    // Of the other forms a message holds many more.
    let forms = [OutputKind::Dense, OutputKind::Sparse];
    let mut request = wanting(request, &forms);
    request.inputs = vec![long; 3];
    client.embed(request).await.unwrap();
}

/// The mean over the query's tokens of the best product with one of the document's.
fn late_interaction(info: &ModelInfo, query: &[u32], document: &[u32]) -> f32 {
    let vectors = |ids: &[u32]| -> Vec<Vec<f32>> {
        let ids = ids.iter().chain([&SEP]);
        ids.map(|&id| row(info, id)[..2].to_vec()).collect()
    };
    let (query, document) = (vectors(query), vectors(document));
    let best = query.iter().map(|token| {
        let products = document
            .iter()
            .map(|other| token[0] * other[0] + token[1] * other[1]);
        products.fold(f32::NEG_INFINITY, f32::max)
    });
    best.sum::<f32>() / query.len() as f32
}

#[tokio::test]
async fn late_interaction_of_mixed_documents() {
    let info = three_forms(&[Output::Tokens, Output::Sparse]);
    let server = TestServer::start(FakeEngine::new(info.clone()));
    let mut client = server.client().await;
    let long: Vec<u32> = (0..40).map(|at| word(at % 96)).collect();
    let mut request = ScoreRequest {
        truncation: Some(Truncation {
            policy: TruncationPolicy::ChunkMax.into(),
            max_tokens: 12,
            chunk_overlap_tokens: 1,
            ..Truncation::default()
        }),
        top_n: u32::MAX,
        ..score_request("w3 w4", ["w1 w2", "", "x", "x", "w4 w3"])
    };
    request.documents[2] = segment(&long);
    request.documents[3] = segment(&[100_000]);
    let answer = client.score(request).await.unwrap().into_inner();
    let query = [word(3), word(4)];
    let (start, tokens) = (
        answer.best_chunk_start[2] as usize,
        answer.best_chunk_tokens[2] as usize,
    );
    assert!(tokens <= 10, "{tokens}");
    let expected = [
        late_interaction(&info, &query, &[word(1), word(2)]),
        late_interaction(&info, &query, &[]),
        late_interaction(&info, &query, &long[start..start + tokens]),
        0.0,
        late_interaction(&info, &query, &[word(4), word(3)]),
    ];
    assert_close(&answer.scores, &expected);
    assert_eq!(answer.item_errors.len(), 1);
    assert_eq!(answer.ranking.len(), 4);

    // An empty query still has its last special token, and a bare first token has nothing.
    let mut request = score_request("", ["w1"]);
    let answer = client.score(request.clone()).await.unwrap().into_inner();
    assert_close(&answer.scores, &[late_interaction(&info, &[], &[word(1)])]);
    request.query = Some(sequence(&[CLS], 0));
    let answer = client.score(request).await.unwrap().into_inner();
    assert_eq!(answer.scores, [0.0]);
}

#[tokio::test]
async fn products_of_token_weights() {
    let info = three_forms(&[Output::Sparse]);
    let server = TestServer::start(FakeEngine::new(info.clone()));
    let mut client = server.client().await;
    let words = |ids: &[u32]| weights(&info, ids);
    let all: Vec<u32> = (0..30).map(word).collect();
    let text = (0..30).map(|at| format!("w{at}")).collect::<Vec<_>>();
    let text = text.join(" ");
    let request = score_request(&text, [text.as_str(), "w1 w2 w2", "", "w90"]);
    let answer = client.score(request).await.unwrap().into_inner();
    let squares = |weights: Vec<(u32, f32)>| weights.iter().map(|(_, w)| w * w).sum::<f32>();
    let expected = [
        squares(words(&all)),
        squares(words(&[word(1), word(2)])),
        0.0,
        0.0,
    ];
    assert_close(&answer.scores, &expected);
}

#[tokio::test]
async fn a_large_request_runs_in_parts() {
    // Rows of 4 MiB: 16 of them are one part.
    let info = sparse_model(1 << 20);
    let log = StepLog::default();
    let engine = FakeEngine::new(info.clone()).with_log(Arc::clone(&log));
    let server = TestServer::start(engine);
    let mut client = server.client().await;
    let texts: Vec<String> = (0..17).map(|at| format!("w{at}")).collect();
    let answer = client.score(score_request("w3", texts)).await.unwrap();
    let answer = answer.into_inner();
    assert!(log.lock().len() > 1);
    assert_eq!(log.lock().iter().map(Vec::len).sum::<usize>(), 18);
    let query = single_row(&info, &[word(3)]);
    for (at, score) in (0..).zip(&answer.scores) {
        let document = single_row(&info, &[word(at)]);
        let products = query
            .iter()
            .zip(&document)
            .map(|(&a, &b)| f64::from(a) * f64::from(b));
        let expected = products.sum::<f64>();
        assert!(
            (f64::from(*score) - expected).abs() < 1.0,
            "{score} {expected}"
        );
    }
    assert_eq!(answer.ranking[0], 3);
}
