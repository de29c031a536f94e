//! [`Cluster`]: real etcd servers.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use tokio::time::Instant;

use crate::server::child::{Child, Signal};
use crate::server::free_ports;
use crate::server::home::Home;

/// How long a start may take on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the members of a [`Cluster`] are started.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Flavour {
    /// Whether every write reaches the disk: for tests that kill.
    pub fsync: bool,
    /// More arguments for every member. `{home}` stands for its directory.
    pub arguments: Vec<String>,
    /// Files for every member's directory, by name.
    pub files: Vec<(String, Vec<u8>)>,
    /// Whether clients must talk TLS. The arguments say with which certificates.
    pub tls: bool,
}

/// One server or several that agree, each a process of its own, with all data in a directory that
/// goes when this is dropped.
#[derive(Debug)]
pub struct Cluster {
    members: Vec<Member>,
    // Behind the members: their processes end before their files go.
    _home: Home,
}

#[derive(Debug)]
struct Member {
    child: Option<Child>,
    client: u16,
    metrics: u16,
    arguments: Vec<String>,
    home: PathBuf,
}

impl Cluster {
    /// Starts so many servers and waits until they take requests.
    ///
    /// # Errors
    ///
    /// Why there are none: not installed, or whatever kept them from starting.
    pub fn start(size: usize) -> Result<Self, String> {
        Self::start_with(size, &Flavour::default())
    }

    /// Why there can be no servers; `None` if there can.
    pub fn missing() -> Option<String> {
        let said = Command::new("etcd").arg("--version").output();
        let there = said.is_ok_and(|said| said.status.success());
        (!there).then(|| "etcd is not installed: there is no such program".to_owned())
    }

    /// [`Cluster::start`], with servers that are started in a way of their own.
    ///
    /// # Errors
    ///
    /// As [`Cluster::start`].
    pub fn start_with(size: usize, flavour: &Flavour) -> Result<Self, String> {
        if let Some(why) = Self::missing() {
            return Err(why);
        }
        let cluster = Self::spawn(size, flavour).map_err(|error| format!("etcd: {error}"))?;
        cluster.await_ready()?;
        Ok(cluster)
    }

    fn spawn(size: usize, flavour: &Flavour) -> io::Result<Self> {
        let home = Home::new("etcd")?;
        let ports = free_ports(size * 3)?;
        let peers: Vec<String> = ports
            .chunks(3)
            .enumerate()
            .map(|(index, own)| format!("n{index}=http://127.0.0.1:{}", own[1]))
            .collect();
        let mut members = Vec::new();
        for (index, own) in ports.chunks(3).enumerate() {
            let home = home.path().join(index.to_string());
            let arguments = arguments(index, own, &peers.join(","), &home, flavour);
            let (client, metrics) = (own[0], own[2]);
            fs::create_dir_all(&home)?;
            for (name, content) in &flavour.files {
                fs::write(home.join(name), content)?;
            }
            let mut member = Member { child: None, client, metrics, arguments, home };
            member.start()?;
            members.push(member);
        }
        Ok(Self { members, _home: home })
    }

    /// Waits until every server that runs takes requests.
    ///
    /// # Errors
    ///
    /// If it takes too long: with the last words of the server.
    pub fn await_ready(&self) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        for member in self.members.iter().filter(|member| member.child.is_some()) {
            while !member.is_healthy() {
                if Instant::now() > end {
                    return Err(format!("etcd did not start: {}", member.last_words()));
                }
                sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// Where its servers listen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| (Ipv4Addr::LOCALHOST, member.client).into()).collect()
    }

    /// Ends a server as a power cut would.
    ///
    /// # Errors
    ///
    /// If it cannot be ended.
    pub fn kill(&mut self, member: usize) -> io::Result<()> {
        if let Some(child) = self.members[member].child.take() {
            child.signal(Signal::Kill)?;
        }
        Ok(())
    }

    /// Starts a server again on what it has on disk.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn restart(&mut self, member: usize) -> io::Result<()> {
        self.members[member].child = None;
        self.members[member].start()
    }

    /// Lets a server stand still.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn pause(&self, member: usize) -> io::Result<()> {
        self.members[member].signal(Signal::Stop)
    }

    /// Lets a server that stands still go on.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn resume(&self, member: usize) -> io::Result<()> {
        self.members[member].signal(Signal::Continue)
    }

    /// The directory of a server.
    pub fn home(&self, member: usize) -> &Path {
        &self.members[member].home
    }

    /// Which server leads; `None` while none does.
    pub fn leader(&self) -> Option<usize> {
        self.members.iter().position(|member| member.metric("etcd_server_is_leader") == Some(1))
    }

    /// How many requests of one answer each all servers were sent so far.
    pub fn requests(&self) -> u64 {
        let count = |line: &str| {
            let unary = line.strip_prefix("grpc_server_started_total{")?.split_once('}')?;
            let (labels, number) = unary;
            labels.contains(r#"grpc_type="unary""#).then(|| number.trim().parse::<u64>().ok())?
        };
        let told = self.members.iter().filter_map(|member| member.ask("/metrics").ok());
        told.map(|told| told.lines().filter_map(count).sum::<u64>()).sum()
    }

    /// How many messages clients sent all servers so far: requests of one answer, and what went
    /// into streams, as watches and signs of life do; `None` if a server does not tell.
    pub fn messages(&self) -> Option<u64> {
        let count = |line: &str| {
            let (_labels, number) =
                line.strip_prefix("grpc_server_msg_received_total{")?.split_once('}')?;
            number.trim().parse::<u64>().ok()
        };
        let told = self.members.iter().map(|member| member.ask("/metrics").ok());
        told.map(|told| Some(told?.lines().filter_map(count).sum::<u64>())).sum()
    }

    /// How many watches all servers keep, for everybody.
    pub fn watches(&self) -> u64 {
        let watches = |member: &Member| member.metric("etcd_debugging_mvcc_watcher_total");
        self.members.iter().filter_map(watches).sum()
    }
}

fn arguments(
    index: usize,
    ports: &[u16],
    peers: &str,
    home: &Path,
    flavour: &Flavour,
) -> Vec<String> {
    let at = |scheme: &str, port: u16| format!("{scheme}://127.0.0.1:{port}");
    let client = at(if flavour.tls { "https" } else { "http" }, ports[0]);
    let (peer, metrics) = (at("http", ports[1]), at("http", ports[2]));
    let home = home.display().to_string();
    let pairs = [
        ("--name", format!("n{index}")),
        ("--data-dir", format!("{home}/data")),
        ("--listen-client-urls", client.clone()),
        ("--advertise-client-urls", client),
        ("--listen-peer-urls", peer.clone()),
        ("--initial-advertise-peer-urls", peer),
        ("--listen-metrics-urls", metrics),
        ("--initial-cluster", peers.to_owned()),
        ("--initial-cluster-token", peers.to_owned()),
        ("--initial-cluster-state", "new".to_owned()),
        ("--logger", "zap".to_owned()),
        ("--log-level", "warn".to_owned()),
        // Fast elections, which also allow a time to live of one second.
        ("--heartbeat-interval", "50".to_owned()),
        ("--election-timeout", "250".to_owned()),
    ];
    let mut arguments: Vec<String> =
        pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
    if !flavour.fsync {
        arguments.push("--unsafe-no-fsync".to_owned());
    }
    let more = flavour.arguments.iter().map(|argument| argument.replace("{home}", &home));
    arguments.extend(more);
    arguments
}

impl Member {
    fn start(&mut self) -> io::Result<()> {
        let mut etcd = Command::new("etcd");
        etcd.args(&self.arguments);
        self.child = Some(Child::start(&mut etcd, &self.log())?);
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.home.join("log")
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(5).collect();
        last.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        match &self.child {
            Some(child) => child.signal(signal),
            None => Err(io::Error::other("the server does not run")),
        }
    }

    fn is_healthy(&self) -> bool {
        self.ask("/health").is_ok_and(|told| told.contains(r#""health":"true""#))
    }

    fn metric(&self, name: &str) -> Option<u64> {
        let told = self.ask("/metrics").ok()?;
        let line = told.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse().ok()
    }

    /// Gets a page from where it tells of itself.
    fn ask(&self, page: &str) -> io::Result<String> {
        let limit = Duration::from_millis(500);
        let address = (Ipv4Addr::LOCALHOST, self.metrics).into();
        let mut stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_read_timeout(Some(limit))?;
        write!(stream, "GET {page} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut told = String::new();
        stream.read_to_string(&mut told)?;
        Ok(told)
    }
}
