//! [`connect`]: a connection to one server, plain or encrypted.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::client::encryption::Encryption;
use crate::client::servers::Server;

/// A stream of bytes in both directions.
pub(crate) type Stream = Box<dyn Duplex>;

pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Connects to a server.
pub(crate) async fn connect(
    server: &Server,
    encryption: Option<&Encryption>,
) -> io::Result<Stream> {
    let stream = connect_plain(server.address).await?;
    match encryption {
        None => Ok(Box::new(stream)),
        Some(encryption) => Ok(Box::new(encryption.around(&server.name, stream).await?)),
    }
}

/// Each request is sent immediately, even while an earlier one is not acknowledged.
async fn connect_plain(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
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
