//! Proxies between the members of a cluster.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use synod_core::task::{Task, spawn};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::pipe::{Pipe, Shared, carry_both};
use synod_testkit::link::Link;

/// A proxy for each pair of servers: for servers that can be configured with different addresses of
/// each other, like ZooKeeper's.
#[derive(Debug)]
pub struct Peers {
    /// By the calling server, then by the called one.
    pipes: Vec<Vec<Pipe>>,
}

impl Peers {
    /// Starts to listen, within a tokio runtime, for servers with these ports each.
    ///
    /// # Errors
    ///
    /// If the operating system has no port left.
    pub fn start(servers: &[Vec<u16>]) -> io::Result<Self> {
        let start = |ports: &Vec<u16>| {
            let at = ports.iter().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, *port)));
            Pipe::start(&at.collect::<Vec<_>>())
        };
        let pipes = servers.iter().map(|_from| servers.iter().map(start).collect());
        let peers = Self { pipes: pipes.collect::<io::Result<_>>()? };
        for (from, own) in servers.iter().enumerate() {
            for to in (0..servers.len()).filter(|to| *to != from) {
                peers.replace_own_address(from, to, own);
            }
        }
        Ok(peers)
    }

    /// Replaces the address that a server names as its own with its proxy for the server that it
    /// calls. ZooKeeper's larger servers hang up on the smaller ones in an election and call back
    /// at the address that they named, which would bypass the proxies.
    fn replace_own_address(&self, from: usize, to: usize, own: &[u16]) {
        if let (Some(own), Some(proxy)) = (own.last(), self.ports(to, from).last()) {
            let named = |port: u16| format!("{}:{port}", Ipv4Addr::LOCALHOST);
            self.pipes[from][to].replace(&named(*own), &named(*proxy));
        }
    }

    /// Returns the ports at which one server reaches another.
    pub fn ports(&self, from: usize, to: usize) -> Vec<u16> {
        self.pipes[from][to].addresses().iter().map(SocketAddr::port).collect()
    }

    /// Changes the links between this server and all others, in both directions.
    pub fn set(&self, server: usize, link: Link) {
        for other in (0..self.pipes.len()).filter(|other| *other != server) {
            self.pipes[server][other].set(link);
            self.pipes[other][server].set(link);
        }
    }
}

/// A proxy in front of each server for all others: for servers that must all know the same address,
/// and that send their names when they connect, as etcd's do in a header.
#[derive(Debug)]
pub struct Callers {
    servers: Vec<Arc<Called>>,
    ports: Vec<u16>,
    _listening: Vec<Task>,
}

/// A server that is called, and its link to each caller, by the caller's name.
#[derive(Debug, Default)]
struct Called(Mutex<BTreeMap<String, Arc<Shared>>>);

/// Precedes the name of the caller.
const CALLER: &str = "X-Server-From: ";
/// The number of bytes of a connection that are searched for it.
const LOOKED_AT: usize = 4 << 10;

impl Callers {
    /// Starts to listen, within a tokio runtime, for servers with these ports.
    ///
    /// # Errors
    ///
    /// If the operating system has no port left.
    pub fn start(servers: &[u16]) -> io::Result<Self> {
        let (mut found_at, mut all, mut listening) = (Vec::new(), Vec::new(), Vec::new());
        for port in servers {
            let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            listener.set_nonblocking(true)?;
            found_at.push(listener.local_addr()?.port());
            let (called, server) = (Arc::<Called>::default(), (Ipv4Addr::LOCALHOST, *port).into());
            all.push(called.clone());
            let listener = TcpListener::from_std(listener)?;
            listening.push(spawn(listen(listener, server, called)));
        }
        Ok(Self { servers: all, ports: found_at, _listening: listening })
    }

    /// Returns the ports at which all servers reach each one.
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Changes the links between this server and all others, in both directions. `names` are those
    /// of all servers.
    pub fn set(&self, server: usize, names: &[String], link: Link) {
        for (to, called) in self.servers.iter().enumerate() {
            for (from, name) in names.iter().enumerate() {
                if from != to && (from == server || to == server) {
                    called.by(name).set(link);
                }
            }
        }
    }
}

impl Called {
    fn by(&self, name: &str) -> Arc<Shared> {
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.entry(name.to_owned()).or_insert_with(|| Arc::new(Shared::open())).clone()
    }
}

async fn listen(listener: TcpListener, server: SocketAddr, called: Arc<Called>) {
    let mut connections: Vec<Task> = Vec::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.retain(|connection| !connection.is_finished());
        let called = called.clone();
        connections.push(spawn(async move {
            // A caller without a name only requests the version.
            let name = timeout(Duration::from_secs(1), caller(&client)).await;
            let shared = called.by(&name.ok().flatten().unwrap_or_default());
            carry_both(client, server, shared).await;
        }));
    }
}

/// Returns the name of the caller, from its first bytes. They stay in the buffer for the reader.
async fn caller(client: &TcpStream) -> Option<String> {
    let mut bytes = vec![0; LOOKED_AT];
    loop {
        let count = client.peek(&mut bytes).await.ok()?;
        let text = String::from_utf8_lossy(&bytes[..count]);
        if let Some((_, rest)) = text.split_once(CALLER)
            && let Some((name, _)) = rest.split_once('\r')
        {
            return Some(name.to_owned());
        }
        if count == 0 || text.contains("\r\n\r\n") {
            return None;
        }
        sleep(Duration::from_millis(1)).await;
    }
}
