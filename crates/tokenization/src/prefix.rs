//! Reading only the beginning of a text that is far longer than what may stay of it.

/// Ends of prefixes whose tokens are the first tokens of the whole text, for certain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PrefixRule;

impl PrefixRule {
    /// The rule of a tokenizer; `None` where nothing is certain.
    pub(crate) fn of(_reference: &tokenizers::Tokenizer) -> Option<Self> {
        None
    }

    /// End, in bytes, of the shortest certain prefix of at least `min_bytes`.
    pub(crate) fn prefix_end(self, _text: &str, _min_bytes: usize) -> Option<usize> {
        None
    }
}
