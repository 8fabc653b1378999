use futures_util::future::poll_immediate;

use super::*;
use crate::error::PoolError;
use crate::fixtures;

fn texts(count: usize) -> Vec<Content> {
    // Of very different lengths, so that chunks end at odd places.
    let word = |index: usize| "hello world ".repeat(1 + index * 37 % 200);
    (0..count).map(|index| Content::Text(word(index))).collect()
}

fn tokenizer() -> Arc<Tokenizer> {
    Arc::new(fixtures::load(&fixtures::bert()))
}

#[tokio::test]
async fn many_texts_come_back_in_order() {
    let (tokenizer, pool) = (tokenizer(), Pool::new(2, "t", 4).unwrap());
    let truncation = TruncationOptions::to(50);
    let encoded = encode_batch(&tokenizer, &pool, "a: ", texts(200), &truncation).await;
    let alone = |content: &Content| tokenizer.encode_single("a: ", content, &truncation);
    assert_eq!(encoded, texts(200).iter().map(alone).collect::<Vec<_>>());
}

#[tokio::test]
async fn pairs_come_back_in_order_each_with_its_own_error() {
    let (tokenizer, pool) = (tokenizer(), Pool::new(2, "t", 4).unwrap());
    let truncation = TruncationOptions::to(50);
    let query = Content::Text("hello ".repeat(500));
    let error = encode_query(&tokenizer, &pool, query, &truncation)
        .await
        .unwrap_err();
    assert!(
        matches!(error, EncodeError::QueryTooLong { limit: 47, .. }),
        "{error}"
    );
    let query = Content::Text("hello".to_owned());
    let query = encode_query(&tokenizer, &pool, query, &truncation)
        .await
        .unwrap();
    let mut documents = texts(200);
    documents[7] = Content::TokenIds(vec![1_000]);
    let alone: Vec<_> = documents
        .iter()
        .map(|document| tokenizer.encode_pair(&query, document, &truncation))
        .collect();
    let encoded = encode_pairs(&tokenizer, &pool, &Arc::new(query), documents, &truncation).await;
    assert_eq!(encoded, alone);
    assert_eq!(encoded.iter().filter(|outcome| outcome.is_err()).count(), 1);
}

#[tokio::test]
async fn little_work_needs_no_thread() {
    let (tokenizer, pool) = (tokenizer(), Pool::new(1, "t", 1).unwrap());
    pool.close();
    let truncation = TruncationOptions::to(50);
    let small = vec![
        Content::Text("hello".to_owned()),
        Content::TokenIds(vec![5; 10_000]),
    ];
    for encoded in encode_batch(&tokenizer, &pool, "", small, &truncation).await {
        assert!(encoded.is_ok());
    }
    let large = texts(200);
    for encoded in encode_batch(&tokenizer, &pool, "", large, &truncation).await {
        assert_eq!(encoded, Err(EncodeError::Pool(PoolError::Closed)));
    }
    assert!(
        encode_batch(&tokenizer, &pool, "", Vec::new(), &truncation)
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn what_is_read_with_each_text_counts_as_work() {
    let (tokenizer, pool) = (tokenizer(), Pool::new(1, "t", 1).unwrap());
    pool.close();
    let truncation = TruncationOptions::to(50);
    let prompt = "hello ".repeat(1_000);
    let encoded = encode_batch(&tokenizer, &pool, &prompt, few(), &truncation).await;
    assert_eq!(encoded[0], Err(EncodeError::Pool(PoolError::Closed)));
}

fn few() -> Vec<Content> {
    vec![Content::Text("world".to_owned()); 3]
}

#[tokio::test]
async fn a_request_keeps_to_its_tokens() {
    let (tokenizer, pool) = (tokenizer(), Pool::new(1, "t", 1).unwrap());
    let mut truncation = TruncationOptions::to(50);
    // Each of the three is [CLS] world [SEP].
    truncation.max_request_tokens = Some(8);
    let encoded = encode_batch(&tokenizer, &pool, "", few(), &truncation).await;
    assert!(encoded[0].is_ok() && encoded[1].is_ok());
    let (tokens, limit) = (9, 8);
    let expected = EncodeError::RequestTooLong { tokens, limit };
    assert_eq!(encoded[2], Err(expected.clone()));
    let chunks = encode_batch_chunks(&tokenizer, &pool, "", few(), &truncation, None).await;
    assert!(chunks[1].is_ok());
    assert_eq!(chunks[2], Err(expected));
    truncation.max_request_tokens = Some(9);
    let encoded = encode_batch(&tokenizer, &pool, "", few(), &truncation).await;
    assert!(encoded[2].is_ok());
}

#[tokio::test]
async fn a_dropped_request_stops() {
    let (tokenizer, pool) = (tokenizer(), Pool::new(1, "t", 64).unwrap());
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let mut running = Box::pin(pool.run(move || {
        let _ = wait.recv();
    }));
    assert!(poll_immediate(&mut running).await.is_none());
    let truncation = TruncationOptions::to(50);
    let mut request = Box::pin(encode_batch(
        &tokenizer,
        &pool,
        "",
        texts(1_000),
        &truncation,
    ));
    assert!(poll_immediate(&mut request).await.is_none());
    drop(request);
    drop(release);
    running.await.unwrap();
    // First come, first served: what was queued of the request has been passed by now, and let
    // go of the tokenizer.
    pool.run(|| ()).await.unwrap();
    assert_eq!(Arc::strong_count(&tokenizer), 1);
}

#[test]
fn chunks_are_of_about_one_size() {
    let sizes = [10, 10, 0, 10, 50, 5, 5, 15, 16];
    let contents = sizes.map(|size| Content::Text("x".repeat(size))).to_vec();
    let chunk_sizes: Vec<Vec<usize>> = chunks(contents, 30, Content::text_bytes)
        .map(|chunk| chunk.iter().map(Content::text_bytes).collect())
        .collect();
    assert_eq!(
        chunk_sizes,
        [&[10, 10, 0, 10][..], &[50], &[5, 5, 15], &[16]]
    );
}
