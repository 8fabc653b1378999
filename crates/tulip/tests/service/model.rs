//! What is served, as a gateway sees it.

use tulip::engine::Task;
use tulip::fake_engine::FakeEngine;
use tulip_proto::v1::{self, GetModelRequest};

use crate::support::{TOKENIZER, TestServer, config, info};

#[tokio::test]
async fn an_embedding_model_is_described() {
    let mut info = info(Task::Embed, 12);
    info.matryoshka_dimensions = vec![4, 8];
    info.prompts.named = [("query".into(), "q: ".into())].into();
    info.prompts.default_name = Some("query".into());
    let config = config();
    let server = TestServer::with_config(FakeEngine::new(info), config.clone());
    let mut client = server.client().await;
    let request = GetModelRequest {
        model: "any".into(),
        include_tokenizer: true,
    };
    let model = client.get_model(request).await.unwrap().into_inner();
    assert_eq!((&*model.model, model.task()), ("fake", v1::Task::Embed));
    assert_eq!(
        (model.dimensions, &*model.similarity, model.normalized),
        (12, "cosine", true)
    );
    assert_eq!((&*model.score_activation, &*model.positive_label), ("", ""));
    assert_eq!(model.matryoshka_dimensions, [4, 8]);
    assert_eq!(model.outputs, [i32::from(v1::OutputKind::Dense)]);
    let limits = model.limits.unwrap();
    assert_eq!(limits.max_sequence_tokens, 512);
    assert_eq!(
        limits.max_items_per_request as usize,
        config.max_items_per_request
    );
    assert_eq!(limits.max_queued_tokens, config.scheduler.max_queued_tokens);
    assert_eq!(limits.max_message_bytes, config.max_message_bytes as u64);
    let template = model.template.unwrap();
    assert_eq!(
        (&*template.prompts["query"], &*template.default_prompt_name),
        ("q: ", "query")
    );
    let tokenizer = model.tokenizer.unwrap();
    assert_eq!(tokenizer.tokenizer_json, TOKENIZER);
    assert_eq!(tokenizer.sha256.len(), 64);
}

#[tokio::test]
async fn a_classifier_is_described_and_the_tokenizer_stays_home() {
    let server = TestServer::start(FakeEngine::new(info(Task::Classify, 2)));
    let mut client = server.client().await;
    let model = client
        .get_model(GetModelRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(model.task(), v1::Task::Classify);
    assert_eq!(model.labels, ["LABEL_0", "LABEL_1"]);
    assert_eq!(
        (&*model.positive_label, &*model.score_activation),
        ("LABEL_1", "softmax")
    );
    assert_eq!(
        (model.dimensions, &*model.similarity, model.outputs.len()),
        (0, "", 0)
    );
    let tokenizer = model.tokenizer.unwrap();
    assert!(tokenizer.tokenizer_json.is_empty());
    assert_eq!(tokenizer.sha256.len(), 64);
}
