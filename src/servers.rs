//! [`ServersFrom`]: the source of the servers in a URL or a config.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use synod_core::error::{Error, Result};
use synod_core::store::{ServerSource, ServersFile};

use crate::scheme::invalid;

/// The source of the list of servers: the servers themselves, as `follow`; a file, as
/// `file:/etc/app/servers`; or a [`ServerSource`] of the application.
///
/// The list may change while the program runs. A client reads that of a source again when a server
/// does not answer, and once in ten seconds. A client whose server left the list continues its
/// session at another server.
///
/// # Examples
///
/// ```
/// use synod::{Config, ServersFrom};
///
/// let mut config = Config::new("zk:///app?acl=open")?;
/// config.servers = Some(ServersFrom::file("/etc/app/servers"));
/// # Ok::<(), synod::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ServersFrom(pub(crate) Origin);

/// The origin of the list.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// The servers report it.
    Ensemble,
    Source(
        #[cfg_attr(
            not(any(feature = "etcd", feature = "zookeeper")),
            expect(dead_code, reason = "no store that is compiled in has servers")
        )]
        Arc<dyn ServerSource>,
    ),
}

impl ServersFrom {
    /// The servers that the ensemble or the cluster itself reports: ZooKeeper's dynamic
    /// configuration, or etcd's list of members. The hosts of the URL are where a client begins,
    /// and its last resort.
    pub fn ensemble() -> Self {
        Self(Origin::Ensemble)
    }

    /// A file with one server a line: see [`ServersFile`].
    pub fn file(file: impl Into<PathBuf>) -> Self {
        Self::source(ServersFile::new(file))
    }

    /// A source of the application.
    pub fn source(source: impl ServerSource) -> Self {
        Self(Origin::Source(Arc::new(source)))
    }

    /// Returns `true` if hosts must be given, too.
    pub(crate) fn needs_hosts(&self) -> bool {
        matches!(self.0, Origin::Ensemble)
    }
}

impl FromStr for ServersFrom {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.strip_prefix("file:") {
            Some(file) if !file.is_empty() => Ok(Self::file(file)),
            None if text == "follow" => Ok(Self::ensemble()),
            _ => Err(invalid(
                "servers is follow or a file, as in ?servers=follow or \
                 ?servers=file:/etc/app/servers",
            )),
        }
    }
}

impl<'de> serde::Deserialize<'de> for ServersFrom {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
