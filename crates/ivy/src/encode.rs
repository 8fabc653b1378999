//! Texts to token ids in this process, with the tokenizer that the replicas sent: they get
//! complete sequences and cannot disagree.
//!
//! What is not plain here (templates of single texts, documents in parts, an input that cannot be
//! encoded) goes to the replica as text: it has the same tokenizer, and the last word on errors.

use std::borrow::Cow;
use std::sync::Arc;

use tokenization::{
    Content, Encoded, OverlongPolicy, PairTruncation, Pool, Side, Tokenizer, Truncated,
    TruncationOptions, encode_batch, encode_pairs, encode_query_with,
};
use tulip_proto::v1::{
    self, EmbedRequest, Input, InputRole, InputType, ScoreRequest, Task, TokenIdsForm,
    TruncationPolicy, TruncationReport, TruncationSide, input,
};

use crate::model::Model;

/// What was cut on the way; `None` where the request is still text.
pub(crate) type Cuts = Option<Vec<TruncationReport>>;

/// Puts sequences in place of the query and the documents.
pub(crate) async fn encode_score(model: &Model, pool: &Pool, request: &mut ScoreRequest) -> Cuts {
    let tokenizer = model.tokenizer.as_ref()?;
    if model.task() == Task::Embed {
        return None;
    }
    let truncation = options(model, request.truncation.as_ref())?;
    let query = content(request.query.as_ref()?)?;
    has_room(&truncation, tokenizer.num_special_pair())?;
    let contents = contents(&request.documents)?;
    let instruction = request.instruction.as_str();
    let query = encode_query_with(tokenizer, pool, query, instruction, &truncation).await;
    let query = Arc::new(query.ok()?);
    let encoded = encode_pairs(tokenizer, pool, &query, contents, &truncation).await;
    let (sequences, mut cuts) = sequences(encoded)?;
    let query_cut = cuts.query.map_or(query.truncated, |cut| {
        // One report stands for the query of all pairs: the one that lost most.
        let whole = query
            .truncated
            .filter(|whole| whole.tokens_used <= cut.tokens_used);
        whole.or(Some(cut))
    });
    cuts.reports
        .extend(query_cut.map(|cut| report(0, InputRole::Query, &cut)));
    request.query = None;
    request.documents = sequences;
    request.instruction.clear();
    request.truncation = None;
    Some(cuts.reports)
}

/// Puts sequences in place of the inputs.
pub(crate) async fn encode_embed(model: &Model, pool: &Pool, request: &mut EmbedRequest) -> Cuts {
    let tokenizer: &Arc<Tokenizer> = model.tokenizer.as_ref()?;
    let truncation = options(model, request.truncation.as_ref())?;
    has_room(&truncation, tokenizer.num_special_single())?;
    let prompt = prompt(model, request)?.into_owned();
    let contents = contents(&request.inputs)?;
    let encoded = encode_batch(tokenizer, pool, &prompt, contents, &truncation).await;
    let (sequences, cuts) = sequences(encoded)?;
    request.inputs = sequences;
    request.truncation = None;
    request.prompt_name.clear();
    request.prompt = None;
    request.input_type = InputType::Unspecified.into();
    Some(cuts.reports)
}

/// The limits of a request as Tulip reads them; `None` for what is not done here.
fn options(model: &Model, given: Option<&v1::Truncation>) -> Option<TruncationOptions> {
    let mut options = model.truncation();
    let Some(given) = given else {
        return Some(options);
    };
    options.policy = match TruncationPolicy::try_from(given.policy).ok()? {
        TruncationPolicy::Unspecified | TruncationPolicy::Cut => OverlongPolicy::Cut,
        TruncationPolicy::Error => OverlongPolicy::Error,
        TruncationPolicy::ChunkMax => return None,
    };
    options.side = match TruncationSide::try_from(given.side).ok()? {
        TruncationSide::Unspecified => options.side,
        TruncationSide::Right => Side::Right,
        TruncationSide::Left => Side::Left,
    };
    options.pair = match v1::PairTruncation::try_from(given.pair).ok()? {
        v1::PairTruncation::Unspecified | v1::PairTruncation::ProtectQuery => {
            PairTruncation::ProtectQuery
        }
        v1::PairTruncation::LongestFirst => PairTruncation::LongestFirst,
    };
    let ceiling = |value: u32| (value > 0).then_some(value as usize);
    if let Some(max_tokens) = ceiling(given.max_tokens) {
        options.max_tokens = max_tokens.min(options.max_tokens);
    }
    options.max_query_tokens = ceiling(given.max_query_tokens);
    options.max_document_tokens = ceiling(given.max_document_tokens);
    Some(options)
}

/// Whether a ceiling leaves anything of a text; if not, the replica says so.
fn has_room(truncation: &TruncationOptions, special_tokens: usize) -> Option<()> {
    (truncation.max_tokens > special_tokens).then_some(())
}

fn content(input: &Input) -> Option<Content> {
    if input.form == i32::from(TokenIdsForm::Sequence) || input.second_segment_start != 0 {
        return None;
    }
    match input.content.as_ref()? {
        input::Content::Text(text) => Some(Content::Text(text.clone())),
        input::Content::TokenIds(packed) => {
            let (ids, rest) = packed.as_chunks::<4>();
            let ids = ids.iter().map(|&id| u32::from_le_bytes(id)).collect();
            rest.is_empty().then_some(Content::TokenIds(ids))
        }
    }
}

/// The texts are copied: should one of them fail, the request goes on as it was.
fn contents(inputs: &[Input]) -> Option<Vec<Content>> {
    inputs.iter().map(content).collect()
}

#[derive(Default)]
struct Cut {
    reports: Vec<TruncationReport>,
    /// Of the query, where pairs decided it.
    query: Option<Truncated>,
}

/// All of them, or none.
fn sequences<E>(encoded: Vec<Result<Encoded, E>>) -> Option<(Vec<Input>, Cut)> {
    let mut inputs = Vec::with_capacity(encoded.len());
    let mut cut = Cut::default();
    for (index, encoded) in encoded.into_iter().enumerate() {
        let encoded = encoded.ok()?;
        if let Some(truncated) = encoded.truncated {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            cut.reports
                .push(report(index, InputRole::Document, &truncated));
        }
        if let Some(truncated) = encoded.query_truncated {
            let heavier = |kept: &Truncated| kept.tokens_used <= truncated.tokens_used;
            cut.query = cut.query.filter(heavier).or(Some(truncated));
        }
        let packed: Vec<u8> = encoded
            .token_ids
            .iter()
            .flat_map(|id| id.to_le_bytes())
            .collect();
        inputs.push(Input {
            content: Some(input::Content::TokenIds(packed.into())),
            form: TokenIdsForm::Sequence.into(),
            second_segment_start: encoded.second_segment_start,
        });
    }
    Some((inputs, cut))
}

fn report(index: u32, role: InputRole, cut: &Truncated) -> TruncationReport {
    let side = match cut.side {
        Side::Right => TruncationSide::Right,
        Side::Left => TruncationSide::Left,
    };
    let wire = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    TruncationReport {
        index,
        role: role.into(),
        tokens_given: wire(cut.tokens_given),
        tokens_used: wire(cut.tokens_used),
        side: side.into(),
    }
}

/// The prompt before each text, where that is plain: as Tulip chooses it.
fn prompt<'a>(model: &'a Model, request: &'a EmbedRequest) -> Option<Cow<'a, str>> {
    if !request.instruction.is_empty() {
        return None;
    }
    if let Some(prompt) = &request.prompt {
        return Some(prompt.into());
    }
    let Some(template) = &model.info.template else {
        return request.prompt_name.is_empty().then_some("".into());
    };
    let named = |name: &str| template.prompts.get(name);
    if !request.prompt_name.is_empty() {
        return named(&request.prompt_name).map(Into::into);
    }
    let found = match request.input_type() {
        InputType::Query if template.query.is_empty() => named("query"),
        InputType::Document if template.document.is_empty() => ["document", "passage", "corpus"]
            .into_iter()
            .find_map(named),
        InputType::Query | InputType::Document => return None,
        InputType::Unspecified => named(&template.default_prompt_name),
    };
    Some(found.map_or("".into(), Into::into))
}
