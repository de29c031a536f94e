//! [`ServerStats`]: the statistics of a server, as the server reports them.

use std::fmt;
use std::sync::Arc;

use synod_core::client::Client;
use synod_core::clock::timeout;
use synod_core::error::{Error, ErrorKind, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::acl_calls::AclCalls;
use crate::client::encryption::Encryption;
use crate::client::{Server, connect};

const DOING: &str = "reading the statistics of a server";

/// The statistics of the ZooKeeper server that answers a client: its answer to the command `srvr`,
/// which needs no login. Each server answers it, whatever `4lw.commands.whitelist` permits.
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// use synod_zk::ServerStats;
///
/// # async fn example(client: Client) -> Result<()> {
/// let stats = ServerStats::of(&client).await?;
/// println!("ZooKeeper {} ({}), {:?} connections", stats.version, stats.mode, stats.connections);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "srvr")]
#[doc(alias = "four letter words")]
pub struct ServerStats {
    /// The version of the server, without the date of its build.
    pub version: String,
    /// The mode of the server: `leader`, `follower`, `observer`, `standalone` or `read-only`.
    pub mode: String,
    /// The number of open connections to this server, including that of the command.
    pub connections: Option<u64>,
    /// The number of nodes.
    pub nodes: Option<u64>,
    /// The number of requests that the server has received and not answered.
    pub outstanding: Option<u64>,
}

impl ServerStats {
    /// Reads the statistics of the server that answers this client, on a connection of its own.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if the store of the client is not ZooKeeper, or the answer is
    /// not that of a ZooKeeper server; [`ErrorKind::Unreachable`] if there is no answer within
    /// [`Client::timeout`]; and the common errors of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn of(client: &Client) -> Result<Self> {
        let session = client.session().await?;
        let unsupported =
            |why: &'static str| Error::new(ErrorKind::Unsupported, DOING).because(why);
        let calls = session.info().extension::<ZkCalls>();
        let calls = calls.ok_or_else(|| unsupported("the store is not ZooKeeper"))?;
        let unreachable = || Error::new(ErrorKind::Unreachable, DOING);
        let server = session.info().server.get().as_deref().and_then(server_of);
        let server = server.ok_or_else(unreachable)?;
        let asked = timeout(client.timeout(), ask(&server, calls.encryption.as_ref()));
        let text = asked.await.map_err(|_elapsed| unreachable())?;
        let text = text.map_err(|error| unreachable().because(error.to_string()))?;
        parse(&text)
            .ok_or_else(|| unsupported("the answer to `srvr` is not that of a ZooKeeper server"))
    }
}

/// The server in a text like `name:port (address:port)` or `address:port`.
fn server_of(text: &str) -> Option<Server> {
    let (name, address) = match text.split_once(" (") {
        Some((name, rest)) => (name, rest.strip_suffix(')')?),
        None => (text, text),
    };
    Some(Server { name: name.to_owned(), address: address.parse().ok()? })
}

/// The answer of a server, which then closes the connection. A TLS connection need not be closed
/// properly, so that an error after the answer does not count.
async fn ask(server: &Server, encryption: Option<&Encryption>) -> std::io::Result<String> {
    /// More than any answer.
    const MAX: u64 = 16_384;

    let mut stream = connect(server, encryption).await?;
    stream.write_all(b"srvr").await?;
    stream.flush().await?;
    let mut text = Vec::new();
    match stream.take(MAX).read_to_end(&mut text).await {
        Err(error) if text.is_empty() => Err(error),
        _ => Ok(String::from_utf8_lossy(&text).into_owned()),
    }
}

/// Parses an answer. `None` if the server does not execute the command.
fn parse(text: &str) -> Option<ServerStats> {
    let value = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
    };
    let number = |name| value(name).and_then(|number| number.parse().ok());
    let version = value("Zookeeper version")?;
    Some(ServerStats {
        // As in `3.9.3-c26634f34490bb0ea7a09cc51e05ede3b4e320ee, built on 2024-10-17 23:21 UTC`.
        version: version.split([',', '-']).next().unwrap_or_default().to_owned(),
        mode: value("Mode").unwrap_or_default().to_owned(),
        connections: number("Connections"),
        nodes: number("Node count"),
        outstanding: number("Outstanding"),
    })
}

/// The calls that only a session on ZooKeeper has, as its extension.
pub(crate) struct ZkCalls {
    pub(crate) acl: Arc<AclCalls>,
    pub(crate) encryption: Option<Encryption>,
}

impl fmt::Debug for ZkCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkCalls").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_each_version_is_read() {
        let text = "Zookeeper version: 3.9.3-c26634f34490bb0ea7a09cc51e05ede3b4e320ee, built on \
                    2024-10-17 23:21 UTC\nLatency min/avg/max: 0/1.5/20\nReceived: 10\nSent: 9\n\
                    Connections: 2\nOutstanding: 0\nZxid: 0x5\nMode: leader\nNode count: 7\n\
                    Proposal sizes last/min/max: 32/32/36\n";
        let stats = parse(text).expect("statistics");
        assert_eq!((stats.version.as_str(), stats.mode.as_str()), ("3.9.3", "leader"));
        let numbers = (stats.connections, stats.nodes, stats.outstanding);
        assert_eq!(numbers, (Some(2), Some(7), Some(0)));
        let bare = parse("Zookeeper version: 3.6.0\n").expect("statistics");
        assert_eq!((bare.version.as_str(), bare.mode.as_str(), bare.nodes), ("3.6.0", "", None));
        for text in ["", "srvr is not executed because it is not in the whitelist.\n"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_address_of_a_server_is_found_with_and_without_a_name() {
        for (text, name, address) in [
            ("127.0.0.1:2181", "127.0.0.1:2181", "127.0.0.1:2181"),
            ("[::1]:2181", "[::1]:2181", "[::1]:2181"),
            ("zk.test:1 (10.0.0.1:1)", "zk.test:1", "10.0.0.1:1"),
        ] {
            let server = server_of(text).expect("a server");
            assert_eq!(
                (server.name.as_str(), server.address.to_string().as_str()),
                (name, address)
            );
        }
        assert_eq!(server_of("zk.test:1"), None);
    }
}
