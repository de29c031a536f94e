//! [`Connect`]: opens byte streams to a member.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use http::Uri;
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::HttpConnector;
use tower::{BoxError, Service as _, ServiceExt as _};

/// A stream of bytes in both directions.
pub(crate) trait Io: Read + Write + Send + Unpin {}

impl<T: Read + Write + Send + Unpin> Io for T {}

/// Opens connections. Users get [`Sockets`]; tests of this crate may use a simulated network.
#[async_trait]
pub(crate) trait Connect: Send + Sync {
    async fn connect(&self, to: Uri) -> Result<Box<dyn Io>, BoxError>;
}

/// A connector that numbers the connections of another one.
pub(crate) struct Numbered {
    pub(crate) way: Arc<dyn Connect>,
    /// The number of the latest connection, unique in the process; zero before the first.
    pub(crate) latest: Arc<AtomicU64>,
}

#[async_trait]
impl Connect for Numbered {
    async fn connect(&self, to: Uri) -> Result<Box<dyn Io>, BoxError> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let io = self.way.connect(to).await?;
        self.latest.store(LAST.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        Ok(io)
    }
}

/// Connections of the operating system.
pub(crate) struct Sockets(pub(crate) HttpConnector);

#[async_trait]
impl Connect for Sockets {
    async fn connect(&self, to: Uri) -> Result<Box<dyn Io>, BoxError> {
        let io = self.0.clone().ready().await?.call(to).await?;
        Ok(Box::new(io))
    }
}
