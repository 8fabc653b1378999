//! How many entries a message has, before it is decoded.
//!
//! An empty entry takes two bytes on the wire and some forty in memory: a message within its
//! size limit could ask for gigabytes.

/// Entries that a request may have at the most. Servers have lower limits of their own; this one
/// only bounds what decoding allocates.
pub(crate) const MAX_ENTRIES: usize = 1 << 20;

/// Number of length-delimited fields at the top of a message, as far as it can be read.
pub(crate) fn count_entries(mut message: &[u8]) -> usize {
    let mut count = 0;
    while let Some(after) = skip_field(message, &mut count) {
        message = after;
    }
    count
}

/// The rest behind the first field; `None` at the end, or where the decoder will find an error.
fn skip_field<'a>(message: &'a [u8], count: &mut usize) -> Option<&'a [u8]> {
    let (tag, rest) = varint(message)?;
    match tag & 7 {
        0 => varint(rest).map(|(_, rest)| rest),
        1 => rest.get(8..),
        2 => {
            let (length, rest) = varint(rest)?;
            *count += 1;
            rest.get(usize::try_from(length).ok()?..)
        }
        5 => rest.get(4..),
        _ => None,
    }
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, &byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{Input, ScoreRequest};
    use prost::Message;

    #[test]
    fn counts_what_was_encoded() {
        let request = ScoreRequest {
            request_id: "id".into(),
            documents: vec![
                Input {
                    form: 2,
                    ..Input::default()
                };
                300
            ],
            top_n: 100_000,
            ..ScoreRequest::default()
        };
        assert_eq!(count_entries(&request.encode_to_vec()), 301);
        assert_eq!(count_entries(&[]), 0);
    }

    #[test]
    fn nonsense_ends_the_count() {
        assert_eq!(count_entries(&[0xff; 40]), 0);
        assert_eq!(count_entries(&[0x0a, 0x7f, 1]), 1);
        assert_eq!(count_entries(&[0x0b, 0x0a, 0x00]), 0);
    }
}
