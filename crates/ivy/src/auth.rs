//! API keys, compared in constant time.

use std::fmt;

use http::HeaderMap;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

use crate::error::{Error, Result};

/// The keys of which a request must carry one. Holds digests only: of equal length whatever the
/// keys' lengths, and useless to whoever reads them in a dump.
#[derive(Default)]
pub(crate) struct ApiKeys {
    digests: Vec<[u8; 32]>,
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ApiKeys({})", self.digests.len())
    }
}

impl ApiKeys {
    pub(crate) fn new(keys: &[String]) -> Self {
        Self {
            digests: keys.iter().map(|key| digest(key.as_bytes())).collect(),
        }
    }

    /// Whether the request may come in.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<()> {
        if self.digests.is_empty() {
            return Ok(());
        }
        let given = digest(key_of(headers).ok_or(Error::NoKey)?);
        // All keys are looked at, so that time says nothing about which one was near.
        let found = self
            .digests
            .iter()
            .fold(Choice::from(0), |found, known| found | known.ct_eq(&given));
        if found.into() {
            Ok(())
        } else {
            Err(Error::WrongKey)
        }
    }
}

fn digest(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// The key, from any of the headers that SDKs of these dialects use.
fn key_of(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(value) = headers.get(http::header::AUTHORIZATION) {
        let (scheme, key) = value.as_bytes().split_at_checked("bearer ".len())?;
        return scheme
            .eq_ignore_ascii_case(b"bearer ")
            .then(|| key.trim_ascii())
            .filter(|key| !key.is_empty());
    }
    ["x-api-key", "api-key"]
        .into_iter()
        .find_map(|name| headers.get(name))
        .map(http::HeaderValue::as_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(header: Option<(&'static str, &'static str)>) -> Result<()> {
        let keys = ApiKeys::new(&["secret-1".into(), "secret-2".into()]);
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = header {
            headers.insert(name, value.parse().unwrap());
        }
        keys.check(&headers)
    }

    #[test]
    fn any_of_the_keys_in_any_of_the_headers() {
        for (name, value) in [
            ("authorization", "Bearer secret-1"),
            ("authorization", "bearer  secret-2 "),
            ("x-api-key", "secret-2"),
            ("api-key", "secret-1"),
        ] {
            assert_eq!(check(Some((name, value))), Ok(()), "{name}: {value}");
        }
    }

    #[test]
    fn missing_and_wrong_keys_differ() {
        for header in [
            None,
            Some(("authorization", "Bearer ")),
            Some(("authorization", "Basic c2VjcmV0")),
        ] {
            assert_eq!(check(header), Err(Error::NoKey), "{header:?}");
        }
        for key in ["Bearer secret-", "Bearer secret-11", "Bearer x"] {
            assert_eq!(check(Some(("authorization", key))), Err(Error::WrongKey));
        }
    }

    #[test]
    fn without_keys_everybody_may() {
        assert_eq!(ApiKeys::default().check(&HeaderMap::new()), Ok(()));
    }
}
