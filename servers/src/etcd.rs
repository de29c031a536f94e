//! Real etcd servers: [`Cluster`].

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::Duration;

use tokio::time::Instant;

use crate::child::PATIENCE;
use crate::members::{Kind, Members};
use crate::newer;
use crate::peers::Callers;
use crate::ports::Ports;

/// The options of the members of a [`Cluster`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Flavour {
    /// `true` if every write reaches the disk: for tests that kill servers.
    pub fsync: bool,
    /// Additional arguments for every member. `{home}` stands for its directory.
    pub arguments: Vec<String>,
    /// Files for every member's directory, by name.
    pub files: Vec<(String, Vec<u8>)>,
    /// `true` if clients must use TLS. The arguments name the certificates.
    pub tls: bool,
}

/// A cluster of etcd servers, or a single one.
pub type Cluster = Members<Etcd>;

/// One etcd server.
#[derive(Debug)]
pub struct Etcd {
    client: u16,
    peer: u16,
    metrics: u16,
}

impl Cluster {
    /// Starts `size` servers and waits until they accept requests.
    ///
    /// # Errors
    ///
    /// The reason for which they cannot be started: they are not installed, or another one.
    pub fn start(size: usize) -> Result<Self, String> {
        Self::start_with(size, &Flavour::default())
    }

    /// Returns the reason that servers cannot be started; `None` if they can.
    pub fn missing() -> Option<String> {
        let program = match program("etcd") {
            Ok(program) => program,
            Err(why) => return Some(why),
        };
        let output = Command::new(&program).arg("--version").output();
        let there = output.is_ok_and(|output| output.status.success());
        (!there).then(|| format!("etcd is not installed: {} cannot be run", program.display()))
    }

    /// Returns the version of the servers.
    ///
    /// # Errors
    ///
    /// If they are not installed.
    pub fn version() -> Result<String, String> {
        let output = Command::new(program("etcd")?).arg("--version").output();
        let output = output.map_err(|error| error.to_string())?.stdout;
        let output = String::from_utf8_lossy(&output).into_owned();
        let version = output.lines().find_map(|line| line.strip_prefix("etcd Version: "));
        version.map(str::to_owned).ok_or_else(|| "etcd does not print its version".to_owned())
    }

    /// Starts `size` servers to which others may [join](Self::join), up to `total` ever.
    ///
    /// # Errors
    ///
    /// As [`Cluster::start`].
    pub fn start_growing(size: usize, total: usize) -> Result<Self, String> {
        if let Some(why) = Self::missing() {
            return Err(why);
        }
        let start = || {
            let ports = Ports::draw(total * 3)?;
            let own: Vec<u16> = ports.chunks(3).map(|own| own[1]).take(size).collect();
            let cluster = Self::spawn(&ports[..size * 3], &own, &Flavour::default())?;
            Ok(cluster.holding(ports))
        };
        let cluster = start().map_err(|error: io::Error| format!("etcd: {error}"))?;
        cluster.await_ready()?;
        Ok(cluster)
    }

    /// Adds a server to the cluster, and returns its number.
    ///
    /// # Errors
    ///
    /// If the others do not take it, or it does not start.
    pub fn join(&mut self) -> Result<usize, String> {
        let (index, own) = self.next().map_err(|error| error.to_string())?;
        let url = format!("http://127.0.0.1:{}", own[1]);
        let running = self.running().map(|(number, etcd)| (number, etcd.peer));
        let peers = running.chain([(index, own[1])]);
        let peers: Vec<String> =
            peers.map(|(number, port)| format!("n{number}=http://127.0.0.1:{port}")).collect();
        self.change(&["member", "add", &format!("n{index}"), &format!("--peer-urls={url}")])?;
        let arguments = ["--initial-cluster-state", "existing"].map(str::to_owned).to_vec();
        let flavour = Flavour { arguments, ..Flavour::default() };
        let started = self.add(Etcd::at(&own), |home| command(index, &own, &peers, home, &flavour));
        started.map_err(|error| error.to_string())?;
        self.await_ready()?;
        Ok(index)
    }

    /// Removes a server from the cluster, and ends its process.
    ///
    /// # Errors
    ///
    /// If the others do not remove it.
    pub fn leave(&mut self, member: usize) -> Result<(), String> {
        let name = self.names().get(member).cloned().unwrap_or_default();
        self.change(&["member", "remove", &name])?;
        self.kill(member).map_err(|error| error.to_string())
    }

    /// Changes the cluster once it permits that: it refuses a change until all members are
    /// connected after the last one.
    fn change(&self, arguments: &[&str]) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        let running = self.running().map(|(_, etcd)| format!("127.0.0.1:{}", etcd.client));
        let endpoints = running.collect::<Vec<_>>().join(",");
        loop {
            let mut etcdctl = Command::new(program("etcdctl")?);
            etcdctl.env("ETCDCTL_API", "3").args(["--endpoints", &endpoints]).args(arguments);
            let output = etcdctl.output().map_err(|error| error.to_string())?;
            if output.status.success() {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("etcd: {}", String::from_utf8_lossy(&output.stderr)));
            }
            sleep(Duration::from_millis(50));
        }
    }

    /// Returns a command of etcd's own client for these servers.
    ///
    /// # Panics
    ///
    /// If there are no servers.
    pub fn etcdctl(&self) -> Command {
        let mut etcdctl = Command::new(program("etcdctl").expect("installed with the servers"));
        let address = self.addresses()[0].to_string();
        etcdctl.env("ETCDCTL_API", "3").args(["--endpoints", &address]);
        etcdctl
    }

    /// [`Cluster::start`] with servers of this flavour.
    ///
    /// # Errors
    ///
    /// As [`Cluster::start`].
    pub fn start_with(size: usize, flavour: &Flavour) -> Result<Self, String> {
        if let Some(why) = Self::missing() {
            return Err(why);
        }
        let start = || {
            let ports = Ports::draw(size * 3)?;
            let own: Vec<u16> = ports.chunks(3).map(|own| own[1]).collect();
            Ok(Self::spawn(&ports, &own, flavour)?.holding(ports))
        };
        let cluster = start().map_err(|error: io::Error| format!("etcd: {error}"))?;
        cluster.await_ready()?;
        Ok(cluster)
    }

    /// Starts `size` servers that are connected through proxies, within a tokio runtime with
    /// another free thread, because this one blocks.
    ///
    /// # Errors
    ///
    /// As [`Cluster::start`].
    pub fn start_apart(size: usize, flavour: &Flavour) -> Result<(Self, Callers), String> {
        if let Some(why) = Self::missing() {
            return Err(why);
        }
        let start = || {
            let ports = Ports::draw(size * 3)?;
            let own: Vec<u16> = ports.chunks(3).map(|own| own[1]).collect();
            let callers = Callers::start(&own)?;
            let cluster = Self::spawn(&ports, callers.ports(), flavour)?;
            Ok((cluster.holding(ports), callers))
        };
        let (cluster, callers) = start().map_err(|error: io::Error| format!("etcd: {error}"))?;
        cluster.await_ready()?;
        Ok((cluster, callers))
    }

    /// Returns the names that the running servers use for each other.
    pub fn names(&self) -> Vec<String> {
        let name = |member: &Etcd| {
            let text = member.fetch("/metrics").ok()?;
            let name = text.split_once("etcd_server_id{server_id=\"")?.1.split_once('"')?.0;
            Some(name.to_owned())
        };
        self.each().map(|member| name(member).unwrap_or_default()).collect()
    }

    /// Starts servers that reach each other at these ports.
    fn spawn(ports: &[u16], found_at: &[u16], flavour: &Flavour) -> io::Result<Self> {
        let peers: Vec<String> = (found_at.iter().enumerate())
            .map(|(index, port)| format!("n{index}=http://127.0.0.1:{port}"))
            .collect();
        let mut cluster = Self::none()?;
        for (index, own) in ports.chunks(3).enumerate() {
            cluster.add(Etcd::at(own), |home| {
                for (name, content) in &flavour.files {
                    fs::write(home.join(name), content)?;
                }
                command(index, own, &peers, home, flavour)
            })?;
        }
        Ok(cluster)
    }

    /// Returns the number of requests with one answer that all servers have received so far,
    /// without heartbeats.
    pub fn requests(&self) -> u64 {
        let of_one_answer = |labels: &str| labels.contains(r#"grpc_type="unary""#);
        let text = self.each().filter_map(|member| member.fetch("/metrics").ok());
        text.map(|text| without_heartbeats(&text, "grpc_server_started_total{", of_one_answer))
            .sum()
    }

    /// Returns the number of messages from clients to all servers so far: requests with one answer,
    /// and messages on streams, such as watches and heartbeats; `None` if a server does not report
    /// it.
    pub fn messages(&self) -> Option<u64> {
        self.received(|_labels| true)
    }

    /// Returns [`Cluster::messages`] without heartbeats, whose number depends on time.
    pub fn asked(&self) -> Option<u64> {
        let text = self.each().map(|member| member.fetch("/metrics").ok());
        let others = |text: &str| {
            without_heartbeats(text, "grpc_server_msg_received_total{", |_labels| true)
        };
        text.map(|text| Some(others(&text?))).sum()
    }

    fn received(&self, wanted: impl Fn(&str) -> bool) -> Option<u64> {
        let count = |line: &str| {
            let (labels, number) =
                line.strip_prefix("grpc_server_msg_received_total{")?.split_once('}')?;
            wanted(labels).then(|| whole(number))?
        };
        let text = self.each().map(|member| member.fetch("/metrics").ok());
        text.map(|text| Some(text?.lines().filter_map(count).sum::<u64>())).sum()
    }

    /// Returns the number of events that all servers have sent to watches.
    pub fn events(&self) -> u64 {
        self.sum("etcd_debugging_mvcc_events_total")
    }

    /// Returns the number of watches at all servers, of all clients.
    pub fn watches(&self) -> u64 {
        self.sum("etcd_debugging_mvcc_watcher_total")
    }

    /// Returns the number of watch streams at all servers.
    pub fn watch_streams(&self) -> u64 {
        self.sum("etcd_debugging_mvcc_watch_stream_total")
    }

    /// Returns the number of watches that must still be sent old events. A server sends them ten
    /// times a second.
    pub fn late_watches(&self) -> u64 {
        self.sum("etcd_debugging_mvcc_slow_watcher_total")
    }

    fn sum(&self, metric: &str) -> u64 {
        self.each().filter_map(|member| member.metric(metric)).sum()
    }
}

/// Returns the sum of a metric over the methods with matching labels, without heartbeats: each is a
/// keep-alive and a read. The version and the list of members are requested from a member once for
/// each connection.
fn without_heartbeats(text: &str, metric: &str, fits: impl Fn(&str) -> bool) -> u64 {
    let is_of_a_connection =
        |labels: &str| ["Status", "MemberList"].iter().any(|method| labels.contains(method));
    let (mut sum, mut heartbeats) = (0, 0);
    for line in text.lines() {
        let Some((labels, number)) =
            line.strip_prefix(metric).and_then(|counted| counted.split_once('}'))
        else {
            continue;
        };
        let number = whole(number).unwrap_or_default();
        if labels.contains(r#"grpc_method="LeaseKeepAlive""#) {
            heartbeats += number;
        } else if !is_of_a_connection(labels) && fits(labels) {
            sum += number;
        }
    }
    sum.saturating_sub(heartbeats)
}

/// Parses a count as a server prints it: a large one has an exponent.
fn whole(number: &str) -> Option<u64> {
    let number: f64 = number.trim().parse().ok()?;
    format!("{number:.0}").parse().ok()
}

/// Returns the path of one of etcd's programs: the machine's, or that of the servers that
/// `SYNOD_ETCD` selects (see [`newer::directory`]).
fn program(name: &str) -> Result<PathBuf, String> {
    static DIRECTORY: LazyLock<Result<Option<PathBuf>, String>> =
        LazyLock::new(|| newer::directory("SYNOD_ETCD", "etcd"));
    let directory = DIRECTORY.as_ref().map_err(Clone::clone)?;
    Ok(directory.as_ref().map_or_else(|| PathBuf::from(name), |directory| directory.join(name)))
}

fn command(
    index: usize,
    ports: &[u16],
    peers: &[String],
    home: &Path,
    flavour: &Flavour,
) -> io::Result<Command> {
    let mut etcd = Command::new(program("etcd").map_err(io::Error::other)?);
    etcd.args(arguments(index, ports, peers, home, flavour));
    Ok(etcd)
}

fn arguments(
    index: usize,
    ports: &[u16],
    peers: &[String],
    home: &Path,
    flavour: &Flavour,
) -> Vec<String> {
    let at = |scheme: &str, port: u16| format!("{scheme}://127.0.0.1:{port}");
    let client = at(if flavour.tls { "https" } else { "http" }, ports[0]);
    let (peer, metrics) = (at("http", ports[1]), at("http", ports[2]));
    let own = format!("n{index}=");
    let found_at = peers.iter().find_map(|peer| peer.strip_prefix(&own)).unwrap_or_default();
    let home = home.display().to_string();
    let pairs = [
        ("--name", format!("n{index}")),
        ("--data-dir", format!("{home}/data")),
        ("--listen-client-urls", client.clone()),
        ("--advertise-client-urls", client),
        ("--listen-peer-urls", peer),
        ("--initial-advertise-peer-urls", found_at.to_owned()),
        ("--listen-metrics-urls", metrics),
        ("--initial-cluster", peers.join(",")),
        ("--initial-cluster-token", peers.join(",")),
        ("--initial-cluster-state", "new".to_owned()),
        ("--logger", "zap".to_owned()),
        ("--log-level", "warn".to_owned()),
        // Fast elections, which also permit a TTL of one second.
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

impl Kind for Etcd {
    const NAME: &'static str = "etcd";

    fn port(&self) -> u16 {
        self.client
    }

    fn is_ready(&self) -> bool {
        self.fetch("/health").is_ok_and(|text| text.contains(r#""health":"true""#))
    }

    fn leads(&self) -> bool {
        self.metric("etcd_server_is_leader") == Some(1)
    }
}

impl Etcd {
    fn at(ports: &[u16]) -> Self {
        Self { client: ports[0], peer: ports[1], metrics: ports[2] }
    }

    fn metric(&self, name: &str) -> Option<u64> {
        let text = self.fetch("/metrics").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        whole(line)
    }

    /// Reads a page of the metrics port.
    fn fetch(&self, page: &str) -> io::Result<String> {
        let limit = Duration::from_millis(500);
        let address = (Ipv4Addr::LOCALHOST, self.metrics).into();
        let mut stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_read_timeout(Some(limit))?;
        write!(stream, "GET {page} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_are_not_counted() {
        let text = r#"
started{grpc_method="Status",grpc_type="unary"} 3
started{grpc_method="MemberList",grpc_type="unary"} 4
started{grpc_method="LeaseKeepAlive",grpc_type="bidi_stream"} 2
started{grpc_method="Range",grpc_type="unary"} 5
started{grpc_method="Watch",grpc_type="bidi_stream"} 7
other{grpc_method="Range",grpc_type="unary"} 9"#;
        let unary = |labels: &str| labels.contains("unary");
        assert_eq!(without_heartbeats(text, "started{", unary), 3);
    }

    #[test]
    fn a_count_may_be_large() {
        assert_eq!(whole(" 17"), Some(17));
        assert_eq!(whole("1.234567e+06\n"), Some(1_234_567));
        assert_eq!(whole("many"), None);
    }
}
