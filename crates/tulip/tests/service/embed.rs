//! Vectors as the caller wants them.

use tulip::engine::Task;
use tulip::fake_engine::FakeEngine;
use tulip_proto::v1::{DType, EmbedRequest, InputType, Normalization, OutputKind};

use crate::support::{
    CLS, SEP, TestServer, assert_close, embed_request, float32, info, segment, sequence,
    single_row, text, word,
};

#[tokio::test]
async fn one_row_for_each_input_in_order() {
    let info = info(Task::Embed, 12);
    let server = TestServer::start(FakeEngine::new(info.clone()));
    let mut client = server.client().await;
    let inputs = vec![
        text("w1 w2"),
        sequence(&[CLS, word(5), SEP], 0),
        text(""),
        segment(&[word(1), word(2)]),
        text("  w5 "),
    ];
    let request = EmbedRequest {
        request_id: "r-1".into(),
        outputs: vec![OutputKind::Dense.into()],
        inputs,
        ..EmbedRequest::default()
    };
    let response = client.embed(request).await.unwrap().into_inner();
    let tensor = response.embeddings.unwrap();
    assert_eq!(
        (&*tensor.shape, tensor.dtype()),
        (&[5, 12][..], DType::DtypeFloat32)
    );
    let (two, five) = (
        single_row(&info, &[word(1), word(2)]),
        single_row(&info, &[word(5)]),
    );
    let expected = [two.clone(), five.clone(), single_row(&info, &[]), two, five].concat();
    assert_close(&float32(&tensor.data), &expected);
    assert_eq!(response.request_id, "r-1");
    let usage = response.usage.unwrap();
    assert_eq!(
        (usage.input_tokens, usage.sequences),
        (4 + 3 + 2 + 4 + 3, 5)
    );
}

#[tokio::test]
async fn prompts_go_before_the_text() {
    let mut info = info(Task::Embed, 4);
    info.prompts.named = [
        ("query".into(), "w90 ".into()),
        ("document".into(), "w91 ".into()),
        ("sts".into(), "w92 ".into()),
    ]
    .into();
    info.prompts.default_name = Some("sts".into());
    let server = TestServer::start(FakeEngine::new(info.clone()));
    let mut client = server.client().await;
    let plain = embed_request(["w1"]);
    let cases = [
        (plain.clone(), 92),
        (
            EmbedRequest {
                input_type: InputType::Query.into(),
                ..plain.clone()
            },
            90,
        ),
        (
            EmbedRequest {
                input_type: InputType::Document.into(),
                ..plain.clone()
            },
            91,
        ),
        (
            EmbedRequest {
                prompt_name: "document".into(),
                ..plain.clone()
            },
            91,
        ),
        (
            EmbedRequest {
                prompt: Some("w93 ".into()),
                prompt_name: "document".into(),
                ..plain.clone()
            },
            93,
        ),
    ];
    for (request, prompt) in cases {
        let response = client.embed(request).await.unwrap().into_inner();
        let expected = single_row(&info, &[word(prompt), word(1)]);
        assert_close(&float32(&response.embeddings.unwrap().data), &expected);
    }
    let none = EmbedRequest {
        prompt: Some(String::new()),
        ..plain
    };
    let response = client.embed(none).await.unwrap().into_inner();
    assert_close(
        &float32(&response.embeddings.unwrap().data),
        &single_row(&info, &[word(1)]),
    );
}

#[tokio::test]
async fn matryoshka_vectors_are_cut_and_normalized_again() {
    let mut info = info(Task::Embed, 12);
    info.matryoshka_dimensions = vec![4, 8];
    let server = TestServer::start(FakeEngine::new(info.clone()));
    let mut client = server.client().await;
    let request = EmbedRequest {
        dimensions: 4,
        ..embed_request(["w1"])
    };
    let response = client.embed(request).await.unwrap().into_inner();
    let tensor = response.embeddings.unwrap();
    assert_eq!(tensor.shape, [1, 4]);
    let row = &single_row(&info, &[word(1)])[..4];
    let length = row.iter().map(|value| value * value).sum::<f32>().sqrt();
    let expected: Vec<f32> = row.iter().map(|value| value / length).collect();
    assert_close(&float32(&tensor.data), &expected);
}

#[tokio::test]
async fn a_model_that_does_not_normalize_does_so_on_request() {
    let mut info = info(Task::Embed, 6);
    info.normalized = false;
    let server = TestServer::start(FakeEngine::new(info.clone()));
    let mut client = server.client().await;
    let row = single_row(&info, &[word(1)]);
    let plain = client
        .embed(embed_request(["w1"]))
        .await
        .unwrap()
        .into_inner();
    assert_close(&float32(&plain.embeddings.unwrap().data), &row);

    let request = EmbedRequest {
        normalization: Normalization::L2.into(),
        ..embed_request(["w1"])
    };
    let normalized = client.embed(request).await.unwrap().into_inner();
    let length = row.iter().map(|value| value * value).sum::<f32>().sqrt();
    let expected: Vec<f32> = row.iter().map(|value| value / length).collect();
    assert_close(&float32(&normalized.embeddings.unwrap().data), &expected);
}

#[tokio::test]
async fn every_number_format_has_its_bytes_and_shape() {
    let info = info(Task::Embed, 12);
    let server = TestServer::start(FakeEngine::new(info.clone()));
    let mut client = server.client().await;
    let row = single_row(&info, &[word(1)]);
    let cases = [
        (DType::DtypeFloat32, 12, 48),
        (DType::DtypeFloat16, 12, 24),
        (DType::DtypeBfloat16, 12, 24),
        (DType::DtypeInt8, 12, 12),
        (DType::DtypeUint8, 12, 12),
        (DType::DtypeBinary, 2, 2),
        (DType::DtypeUbinary, 2, 2),
    ];
    for (dtype, elements, bytes) in cases {
        let request = EmbedRequest {
            dtype: dtype.into(),
            ..embed_request(["w1"])
        };
        let tensor = client
            .embed(request)
            .await
            .unwrap()
            .into_inner()
            .embeddings
            .unwrap();
        assert_eq!(
            (tensor.dtype(), &*tensor.shape, tensor.data.len()),
            (dtype, &[1, elements][..], bytes)
        );
        if dtype == DType::DtypeInt8 {
            for (byte, value) in tensor.data.iter().zip(&row) {
                assert!((f32::from(byte.cast_signed()) - value * 127.0).abs() <= 0.5);
            }
        }
        if dtype == DType::DtypeUbinary {
            for (index, value) in row.iter().enumerate() {
                assert_eq!(
                    tensor.data[index / 8] >> (7 - index % 8) & 1 == 1,
                    *value > 0.0
                );
            }
        }
    }
}
