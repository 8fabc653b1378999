//! Names of replicas become addresses, again and again: behind a headless service they come and go.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use futures_util::future::BoxFuture;

/// `HOST:PORT` as given: a name or an address, IPv6 in brackets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReplicaName {
    host: String,
    port: u16,
}

/// A replica that was not given as `HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("replica: {given:?} is not HOST:PORT{reason}")]
pub struct ReplicaNameError {
    given: String,
    reason: &'static str,
}

impl ReplicaName {
    /// Name or address, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address, where it was given as one: it never needs to be looked up.
    pub(crate) fn literal(&self) -> Option<SocketAddr> {
        let ip: IpAddr = self.host.parse().ok()?;
        Some(SocketAddr::new(ip, self.port))
    }
}

impl FromStr for ReplicaName {
    type Err = ReplicaNameError;

    fn from_str(given: &str) -> Result<Self, ReplicaNameError> {
        let wrong = |reason| ReplicaNameError {
            given: given.into(),
            reason,
        };
        let (host, port) = given.rsplit_once(':').ok_or_else(|| wrong(""))?;
        let host = match host.strip_prefix('[').map(|host| host.strip_suffix(']')) {
            Some(Some(host)) => host,
            Some(None) => return Err(wrong("")),
            None if host.contains(':') => {
                return Err(wrong(
                    ": an IPv6 address needs brackets, and there is no scheme",
                ));
            }
            None => host,
        };
        let plain = |c: char| !c.is_whitespace() && !"/?#@[]".contains(c);
        if host.is_empty() || !host.chars().all(plain) {
            return Err(wrong(""));
        }
        let port = port.parse().ok().filter(|port| *port != 0);
        Ok(Self {
            host: host.into(),
            port: port.ok_or_else(|| wrong(": the port must be 1 to 65535"))?,
        })
    }
}

impl fmt::Display for ReplicaName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "{}:{}", self.host, self.port)
        }
    }
}

/// Looks names up.
pub(crate) trait Resolve: Send + Sync + 'static {
    /// All addresses of a name, each once.
    fn resolve<'a>(&'a self, name: &'a ReplicaName) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;
}

/// The resolver of the system: hosts file and DNS.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a ReplicaName) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.host.as_str(), name.port)).await?;
            Ok(of_one_family(found.collect()))
        })
    }
}

/// A host with both kinds of address is still one replica: IPv4 where there is any.
fn of_one_family(mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    if addresses.iter().any(SocketAddr::is_ipv4) {
        addresses.retain(SocketAddr::is_ipv4);
    }
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_read() {
        for (given, host, literal) in [
            ("rose-0.rose:50051", "rose-0.rose", None),
            ("10.0.0.7:1", "10.0.0.7", Some("10.0.0.7:1")),
            ("[::1]:50051", "::1", Some("[::1]:50051")),
        ] {
            let name: ReplicaName = given.parse().unwrap();
            assert_eq!((name.host(), name.to_string().as_str()), (host, given));
            assert_eq!(
                name.literal(),
                literal.map(|address| address.parse().unwrap())
            );
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for given in [
            "",
            "host",
            ":1",
            "host:",
            "host:0",
            "host:65536",
            "::1:50051",
            "[::1:1",
            "http://host:1",
            "a b:1",
            "host/path:1",
        ] {
            let error = given.parse::<ReplicaName>().unwrap_err();
            assert!(error.to_string().contains("is not HOST:PORT"), "{given}");
        }
    }

    #[test]
    fn a_host_with_two_kinds_of_address_counts_once() {
        let addresses = |given: &[&str]| -> Vec<SocketAddr> {
            given.iter().map(|text| text.parse().unwrap()).collect()
        };
        assert_eq!(
            of_one_family(addresses(&["[::1]:5", "127.0.0.1:5", "127.0.0.1:5"])),
            addresses(&["127.0.0.1:5"])
        );
        assert_eq!(
            of_one_family(addresses(&["[::2]:5", "[::1]:5"])),
            addresses(&["[::1]:5", "[::2]:5"])
        );
    }

    #[tokio::test]
    async fn the_system_knows_localhost() {
        let name = "localhost:50051".parse().unwrap();
        let found = SystemResolver.resolve(&name).await.unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].ip().is_loopback());
    }
}
