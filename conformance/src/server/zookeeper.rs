//! [`Ensemble`]: real ZooKeeper servers.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use synod_core::store::SessionId;
use tokio::time::Instant;

use crate::server::child::{Child, Signal};
use crate::server::free_ports;
use crate::server::home::Home;

/// Where Debian puts it.
const JAR: &str = "/usr/share/java/zookeeper.jar";
/// For its log, and what encryption needs and its own list forgets.
const MORE_JARS: &str = "/usr/share/java/slf4j-simple.jar:/usr/share/java/netty-codec.jar:\
    /usr/share/java/netty-resolver.jar:/usr/share/java/netty-transport-native-unix-common.jar";
/// How long the servers' beat is. All their other times are multiples of it.
pub const TICK: Duration = Duration::from_millis(100);
/// How long a start may take on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(30);

/// One server or several that agree, each a process of its own, with all data in a directory that
/// goes when this is dropped.
#[derive(Debug)]
pub struct Ensemble {
    nodes: Vec<Node>,
    // Behind the nodes: their processes end before their files go.
    _home: Home,
}

#[derive(Debug)]
struct Node {
    child: Option<Child>,
    port: u16,
    home: PathBuf,
    arguments: Vec<String>,
}

impl Ensemble {
    /// Starts so many servers and waits until they take requests.
    ///
    /// # Errors
    ///
    /// Why there are none: not installed, or whatever kept them from starting.
    pub fn start(size: usize) -> Result<Self, String> {
        Self::start_with(size, &[], &[])
    }

    /// Starts so many servers with more arguments for each Java and more lines in each
    /// configuration, which override the usual ones.
    ///
    /// # Errors
    ///
    /// As [`Ensemble::start`].
    pub fn start_with(size: usize, arguments: &[&str], lines: &[&str]) -> Result<Self, String> {
        if !Path::new(JAR).exists() {
            return Err(format!("ZooKeeper is not installed: there is no {JAR}"));
        }
        let ensemble =
            Self::spawn(size, arguments, lines).map_err(|error| format!("ZooKeeper: {error}"))?;
        ensemble.await_ready()?;
        Ok(ensemble)
    }

    fn spawn(size: usize, arguments: &[&str], lines: &[&str]) -> io::Result<Self> {
        let home = Home::new("zookeeper")?;
        let ports = free_ports(size * 3)?;
        let mut nodes = Vec::new();
        for (index, own) in ports.chunks(3).enumerate() {
            let (home, arguments) = (home.path().join(index.to_string()), to_strings(arguments));
            let mut node = Node { child: None, port: own[0], home, arguments };
            node.write_config(index, &ports, lines)?;
            node.start()?;
            nodes.push(node);
        }
        Ok(Self { nodes, _home: home })
    }

    /// Waits until every server that runs takes requests.
    ///
    /// # Errors
    ///
    /// If it takes too long: with the last words of the server.
    pub fn await_ready(&self) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        for node in self.nodes.iter().filter(|node| node.child.is_some()) {
            while node.mode().is_none() {
                if Instant::now() > end {
                    return Err(format!("ZooKeeper did not start: {}", node.last_words()));
                }
                sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// Where its servers listen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Node::address).collect()
    }

    /// Ends a server as a power cut would.
    ///
    /// # Errors
    ///
    /// If it cannot be ended.
    pub fn kill(&mut self, node: usize) -> io::Result<()> {
        if let Some(child) = self.nodes[node].child.take() {
            child.signal(Signal::Kill)?;
        }
        Ok(())
    }

    /// Starts a server again on what it has on disk.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn restart(&mut self, node: usize) -> io::Result<()> {
        self.nodes[node].child = None;
        self.nodes[node].start()
    }

    /// Lets a server stand still.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn pause(&self, node: usize) -> io::Result<()> {
        self.nodes[node].signal(Signal::Stop)
    }

    /// Lets a server that stands still go on.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn resume(&self, node: usize) -> io::Result<()> {
        self.nodes[node].signal(Signal::Continue)
    }

    /// Which server leads; `None` while none does.
    pub fn leader(&self) -> Option<usize> {
        let leads = |node: &Node| matches!(node.mode().as_deref(), Some("leader" | "standalone"));
        self.nodes.iter().position(leads)
    }

    /// How many messages clients sent all servers so far, signs of life among them; `None` if a
    /// server does not tell.
    pub fn requests(&self) -> Option<u64> {
        self.nodes.iter().map(|node| received(&node.ask("mntr").ok()?)).sum()
    }

    /// How many watches all servers keep for these sessions.
    pub fn watches(&self, sessions: &[SessionId]) -> usize {
        let mine: BTreeSet<String> =
            sessions.iter().map(|session| format!("0x{:x}", session.get())).collect();
        let told = self.nodes.iter().filter_map(|node| node.ask("wchc").ok());
        told.map(|told| count_watches(&told, &mine)).sum()
    }
}

fn to_strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

/// How many messages a server counted.
fn received(told: &str) -> Option<u64> {
    told.lines().find_map(|line| line.strip_prefix("zk_packets_received\t"))?.trim().parse().ok()
}

/// Counts the paths below the sessions that are named.
fn count_watches(told: &str, sessions: &BTreeSet<String>) -> usize {
    let mut ours = false;
    let mut count = 0;
    for line in told.lines() {
        match line.strip_prefix('\t') {
            Some(_path) => count += usize::from(ours),
            None => ours = sessions.contains(line.trim()),
        }
    }
    count
}

impl Node {
    fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    fn write_config(&self, index: usize, ports: &[u16], lines: &[&str]) -> io::Result<()> {
        let data = self.home.join("data");
        fs::create_dir_all(&data)?;
        let (tick, data_dir) = (TICK.as_millis(), data.display());
        let mut config = format!(
            "tickTime={tick}\nminSessionTimeout=200\nmaxSessionTimeout=60000\ninitLimit=50\n\
             syncLimit=20\ndataDir={data_dir}\nclientPort={}\nclientPortAddress=127.0.0.1\n\
             admin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\n",
            self.port
        );
        if ports.len() > 3 {
            fs::write(data.join("myid"), (index + 1).to_string())?;
            for (index, peer) in ports.chunks(3).enumerate() {
                let line =
                    writeln!(config, "server.{}=127.0.0.1:{}:{}", index + 1, peer[1], peer[2]);
                line.map_err(io::Error::other)?;
            }
        }
        config.push_str(&lines.join("\n"));
        fs::write(self.home.join("zoo.cfg"), config)
    }

    fn start(&mut self) -> io::Result<()> {
        let mut java = Command::new("java");
        java.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp"])
            .arg(format!("{JAR}:{MORE_JARS}"))
            .args([
                "-Dzookeeper.extendedTypesEnabled=true",
                "-Dznode.container.checkIntervalMs=200",
            ])
            .args(["-Dzookeeper.forceSync=no", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"])
            .args(&self.arguments)
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(self.home.join("zoo.cfg"));
        self.child = Some(Child::start(&mut java, &self.log())?);
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

    /// What it is in its ensemble, if it takes requests.
    fn mode(&self) -> Option<String> {
        let told = self.ask("srvr").ok()?;
        told.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
    }

    /// Sends one of the commands of four letters.
    fn ask(&self, command: &str) -> io::Result<String> {
        // One that was accepted too early is never answered.
        let limit = Duration::from_millis(200);
        let mut stream = TcpStream::connect_timeout(&self.address(), limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.write_all(command.as_bytes())?;
        let mut told = String::new();
        stream.read_to_string(&mut told)?;
        Ok(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_that_a_server_counted_are_read() {
        let told = "zk_version\t3.8.0\nzk_packets_received\t51\nzk_packets_sent\t50\n";
        assert_eq!(received(told), Some(51));
        assert_eq!(received("zk_version\t3.8.0\n"), None);
    }

    #[test]
    fn only_the_watches_of_the_named_sessions_count() {
        let told = "0x10a\n\t/a\n\t/b\n0x10b\n\t/c\n";
        let count = |sessions: &[&str]| {
            count_watches(told, &sessions.iter().map(|&id| id.to_owned()).collect())
        };
        assert_eq!(count(&["0x10a"]), 2);
        assert_eq!(count(&["0x10a", "0x10b"]), 3);
        assert_eq!(count(&["0x1"]), 0);
    }
}
