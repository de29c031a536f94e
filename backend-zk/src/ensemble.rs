//! The servers of the ensemble: reads its dynamic configuration, and follows it.
//!
//! The configuration comes from the server of the session's own connection, which no other ensemble
//! can have.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};
use synod_core::store::ServerList;

use crate::client::{Client, OneshotWatcher, SessionState, StateWatcher, ZkError, ZkStat};
use crate::connection::Connection;

/// The node with the configuration, which every client may read by default.
const CONFIG: &str = "/zookeeper/config";

type Configuration = (Vec<u8>, ZkStat, OneshotWatcher);

/// Reads the list of servers, and watches it. The request has been sent when this returns.
///
/// With TLS the configuration names other ports than those of encrypted connections.
pub(crate) fn read(
    client: &Client,
    list: &ServerList,
    is_encrypted: bool,
) -> impl Future<Output = Option<OneshotWatcher>> + Send + use<> {
    let (answer, list) = (client.get_and_watch_data(CONFIG), list.clone());
    async move { take(answer.await, &list, is_encrypted) }
}

/// Reads the list again with each connection and after each change, until the session is over.
pub(crate) async fn follow(
    connection: Arc<Connection>,
    list: ServerList,
    mut states: StateWatcher,
    mut watch: Option<OneshotWatcher>,
    is_encrypted: bool,
) {
    while next(&mut states, watch).await {
        let Ok(client) = connection.client("following the ensemble") else { return };
        let reading = read(&client, &list, is_encrypted);
        // The last reference to the client ends the session.
        drop(client);
        watch = reading.await;
    }
}

/// Waits until the list is to be read. Returns `false` when the session is over.
async fn next(states: &mut StateWatcher, watch: Option<OneshotWatcher>) -> bool {
    let is_connected = async {
        loop {
            match states.changed().await {
                SessionState::SyncConnected => return true,
                state if state.is_terminated() => return false,
                _ => {}
            }
        }
    };
    let changed = async {
        match watch {
            Some(watch) => watch.changed().await,
            None => std::future::pending().await,
        }
    };
    match select(pin!(is_connected), pin!(changed)).await {
        Either::Left((is_connected, _)) => is_connected,
        Either::Right((event, _)) => !event.session_state.is_terminated(),
    }
}

fn take(
    answer: Result<Configuration, ZkError>,
    list: &ServerList,
    is_encrypted: bool,
) -> Option<OneshotWatcher> {
    match answer {
        Ok((data, _, watch)) => {
            let configured = list.last_resort();
            let text = String::from_utf8_lossy(&data);
            list.report(if is_encrypted {
                encrypted_servers(&text, configured)
            } else {
                servers(&text, configured)
            });
            Some(watch)
        }
        // The next connection is another attempt.
        Err(ZkError::ConnectionLoss) => None,
        Err(error) if error.ends_session() => None,
        Err(error) => {
            list.report(Err(format!("the node {CONFIG} cannot be read: {error}")));
            None
        }
    }
}

/// The servers of a configuration at the addresses for clients.
///
/// Servers that were started with a static configuration know only their own address for clients.
/// If one is missing, the configured hosts remain in the list.
fn servers(text: &str, configured: &[String]) -> Result<Vec<String>, String> {
    let (mut all, mut is_complete) = (Vec::new(), true);
    for line in text.lines().filter_map(ServerLine::parse) {
        match line.client {
            Some((host, port)) => all.extend(line.hosts(host).map(|host| format!("{host}:{port}"))),
            None => is_complete = false,
        }
    }
    if all.is_empty() {
        return Err(format!(
            "the node {CONFIG} has no address for clients: add ;PORT to the lines of the servers"
        ));
    }
    if !is_complete {
        all.extend(configured.iter().cloned());
    }
    Ok(all)
}

/// The servers of a configuration at the port of the configured hosts.
fn encrypted_servers(text: &str, configured: &[String]) -> Result<Vec<String>, String> {
    let ports = configured.iter().filter_map(|host| host.rsplit_once(':'));
    let mut ports = ports.map(|(_, port)| port);
    let port = ports.next().unwrap_or_default();
    if ports.any(|other| other != port) {
        return Err(format!(
            "the node {CONFIG} has no port for encrypted connections, and the configured hosts \
             have several"
        ));
    }
    let lines = text.lines().filter_map(ServerLine::parse);
    let hosts = lines.flat_map(|line| {
        line.hosts(line.client.map_or("", |(host, _)| host)).map(str::to_owned).collect::<Vec<_>>()
    });
    Ok(hosts.map(|host| format!("{host}:{port}")).collect())
}

/// A line `server.N=HOST:PORT:PORT[:ROLE][|HOST:PORT:PORT];[HOST:]PORT`.
struct ServerLine<'a> {
    /// The addresses for the other servers.
    peers: &'a str,
    /// The host, which may be empty, and the port for clients.
    client: Option<(&'a str, &'a str)>,
}

impl<'a> ServerLine<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (_, server) = line.trim().strip_prefix("server.")?.split_once('=')?;
        let (peers, client) = server.split_once(';').unwrap_or((server, ""));
        let client = client.split(';').next().unwrap_or_default().trim();
        let client = (!client.is_empty()).then(|| client.rsplit_once(':').unwrap_or(("", client)));
        Some(Self { peers, client })
    }

    /// The hosts of the server for clients. The wildcard address stands for all of its hosts.
    fn hosts(&self, client: &'a str) -> impl Iterator<Item = &'a str> + use<'a> {
        let is_wildcard = client.is_empty()
            || client
                .trim_matches(['[', ']'])
                .parse::<IpAddr>()
                .is_ok_and(|address| address.is_unspecified());
        let own = self.peers.split('|').filter(move |_| is_wildcard).map(host);
        own.chain((!is_wildcard).then_some(client))
    }
}

/// The host of `HOST:PORT:PORT`. An IPv6 address has brackets.
fn host(peer: &str) -> &str {
    let peer = peer.trim();
    match peer.find(']') {
        Some(end) => &peer[..=end],
        None => peer.split(':').next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(names: &[&str]) -> Vec<String> {
        names.iter().copied().map(str::to_owned).collect()
    }

    #[test]
    fn a_server_is_named_by_its_address_for_clients() {
        for (line, names) in [
            ("server.1=a:1:2:participant;b:2181", &["b:2181"][..]),
            ("server.1=10.0.0.1:1:2:participant;0.0.0.0:2181", &["10.0.0.1:2181"]),
            ("server.1=a:1:2;2181", &["a:2181"]),
            ("server.12=a:1:2:observer;[::]:7", &["a:7"]),
            ("server.1=[::1]:1:2:participant;[0:0:0:0:0:0:0:0]:7", &["[::1]:7"]),
            ("server.1=a:1:2:participant;[2001:db8::1]:7", &["[2001:db8::1]:7"]),
            ("server.1=a:1:2|b:3:4:participant;0.0.0.0:7", &["a:7", "b:7"]),
            ("server.1=a:1:2|[::1]:3:4;c:7", &["c:7"]),
            (" server.1=a:1:2;7 \r", &["a:7"]),
            ("server.1=a:1:2;7;8", &["a:7"]),
        ] {
            assert_eq!(servers(line, &own(&["h:1"])), Ok(own(names)), "{line}");
        }
    }

    #[test]
    fn a_server_without_an_address_for_clients_leaves_the_configured_hosts_in_the_list() {
        let text = "server.1=a:1:2:participant;0.0.0.0:7\nserver.2=b:1:2:participant\nversion=0";
        assert_eq!(servers(text, &own(&["h:1", "i:1"])), Ok(own(&["a:7", "h:1", "i:1"])));
        for nothing in ["", "version=0", "server.2=b:1:2:participant", "server.2", "group.1=1:2"] {
            let fault = servers(nothing, &own(&["h:1"])).expect_err("no client could use it");
            assert!(fault.contains(";PORT"), "{fault}");
        }
    }

    #[test]
    fn a_configuration_that_may_not_be_read_leaves_the_list() {
        let list = ServerList::of_ensemble(own(&["h:1"]), |name| Ok(name.to_owned()));
        list.report(Ok(own(&["a:7"])));
        for error in [ZkError::NoAuth, ZkError::NoNode, ZkError::ConnectionLoss] {
            assert!(take(Err(error), &list, false).is_none());
            assert_eq!(list.get().to_vec(), ["a:7"]);
        }
    }

    #[test]
    fn encrypted_connections_use_the_port_of_the_configured_hosts() {
        let text = "server.1=a:1:2:participant;0.0.0.0:7\nserver.2=b:1:2:observer\n\
                    server.3=c:1:2:participant;d:7\nversion=100000000";
        let list = encrypted_servers(text, &own(&["h:2281", "[::1]:2281"]));
        assert_eq!(list, Ok(own(&["a:2281", "b:2281", "d:2281"])));
        let several = encrypted_servers(text, &own(&["h:2281", "i:2282"]));
        assert!(several.expect_err("which port?").contains("several"));
    }
}
