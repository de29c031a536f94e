//! [`Stand`]: a real server to race on, and its racers.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use synod_servers::etcd::{Cluster, Flavour};
use synod_servers::pipe::Pipe;
use synod_servers::zookeeper::Ensemble;

use crate::process::Process;
use crate::race::Named;
use crate::racer::Failure;
use crate::record::{Case, Count};
use crate::task::Task;

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[expect(clippy::exhaustive_enums, reason = "every kind is matched")]
pub enum Server {
    /// ZooKeeper.
    Zookeeper,
    /// etcd.
    Etcd,
}

/// One server without others, which ends when this is dropped.
#[derive(Debug)]
pub struct Stand {
    fixture: Fixture,
}

#[derive(Debug)]
enum Fixture {
    Zookeeper(Ensemble),
    Etcd(Cluster),
}

/// Duration of a counted task.
const COUNTED: Duration = Duration::from_millis(200);
/// Number of attempts to get the counts of a server.
const TRIES: usize = 20;

impl Server {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zookeeper => "zookeeper",
            Self::Etcd => "etcd",
        }
    }

    /// The URL of a server at that address, with this time to live of sessions in milliseconds.
    pub fn url(self, address: &str, session: u64) -> String {
        match self {
            Self::Zookeeper => format!("zk://{address}?acl=open&session={session}ms"),
            Self::Etcd => format!("etcd://{address}?session={session}ms"),
        }
    }

    /// The names of its racers: first synod, then client crates, then others, by the name of
    /// the program that `dev/bench` built.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let peers: &[&str] = match self {
            Self::Zookeeper => &["same", "curator", "kazoo"],
            Self::Etcd => &["same", "go"],
        };
        ["ours", "plain", "floor", "bare"].iter().chain(peers).copied()
    }
}

/// The racers in this program.
const RUST: [&str; 5] = ["ours", "plain", "floor", "bare", "same"];

impl Stand {
    /// Starts a server; with `fsync` it writes to the disk before it answers, as by default.
    ///
    /// # Errors
    ///
    /// The reason why the server cannot be started.
    pub fn start(server: Server, fsync: bool) -> Result<Self, String> {
        let fixture = match server {
            Server::Zookeeper => {
                // Like a server in production: with all of Java's compiler.
                let mut java = vec!["-XX:TieredStopAtLevel=4", "-Xmx1g"];
                java.push("-Dznode.container.checkIntervalMs=60000");
                if fsync {
                    java.push("-Dzookeeper.forceSync=yes");
                }
                Fixture::Zookeeper(Ensemble::start_with(1, &java, &[])?)
            }
            Server::Etcd => {
                let mut flavour = Flavour::default();
                flavour.fsync = fsync;
                Fixture::Etcd(Cluster::start_with(1, &flavour)?)
            }
        };
        Ok(Self { fixture })
    }

    /// The address of the server.
    pub fn address(&self) -> SocketAddr {
        match &self.fixture {
            Fixture::Zookeeper(servers) => servers.addresses()[0],
            Fixture::Etcd(servers) => servers.addresses()[0],
        }
    }

    /// The number of messages from clients so far. A busy server may not report it at once.
    fn requests(&self) -> Result<u64, Failure> {
        let ask = || match &self.fixture {
            Fixture::Zookeeper(servers) => servers.requests(),
            Fixture::Etcd(servers) => servers.messages(),
        };
        let told = (0..TRIES).find_map(|_| ask());
        told.ok_or_else(|| "the server does not report its number of requests".into())
    }

    /// The requests of a lap of this racer, which is connected to the server through the pipe.
    ///
    /// # Errors
    ///
    /// If the racer fails.
    pub async fn count(
        &self,
        pipe: &Pipe,
        case: &Case,
        racer: &mut Named,
    ) -> Result<Option<Count>, Failure> {
        let task = case.task(COUNTED);
        // Requests that are sent only once are not counted.
        let warm = Task { millis: 1, clients: task.clients.min(100), ..task };
        if racer.1.run(&warm).await?.is_none() {
            return Ok(None);
        }
        let before = (self.requests()?, pipe.carried());
        let Some(report) = racer.1.run(&task).await? else { return Ok(None) };
        let per_lap = |before: u64, after: u64| {
            #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
            let (count, laps) = ((after - before) as f64, report.laps as f64);
            count / laps
        };
        let requests = per_lap(before.0, self.requests()?);
        Ok(Some(Count { requests, bytes: per_lap(before.1, pipe.carried()) }))
    }
}

/// The time to live of a session, in milliseconds: longer than any task.
pub const SESSION: u64 = 60_000;

/// The shortest time that both kinds of server allow and a busy machine keeps up with.
pub const SHORT_SESSION: u64 = 1_000;

/// All racers on a server at that address, each in a process, and the reasons for those that are
/// missing.
///
/// `tools` is the directory into which `dev/bench` put the peers. Logs go there as well.
pub fn line_up(server: Server, address: SocketAddr, tools: &Path) -> (Vec<Named>, Vec<String>) {
    let (mut racers, mut missing) = (Vec::new(), Vec::new());
    for name in server.names() {
        match start(name, server, address, SESSION, tools) {
            Ok(process) => racers.push((name.to_owned(), Box::new(process) as _)),
            Err(why) => missing.push(why.to_string()),
        }
    }
    (racers, missing)
}

/// Starts one racer, with this time to live of its sessions in milliseconds.
///
/// # Errors
///
/// If it cannot be started.
pub fn start(
    name: &str,
    server: Server,
    address: SocketAddr,
    session: u64,
    tools: &Path,
) -> Result<Process, Failure> {
    let log = tools.join(format!("{name}.log"));
    let (address, session) = (address.to_string(), session.to_string());
    if RUST.contains(&name) {
        let ourselves = std::env::current_exe()?;
        let arguments = ["racer", name, server.name(), &address, &session];
        Process::start(&ourselves, &arguments, &log)
    } else {
        Process::start(&tools.join(name), &[&address, &session], &log)
    }
}
