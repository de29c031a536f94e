//! The processes of a cluster of servers of any kind: [`Members`].

use std::fmt::Debug;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use tokio::time::Instant;

use crate::child::{Child, PATIENCE, Signal};
use crate::home::Home;
use crate::ports::Ports;
use crate::stall::Stall;

/// The properties of a kind of server.
pub trait Kind: Debug + Send + Sync + 'static {
    /// The name.
    const NAME: &'static str;

    /// The port for clients.
    fn port(&self) -> u16;

    /// Returns `true` if the server accepts requests.
    fn is_ready(&self) -> bool;

    /// Returns `true` if the server is the leader.
    fn leads(&self) -> bool;
}

/// One server or a cluster, each member in its own process, with all data in a directory that is
/// removed when this is dropped.
#[derive(Debug)]
pub struct Members<K> {
    all: Vec<Member<K>>,
    // Declared after the members: their processes end before their files are removed.
    home: Home,
    /// The ports of the members, also while a member is down, and of members that may join.
    ports: Option<Ports>,
}

#[derive(Debug)]
struct Member<K> {
    kind: K,
    child: Option<Child>,
    command: Command,
    home: PathBuf,
}

impl<K: Kind> Members<K> {
    /// Creates a cluster without members.
    pub(super) fn none() -> io::Result<Self> {
        let home = Home::new(&K::NAME.to_lowercase())?;
        Ok(Self { all: Vec::new(), home, ports: None })
    }

    /// Reserves the ports of its members as long as this value exists.
    pub(super) fn holding(self, ports: Ports) -> Self {
        Self { ports: Some(ports), ..self }
    }

    /// Starts one more member. `command` receives its directory, which exists, and returns the
    /// program to start.
    pub(super) fn add(
        &mut self,
        kind: K,
        command: impl FnOnce(&Path) -> io::Result<Command>,
    ) -> io::Result<()> {
        let home = self.home.path().join(self.all.len().to_string());
        fs::create_dir_all(&home)?;
        let command = command(&home)?;
        let mut member = Member { kind, child: None, command, home };
        member.start()?;
        self.all.push(member);
        Ok(())
    }

    /// Returns the number of the next member, and its ports.
    pub(super) fn next(&self) -> io::Result<(usize, Vec<u16>)> {
        let next = self.all.len();
        Ok((next, self.ports(next)?))
    }

    /// Returns the three ports that are reserved for a member.
    pub(super) fn ports(&self, member: usize) -> io::Result<Vec<u16>> {
        let ports = self.ports.as_ref().and_then(|ports| ports.chunks(3).nth(member));
        Ok(ports.ok_or_else(|| io::Error::other("no ports are reserved for it"))?.to_vec())
    }

    /// Iterates over the members whose processes were not ended, with their numbers.
    pub(super) fn running(&self) -> impl Iterator<Item = (usize, &K)> {
        let all = self.all.iter().enumerate().filter(|(_, member)| member.child.is_some());
        all.map(|(number, member)| (number, &member.kind))
    }

    /// Iterates over the members.
    pub(super) fn each(&self) -> impl Iterator<Item = &K> {
        self.all.iter().map(|member| &member.kind)
    }

    /// Waits until every running server accepts requests.
    ///
    /// # Errors
    ///
    /// If it takes too long: with the end of the server's log.
    pub fn await_ready(&self) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        for member in self.all.iter().filter(|member| member.child.is_some()) {
            while !member.kind.is_ready() {
                if Instant::now() > end {
                    return Err(format!("{} did not start: {}", K::NAME, member.last_words()));
                }
                sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// Returns the addresses of the servers.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.each().map(|kind| (Ipv4Addr::LOCALHOST, kind.port()).into()).collect()
    }

    /// Kills a server, as a power cut would.
    ///
    /// # Errors
    ///
    /// If it cannot be killed.
    pub fn kill(&mut self, member: usize) -> io::Result<()> {
        if let Some(child) = self.all[member].child.take() {
            child.signal(Signal::Kill)?;
        }
        Ok(())
    }

    /// Starts a server again with its data on disk.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn restart(&mut self, member: usize) -> io::Result<()> {
        self.all[member].child = None;
        self.all[member].start()
    }

    /// Stops a server process.
    ///
    /// # Errors
    ///
    /// If it is not running.
    pub fn pause(&self, member: usize) -> io::Result<()> {
        self.child(member)?.signal(Signal::Stop)
    }

    /// Continues a server that is stopped.
    ///
    /// # Errors
    ///
    /// If it is not running.
    pub fn resume(&self, member: usize) -> io::Result<()> {
        self.child(member)?.signal(Signal::Continue)
    }

    /// Stalls the disk of a server, until the result is dropped.
    ///
    /// # Errors
    ///
    /// If it is not running, or [no disk can be stalled](Stall::missing).
    pub fn stall(&self, member: usize) -> io::Result<Stall> {
        Stall::start(self.process(member)?, self.home(member))
    }

    /// Returns the process of a server.
    pub(super) fn child(&self, member: usize) -> io::Result<&Child> {
        let child = self.all[member].child.as_ref();
        child.ok_or_else(|| io::Error::other("the server does not run"))
    }

    /// Returns the id of the process of a server.
    ///
    /// # Errors
    ///
    /// If it is not running.
    pub fn process(&self, member: usize) -> io::Result<u32> {
        Ok(self.child(member)?.id())
    }

    /// Returns the directory of a server.
    pub fn home(&self, member: usize) -> &Path {
        &self.all[member].home
    }

    /// Returns the index of the leader; `None` while there is none.
    pub fn leader(&self) -> Option<usize> {
        self.each().position(Kind::leads)
    }
}

impl<K> Member<K> {
    fn start(&mut self) -> io::Result<()> {
        self.child = Some(Child::start(&self.command, &self.log())?);
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
}
