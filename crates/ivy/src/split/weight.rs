//! What an item costs, before it is sent.

use tulip_proto::v1::{Input, TokenIdsForm, input};

/// Bytes of text for one token, where only the replica will know: few, so that chunks of other
/// scripts are not much too large.
const BYTES_PER_TOKEN: usize = 3;
/// Special tokens of a sequence that the replica adds.
const SPECIAL_TOKENS: usize = 2;
/// Bytes of an item on the wire beyond its content.
const WIRE_BYTES: usize = 24;

/// Tokens that the model reads for an item, and bytes on the wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    pub(crate) tokens: u64,
    /// Tokens that it has for certain: `tokens` of what is text still is a guess.
    pub(crate) certain_tokens: u64,
    pub(crate) bytes: u64,
}

impl Weight {
    /// Of an item that is read after `before` tokens of a query, at most `max_tokens` long.
    pub(crate) fn of(item: &Input, before: usize, max_tokens: usize) -> Self {
        let tokens = own_tokens(item);
        let (tokens, certain_tokens) = if item.form == i32::from(TokenIdsForm::Sequence) {
            (tokens, tokens)
        } else {
            ((tokens + before + SPECIAL_TOKENS).min(max_tokens.max(1)), 1)
        };
        let bytes = match &item.content {
            None => 0,
            Some(input::Content::Text(text)) => text.len(),
            Some(input::Content::TokenIds(packed)) => packed.len(),
        };
        Self {
            tokens: tokens.max(1) as u64,
            certain_tokens: certain_tokens as u64,
            bytes: (bytes + WIRE_BYTES) as u64,
        }
    }
}

/// Tokens of an input alone.
pub(crate) fn own_tokens(input: &Input) -> usize {
    match &input.content {
        None => 0,
        Some(input::Content::Text(text)) => text.len().div_ceil(BYTES_PER_TOKEN),
        Some(input::Content::TokenIds(packed)) => packed.len() / 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(count: usize, form: TokenIdsForm) -> Input {
        Input {
            content: Some(input::Content::TokenIds(vec![0; 4 * count].into())),
            form: form.into(),
            second_segment_start: 0,
        }
    }

    #[test]
    fn items_weigh_what_the_model_reads() {
        let tokens = |item: &Input| Weight::of(item, 10, 512).tokens;
        assert_eq!(tokens(&ids(100, TokenIdsForm::Sequence)), 100);
        assert_eq!(tokens(&ids(100, TokenIdsForm::Segment)), 112);
        assert_eq!(tokens(&ids(1000, TokenIdsForm::Segment)), 512, "it is cut");
        assert_eq!(tokens(&Input::default()), 12);
        let text = Input {
            content: Some(input::Content::Text("abcdef".into())),
            ..Input::default()
        };
        assert_eq!(tokens(&text), 14);
        assert_eq!(Weight::of(&text, 10, 512).bytes, 6 + 24);
        let certain = |item: &Input| Weight::of(item, 10, 512).certain_tokens;
        assert_eq!(certain(&ids(100, TokenIdsForm::Sequence)), 100);
        assert_eq!(certain(&text), 1);
    }
}
