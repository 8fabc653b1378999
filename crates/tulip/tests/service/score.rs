//! What a score is, for each kind of model.

use tulip::engine::{Similarity, Task};
use tulip::fake_engine::FakeEngine;
use tulip_proto::v1::{DType, InputRole, PairTruncation, ScoreRequest, Truncation};

use crate::support::{
    CLS, SEP, TestServer, assert_close, float32, info, pair_row, score_request, segment, sequence,
    sigmoid, single_row, text, word,
};

#[tokio::test]
async fn a_cross_encoder_gives_the_sigmoid_of_its_logit_or_the_logit() {
    let info = info(Task::Score, 1);
    let server = TestServer::start(FakeEngine::new(info.clone()));
    let mut client = server.client().await;
    let request = score_request("w1 w2", ["w3", "", "w4 w5"]);
    let logits: Vec<f32> = [&[word(3)][..], &[], &[word(4), word(5)]]
        .iter()
        .map(|document| pair_row(&info, &[word(1), word(2)], document)[0])
        .collect();

    let response = client.score(request.clone()).await.unwrap().into_inner();
    let sigmoids: Vec<f32> = logits.iter().copied().map(sigmoid).collect();
    assert_close(&response.scores, &sigmoids);
    assert_eq!(response.item_errors, []);
    assert_eq!(
        (&*response.model, &*response.fingerprint),
        ("fake", "fake-fingerprint")
    );

    let response = client
        .score(ScoreRequest {
            raw_scores: true,
            ..request
        })
        .await
        .unwrap()
        .into_inner();
    assert_close(&response.scores, &logits);
}

#[tokio::test]
async fn text_segments_and_sequences_score_alike() {
    let server = TestServer::start(FakeEngine::new(info(Task::Score, 1)));
    let mut client = server.client().await;
    let by_text = client
        .score(score_request("w1 w2", ["w3 w4"]))
        .await
        .unwrap()
        .into_inner();
    let by_segment = ScoreRequest {
        query: Some(segment(&[word(1), word(2)])),
        documents: vec![segment(&[word(3), word(4)]), text("w3 w4")],
        ..ScoreRequest::default()
    };
    let by_segment = client.score(by_segment).await.unwrap().into_inner();
    let whole = sequence(&[CLS, word(1), word(2), SEP, word(3), word(4), SEP], 4);
    let by_sequence = ScoreRequest {
        documents: vec![whole],
        ..ScoreRequest::default()
    };
    let by_sequence = client.score(by_sequence).await.unwrap().into_inner();
    let score = by_text.scores[0];
    assert_eq!(by_segment.scores, [score, score]);
    assert_eq!(by_sequence.scores, [score]);
}

#[tokio::test]
async fn a_thousand_documents_of_mixed_length_come_back_in_order() {
    let info = info(Task::Score, 1);
    let mut config = crate::support::config();
    config.scheduler.max_batch_tokens = 700; // Many steps, split in the middle of requests.
    config.scheduler.max_batch_cost = 700;
    let server = TestServer::with_config(FakeEngine::new(info.clone()), config);
    let mut client = server.client().await;
    let documents: Vec<Vec<u32>> = (0..1000_u32)
        .map(|index| {
            (0..index * 7919 % 60)
                .map(|at| (index * 31 + at * 17) % 96)
                .collect()
        })
        .collect();
    let texts = documents.iter().map(|words| {
        words
            .iter()
            .map(|word| format!("w{word}"))
            .collect::<Vec<_>>()
            .join(" ")
    });
    let request = ScoreRequest {
        raw_scores: true,
        top_n: 10,
        ..score_request("w7", texts)
    };
    let response = client.score(request).await.unwrap().into_inner();
    let expected: Vec<f32> = documents
        .iter()
        .map(|words| {
            let ids: Vec<u32> = words.iter().map(|&number| word(number)).collect();
            pair_row(&info, &[word(7)], &ids)[0]
        })
        .collect();
    assert_close(&response.scores, &expected);
    let mut best: Vec<u32> = (0..1000).collect();
    best.sort_by(|&a, &b| {
        expected[b as usize]
            .total_cmp(&expected[a as usize])
            .then(a.cmp(&b))
    });
    assert_eq!(response.ranking, best[..10]);
    let usage = response.usage.unwrap();
    let tokens: usize = documents.iter().map(|words| words.len() + 4).sum();
    assert_eq!((usage.input_tokens, usage.sequences), (tokens as u64, 1000));
}

#[tokio::test]
async fn an_embedding_model_compares_vectors() {
    for similarity in [
        Similarity::Cosine,
        Similarity::Dot,
        Similarity::Euclidean,
        Similarity::Manhattan,
    ] {
        let mut info = info(Task::Embed, 16);
        info.similarity = similarity;
        info.prompts.named = [
            ("query".into(), "w90 ".into()),
            ("passage".into(), "w91 ".into()),
        ]
        .into();
        let server = TestServer::start(FakeEngine::new(info.clone()));
        let mut client = server.client().await;
        let response = client
            .score(score_request("w1", ["w2", "w3 w4", "w1"]))
            .await
            .unwrap()
            .into_inner();
        let query = single_row(&info, &[word(90), word(1)]);
        let documents = [
            &[word(91), word(2)][..],
            &[word(91), word(3), word(4)],
            &[word(91), word(1)],
        ];
        let expected: Vec<f32> = documents
            .iter()
            .map(|tokens| similarity.between(&query, &single_row(&info, tokens)))
            .collect();
        assert_close(&response.scores, &expected);
        assert_eq!(response.usage.unwrap().sequences, 4);
    }
}

#[tokio::test]
async fn a_classifier_scores_its_positive_label_or_the_one_asked_for() {
    let mut info = info(Task::Classify, 3);
    info.labels = ["contradiction", "neutral", "entailment"]
        .map(String::from)
        .into();
    info.positive_label = 2;
    let server = TestServer::start(FakeEngine::new(info.clone()));
    let mut client = server.client().await;
    let logits = [
        pair_row(&info, &[word(1)], &[word(2)]),
        pair_row(&info, &[word(1)], &[word(3)]),
    ];
    let softmax: Vec<Vec<f32>> = logits
        .iter()
        .map(|row| {
            let sum: f32 = row.iter().map(|value| value.exp()).sum();
            row.iter().map(|value| value.exp() / sum).collect()
        })
        .collect();

    let request = score_request("w1", ["w2", "w3"]);
    let response = client.score(request.clone()).await.unwrap().into_inner();
    assert_close(&response.scores, &[softmax[0][2], softmax[1][2]]);
    assert_eq!((response.label_scores, response.labels.len()), (None, 0));

    let request = ScoreRequest {
        label: "neutral".into(),
        all_labels: true,
        ..request
    };
    let response = client.score(request.clone()).await.unwrap().into_inner();
    assert_close(&response.scores, &[softmax[0][1], softmax[1][1]]);
    assert_eq!(response.labels, info.labels);
    let tensor = response.label_scores.unwrap();
    assert_eq!(
        (&*tensor.shape, tensor.dtype()),
        (&[2, 3][..], DType::DtypeFloat32)
    );
    assert_close(&float32(&tensor.data), &softmax.concat());

    let response = client
        .score(ScoreRequest {
            raw_scores: true,
            ..request
        })
        .await
        .unwrap()
        .into_inner();
    assert_close(&response.scores, &[logits[0][1], logits[1][1]]);
}

#[tokio::test]
async fn cuts_are_reported_and_the_query_is_protected() {
    let info = info(Task::Score, 1);
    let server = TestServer::start(FakeEngine::new(info.clone()));
    let mut client = server.client().await;
    let request = ScoreRequest {
        truncation: Some(Truncation {
            max_tokens: 8,
            ..Truncation::default()
        }),
        raw_scores: true,
        ..score_request("w1 w2 w3", ["w4", "w5 w6 w7 w8"])
    };
    let response = client.score(request.clone()).await.unwrap().into_inner();
    let query = [word(1), word(2), word(3)];
    let expected = [
        pair_row(&info, &query, &[word(4)])[0],
        pair_row(&info, &query, &[word(5), word(6)])[0],
    ];
    assert_close(&response.scores, &expected);
    let [report] = &*response.truncations else {
        panic!("{:?}", response.truncations)
    };
    assert_eq!((report.index, report.role()), (1, InputRole::Document));
    assert_eq!((report.tokens_given, report.tokens_used), (4, 2));

    let truncation = Truncation {
        max_tokens: 7,
        max_query_tokens: 2,
        pair: PairTruncation::LongestFirst.into(),
        ..Truncation::default()
    };
    let request = ScoreRequest {
        truncation: Some(truncation),
        ..request
    };
    let response = client.score(request).await.unwrap().into_inner();
    let query = [word(1), word(2)];
    let expected = [
        pair_row(&info, &query, &[word(4)])[0],
        pair_row(&info, &query, &[word(5), word(6)])[0],
    ];
    assert_close(&response.scores, &expected);
    let reports: Vec<_> = response
        .truncations
        .iter()
        .map(|report| {
            (
                report.index,
                report.role(),
                report.tokens_given,
                report.tokens_used,
            )
        })
        .collect();
    assert_eq!(
        reports,
        [(1, InputRole::Document, 4, 2), (0, InputRole::Query, 3, 2)]
    );
}

#[tokio::test]
async fn a_message_of_megabytes_is_read() {
    let info = info(Task::Score, 1);
    let server = TestServer::start(FakeEngine::new(info.clone()));
    let mut client = server.client().await;
    let document = "w2 ".repeat(3_000_000);
    let response = client
        .score(score_request("w1", [document]))
        .await
        .unwrap()
        .into_inner();
    let expected = sigmoid(pair_row(&info, &[word(1)], &[word(2); 508])[0]);
    assert_close(&response.scores, &[expected]);
}
