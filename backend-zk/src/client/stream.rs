//! [`connect`]: a connection to one server, plain or encrypted.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::client::servers::Server;

/// A stream of bytes in both directions.
pub(super) type Stream = Box<dyn Duplex>;

pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// The encryption of connections.
#[derive(Clone)]
pub(crate) struct Encryption {
    #[cfg(feature = "tls")]
    config: std::sync::Arc<rustls::ClientConfig>,
}

/// Connects to a server.
pub(super) async fn connect(
    server: &Server,
    encryption: Option<&Encryption>,
) -> io::Result<Stream> {
    let stream = connect_plain(server.address).await?;
    match encryption {
        None => Ok(Box::new(stream)),
        Some(encryption) => encryption.around(&server.name, stream).await,
    }
}

/// Each request leaves immediately, although an earlier one is not acknowledged.
async fn connect_plain(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl Encryption {
    #[cfg(feature = "tls")]
    pub(crate) fn new(config: rustls::ClientConfig) -> Self {
        Self { config: std::sync::Arc::new(config) }
    }

    #[cfg(feature = "tls")]
    async fn around(&self, host: &str, stream: TcpStream) -> io::Result<Stream> {
        use rustls::pki_types::ServerName;
        use tokio_rustls::TlsConnector;

        let name = host.rsplit_once(':').map_or(host, |(name, _port)| name);
        let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(name).map_err(io::Error::other)?;
        let connector = TlsConnector::from(self.config.clone());
        Ok(Box::new(connector.connect(name, stream).await?))
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_async, reason = "with the feature it waits")]
    async fn around(&self, _host: &str, _stream: TcpStream) -> io::Result<Stream> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encryption").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_do_not_wait_for_each_other() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let stream = connect_plain(address).await.expect("it listens");
        assert!(stream.nodelay().expect("it is open"));
    }
}
