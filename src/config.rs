//! [`Config`]: everything that a program says about its store, in one struct for its config file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::store::Backend;

use crate::address::{Address, Credentials};
use crate::plan::Plan;

/// What is needed to connect: for a config file by serde, or built by hand.
///
/// What may also stand in the URL (`session`, `deadline`, `connect`, the path, user and password, and the
/// files of TLS, `ca`, `certificate` and `key`) is said in one place only: twice is an error, not a riddle. Unknown fields and unknown URL
/// parameters are errors. No output of any kind shows the password.
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
    /// A path that everything is below.
    #[serde(default)]
    pub namespace: Option<Path>,
    /// How long a session outlives its last sign of life: `10s` if nothing is said.
    #[serde(default, with = "humantime_serde")]
    pub session: Option<Duration>,
    /// How long a call may take, repetitions included.
    #[serde(default, with = "humantime_serde")]
    pub deadline: Option<Duration>,
    /// How long the first connection may take.
    #[serde(default, with = "humantime_serde")]
    pub connect: Option<Duration>,
    /// How to repeat what failed and may be repeated.
    #[serde(default)]
    pub retry: Option<Retry>,
    /// Who we are to the store.
    #[serde(default)]
    pub credentials: Option<Credentials>,
    /// Whom to trust, for `zks` and `etcds`.
    #[serde(default)]
    pub tls: Option<Tls>,
}

/// The files of a TLS connection, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Tls {
    /// Who vouches for the servers.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// Our own certificate.
    #[serde(default)]
    pub certificate: Option<PathBuf>,
    /// The key to it.
    #[serde(default)]
    pub key: Option<PathBuf>,
}

impl Config {
    /// A config of a URL and defaults.
    ///
    /// # Errors
    ///
    /// [`Invalid`](synod_core::error::ErrorKind::Invalid) if `url` is none of a store.
    pub fn new(url: &str) -> Result<Self> {
        Ok(Self {
            url: url.parse()?,
            namespace: None,
            session: None,
            deadline: None,
            connect: None,
            retry: None,
            credentials: None,
            tls: None,
        })
    }

    /// Connects: opens a session and keeps one open from then on.
    ///
    /// # Errors
    ///
    /// [`Invalid`](synod_core::error::ErrorKind::Invalid) if the config contradicts itself, [`Unsupported`](synod_core::error::ErrorKind::Unsupported) if the
    /// backend is not compiled in, and whatever opening the first session fails with.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves no session behind for longer than its time to live.
    pub async fn connect(&self) -> Result<Client> {
        let plan = Plan::of(self)?;
        let options = plan.options.clone();
        Client::open(plan.open()?, options).await
    }

    /// The backend alone, for those who open sessions themselves.
    ///
    /// # Errors
    ///
    /// As [`Config::connect`], short of connecting.
    pub fn backend(&self) -> Result<Arc<dyn Backend>> {
        Plan::of(self)?.open()
    }
}
