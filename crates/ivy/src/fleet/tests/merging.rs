//! An answer from chunks equals the answer from one replica.

use bytes::Bytes;
use tonic::Code;
use tulip_proto::v1::{EmbedRequest, InputRole, ScoreRequest, TokenizeRequest};

use crate::backend::Backend as _;
use crate::fleet::SplitConfig;
use crate::fleet::simulation::{Host, fleet, late, score_request, sequence, until_ready};

async fn of_several(count: usize) -> (Vec<Host>, crate::Fleet) {
    let hosts: Vec<Host> = (1..=count).map(|n| Host::new(n as f64 * 1e5)).collect();
    let fleet = fleet(&hosts, |config| {
        config.split = SplitConfig {
            min_chunk_tokens: 64,
            ..SplitConfig::default()
        };
    });
    until_ready(&fleet, count).await;
    (hosts, fleet)
}

#[tokio::test(start_paused = true)]
async fn scores_errors_and_reports_are_those_of_the_whole_request() {
    let (hosts, fleet) = of_several(4).await;
    let mut request = score_request(1000, 8);
    for bad in [0, 499, 999] {
        request.documents[bad] = sequence(0, 8);
    }
    request.documents[20] = sequence(2000, 8);
    request.documents[900] = sequence(2000, 8);
    request.request_id = "id".into();
    request.top_n = 4;
    let answer = fleet.score(request.clone(), late()).await.unwrap();
    let calls: Vec<usize> = hosts
        .iter()
        .flat_map(|h| h.0.lock().calls.clone())
        .collect();
    assert!(calls.len() >= 4, "{calls:?}");

    let expected: Vec<f32> = request
        .documents
        .iter()
        .map(|document| match &document.content {
            Some(tulip_proto::v1::input::Content::TokenIds(ids)) => {
                u32::from_le_bytes(ids[..4].try_into().unwrap()) as f32
            }
            _ => unreachable!(),
        })
        .collect();
    assert_eq!(answer.scores, expected);
    assert_eq!(answer.ranking, [20, 900, 998, 997], "ties by index");
    let errors: Vec<(u32, &str)> = answer
        .item_errors
        .iter()
        .map(|error| (error.index, &*error.message))
        .collect();
    let expected = [
        (0, "documents[0]: is empty"),
        (499, "documents[499]: is empty"),
        (999, "documents[999]: is empty"),
    ];
    assert_eq!(errors, expected);
    // Each call cuts its last document, and the query by as much as it has documents.
    let (documents, query) = answer.truncations.split_at(answer.truncations.len() - 1);
    assert_eq!(documents.len(), calls.len());
    assert_eq!(documents.last().unwrap().index, 999);
    assert!(documents.windows(2).all(|two| two[0].index < two[1].index));
    assert_eq!(query[0].role(), InputRole::Query);
    let largest = *calls.iter().max().unwrap() as u32;
    assert_eq!((query[0].index, query[0].tokens_used), (0, 512 - largest));
    let usage = answer.usage.unwrap();
    assert_eq!((usage.input_tokens, usage.sequences), (8000, 1000));
    assert_eq!(usage.padding_tokens, calls.len() as u64);
    assert_eq!((&*answer.request_id, &*answer.model), ("id", "model"));
    assert_eq!(answer.fingerprint, "one");
    assert!(answer.timings.unwrap().compute_us > 0 && answer.load.is_some());
}

#[tokio::test(start_paused = true)]
async fn failed_documents_are_left_out_of_the_ranking() {
    let (_hosts, fleet) = of_several(2).await;
    let mut request = score_request(100, 8);
    request.documents[50] = sequence(0, 8);
    let answer = fleet.score(request, late()).await.unwrap();
    assert_eq!(answer.ranking.len(), 99);
    assert!(!answer.ranking.contains(&50));
    assert_eq!(answer.ranking[0], 99);
}

#[tokio::test(start_paused = true)]
async fn a_strict_request_fails_with_the_place_in_the_whole() {
    let (_hosts, fleet) = of_several(4).await;
    let mut request = ScoreRequest {
        strict: true,
        ..score_request(1000, 8)
    };
    request.documents[777] = sequence(0, 8);
    let status = fleet.score(request, late()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.message(), "documents[777]: is empty");
}

#[tokio::test(start_paused = true)]
async fn vectors_lie_in_input_order() {
    let (hosts, fleet) = of_several(4).await;
    // Of 1 to 5 tokens: so many entries, at most 3, has its sparse vector.
    let length = |index: u32| 1 + index as usize % 5;
    let request = EmbedRequest {
        inputs: (0..1000)
            .map(|index| sequence(index, length(index)))
            .collect(),
        ..EmbedRequest::default()
    };
    let answer = fleet.embed(request, late()).await.unwrap();
    assert!(hosts.iter().all(|host| host.items() > 0));
    let floats = |data: &Bytes| -> Vec<f32> {
        let chunks = data.as_chunks::<4>().0.iter();
        chunks.map(|chunk| f32::from_le_bytes(*chunk)).collect()
    };
    let embeddings = answer.embeddings.unwrap();
    assert_eq!(embeddings.shape, [1000, 2]);
    let expected: Vec<f32> = (0_u16..1000)
        .flat_map(|i| [f32::from(i), -f32::from(i)])
        .collect();
    assert_eq!(floats(&embeddings.data), expected);
    let entries = |index: u32| length(index).min(3);
    let mut offsets = vec![0];
    let mut values = Vec::new();
    for index in 0..1000 {
        values.extend(std::iter::repeat_n(index as f32, entries(index)));
        offsets.push(values.len() as u32);
    }
    let sparse = answer.sparse.unwrap();
    assert_eq!(sparse.row_offsets, offsets);
    assert_eq!(sparse.values, values);
    assert_eq!(sparse.indices.len(), values.len());
    let tokens = answer.tokens.unwrap();
    assert_eq!(tokens.row_offsets, offsets);
    let vectors = tokens.vectors.unwrap();
    assert_eq!(vectors.shape, [values.len() as u32, 1]);
    assert_eq!(floats(&vectors.data), values);
}

#[tokio::test(start_paused = true)]
async fn tokenize_is_one_call() {
    let (hosts, fleet) = of_several(2).await;
    let request = TokenizeRequest {
        inputs: (0..500).map(|index| sequence(index, 100)).collect(),
        ..TokenizeRequest::default()
    };
    let answer = fleet.tokenize(request, late()).await.unwrap();
    assert_eq!(answer.sequences.len(), 500);
    let calls: Vec<usize> = hosts
        .iter()
        .flat_map(|h| h.0.lock().calls.clone())
        .collect();
    assert_eq!(calls, [500]);
}
