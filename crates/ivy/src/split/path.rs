//! Errors name items by their place in the request: in a chunk that is another place.

use tonic::Status;

/// `documents[3]: …` of a chunk that begins at `by` becomes `documents[3 + by]: …`.
pub(crate) fn shift(message: &str, items: &str, by: usize) -> Option<String> {
    let rest = message.strip_prefix(items)?.strip_prefix('[')?;
    let (index, rest) = rest.split_once(']')?;
    let index: usize = index.parse().ok()?;
    Some(format!("{items}[{}]{rest}", index + by))
}

/// The same for the message of a status.
pub(crate) fn shift_status(status: Status, items: &str, by: usize) -> Status {
    match shift(status.message(), items, by) {
        None => status,
        Some(_) if by == 0 => status,
        Some(message) => Status::with_metadata(status.code(), message, status.metadata().clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_the_whole_request() {
        let shifted = shift("documents[3].token_ids: has 3 bytes", "documents", 40);
        assert_eq!(
            shifted.as_deref(),
            Some("documents[43].token_ids: has 3 bytes")
        );
        for other in ["query: is missing", "documents: is empty", "inputs[0]: x"] {
            assert_eq!(shift(other, "documents", 40), None, "{other}");
        }
    }

    #[test]
    fn a_status_keeps_its_code_and_metadata() {
        let mut status = Status::invalid_argument("inputs[1]: is too long");
        status.metadata_mut().insert("x", "y".parse().unwrap());
        let status = shift_status(status, "inputs", 10);
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        assert_eq!(status.message(), "inputs[11]: is too long");
        assert_eq!(status.metadata().get("x").unwrap(), "y");
    }
}
