//! Tokens one by one, and token ids back to text: for people who look at a tokenizer.

use std::ops::Range;

use crate::error::EncodeError;
use crate::pool::caught;
use crate::tokenizer::Tokenizer;

/// One token of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectedToken {
    /// Its id.
    pub id: u32,
    /// The part of the text that it stands for; its own name where it stands for none.
    pub text: String,
    /// Put around the text by the tokenizer, or a special token written in it.
    pub special: bool,
    /// The part of the text that it stands for, in characters.
    pub characters: Option<Range<usize>>,
}

impl Tokenizer {
    /// The tokens of `text` as it is: without prompt, truncation, stripping or lower-casing.
    ///
    /// # Errors
    /// The `tokenizers` crate refuses the text.
    pub fn inspect(
        &self,
        text: &str,
        add_special_tokens: bool,
    ) -> Result<Vec<InspectedToken>, EncodeError> {
        let encoding = caught(|| self.reference.encode_char_offsets(text, add_special_tokens))
            .map_err(EncodeError::Tokenizer)?;
        // Byte offset of each character, for slices by characters.
        let mut bytes: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        bytes.push(text.len());
        let ids = encoding.get_ids().iter();
        let names = encoding.get_tokens().iter();
        let special = encoding.get_special_tokens_mask().iter();
        let offsets = encoding.get_offsets().iter();
        let added = self.reference.get_added_tokens_decoder();
        let tokens = ids.zip(names).zip(special).zip(offsets);
        let tokens = tokens.map(|(((&id, name), &around), &(start, end))| {
            let slice = (around == 0 && start < end)
                .then(|| text.get(*bytes.get(start)?..*bytes.get(end)?))
                .flatten();
            InspectedToken {
                id,
                text: slice.unwrap_or(name).to_owned(),
                special: around == 1 || added.get(&id).is_some_and(|token| token.special),
                characters: slice.map(|_| start..end),
            }
        });
        Ok(tokens.collect())
    }

    /// The text of token ids.
    ///
    /// # Errors
    /// The `tokenizers` crate refuses the ids.
    pub fn decode(
        &self,
        token_ids: &[u32],
        skip_special_tokens: bool,
    ) -> Result<String, EncodeError> {
        caught(|| self.reference.decode(token_ids, skip_special_tokens))
            .map_err(EncodeError::Tokenizer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::fixtures;

    #[test]
    fn tokens_have_their_place_and_text_comes_back() {
        let tokenizer = fixtures::load(&fixtures::bert());
        let tokens = tokenizer.inspect("hellö 文", true).unwrap();
        let shown: Vec<_> = tokens
            .iter()
            .map(|token| (token.text.as_str(), token.special, token.characters.clone()))
            .collect();
        let expected = [
            ("[CLS]", true, None),
            ("hellö", false, Some(0..5)),
            ("文", false, Some(6..7)),
            ("[SEP]", true, None),
        ];
        assert_eq!(shown, expected);
        let bare = tokenizer.inspect("a [SEP]", false).unwrap();
        let shown: Vec<_> = bare.iter().map(|token| (token.id, token.special)).collect();
        assert_eq!(shown[1], (3, true));
    }

    #[test]
    fn ids_become_text() {
        let mut tokenizer = fixtures::qwen();
        tokenizer["decoder"] = json!({"type": "ByteLevel", "add_prefix_space": true,
            "trim_offsets": true, "use_regex": true});
        let tokenizer = fixtures::load(&tokenizer);
        let ids: Vec<u32> = tokenizer.encode_segment("hello wörld").unwrap();
        assert_eq!(tokenizer.decode(&ids, true).unwrap(), "hello wörld");
        let with_end = [&*ids, &[1]].concat();
        assert_eq!(tokenizer.decode(&with_end, true).unwrap(), "hello wörld");
        assert_eq!(
            tokenizer.decode(&with_end, false).unwrap(),
            "hello wörld</s>"
        );
    }
}
