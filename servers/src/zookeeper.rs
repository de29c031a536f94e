//! Real ZooKeeper servers: [`Ensemble`].

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::Duration;

use synod_core::store::SessionId;
use tokio::time::Instant;

use crate::child::PATIENCE;
use crate::clients::entry::Fact;
use crate::members::{Kind, Members};
use crate::peers::Peers;
use crate::ports::Ports;
use crate::{newer, zookeeper_log};

/// The directory into which Debian installs it.
const JAR: &str = "/usr/share/java/zookeeper.jar";
/// The jars for its log, and jars for encryption that are missing in its own list.
const MORE_JARS: &str = "/usr/share/java/slf4j-simple.jar:/usr/share/java/netty-codec.jar:\
    /usr/share/java/netty-resolver.jar:/usr/share/java/netty-transport-native-unix-common.jar";
/// The `tickTime` of the servers. All their other times are multiples of it.
pub const TICK: Duration = Duration::from_millis(100);
/// An ensemble of ZooKeeper servers, or a single one.
pub type Ensemble = Members<ZooKeeper>;

/// One ZooKeeper server.
#[derive(Debug)]
pub struct ZooKeeper {
    pub(super) port: u16,
}

impl Ensemble {
    /// Starts `size` servers and waits until they accept requests.
    ///
    /// # Errors
    ///
    /// The reason for which they cannot be started: they are not installed, or another one.
    pub fn start(size: usize) -> Result<Self, String> {
        Self::start_with(size, &[], &[])
    }

    /// Returns the reason that servers cannot be started; `None` if they can.
    pub fn missing() -> Option<String> {
        class_path().err()
    }

    /// Starts `size` servers with more arguments for Java and more lines in each configuration,
    /// which override the usual ones.
    ///
    /// # Errors
    ///
    /// As [`Ensemble::start`].
    pub fn start_with(size: usize, arguments: &[&str], lines: &[&str]) -> Result<Self, String> {
        if let Some(why) = Self::missing() {
            return Err(why);
        }
        let start = || {
            let ports = Ports::draw(size * 3)?;
            let view = |_from, to: usize| ports[to * 3 + 1..][..2].to_vec();
            Ok(Self::spawn(&ports, view, arguments, lines)?.holding(ports))
        };
        let ensemble = start().map_err(|error: io::Error| format!("ZooKeeper: {error}"))?;
        ensemble.await_ready()?;
        Ok(ensemble)
    }

    /// Starts `size` servers that are connected through proxies, within a tokio runtime with
    /// another free thread, because this one blocks.
    ///
    /// # Errors
    ///
    /// As [`Ensemble::start`].
    pub fn start_apart(size: usize) -> Result<(Self, Peers), String> {
        Self::start_apart_with(size, &[])
    }

    /// [`Ensemble::start_apart`] with more lines in each configuration, which override the usual
    /// ones.
    ///
    /// # Errors
    ///
    /// As [`Ensemble::start`].
    pub fn start_apart_with(size: usize, lines: &[&str]) -> Result<(Self, Peers), String> {
        let start = || {
            let ports = Ports::draw(size * 3)?;
            let own: Vec<_> = ports.chunks(3).map(|own| own[1..].to_vec()).collect();
            let peers = Peers::start(&own)?;
            let view = |from: usize, to: usize| {
                if from == to { own[to].clone() } else { peers.ports(from, to) }
            };
            let ensemble = Self::spawn(&ports, view, &[], lines)?;
            Ok((ensemble.holding(ports), peers))
        };
        if let Some(why) = Self::missing() {
            return Err(why);
        }
        let (ensemble, peers) =
            start().map_err(|error: io::Error| format!("ZooKeeper: {error}"))?;
        ensemble.await_ready()?;
        Ok((ensemble, peers))
    }

    /// Returns the addresses of the servers that follow the leader, or that of the only server. The
    /// leader of several servers answers `sync` without a delay, so its clients may miss writes
    /// that a follower has answered.
    pub fn followers(&self) -> Vec<SocketAddr> {
        let mut addresses = self.addresses();
        let end = Instant::now() + PATIENCE;
        while addresses.len() > 1 && Instant::now() < end {
            if let Some(leader) = self.leader() {
                addresses.remove(leader);
                break;
            }
            sleep(Duration::from_millis(20));
        }
        addresses
    }

    /// Returns every change of a node in the logs of those of its servers whose disk can be read.
    ///
    /// # Errors
    ///
    /// If none can.
    pub fn facts(&self) -> io::Result<Vec<Fact>> {
        zookeeper_log::facts((0..self.each().count()).map(|node| self.home(node)))
    }

    /// Starts servers that reach each other at the addresses of `view`, which gets the caller and
    /// the called server.
    fn spawn(
        ports: &[u16],
        view: impl Fn(usize, usize) -> Vec<u16>,
        arguments: &[&str],
        lines: &[&str],
    ) -> io::Result<Self> {
        let size = ports.len() / 3;
        let mut ensemble = Self::none()?;
        for (index, own) in ports.chunks(3).enumerate() {
            ensemble.add(ZooKeeper { port: own[0] }, |home| {
                let peers: Vec<_> = (0..size).map(|peer| view(index, peer)).collect();
                write_config(home, own[0], index, &peers, lines)?;
                command(home, arguments)
            })?;
        }
        Ok(ensemble)
    }

    /// Makes a server's disk appear full, until it is restarted.
    ///
    /// # Errors
    ///
    /// If it is not running, or the machine cannot do that.
    pub fn fill_disk(&self, node: usize) -> io::Result<()> {
        self.child(node)?.limit_files(0)
    }

    /// Returns the version of the servers. A server that was paused or has no leader reports it
    /// after a delay. `None` if no server reports it within the maximum duration of a start.
    pub fn version(&self) -> Option<String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let version = self.each().find_map(ZooKeeper::version);
            if version.is_some() || Instant::now() > end {
                return version;
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// Returns the number of messages from clients to all servers so far, including heartbeats;
    /// `None` if a server does not report it.
    pub fn requests(&self) -> Option<u64> {
        self.each().map(|node| received(&node.command("mntr").ok()?)).sum()
    }

    /// Returns the number of watches at all servers for these sessions.
    pub fn watches(&self, sessions: &[SessionId]) -> usize {
        let mine: BTreeSet<String> =
            sessions.iter().map(|session| format!("0x{:x}", session.get())).collect();
        let text = self.each().filter_map(|node| node.command("wchc").ok());
        text.map(|text| count_watches(&text, &mine)).sum()
    }
}

/// Returns the class path of the servers: the machine's, or the one that `SYNOD_ZOOKEEPER` selects
/// (see [`newer::directory`]).
pub(crate) fn class_path() -> Result<String, String> {
    static CLASS_PATH: LazyLock<Result<String, String>> = LazyLock::new(|| {
        let jars = match newer::directory("SYNOD_ZOOKEEPER", "zookeeper")? {
            // The first two precede the jars in the list of the second.
            Some(other) => {
                ["zookeeper-jute.jar", "zookeeper.jar"].map(|jar| other.join(jar)).to_vec()
            }
            None => vec![PathBuf::from(JAR)],
        };
        if let Some(missing) = jars.iter().find(|jar| !jar.exists()) {
            return Err(format!("ZooKeeper is not installed: there is no {}", missing.display()));
        }
        let jars: Vec<_> = jars.iter().map(|jar| jar.display().to_string()).collect();
        Ok(format!("{}:{MORE_JARS}", jars.join(":")))
    });
    CLASS_PATH.clone()
}

/// Returns the number of messages that a server counted.
fn received(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("zk_packets_received\t"))?.trim().parse().ok()
}

/// Counts the paths below the named sessions.
fn count_watches(text: &str, sessions: &BTreeSet<String>) -> usize {
    let mut ours = false;
    let mut count = 0;
    for line in text.lines() {
        match line.strip_prefix('\t') {
            Some(_path) => count += usize::from(ours),
            None => ours = sessions.contains(line.trim()),
        }
    }
    count
}

pub(super) fn write_config(
    home: &Path,
    port: u16,
    index: usize,
    peers: &[Vec<u16>],
    lines: &[&str],
) -> io::Result<()> {
    let data = home.join("data");
    fs::create_dir_all(&data)?;
    let (tick, data_dir) = (TICK.as_millis(), data.display());
    let mut config = format!(
        "tickTime={tick}\nminSessionTimeout=200\nmaxSessionTimeout=60000\ninitLimit=50\n\
         syncLimit=20\ndataDir={data_dir}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
         admin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\n"
    );
    if peers.len() > 1 {
        fs::write(data.join("myid"), (index + 1).to_string())?;
        for (index, peer) in peers.iter().enumerate() {
            let line = writeln!(config, "server.{}=127.0.0.1:{}:{}", index + 1, peer[0], peer[1]);
            line.map_err(io::Error::other)?;
        }
    }
    config.push_str(&lines.join("\n"));
    fs::write(home.join("zoo.cfg"), config)
}

pub(super) fn command(home: &Path, arguments: &[&str]) -> io::Result<Command> {
    let mut java = Command::new("java");
    java.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp"])
        .arg(class_path().map_err(io::Error::other)?)
        .args(["-Dzookeeper.extendedTypesEnabled=true", "-Dznode.container.checkIntervalMs=200"])
        .args(["-Dzookeeper.forceSync=no", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"])
        // The logs are read completely, and those of a test are short.
        .arg("-Dzookeeper.preAllocSize=256")
        .args(arguments)
        .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
        .arg(home.join("zoo.cfg"));
    Ok(java)
}

impl Kind for ZooKeeper {
    const NAME: &'static str = "ZooKeeper";

    fn port(&self) -> u16 {
        self.port
    }

    fn is_ready(&self) -> bool {
        self.mode().is_some()
    }

    fn leads(&self) -> bool {
        matches!(self.mode().as_deref(), Some("leader" | "standalone"))
    }
}

impl ZooKeeper {
    /// Returns the role of the server in its ensemble, if it accepts requests.
    fn mode(&self) -> Option<String> {
        self.reported("Mode: ")
    }

    /// Returns the version of the server, if it accepts requests.
    fn version(&self) -> Option<String> {
        let version = self.reported("Zookeeper version: ")?;
        version.split(['-', ',']).next().map(str::to_owned)
    }

    /// Returns the line with this start from the server's own report.
    fn reported(&self, start: &str) -> Option<String> {
        let text = self.command("srvr").ok()?;
        text.lines().find_map(|line| line.strip_prefix(start)).map(str::to_owned)
    }

    /// Sends one of the four-letter commands.
    fn command(&self, command: &str) -> io::Result<String> {
        // A command that was accepted too early is never answered.
        let limit = Duration::from_millis(200);
        let mut stream =
            TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, self.port).into(), limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.write_all(command.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_that_a_server_counted_are_read() {
        let text = "zk_version\t3.8.0\nzk_packets_received\t51\nzk_packets_sent\t50\n";
        assert_eq!(received(text), Some(51));
        assert_eq!(received("zk_version\t3.8.0\n"), None);
    }

    #[test]
    fn only_the_watches_of_the_named_sessions_count() {
        let text = "0x10a\n\t/a\n\t/b\n0x10b\n\t/c\n";
        let count = |sessions: &[&str]| {
            count_watches(text, &sessions.iter().map(|&id| id.to_owned()).collect())
        };
        assert_eq!(count(&["0x10a"]), 2);
        assert_eq!(count(&["0x10a", "0x10b"]), 3);
        assert_eq!(count(&["0x1"]), 0);
    }
}
