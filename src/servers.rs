//! [`ServersFrom`]: the source of the servers in a URL or a config.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use synod_core::error::{Error, Result};
use synod_core::store::{ServerSource, ServersFile};

use crate::scheme::invalid;

/// The source of the list of servers: a file, as `file:/etc/app/servers`, or a [`ServerSource`] of
/// the application.
///
/// The list may change while the program runs: a client reads it again when a server does not
/// answer, and once in ten seconds. A client whose server left the list continues its session at
/// another server.
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
pub struct ServersFrom(
    #[cfg_attr(
        not(any(feature = "etcd", feature = "zookeeper")),
        expect(dead_code, reason = "no store that is compiled in has servers")
    )]
    Arc<dyn ServerSource>,
);

impl ServersFrom {
    /// A file with one server a line: see [`ServersFile`].
    pub fn file(file: impl Into<PathBuf>) -> Self {
        Self::source(ServersFile::new(file))
    }

    /// A source of the application.
    pub fn source(source: impl ServerSource) -> Self {
        Self(Arc::new(source))
    }

    #[cfg(any(feature = "etcd", feature = "zookeeper"))]
    pub(crate) fn into_source(self) -> Arc<dyn ServerSource> {
        self.0
    }
}

impl FromStr for ServersFrom {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.strip_prefix("file:") {
            Some(file) if !file.is_empty() => Ok(Self::file(file)),
            _ => Err(invalid("servers is a file, as in ?servers=file:/etc/app/servers")),
        }
    }
}

impl<'de> serde::Deserialize<'de> for ServersFrom {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
