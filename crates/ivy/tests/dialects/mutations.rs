//! Requests that nobody would write: no panic, no 5xx, and an error in the family's own shape.
//!
//! `IVY_MUTATIONS` sets how many; a hundred thousand take a minute of an optimized build.

use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use crate::support::{TestGateway, classifier, embedder, request, reranker};

/// Right bodies with every field that a route reads.
static ROUTES: LazyLock<Vec<(&'static str, Value)>> = LazyLock::new(|| {
    let embeddings = json!({"input": ["w1", [5, 6], {"text": "w2"}], "model": "m",
        "encoding_format": "float", "dimensions": 2, "output_dimension": 2,
        "output_dtype": "float", "input_type": "query", "truncation": true, "task": "sts",
        "embedding_type": "float", "late_chunking": false, "normalized": true, "truncate": true,
        "truncate_prompt_tokens": 8, "priority": 0, "user": "u"});
    let rerank = json!({"model": "m", "query": {"text": "w1"},
        "documents": ["w2", {"text": "w3", "title": "w4"}], "top_n": 1, "top_k": 1,
        "return_documents": true, "rank_fields": ["title"], "max_chunks_per_doc": 1,
        "max_tokens_per_doc": 2, "truncation": true, "priority": 1});
    let score = json!({"text_1": ["w1", "w2"], "text_2": ["w3", "w4"], "data_1": "w1",
        "data_2": "w2", "queries": "w1", "documents": ["w2"], "items": ["w2"],
        "truncate_prompt_tokens": 6, "truncation_side": "left", "max_tokens_per_query": 1,
        "max_tokens_per_doc": 1, "use_activation": false, "instruction": ""});
    let tei = json!({"query": "w1", "texts": ["w2", "w3"], "truncate": true,
        "truncation_direction": "Left", "raw_scores": true, "return_text": true, "top_n": 1,
        "documents": ["w2"], "use_activation": true});
    let embed = json!({"inputs": ["w1", [5]], "truncate": true, "truncation_direction": "right",
        "prompt_name": "sts", "normalize": true, "dimensions": 2});
    vec![
        ("/v1/embeddings", embeddings),
        ("/v1/rerank", rerank),
        (
            "/v2/rerank",
            json!({"model": "m", "query": "w1", "documents": ["w2", "w3"], "top_n": 1,
                "max_tokens_per_doc": 4, "priority": 0}),
        ),
        (
            "/v2/embed",
            json!({"model": "m", "texts": ["w1"], "images": [], "input_type": "search_query",
                "inputs": [{"content": [{"type": "text", "text": "w1"}]}], "max_tokens": 8,
                "output_dimension": 2, "embedding_types": ["float", "int8", "base64"],
                "truncate": "END", "priority": 0}),
        ),
        ("/score", score),
        ("/rerank", tei),
        ("/embed", embed.clone()),
        ("/embed_all", embed.clone()),
        ("/embed_sparse", embed),
        (
            "/predict",
            json!({"inputs": [["w1"], ["w1", "w2"]], "truncate": true, "raw_scores": true}),
        ),
        (
            "/similarity",
            json!({"inputs": {"source_sentence": "w1", "sentences": ["w2"]},
                "parameters": {"truncate": true, "prompt_name": "sts"}}),
        ),
        (
            "/tokenize",
            json!({"inputs": ["w1"], "add_special_tokens": true, "prompt_name": "sts"}),
        ),
        (
            "/decode",
            json!({"ids": [[2, 5], [3]], "skip_special_tokens": true}),
        ),
    ]
});

#[derive(Debug, Clone)]
enum Mutation {
    /// The value at this place, counted through the tree, becomes another.
    Replace(usize, Value),
    /// A field of the object goes.
    Remove(usize),
    /// An entry of a list or a field comes.
    Insert(usize, String, Value),
    /// A byte of the text changes.
    Byte(usize, u8),
    /// Some bytes come.
    Bytes(usize, Vec<u8>),
    /// The text ends early.
    Cut(usize),
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-3_i64..200).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "(w[0-9]{1,2} ?){0,4}".prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
        prop::sample::select(vec![
            "float", "base64", "int8", "binary", "query", "left", "END", "NONE"
        ])
        .prop_map(Value::from),
        Just(Value::from("w1 ".repeat(600))),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec(("[a-z_]{1,6}|text|image|content|type", inner), 0..4)
                .prop_map(|fields| Value::Object(Map::from_iter(fields))),
        ]
    })
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        4 => (any::<usize>(), value()).prop_map(|(at, value)| Mutation::Replace(at, value)),
        2 => any::<usize>().prop_map(Mutation::Remove),
        2 => (any::<usize>(), "[a-z_]{1,8}", value())
            .prop_map(|(at, key, value)| Mutation::Insert(at, key, value)),
        1 => (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Byte(at, byte)),
        1 => (any::<usize>(), vec(any::<u8>(), 1..8))
            .prop_map(|(at, bytes)| Mutation::Bytes(at, bytes)),
        1 => any::<usize>().prop_map(Mutation::Cut),
    ]
}

/// The leaves of the tree, in order.
fn leaves<'a>(value: &'a mut Value, found: &mut Vec<&'a mut Value>) {
    let holds_more = match value {
        Value::Array(values) => !values.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => false,
    };
    if !holds_more {
        return found.push(value);
    }
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| leaves(value, found)),
        Value::Object(fields) => fields.values_mut().for_each(|value| leaves(value, found)),
        _ => {}
    }
}

fn mutated(body: &Value, mutations: &[Mutation]) -> Vec<u8> {
    let mut body = body.clone();
    for mutation in mutations {
        match mutation {
            Mutation::Replace(at, value) => {
                let Some(fields) = body.as_object_mut() else {
                    continue;
                };
                let count = fields.len().max(1);
                if at % 2 == 0 {
                    if let Some(field) = fields.values_mut().nth(at / 2 % count) {
                        *field = value.clone();
                    }
                } else {
                    let mut found = Vec::new();
                    leaves(&mut body, &mut found);
                    let count = found.len();
                    *found.swap_remove(at / 2 % count) = value.clone();
                }
            }
            Mutation::Remove(at) => {
                let Some(fields) = body.as_object_mut() else {
                    continue;
                };
                let key = fields.keys().nth(at % fields.len().max(1)).cloned();
                key.and_then(|key| fields.remove(&key));
            }
            Mutation::Insert(at, key, value) => {
                let Some(fields) = body.as_object_mut() else {
                    continue;
                };
                let count = fields.len().max(1);
                match fields.values_mut().nth(at % count) {
                    Some(Value::Array(values)) => values.push(value.clone()),
                    _ => drop(fields.insert(key.clone(), value.clone())),
                }
            }
            Mutation::Byte(..) | Mutation::Bytes(..) | Mutation::Cut(_) => {}
        }
    }
    let mut bytes = body.to_string().into_bytes();
    for mutation in mutations {
        let at = |at: usize| at % bytes.len().max(1);
        match mutation {
            Mutation::Byte(place, byte) if !bytes.is_empty() => {
                let place = at(*place);
                bytes[place] = *byte;
            }
            Mutation::Bytes(place, more) => {
                let place = at(*place);
                bytes.splice(place..place, more.iter().copied());
            }
            Mutation::Cut(place) => bytes.truncate(at(*place)),
            _ => {}
        }
    }
    bytes
}

/// The keys of an error, whichever family's it is.
fn is_error_of_a_family(body: &Value) -> bool {
    let is_text = |key: &str| body.get(key).is_some_and(Value::is_string);
    let inner = body.get("error").and_then(Value::as_object);
    is_text("message")
        || is_text("detail")
        || (is_text("error") && is_text("error_type"))
        || inner.is_some_and(|error| error.contains_key("message") && error.contains_key("type"))
}

#[test]
fn mutated_requests() {
    let cases = std::env::var("IVY_MUTATIONS").ok();
    let cases = cases.map_or(1_500, |cases| cases.parse().unwrap());
    let runtime = Runtime::new().unwrap();
    let gateways: Vec<TestGateway> = runtime.block_on(async {
        let remote = reranker().over_the_network().await;
        vec![reranker(), embedder(), classifier(), remote]
    });
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    });
    let routes = 0..ROUTES.len();
    let inputs = (routes, 0..gateways.len(), vec(mutation(), 0..4));
    let mut answered = std::collections::BTreeMap::<u16, u32>::new();
    let counted = std::cell::RefCell::new(&mut answered);
    runner
        .run(&inputs, |(route, gateway, mutations)| {
            let (path, body) = &ROUTES[route];
            let body = mutated(body, &mutations);
            let mut sent = request("POST", path, &[], String::new());
            *sent.body_mut() = body.clone().into();
            let answer = runtime.block_on(gateways[gateway].send(sent));
            let status = answer.status.as_u16();
            *counted.borrow_mut().entry(status).or_default() += 1;
            let shown = String::from_utf8_lossy(&body);
            prop_assert!(
                matches!(status, 200 | 400 | 422 | 424),
                "{status} {} for {path} {shown}",
                answer.text()
            );
            let parsed = serde_json::from_slice::<Value>(&answer.body);
            prop_assert!(parsed.is_ok(), "{} for {path} {shown}", answer.text());
            if status != 200 {
                let found = parsed.unwrap();
                prop_assert!(is_error_of_a_family(&found), "{found} for {path} {shown}");
                // 424 is TEI's for what the model does not do, never for a failure of ours.
                let wrong_task = [
                    "not supported",
                    "gives vectors",
                    "gives scores",
                    "gives dense vectors",
                    "no labels",
                ];
                let message = found.to_string();
                let expected = wrong_task.iter().any(|words| message.contains(words));
                prop_assert!(status != 424 || expected, "{found} for {path} {shown}");
            }
            Ok(())
        })
        .unwrap();
    // Mutations that change nothing of importance leave right requests.
    println!("answers by status: {answered:?}");
    assert!(
        answered.contains_key(&200) && answered.len() >= 3,
        "{answered:?}"
    );
}
