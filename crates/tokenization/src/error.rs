//! What can go wrong, in the caller's terms. The caller adds the name of the field.

/// Why a `tokenizer.json` cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// Not a tokenizer that the `tokenizers` crate can read.
    #[error("tokenizer.json: {0}")]
    Json(String),
    /// The special tokens alone are longer than a sequence may be.
    #[error(
        "max_sequence_tokens={max_sequence_tokens} leaves no room beside {special_tokens} special tokens"
    )]
    SequenceTooShort {
        /// The model's limit.
        max_sequence_tokens: usize,
        /// Special tokens of a single text.
        special_tokens: usize,
    },
    /// A special token that the model has no embedding for.
    #[error("special token {token:?} has id {id}, the model's vocab_size is {vocab_size}")]
    SpecialTokenOutOfRange {
        /// Its text, as far as known.
        token: String,
        /// Its id.
        id: u32,
        /// The model's limit.
        vocab_size: u32,
    },
    /// The template of pairs cannot be used.
    #[error("pair_template: {0}")]
    Template(String),
    /// The template of pairs leaves no room for texts, even without an instruction.
    #[error(
        "pair_template: has {tokens} tokens beside its texts, limit max_sequence_tokens={max_sequence_tokens}"
    )]
    TemplateTooLong {
        /// Its own tokens.
        tokens: usize,
        /// The model's limit.
        max_sequence_tokens: usize,
    },
    /// The default instruction leaves no room in the template of pairs.
    #[error(
        "instruction: has {tokens} tokens, limit {limit}: the template has {template_tokens} \
         more, max_sequence_tokens={max_sequence_tokens}"
    )]
    InstructionTooLong {
        /// The instruction's own tokens.
        tokens: usize,
        /// What it may have, so that one token of the texts has room.
        limit: usize,
        /// Tokens of the template without it.
        template_tokens: usize,
        /// The model's limit.
        max_sequence_tokens: usize,
    },
    /// A single text gets token types other than 0.
    #[error("the post-processor gives a single text token types other than 0")]
    TokenTypes,
}

/// Why a text has no token ids. One bad text is one item's error, not the request's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The whole sequence passes its limit, and cutting is not wanted.
    /// `tokens` is a lower bound when the text is far beyond the limit.
    #[error("at least {tokens} tokens with special tokens, limit {limit}")]
    TooLong {
        /// Tokens of the whole sequence.
        tokens: usize,
        /// `max_tokens`, or the model's own limit.
        limit: usize,
    },
    /// One document passes its own ceiling, and cutting is not wanted.
    /// `document_tokens` is a lower bound when the text is far beyond the limit.
    #[error(
        "the document has at least {document_tokens} tokens, limit max_document_tokens={limit}"
    )]
    DocumentTooLong {
        /// The document's own tokens.
        document_tokens: usize,
        /// `max_document_tokens`.
        limit: usize,
    },
    /// The query does not fit. `query_tokens` is a lower bound when it is far beyond the limit.
    #[error("the query has at least {query_tokens} tokens, limit {limit}")]
    QueryTooLong {
        /// The query's own tokens.
        query_tokens: usize,
        /// What it may have: `max_query_tokens`, or a sequence less the special tokens of a pair.
        limit: usize,
    },
    /// A request's instruction takes the room of a query that would fit without it.
    #[error("the instruction has {instruction_tokens} tokens, limit {limit}")]
    InstructionTooLong {
        /// The instruction's own tokens.
        instruction_tokens: usize,
        /// What the query and the template leave to it.
        limit: usize,
    },
    /// Not one token of the text would be left.
    #[error(
        "no room for the text: {query_tokens} query tokens and {special_tokens} special tokens fill the limit of {limit}"
    )]
    NoRoom {
        /// The query's own tokens; 0 for a single text.
        query_tokens: usize,
        /// Special tokens of the sequence.
        special_tokens: usize,
        /// `max_tokens`.
        limit: usize,
    },
    /// All sequences together are too many tokens; those that came before this one are not.
    #[error("the request has at least {tokens} tokens, limit {limit}")]
    RequestTooLong {
        /// Tokens up to and with this text; those of the texts after it were not counted.
        tokens: usize,
        /// `max_request_tokens`.
        limit: usize,
    },
    /// A token id that the model has no embedding for.
    #[error("token id {id} at position {position}, the model's vocab_size is {vocab_size}")]
    TokenIdOutOfRange {
        /// Index in the ids given, or made of the text.
        position: usize,
        /// The id.
        id: u32,
        /// Ids are below this.
        vocab_size: u32,
    },
    /// Chunks that share all their tokens would never end.
    #[error("chunk_overlap_tokens={overlap} must be below the {room} tokens that a chunk may have")]
    ChunkOverlap {
        /// Tokens that neighbouring chunks share.
        overlap: usize,
        /// Tokens of a document in one sequence.
        room: usize,
    },
    /// A request's instruction, and no place for it.
    #[error("this model's template has no place for an instruction")]
    Instruction,
    /// A sequence of no tokens.
    #[error("the sequence has no tokens, at least 1 is needed")]
    Empty,
    /// A pair whose token types are not 0…0 1…1.
    #[error("this tokenizer gives pairs token types that cannot be represented")]
    TokenTypes,
    /// The `tokenizers` crate refused the text.
    #[error("tokenization failed: {0}")]
    Tokenizer(String),
    /// The tokenizer threads did not do the work.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

/// Why a job gave no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// The pool was closed before the job ran.
    #[error("the tokenizer threads have been stopped")]
    Closed,
    /// The job panicked; the pool goes on.
    #[error("a tokenizer job panicked: {0}")]
    Panicked(String),
}
