//! [`Address`]: the parsed and checked URL of a store, which hides its password.

use std::ffi::OsString;
use std::fmt;
use std::iter;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use synod_core::error::{Error, Result};
use synod_core::path::Path;

use crate::registry;
use crate::scheme::{Scheme, invalid};
use crate::target::Credentials;

/// The address of a store, for example `mem://`, `zk://host:2181,host:2181/app?session=10s` or
/// `etcds://user:password@host:2379`. `file:` alone is the user's own directory,
/// `$XDG_STATE_HOME/synod`, or `~/.local/state/synod` without that variable.
///
/// `Display` and `Debug` hide the passwords.
#[derive(Clone)]
pub struct Address {
    scheme: Scheme,
    hosts: Vec<String>,
    credentials: Option<Credentials>,
    identities: Vec<Credentials>,
    path: Path,
    parameters: Vec<(String, String)>,
}

impl Address {
    /// The kind of store.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The servers, each `host:port` or `host`; none if a [source](crate::ServersFrom) names them,
    /// as in `zk:///app?servers=file:/etc/app/servers`. For memory, the name of the store, or
    /// nothing. For a registered store, the parts of the authority between commas.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// User and password, if the URL has them.
    pub fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// The users and passwords of the parameters `identity=user:password`, of which there may be
    /// several.
    pub fn identities(&self) -> &[Credentials] {
        &self.identities
    }

    /// The path of the node below which a client has all its nodes; the root if the URL has no
    /// path. For `file`, the directory of the store.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The parameters of the query, after `?`, except for identities: decoded, in order.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        self.parameters.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    fn parse(text: &str) -> Result<Self> {
        if let Some(query) = text.strip_prefix("file:").and_then(only_query) {
            let variable = |name: &str| std::env::var_os(name);
            let (identities, parameters) = parse_parameters(query)?;
            return Ok(Self {
                scheme: Scheme::File,
                hosts: Vec::new(),
                credentials: None,
                identities,
                path: own_directory(variable("XDG_STATE_HOME"), variable("HOME"))?,
                parameters,
            });
        }
        let (scheme_name, rest) = text.split_once("://").ok_or_else(|| invalid(kinds()))?;
        let scheme = scheme(scheme_name)?;
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
        let (identities, parameters) = parse_parameters(query)?;
        Ok(Self {
            scheme,
            hosts: parse_hosts(scheme, hosts)?,
            credentials: user.map(parse_credentials).transpose()?,
            identities,
            path: parse_path(path)?,
            parameters,
        })
    }
}

/// The query of a URL that has nothing else: `None` if it has.
fn only_query(rest: &str) -> Option<&str> {
    if rest.is_empty() { Some("") } else { rest.strip_prefix('?') }
}

/// The directory of the user's own store, from `XDG_STATE_HOME` and `HOME`. As the specification of
/// the former says, a relative directory is ignored.
fn own_directory(state: Option<OsString>, home: Option<OsString>) -> Result<Path> {
    let absolute = |text: Option<OsString>| text.map(PathBuf::from).filter(|it| it.is_absolute());
    let below_home = || absolute(home).map(|home| home.join(".local").join("state"));
    let base = absolute(state).or_else(below_home).ok_or_else(|| {
        invalid(
            "neither XDG_STATE_HOME nor HOME is set: name the directory, as in file:///var/lib/app",
        )
    })?;
    let directory = base.join("synod");
    let text = directory.to_str().ok_or_else(|| {
        invalid("the directory of this user is not UTF-8: name one, as in file:///var/lib/app")
    })?;
    // A trailing slash, or two of them, name the same directory.
    let names: Vec<&str> = text.split('/').filter(|name| !name.is_empty()).collect();
    Ok(Path::new(&format!("/{}", names.join("/")))?)
}

/// The scheme with this name, of synod itself or of a registered store.
fn scheme(text: &str) -> Result<Scheme> {
    Scheme::built_in(text)
        .or_else(|| registry::scheme(text).map(Scheme::Registered))
        .ok_or_else(|| invalid(kinds()))
}

/// The schemes of all stores, including those of registered stores.
fn kinds() -> String {
    const OWN: &str =
        "a store's URL starts with mem://, file://, zk://, zks://, etcd:// or etcds://";
    match registry::schemes() {
        registered if registered.is_empty() => OWN.to_owned(),
        registered => format!("{OWN}; this program adds {}://", registered.join("://, ")),
    }
}

fn parse_hosts(scheme: Scheme, text: &str) -> Result<Vec<String>> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let hosts: Vec<String> = text.split(',').map(decode).collect::<Result<_>>()?;
    if scheme == Scheme::Mem && hosts.len() > 1 {
        return Err(invalid("a store in memory has one name, as in mem://name"));
    }
    if scheme == Scheme::File {
        return Err(invalid(
            "a store in a directory has no host: write three slashes, as in file:///var/lib/app",
        ));
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
    if scheme.has_ports() && host.contains([',', '/', '@']) {
        // Only an escape can have brought it here.
        return Err(invalid(
            "a host holds no comma, slash or @: hosts are separated by plain commas",
        ));
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

/// The parameters other than identities, with their values.
type Parameters = Vec<(String, String)>;

/// The identities, and the other parameters.
fn parse_parameters(query: &str) -> Result<(Vec<Credentials>, Parameters)> {
    let mut parameters = Parameters::new();
    let mut identities = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| invalid("a parameter is key=value, as in ?session=10s"))?;
        if decode(key)? == IDENTITY {
            identities.push(parse_identity(value)?);
            continue;
        }
        let (key, value) = (decode(key)?, decode(value)?);
        if parameters.iter().any(|(earlier, _)| *earlier == key) {
            return Err(invalid(format!("the parameter {key:?} is given twice")));
        }
        parameters.push((key, value));
    }
    Ok((identities, parameters))
}

/// The parameter that has a password.
const IDENTITY: &str = "identity";

fn parse_identity(text: &str) -> Result<Credentials> {
    let (user, password) = text.split_once(':').ok_or_else(|| {
        invalid("identity is user:password, as in ?identity=ann:secret; write a : in them as %3A")
    })?;
    Ok(Credentials::new(decode(user)?, decode(password)?))
}

fn decode(text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8();
    Ok(decoded
        .map_err(|_| invalid("a part is not UTF-8 once its %-escapes are read"))?
        .into_owned())
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
        let mut marks = iter::once('?').chain(iter::repeat('&'));
        let mut mark = || marks.next().unwrap_or('&');
        for (key, value) in self.parameters() {
            write!(f, "{}{}={}", mark(), key.escape_debug(), value.escape_debug())?;
        }
        for identity in &self.identities {
            write!(f, "{}{IDENTITY}={}:***", mark(), identity.user.escape_debug())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use synod_core::error::ErrorKind;

    use super::*;

    fn parse(text: &str) -> Address {
        text.parse().expect("valid")
    }

    #[test]
    fn every_part_of_a_url_is_found() {
        let address = parse("zks://ann:p%40ss@a:2181,b:2182/app/x?session=10s&timeout=2s");
        assert_eq!(address.scheme(), Scheme::ZooKeeper { tls: true });
        assert_eq!(address.hosts(), ["a:2181", "b:2182"]);
        assert_eq!(address.credentials(), Some(&Credentials::new("ann", "p@ss".to_owned())));
        assert_eq!(address.path().as_str(), "/app/x");
        let parameters: Vec<_> = address.parameters().collect();
        assert_eq!(parameters, [("session", "10s"), ("timeout", "2s")]);
    }

    #[test]
    fn what_may_be_left_out_may_be_left_out() {
        let address = parse("mem://");
        assert!(address.hosts().is_empty() && address.path().is_root());
        assert_eq!(parse("mem://name").hosts(), ["name"]);
        assert!(parse("etcd://localhost").path().is_root());
        assert_eq!(parse("etcd://[::1]:2379/").hosts(), ["[::1]:2379"]);
        assert_eq!(parse("zk://[::1]").hosts(), ["[::1]"]);
        assert!(parse("zk:///app?servers=file:/a").hosts().is_empty());
        assert_eq!(parse("mem:///app/").path().as_str(), "/app");
    }

    #[test]
    fn the_own_directory_is_below_the_state_of_the_user() {
        let of = |state: Option<&str>, home: Option<&str>| {
            own_directory(state.map(OsString::from), home.map(OsString::from))
        };
        let table = [
            (Some("/state"), Some("/h/ann"), "/state/synod"),
            (Some("/state//own/"), None, "/state/own/synod"),
            (None, Some("/h/ann"), "/h/ann/.local/state/synod"),
            (Some(""), Some("/h/ann/"), "/h/ann/.local/state/synod"),
            (Some("relative"), Some("/"), "/.local/state/synod"),
        ];
        for (state, home, directory) in table {
            assert_eq!(of(state, home).expect("one is absolute").as_str(), directory);
        }
        for (state, home) in [(None, None), (Some("a"), Some("b")), (None, Some(""))] {
            let error = of(state, home).expect_err("none is absolute");
            assert!(error.to_string().contains("file:///"), "{error}");
        }
        let parameters = parse("file:?session=5s");
        assert_eq!((parameters.scheme(), parameters.parameters().count()), (Scheme::File, 1));
        assert_eq!(parse("file:").to_string(), format!("file://{}", parse("file:").path()));
    }

    #[test]
    fn the_password_is_never_shown() {
        let address = parse("etcd://ann:canary-7f3a@h:1/x?session=1s");
        let shown = format!("{address} {address:?} {:?}", address.credentials());
        assert!(!shown.contains("canary"), "{shown}");
        assert_eq!(address.to_string(), "etcd://ann:***@h:1/x?session=1s");
        let two = "zk://h?identity=bob:canary-7f3a&acl=open&identity=carl%3A:canary-7f3a%26%3A";
        let two = parse(two);
        assert_eq!(two.to_string(), "zk://h?acl=open&identity=bob:***&identity=carl::***");
        assert_eq!(format!("{two:?}"), two.to_string());
        let carl = Credentials::new("carl:", "canary-7f3a&:".to_owned());
        assert_eq!(two.identities()[1], carl);
        assert_eq!(two.parameters().count(), 1);
    }

    #[test]
    fn a_broken_url_is_refused_without_showing_it() {
        let table = [
            "",
            "canary-7f3a",
            "canary-7f3a://x",
            "zk://a:canary-7f3a",
            "zk://a:0",
            "zk://a:70000",
            "zk://a,,b",
            "zk://canary-7f3a@h",
            "zk://a b:1",
            "etcd://a%2Cb:1",
            "zk://a%2Fb:1",
            "zk://u:canary-7f3a%40h%40x%2C@a%40b",
            "mem://a,b",
            "file:canary-7f3a",
            "file:/canary-7f3a",
            "file:?canary-7f3a",
            "zk://h//canary-7f3a",
            "zk://h?canary-7f3a",
            "zk://h?identity=canary-7f3a",
            "zk://h?identity=a:canary-7f3a%FF",
            "zk://h?%69dentity=canary-7f3a",
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
