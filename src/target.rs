//! [`Target`]: the arguments that a backend is opened with.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use synod_core::error::Result;

use crate::scheme::{Scheme, invalid};
use crate::servers::ServersFrom;

/// The settings that a backend reads.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) scheme: Scheme,
    pub(crate) hosts: Vec<String>,
    /// The directory of a store that has one.
    #[cfg_attr(
        not(feature = "file"),
        expect(dead_code, reason = "no store that is compiled in has a directory")
    )]
    pub(crate) directory: Option<PathBuf>,
    #[cfg_attr(
        not(any(feature = "etcd", feature = "zookeeper")),
        expect(dead_code, reason = "no store that is compiled in has servers")
    )]
    pub(crate) servers: Option<ServersFrom>,
    pub(crate) credentials: Option<Credentials>,
    #[cfg_attr(not(feature = "zookeeper"), expect(dead_code, reason = "ZooKeeper alone has them"))]
    pub(crate) identities: Vec<Credentials>,
    pub(crate) tls: Tls,
    /// Parameters of the URL that are specific to this backend.
    pub(crate) parameters: Vec<(String, String)>,
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

/// The files of a TLS connection, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Tls {
    /// The certificates of the CA that signed the servers' certificates.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// The client's own certificate.
    #[serde(default)]
    pub certificate: Option<PathBuf>,
    /// The key of the client's certificate.
    #[serde(default)]
    pub key: Option<PathBuf>,
}

impl Target {
    /// Rejects every remaining parameter. `known` lists those that this backend takes.
    pub(crate) fn no_more_parameters(&self, known: &[&str]) -> Result<()> {
        let unknown = self.parameters.iter().find(|(key, _)| !known.contains(&key.as_str()));
        let Some((key, _)) = unknown else { return Ok(()) };
        let files: &[&str] =
            if self.scheme.is_secure() { &["ca", "certificate", "key"] } else { &[] };
        let servers: &[&str] = if self.scheme.has_ports() { &["servers"] } else { &[] };
        let common = ["session", "timeout", "connect", "lazy"];
        let all = common.iter().chain(servers).chain(files).chain(known).copied();
        let all = all.collect::<Vec<_>>().join(", ");
        let scheme = self.scheme.as_str();
        Err(invalid(format!("{scheme}:// knows no parameter {key:?}; it knows {all}")))
    }
}

/// A parameter that is a duration.
pub(crate) fn duration(key: &str, value: &str) -> Result<Duration> {
    match humantime::parse_duration(value) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        Ok(_) => Err(invalid(format!("{key} is more than zero, as in {key}=10s"))),
        Err(_) => Err(invalid(format!("{key} is a duration, as in {key}=10s or {key}=500ms"))),
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
