//! [`Config`]: all settings of a client and its store in one struct, for a configuration file.

use std::time::Duration;

use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::store::SessionHandover;

use crate::address::Address;
use crate::servers::ServersFrom;
use crate::target::{Credentials, Tls};

/// The settings of a connection, read from a configuration file by serde or built by hand.
///
/// The URL may contain some of the same settings: `session`, `timeout`, `connect`, `lazy`,
/// `servers`, the path, user and password, `identity`, and the TLS files `ca`, `certificate` and
/// `key`. A setting in both places is an error. Unknown fields and unknown URL parameters are
/// errors. No output shows the password.
///
/// # Examples
///
/// ```
/// let config: synod::Config = serde_json::from_str(
///     r#"{ "url": "mem://", "namespace": "/app", "session": "5s",
///          "retry": { "policy": "times", "times": 3 } }"#,
/// )?;
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let client = config.connect().await?;
/// client.close().await
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Config {
    /// The store.
    pub url: Address,
    /// The source of the servers, for example `file:/etc/app/servers`. The hosts of the URL, if it
    /// has any, are used until the source was read.
    #[serde(default)]
    pub servers: Option<ServersFrom>,
    /// The path of the node below which the client has all its nodes.
    #[serde(default)]
    pub namespace: Option<Path>,
    /// The time for which a session outlives its last heartbeat: `10s` by default.
    #[serde(default, with = "humantime_serde")]
    pub session: Option<Duration>,
    /// The time limit of a call, including retries.
    #[serde(default, with = "humantime_serde")]
    pub timeout: Option<Duration>,
    /// The time limit of the first connection: by default `15s`, and `2s` if each server refuses
    /// the connection or its name has no address.
    #[serde(default, with = "humantime_serde")]
    pub connect: Option<Duration>,
    /// Returns the client at once; the first session is opened in the background: see
    /// [`ClientOptions::lazy`](crate::ClientOptions::lazy). `false` by default.
    #[serde(default)]
    pub lazy: Option<bool>,
    /// The session with which the client starts, from the process before:
    /// [`ClientOptions::resume`](crate::ClientOptions::resume). No file contains it, because it is
    /// used once.
    #[serde(skip)]
    pub resume: Option<SessionHandover>,
    /// The policy for retries of calls that failed and may be repeated.
    #[serde(default)]
    pub retry: Option<Retry>,
    /// The policy for attempts to open a session: without an end by default.
    #[serde(default)]
    pub session_retry: Option<Retry>,
    /// The identity that the client presents to the store.
    #[serde(default)]
    pub credentials: Option<Credentials>,
    /// Further identities of the client, on ZooKeeper: it has the permissions of all of them.
    #[serde(default)]
    pub identities: Vec<Credentials>,
    /// The certificates for `zks` and `etcds`.
    #[serde(default)]
    pub tls: Option<Tls>,
}

impl Config {
    /// A config with this URL and defaults.
    ///
    /// # Errors
    ///
    /// [`Invalid`](synod_core::error::ErrorKind::Invalid) if `url` is not the URL of a store.
    pub fn new(url: &str) -> Result<Self> {
        Ok(Self {
            url: url.parse()?,
            servers: None,
            namespace: None,
            session: None,
            timeout: None,
            connect: None,
            lazy: None,
            resume: None,
            retry: None,
            session_retry: None,
            credentials: None,
            identities: Vec::new(),
            tls: None,
        })
    }
}
