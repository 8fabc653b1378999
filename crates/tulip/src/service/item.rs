//! Entries of `documents` and `inputs`: reading them, and what is said of those that fail.

use std::fmt;

use bytes::Bytes;
use tokenization::{Content, EncodeError};
use tulip_proto::v1::{ErrorReason, Input, ItemError, TokenIdsForm, input};

use super::options::enum_value;
use crate::error::{Error, Result};
use crate::sequence::Sequence;

/// Where an input stands in the request. Becomes text only when something is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    Query,
    Document(usize),
    Input(usize),
}

impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Query => write!(formatter, "query"),
            Self::Document(index) => write!(formatter, "documents[{index}]"),
            Self::Input(index) => write!(formatter, "inputs[{index}]"),
        }
    }
}

impl Path {
    fn index(self) -> u32 {
        match self {
            Self::Query => 0,
            Self::Document(index) | Self::Input(index) => u32::try_from(index).unwrap_or(u32::MAX),
        }
    }
}

/// Why one item has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ItemFailure {
    pub(crate) index: u32,
    reason: ErrorReason,
    field: String,
    message: String,
}

impl ItemFailure {
    fn at(path: Path, subfield: &str, reason: ErrorReason, message: String) -> Self {
        Self {
            index: path.index(),
            reason,
            field: format!("{path}{subfield}"),
            message,
        }
    }

    fn invalid(path: Path, subfield: &str, message: String) -> Self {
        Self::at(path, subfield, ErrorReason::InvalidInput, message)
    }

    /// The model gave NaN or infinity.
    pub(crate) fn not_finite(path: Path) -> Self {
        Self::at(
            path,
            "",
            ErrorReason::NotFinite,
            "the model gave NaN or infinity".into(),
        )
    }

    /// It could not be tokenized.
    pub(crate) fn encode(path: Path, error: &EncodeError) -> Self {
        match error {
            EncodeError::TokenIdOutOfRange {
                position,
                id,
                vocab_size,
            } => Self::at(
                path,
                &format!(".token_ids[{position}]"),
                ErrorReason::TokenIdOutOfRange,
                format!("is {id}, must be below vocab_size={vocab_size}"),
            ),
            EncodeError::DocumentTooLong {
                document_tokens,
                limit,
            } if path == Path::Query => Self::at(
                path,
                "",
                ErrorReason::TooLong,
                format!("has at least {document_tokens} tokens, limit max_query_tokens={limit}"),
            ),
            EncodeError::TooLong { .. }
            | EncodeError::DocumentTooLong { .. }
            | EncodeError::QueryTooLong { .. }
            | EncodeError::RequestTooLong { .. }
            | EncodeError::NoRoom { .. } => {
                Self::at(path, "", ErrorReason::TooLong, error.to_string())
            }
            EncodeError::Empty => Self::invalid(path, ".token_ids", error.to_string()),
            EncodeError::ChunkOverlap { .. }
            | EncodeError::Instruction
            | EncodeError::InstructionTooLong { .. } => Self::invalid(path, "", error.to_string()),
            EncodeError::TokenTypes | EncodeError::Tokenizer(_) | EncodeError::Pool(_) => {
                Self::at(path, "", ErrorReason::TokenizationFailed, error.to_string())
            }
        }
    }

    /// As the failure of the whole request.
    pub(crate) fn into_error(self) -> Error {
        match self.reason {
            ErrorReason::NotFinite => Error::Internal(format!("{}: {}", self.field, self.message)),
            _ => Error::InvalidArgument {
                field: self.field,
                message: self.message,
            },
        }
    }
}

impl From<ItemFailure> for ItemError {
    fn from(failure: ItemFailure) -> Self {
        Self {
            index: failure.index,
            reason: failure.reason.into(),
            message: format!("{}: {}", failure.field, failure.message),
        }
    }
}

/// What an input holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A text or its own tokens: special tokens, prompt and query are still to come.
    Segment(Content),
    /// All that the model reads.
    Sequence(Sequence),
}

/// Whether the input says that it is a complete sequence.
pub(crate) fn is_sequence(input: &Input) -> bool {
    input.form == i32::from(TokenIdsForm::Sequence)
}

/// Reads one input: the outer error is the request's, the inner one the item's.
pub(crate) fn read(path: Path, input: Input) -> Result<Result<Item, ItemFailure>> {
    let form: TokenIdsForm = enum_value(|| format!("{path}.form"), input.form)?;
    Ok(read_content(
        path,
        input.content,
        form,
        input.second_segment_start,
    ))
}

fn read_content(
    path: Path,
    content: Option<input::Content>,
    form: TokenIdsForm,
    second_segment_start: u32,
) -> Result<Item, ItemFailure> {
    if form != TokenIdsForm::Sequence && second_segment_start != 0 {
        let message = format!("is {second_segment_start}, must be 0 unless form is SEQUENCE");
        return Err(ItemFailure::invalid(path, ".second_segment_start", message));
    }
    match (content, form) {
        (None, _) => Err(ItemFailure::invalid(
            path,
            "",
            "has neither text nor token_ids".into(),
        )),
        (Some(input::Content::Text(_)), TokenIdsForm::Sequence) => Err(ItemFailure::invalid(
            path,
            ".form",
            "is SEQUENCE, which needs token_ids, not text".into(),
        )),
        (Some(input::Content::Text(text)), _) => Ok(Item::Segment(Content::Text(text))),
        (Some(input::Content::TokenIds(packed)), TokenIdsForm::Sequence) => {
            let token_ids = unpack(path, &packed)?;
            if second_segment_start as usize >= token_ids.len().max(1) {
                let message = format!(
                    "is {second_segment_start}, must be below the {} tokens there are",
                    token_ids.len()
                );
                return Err(ItemFailure::invalid(path, ".second_segment_start", message));
            }
            Ok(Item::Sequence(Sequence {
                token_ids,
                second_segment_start,
            }))
        }
        (Some(input::Content::TokenIds(packed)), _) => {
            Ok(Item::Segment(Content::TokenIds(unpack(path, &packed)?)))
        }
    }
}

/// Little-endian u32 to token ids.
fn unpack(path: Path, packed: &Bytes) -> Result<Vec<u32>, ItemFailure> {
    let (chunks, rest) = packed.as_chunks::<4>();
    if !rest.is_empty() {
        let message = format!("has {} bytes, must be a multiple of 4", packed.len());
        return Err(ItemFailure::invalid(path, ".token_ids", message));
    }
    Ok(chunks
        .iter()
        .map(|&chunk| u32::from_le_bytes(chunk))
        .collect())
}

/// Token ids to little-endian u32.
pub(crate) fn pack(token_ids: &[u32]) -> Bytes {
    token_ids
        .iter()
        .flat_map(|id| id.to_le_bytes())
        .collect::<Vec<u8>>()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(packed: &'static [u8], form: TokenIdsForm, second_segment_start: u32) -> Input {
        let content = Some(input::Content::TokenIds(Bytes::from_static(packed)));
        Input {
            content,
            form: form.into(),
            second_segment_start,
        }
    }

    fn failure(input: Input) -> String {
        ItemError::from(read(Path::Document(3), input).unwrap().unwrap_err()).message
    }

    #[test]
    fn token_ids_are_little_endian() {
        let item = read(
            Path::Query,
            ids(&[1, 0, 0, 0, 2, 1, 0, 0], TokenIdsForm::Unspecified, 0),
        );
        assert_eq!(item, Ok(Ok(Item::Segment(Content::TokenIds(vec![1, 258])))));
        assert_eq!(pack(&[1, 258]), [1, 0, 0, 0, 2, 1, 0, 0].as_slice());
    }

    #[test]
    fn a_sequence_keeps_its_second_segment() {
        let item = read(
            Path::Query,
            ids(&[1, 0, 0, 0, 2, 0, 0, 0], TokenIdsForm::Sequence, 1),
        );
        let expected = Sequence {
            token_ids: vec![1, 2],
            second_segment_start: 1,
        };
        assert_eq!(item, Ok(Ok(Item::Sequence(expected))));
    }

    #[test]
    fn failures_name_the_field_and_the_value() {
        assert_eq!(
            failure(ids(&[1, 0, 0], TokenIdsForm::Segment, 0)),
            "documents[3].token_ids: has 3 bytes, must be a multiple of 4"
        );
        assert_eq!(
            failure(ids(&[1, 0, 0, 0], TokenIdsForm::Sequence, 1)),
            "documents[3].second_segment_start: is 1, must be below the 1 tokens there are"
        );
        assert_eq!(
            failure(ids(&[1, 0, 0, 0], TokenIdsForm::Segment, 1)),
            "documents[3].second_segment_start: is 1, must be 0 unless form is SEQUENCE"
        );
        assert_eq!(
            failure(Input::default()),
            "documents[3]: has neither text nor token_ids"
        );
    }

    #[test]
    fn an_unknown_form_is_the_requests_error() {
        let error = read(
            Path::Input(0),
            Input {
                form: 9,
                ..Input::default()
            },
        )
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "inputs[0].form: 9 is no value of TokenIdsForm"
        );
    }
}
