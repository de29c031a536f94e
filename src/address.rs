//! [`Address`]: the parsed and checked URL of a store, which hides its password.

use std::fmt;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret as _, SecretString};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;

use crate::registry;

/// Where a store is, for example `mem://`, `zk://host:2181,host:2181/app?session=10s` or
/// `etcds://user:password@host:2379`.
///
/// `Display` and `Debug` hide the password.
#[derive(Clone)]
pub struct Address {
    scheme: Scheme,
    hosts: Vec<String>,
    credentials: Option<Credentials>,
    path: Path,
    parameters: Vec<(String, String)>,
}

/// The kind of store that an [`Address`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scheme {
    /// `mem`: memory.
    Mem,
    /// `zk`, or `zks` with TLS: ZooKeeper.
    ZooKeeper {
        /// Whether it is `zks`.
        tls: bool,
    },
    /// `etcd`, or `etcds` with TLS: etcd.
    Etcd {
        /// Whether it is `etcds`.
        tls: bool,
    },
    /// The scheme of a store that this program added with [`register`](crate::register).
    Registered(&'static str),
}

/// The identity that a client presents to a store.
#[derive(Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Credentials {
    /// The user's name.
    pub user: String,
    /// The password. Nothing prints it.
    pub password: SecretString,
}

impl Credentials {
    /// A user and the user's password.
    pub fn new(user: impl Into<String>, password: impl Into<SecretString>) -> Self {
        Self { user: user.into(), password: password.into() }
    }
}

impl Address {
    /// The kind of store.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The servers, each `host:port` or `host`. For memory, the name of the store, or nothing. For
    /// a registered store, the parts of the authority between commas.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// User and password, if the URL has them.
    pub fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// The path that everything in the store is below; the root if the URL has no path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The parameters of the query, after `?`: decoded, in order.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        self.parameters.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    fn parse(text: &str) -> Result<Self> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| invalid(kinds()))?;
        let scheme = Scheme::parse(scheme)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.find('/') {
            Some(cut) => rest.split_at(cut),
            None => (rest, "/"),
        };
        if path.contains('@') || query.contains('@') {
            return Err(invalid(
                "an @ after the hosts is written %40, and a / or ? inside a password %2F or %3F",
            ));
        }
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, authority),
        };
        Ok(Self {
            scheme,
            hosts: parse_hosts(scheme, hosts)?,
            credentials: user.map(parse_credentials).transpose()?,
            path: parse_path(path)?,
            parameters: parse_parameters(query)?,
        })
    }
}

/// The schemes of all stores, including those of registered stores.
fn kinds() -> String {
    const OWN: &str = "a store's URL starts with mem://, zk://, zks://, etcd:// or etcds://";
    match registry::schemes() {
        registered if registered.is_empty() => OWN.to_owned(),
        registered => format!("{OWN}; this program adds {}://", registered.join("://, ")),
    }
}

impl Scheme {
    fn parse(text: &str) -> Result<Self> {
        Self::built_in(text)
            .or_else(|| registry::scheme(text).map(Self::Registered))
            .ok_or_else(|| invalid(kinds()))
    }

    pub(crate) fn built_in(text: &str) -> Option<Self> {
        Some(match text {
            "mem" => Self::Mem,
            "zk" => Self::ZooKeeper { tls: false },
            "zks" => Self::ZooKeeper { tls: true },
            "etcd" => Self::Etcd { tls: false },
            "etcds" => Self::Etcd { tls: true },
            _ => return None,
        })
    }

    /// The feature of this crate that enables the store; `None` for a registered store.
    pub fn feature(self) -> Option<&'static str> {
        match self {
            Self::Mem => Some("mem"),
            Self::ZooKeeper { .. } => Some("zookeeper"),
            Self::Etcd { .. } => Some("etcd"),
            Self::Registered(_) => None,
        }
    }

    /// Whether the text after a colon in a host is a port. A registered store interprets it itself.
    fn has_ports(self) -> bool {
        matches!(self, Self::ZooKeeper { .. } | Self::Etcd { .. })
    }

    /// Whether the connection uses TLS.
    pub fn is_secure(self) -> bool {
        matches!(self, Self::ZooKeeper { tls: true } | Self::Etcd { tls: true })
    }

    /// The scheme as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mem => "mem",
            Self::ZooKeeper { tls: false } => "zk",
            Self::ZooKeeper { tls: true } => "zks",
            Self::Etcd { tls: false } => "etcd",
            Self::Etcd { tls: true } => "etcds",
            Self::Registered(scheme) => scheme,
        }
    }
}

fn parse_hosts(scheme: Scheme, text: &str) -> Result<Vec<String>> {
    if matches!(scheme, Scheme::Mem | Scheme::Registered(_)) && text.is_empty() {
        return Ok(Vec::new());
    }
    let hosts: Vec<String> = text.split(',').map(decode).collect::<Result<_>>()?;
    if scheme == Scheme::Mem && hosts.len() > 1 {
        return Err(invalid("a store in memory has one name, as in mem://name"));
    }
    for host in &hosts {
        check_host(scheme, host)?;
    }
    Ok(hosts)
}

fn check_host(scheme: Scheme, host: &str) -> Result<()> {
    if host.is_empty() {
        return Err(invalid("a host is missing: hosts are separated by single commas"));
    }
    if host.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(invalid("a host holds no spaces and no control characters"));
    }
    let port = match host.rsplit_once(':') {
        Some((_, port)) if scheme.has_ports() && !host.ends_with(']') => port,
        _ => return Ok(()),
    };
    match port.parse::<u16>() {
        Ok(port) if port > 0 => Ok(()),
        _ => Err(invalid("a port is a number from 1 to 65535, as in zk://localhost:2181")),
    }
}

fn parse_credentials(text: &str) -> Result<Credentials> {
    let (user, password) = text.split_once(':').ok_or_else(|| {
        invalid("the part before @ is user:password; write a : or @ inside them as %3A or %40")
    })?;
    Ok(Credentials::new(decode(user)?, decode(password)?))
}

fn parse_path(text: &str) -> Result<Path> {
    let text = decode(text)?;
    let trimmed = if text.len() > 1 { text.strip_suffix('/').unwrap_or(&text) } else { &text };
    Ok(Path::new(trimmed)?)
}

fn parse_parameters(query: &str) -> Result<Vec<(String, String)>> {
    let mut parameters: Vec<(String, String)> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| invalid("a parameter is key=value, as in ?session=10s"))?;
        let (key, value) = (decode(key)?, decode(value)?);
        if parameters.iter().any(|(earlier, _)| *earlier == key) {
            return Err(invalid(format!("the parameter {key:?} is given twice")));
        }
        parameters.push((key, value));
    }
    Ok(parameters)
}

fn decode(text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8();
    Ok(decoded
        .map_err(|_| invalid("a part is not UTF-8 once its %-escapes are read"))?
        .into_owned())
}

/// An error without any part of the URL: in a malformed URL the password can be anywhere.
pub(crate) fn invalid(why: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Invalid, "reading the store's URL").because(why)
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl<'de> serde::Deserialize<'de> for Address {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme.as_str())?;
        if let Some(credentials) = &self.credentials {
            write!(f, "{}:***@", credentials.user.escape_debug())?;
        }
        f.write_str(&self.hosts.join(","))?;
        if !self.path.is_root() {
            write!(f, "{}", self.path)?;
        }
        for (index, (key, value)) in self.parameters().enumerate() {
            let mark = if index == 0 { '?' } else { '&' };
            write!(f, "{mark}{}={}", key.escape_debug(), value.escape_debug())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).field("password", &"***").finish()
    }
}

impl PartialEq for Credentials {
    fn eq(&self, other: &Self) -> bool {
        self.user == other.user && self.password.expose_secret() == other.password.expose_secret()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Address {
        text.parse().expect("valid")
    }

    #[test]
    fn every_part_of_a_url_is_found() {
        let address = parse("zks://ann:p%40ss@a:2181,b:2182/app/x?session=10s&deadline=2s");
        assert_eq!(address.scheme(), Scheme::ZooKeeper { tls: true });
        assert_eq!(address.hosts(), ["a:2181", "b:2182"]);
        assert_eq!(address.credentials(), Some(&Credentials::new("ann", "p@ss".to_owned())));
        assert_eq!(address.path().as_str(), "/app/x");
        let parameters: Vec<_> = address.parameters().collect();
        assert_eq!(parameters, [("session", "10s"), ("deadline", "2s")]);
    }

    #[test]
    fn what_may_be_left_out_may_be_left_out() {
        let address = parse("mem://");
        assert!(address.hosts().is_empty() && address.path().is_root());
        assert_eq!(parse("mem://name").hosts(), ["name"]);
        assert!(parse("etcd://localhost").path().is_root());
        assert_eq!(parse("etcd://[::1]:2379/").hosts(), ["[::1]:2379"]);
        assert_eq!(parse("zk://[::1]").hosts(), ["[::1]"]);
        assert_eq!(parse("mem:///app/").path().as_str(), "/app");
    }

    #[test]
    fn the_password_is_never_shown() {
        let address = parse("etcd://ann:canary-7f3a@h:1/x?session=1s");
        let shown = format!("{address} {address:?} {:?}", address.credentials());
        assert!(!shown.contains("canary"), "{shown}");
        assert_eq!(address.to_string(), "etcd://ann:***@h:1/x?session=1s");
    }

    #[test]
    fn a_broken_url_is_refused_without_showing_it() {
        let table = [
            "",
            "canary-7f3a",
            "canary-7f3a://x",
            "zk://",
            "zk://a:canary-7f3a",
            "zk://a:0",
            "zk://a:70000",
            "zk://a,,b",
            "zk://canary-7f3a@h",
            "zk://u:canary-7f3a@",
            "zk://a b:1",
            "mem://a,b",
            "zk://h//canary-7f3a",
            "zk://h?canary-7f3a",
            "zk://u:canary-7f3a%FF@h",
            "zk://u:pa/canary-7f3a@h",
            "zk://u:12?canary-7f3a=x@h",
        ];
        for text in table {
            let error = text.parse::<Address>().expect_err(text);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
            if !text.contains("//canary") {
                assert!(!format!("{error} {error:?}").contains("canary"), "{text}: {error}");
            }
        }
    }
}
