//! One bad item never fails the others, unless the request is strict.

use bytes::Bytes;
use tonic::Code;
use tulip::engine::Task;
use tulip::fake_engine::{FakeEngine, FakeStep};
use tulip_proto::v1::{
    EmbedRequest, ErrorReason, Input, ScoreRequest, Truncation, TruncationPolicy, input,
};

use crate::support::{
    CLS, SEP, TestServer, assert_close, embed_request, float32, info, pair_row, score_request,
    segment, sequence, sigmoid, single_row, text, word,
};

#[tokio::test]
async fn good_documents_among_bad_ones_are_scored() {
    let info = info(Task::Score, 1);
    let server = TestServer::start(FakeEngine::new(info.clone()));
    let mut client = server.client().await;
    let short_bytes = input::Content::TokenIds(Bytes::from_static(&[1, 2, 3, 4, 5]));
    let documents = vec![
        text("w2"),
        segment(&[word(1), 4_000_000_000]),
        Input {
            content: Some(short_bytes),
            ..Input::default()
        },
        Input::default(),
        text("w3 w4"),
        text("w1 w2 w3 w4 w5 w6"),
    ];
    let truncation = Truncation {
        policy: TruncationPolicy::Error.into(),
        max_tokens: 9,
        ..Truncation::default()
    };
    let request = ScoreRequest {
        query: Some(text("w1")),
        documents,
        truncation: Some(truncation),
        ..ScoreRequest::default()
    };
    let response = client.score(request.clone()).await.unwrap().into_inner();

    let expected = [&[word(2)][..], &[word(3), word(4)]]
        .map(|document| sigmoid(pair_row(&info, &[word(1)], document)[0]));
    assert_close(
        &response.scores,
        &[expected[0], 0.0, 0.0, 0.0, expected[1], 0.0],
    );
    let best_first = if expected[0] >= expected[1] {
        [0, 4]
    } else {
        [4, 0]
    };
    assert_eq!(response.ranking, best_first);
    let errors: Vec<_> = response
        .item_errors
        .iter()
        .map(|error| (error.index, error.reason(), &*error.message))
        .collect();
    let expected = [
        (
            1,
            ErrorReason::TokenIdOutOfRange,
            "documents[1].token_ids[1]: is 4000000000, must be below vocab_size=100",
        ),
        (
            2,
            ErrorReason::InvalidInput,
            "documents[2].token_ids: has 5 bytes, must be a multiple of 4",
        ),
        (
            3,
            ErrorReason::InvalidInput,
            "documents[3]: has neither text nor token_ids",
        ),
        (
            5,
            ErrorReason::TooLong,
            "documents[5]: at least 10 tokens with special tokens, limit 9",
        ),
    ];
    assert_eq!(errors, expected);

    let status = client
        .score(ScoreRequest {
            strict: true,
            ..request
        })
        .await
        .unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::InvalidArgument, expected[0].2)
    );
}

#[tokio::test]
async fn all_bad_is_an_answer_without_work() {
    for task in [Task::Score, Task::Embed] {
        let server = TestServer::start(FakeEngine::new(info(task, 1)));
        let mut client = server.client().await;
        let request = ScoreRequest {
            documents: vec![Input::default(); 2],
            ..score_request("w1", [""; 0])
        };
        let response = client.score(request).await.unwrap().into_inner();
        assert_eq!(response.scores, [0.0, 0.0]);
        assert!(response.ranking.is_empty());
        assert_eq!(response.item_errors.len(), 2);
        assert_eq!(response.usage.unwrap().sequences, 0);
    }
}

#[tokio::test]
async fn whole_sequences_are_checked() {
    let server = TestServer::start(FakeEngine::new(info(Task::Embed, 4)));
    let mut client = server.client().await;
    let inputs = vec![
        sequence(&[], 0),
        sequence(&[5; 513], 0),
        sequence(&[CLS, 100, SEP], 0),
        sequence(&[CLS, SEP], 2),
        Input {
            form: 2,
            ..text("w1")
        },
        Input {
            second_segment_start: 1,
            ..text("w1")
        },
        sequence(&[CLS, SEP], 0),
    ];
    let response = client
        .embed(EmbedRequest {
            inputs,
            ..EmbedRequest::default()
        })
        .await
        .unwrap()
        .into_inner();
    let messages: Vec<_> = response
        .item_errors
        .iter()
        .map(|error| &*error.message)
        .collect();
    assert_eq!(
        messages,
        [
            "inputs[0].token_ids: the sequence has no tokens, at least 1 is needed",
            "inputs[1]: at least 513 tokens with special tokens, limit 512",
            "inputs[2].token_ids[1]: is 100, must be below vocab_size=100",
            "inputs[3].second_segment_start: is 2, must be below the 2 tokens there are",
            "inputs[4].form: is SEQUENCE, which needs token_ids, not text",
            "inputs[5].second_segment_start: is 1, must be 0 unless form is SEQUENCE",
        ]
    );
}

#[tokio::test]
async fn nan_is_never_sent() {
    let info = info(Task::Score, 1);
    let script = [FakeStep::NotFinite(1), FakeStep::NotFinite(1)];
    let server = TestServer::start(FakeEngine::new(info.clone()).with_script(script));
    let mut client = server.client().await;
    let request = score_request("w1", ["w2", "w3", "w4"]);
    let response = client.score(request.clone()).await.unwrap().into_inner();
    assert_eq!(response.scores[1].to_bits(), 0);
    let [error] = &*response.item_errors else {
        panic!("{:?}", response.item_errors)
    };
    assert_eq!((error.index, error.reason()), (1, ErrorReason::NotFinite));
    assert_eq!(
        error.message,
        "documents[1]: the model gave NaN or infinity"
    );
    assert!(!response.ranking.contains(&1) && response.ranking.len() == 2);
    assert_close(
        &response.scores[2..],
        &[sigmoid(pair_row(&info, &[word(1)], &[word(4)])[0])],
    );

    let status = client
        .score(ScoreRequest {
            strict: true,
            ..request
        })
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    assert!(
        status
            .message()
            .contains("documents[1]: the model gave NaN"),
        "{}",
        status.message()
    );
}

#[tokio::test]
async fn a_bad_vector_is_zeros_and_its_neighbours_are_right() {
    let info = info(Task::Embed, 3);
    let script = [
        FakeStep::NotFinite(0),
        FakeStep::NotFinite(0),
        FakeStep::NotFinite(1),
    ];
    let server = TestServer::start(FakeEngine::new(info.clone()).with_script(script));
    let mut client = server.client().await;
    let response = client
        .embed(embed_request(["w1", "w2"]))
        .await
        .unwrap()
        .into_inner();
    let values = float32(&response.embeddings.unwrap().data);
    assert_close(
        &values,
        &[vec![0.0; 3], single_row(&info, &[word(2)])].concat(),
    );
    assert_eq!(response.item_errors[0].reason(), ErrorReason::NotFinite);

    // The query is row 0: without it there is nothing to compare with.
    let status = client.score(score_request("w1", ["w2"])).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    assert!(
        status.message().contains("query: the model gave NaN"),
        "{}",
        status.message()
    );

    let response = client
        .score(score_request("w1", ["w2", "w3"]))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (response.item_errors[0].index, response.scores[0]),
        (0, 0.0)
    );
    assert_eq!(response.ranking, [1]);
}
