//! ZooKeeper ensembles whose servers join and leave while they run.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::thread::sleep;
use std::time::Duration;

use tokio::time::Instant;

use crate::child::PATIENCE;
use crate::ports::Ports;
use crate::zookeeper::{Ensemble, ZooKeeper, command, write_config};

/// The lines of each configuration: an ensemble of one is not refused, and each server names the
/// addresses of its ensemble for clients.
const LINES: [&str; 2] = ["reconfigEnabled=true", "standaloneEnabled=false"];
/// Without it a change needs the superuser's password.
const ARGUMENTS: [&str; 1] = ["-Dzookeeper.skipACL=yes"];

/// The operation of the protocol, and its number.
const RECONFIG: i32 = 16;
const CLOSE: i32 = -11;
/// The limit of one request. A leader that leaves answers none.
const LIMIT: Duration = Duration::from_secs(5);

impl Ensemble {
    /// Starts `size` servers to which others may [join](Self::join), up to `total` ever.
    ///
    /// # Errors
    ///
    /// As [`Ensemble::start`].
    pub fn start_growing(size: usize, total: usize) -> Result<Self, String> {
        if let Some(why) = Self::missing() {
            return Err(why);
        }
        let start = || {
            let ports = Ports::draw(total * 3)?;
            let mut ensemble = Self::none()?.holding(ports);
            let all =
                (0..size).map(|number| ensemble.line(number)).collect::<io::Result<Vec<_>>>()?;
            for _ in 0..size {
                ensemble.spawn_next(&all)?;
            }
            Ok(ensemble)
        };
        let ensemble = start().map_err(|error: io::Error| format!("ZooKeeper: {error}"))?;
        ensemble.await_ready()?;
        Ok(ensemble)
    }

    /// Adds a server to the ensemble, and returns its number.
    ///
    /// # Errors
    ///
    /// If the others do not take it, or it does not start.
    pub fn join(&mut self) -> Result<usize, String> {
        let join = |ensemble: &mut Self| {
            let (number, _) = ensemble.next()?;
            let own = ensemble.line(number)?;
            let running: Vec<usize> = ensemble.running().map(|(number, _)| number).collect();
            let others = running.iter().map(|other| ensemble.line(*other));
            let mut all = others.collect::<io::Result<Vec<_>>>()?;
            all.push(own.clone());
            ensemble.spawn_next(&all)?;
            Ok((number, own))
        };
        let (number, own) = join(self).map_err(|error: io::Error| error.to_string())?;
        self.await_ready()?;
        self.change(&own, "", number)?;
        Ok(number)
    }

    /// Removes a server from the ensemble, and ends its process.
    ///
    /// # Errors
    ///
    /// If the others do not remove it.
    pub fn leave(&mut self, member: usize) -> Result<(), String> {
        self.change("", &(member + 1).to_string(), member)?;
        self.kill(member).map_err(|error| error.to_string())
    }

    /// Starts the next server with these servers in its configuration.
    fn spawn_next(&mut self, all: &[String]) -> io::Result<()> {
        let (number, ports) = self.next()?;
        let lines: Vec<&str> = LINES.into_iter().chain(all.iter().map(String::as_str)).collect();
        self.add(ZooKeeper { port: ports[0] }, |home| {
            write_config(home, ports[0], number, &[], &lines)?;
            std::fs::write(home.join("data").join("myid"), (number + 1).to_string())?;
            command(home, &ARGUMENTS)
        })
    }

    /// The line of a server in a configuration.
    fn line(&self, number: usize) -> io::Result<String> {
        let ports = self.ports(number)?;
        Ok(format!(
            "server.{}=127.0.0.1:{}:{}:participant;127.0.0.1:{}",
            number + 1,
            ports[1],
            ports[2],
            ports[0]
        ))
    }

    /// Sends a change to a server that is not affected, until the ensemble has applied it. Another
    /// election may be in progress, or the new server does not follow the leader yet.
    fn change(&self, joining: &str, leaving: &str, affected: usize) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let others = self.running().filter(|(number, _)| *number != affected);
            let mut failures = Vec::new();
            for (_, server) in others {
                match reconfigure(server.port, joining, leaving) {
                    Ok(0) => return Ok(()),
                    Ok(code) => failures.push(format!("error {code}")),
                    Err(error) => failures.push(error.to_string()),
                }
            }
            if Instant::now() > end {
                return Err(format!("ZooKeeper does not change: {}", failures.join("; ")));
            }
            sleep(Duration::from_millis(50));
        }
    }
}

/// Requests a change in a session of its own, and returns the code of the answer: zero if it was
/// applied.
fn reconfigure(port: u16, joining: &str, leaving: &str) -> io::Result<i32> {
    let mut stream = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let greeting = [&[0; 12][..], &10_000_i32.to_be_bytes(), &[0; 8], &text(&[0; 16]), &[0]];
    stream.write_all(&text(&greeting.concat()))?;
    let _session = answer(&mut stream)?;
    let request = [
        &1_i32.to_be_bytes()[..],
        &RECONFIG.to_be_bytes(),
        &text(joining.as_bytes()),
        &text(leaving.as_bytes()),
        // No list of all servers, and whatever the present configuration is.
        &(-1_i32).to_be_bytes(),
        &(-1_i64).to_be_bytes(),
    ];
    stream.write_all(&text(&request.concat()))?;
    let head = answer(&mut stream)?;
    let code = head.get(12..16).and_then(|code| code.try_into().ok()).map(i32::from_be_bytes);
    stream.write_all(&text(&[&2_i32.to_be_bytes()[..], &CLOSE.to_be_bytes()].concat()))?;
    code.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Bytes after their length.
fn text(bytes: &[u8]) -> Vec<u8> {
    let length = i32::try_from(bytes.len()).unwrap_or(i32::MAX);
    [&length.to_be_bytes()[..], bytes].concat()
}

fn answer(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(i32::from_be_bytes(length)).map_err(io::Error::other)?;
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}
