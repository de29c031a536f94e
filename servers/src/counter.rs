//! A ZooKeeper server that moves a directory near the end of its sequences, because 2^31 creates
//! would take weeks: [`Counter`].

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::home::Home;
use crate::ports::Ports;
use crate::zookeeper::{TICK, class_path};

/// Java runs it from the source: the class path is that of the servers.
const SOURCE: &str = include_str!("Counter.java");

/// A ZooKeeper server in a Java process with additional code.
#[derive(Debug)]
pub struct Counter {
    address: SocketAddr,
    server: Child,
    talk: Mutex<Talk>,
    _home: Home,
    _ports: Ports,
}

#[derive(Debug)]
struct Talk {
    /// The process ends when this is closed.
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Counter {
    /// Starts it, and waits until it accepts requests.
    ///
    /// # Errors
    ///
    /// The reason for which it cannot be started: it is not installed, or another one.
    pub fn start() -> Result<Self, String> {
        let jars = class_path()?;
        Self::launch(&jars).map_err(|error| format!("ZooKeeper with a counter: {error}"))
    }

    fn launch(jars: &str) -> io::Result<Self> {
        let home = Home::new("counter")?;
        let source = home.path().join("Counter.java");
        std::fs::write(&source, SOURCE)?;
        let ports = Ports::draw(1)?;
        let mut java = Command::new("java");
        java.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", jars])
            .args(["-Dzookeeper.extendedTypesEnabled=true", "-Dzookeeper.forceSync=no"])
            .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
            .arg(&source)
            .arg(ports[0].to_string())
            .arg(home.path())
            .arg(TICK.as_millis().to_string());
        java.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = java.spawn()?;
        let (Some(input), Some(output)) = (server.stdin.take(), server.stdout.take()) else {
            return Err(io::Error::other("it has no input or no output"));
        };
        let talk = Mutex::new(Talk { input, output: BufReader::new(output) });
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports[0]));
        let counter = Self { address, server, talk, _home: home, _ports: ports };
        counter.hear("ready")?;
        Ok(counter)
    }

    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes the sequences of an existing directory continue at `next`, unless they are already
    /// beyond it.
    ///
    /// # Errors
    ///
    /// If the server has ended.
    pub fn bring(&self, dir: &str, next: u32) -> io::Result<()> {
        writeln!(self.lock().input, "{dir} {next}")?;
        self.hear("done")
    }

    fn hear(&self, word: &str) -> io::Result<()> {
        let mut line = String::new();
        self.lock().output.read_line(&mut line)?;
        if line.trim() == word {
            return Ok(());
        }
        Err(io::Error::other(format!("it answered {line:?} instead of {word:?}")))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Talk> {
        self.talk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        let _ended = self.server.kill().and_then(|()| self.server.wait()).is_ok();
    }
}
