//! [`Contest`]: all races on all servers.

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join;
use synod_servers::pipe::Pipe;
use tokio::time::{Instant, sleep};

use crate::crowd::Crowd;
use crate::noise::Noise;
use crate::plan::{Extent, cases};
use crate::process::Process;
use crate::race::{QUICK, Race, THOROUGH};
use crate::racer::{Failure, Racer as _};
use crate::record::{self, Case, Fact, Record};
use crate::report::{Report, report};
use crate::stand::{SESSION, SHORT_SESSION, Server, Stand, line_up, start};
use crate::table::Table;
use crate::task::{Task, Work};

/// The measurements to make.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "the command's arguments")]
pub struct Wanted {
    /// The amount to measure.
    pub extent: Extent,
    /// The server; both if `None`.
    pub server: Option<Server>,
    /// Only measurements with this in their name.
    pub only: Option<String>,
}

/// All races on all servers, one server after the other.
#[derive(Clone, Debug)]
pub struct Contest {
    wanted: Wanted,
    tools: PathBuf,
    results: PathBuf,
}

impl Contest {
    /// Measures with the peers in `tools`, and writes to the file `results`.
    pub fn new(wanted: Wanted, tools: PathBuf, results: PathBuf) -> Self {
        Self { wanted, tools, results }
    }

    /// Makes all measurements, and reports the progress.
    ///
    /// # Errors
    ///
    /// If a server cannot be started, or the results cannot be written.
    pub async fn run(&self, mut tell: impl FnMut(&str)) -> Result<Table, Failure> {
        let mut file = File::create(&self.results)?;
        let mut all = Vec::new();
        for server in [Server::Zookeeper, Server::Etcd] {
            if self.wanted.server.is_some_and(|wanted| wanted != server) {
                continue;
            }
            for fsync in [false, true] {
                let cases = self.cases(server, fsync);
                if !cases.is_empty() {
                    let records = self.on(server, fsync, &cases, &mut file, &mut tell).await?;
                    all.extend(records);
                }
            }
        }
        Ok(Table::of(&all))
    }

    fn cases(&self, server: Server, fsync: bool) -> Vec<Case> {
        let only = self.wanted.only.as_deref().unwrap_or_default();
        let mut cases = cases(server.name(), fsync, self.wanted.extent);
        cases.retain(|case| case.work.to_string().contains(only));
        cases
    }

    async fn on(
        &self,
        server: Server,
        fsync: bool,
        cases: &[Case],
        file: &mut File,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Vec<Record>, Failure> {
        let pace = if self.wanted.extent == Extent::Quick { QUICK } else { THOROUGH };
        let stand = Stand::start(server, fsync)?;
        let (mut racers, missing) = line_up(server, stand.address(), &self.tools);
        for why in missing {
            tell(&format!("not raced: {why}"));
        }
        let mut records = Vec::new();
        for case in cases {
            let address = stand.address();
            let noise = background(server, address, case).await?;
            let found = match case.work {
                work if work.kills() => self.kill(server, address, case).await?,
                Work::CacheMemory => self.begin(server, address, case).await?,
                _ => Race::new(pace).run(case, &mut racers).await,
            };
            drop(noise);
            if let Some(row) = Table::of(&found).to_string().lines().nth(4) {
                tell(row);
            }
            record::write(&found, &mut *file)?;
            records.extend(found);
        }
        drop(racers);
        if !fsync {
            let counts = self.count(server, &stand, cases, &records).await?;
            record::write(&counts, file)?;
            records.extend(counts);
        }
        Ok(records)
    }

    /// Repeatedly kills the process that does the work. A killed racer cannot be used again,
    /// so each round starts its own.
    async fn kill(
        &self,
        server: Server,
        address: SocketAddr,
        case: &Case,
    ) -> Result<Vec<Record>, Failure> {
        const ROUNDS: usize = 9;
        let mut records = Vec::new();
        for round in 0..ROUNDS {
            // Heartbeats have a period, and so has the server's check for expired sessions, with
            // which a round begins, as such a check ended the last round. The kills are spread
            // evenly over both periods.
            let golden = u64::try_from(round)? * 618 % 1_000;
            let after = Duration::from_secs(1) + Duration::from_millis(golden);
            for name in server.names() {
                let start = || start(name, server, address, SHORT_SESSION, &self.tools);
                let fact = match kill(start, &case.task(Duration::ZERO), after).await {
                    Ok(Some(report)) => Fact::Round(round, report),
                    Ok(None) => continue,
                    Err(failure) => Fact::Failed(failure.to_string()),
                };
                records.push(Record { case: case.clone(), racer: name.to_owned(), fact });
            }
        }
        Ok(records)
    }

    /// Lets each racer do the work in a process that has done nothing before: it has the memory of
    /// no earlier work.
    async fn begin(
        &self,
        server: Server,
        address: SocketAddr,
        case: &Case,
    ) -> Result<Vec<Record>, Failure> {
        const ROUNDS: usize = 3;
        let mut records = Vec::new();
        for round in 0..ROUNDS {
            for name in server.names() {
                // A racer that cannot be started was reported.
                let Ok(mut racer) = start(name, server, address, SESSION, &self.tools) else {
                    continue;
                };
                // By this time the process has a session.
                let _met = racer.run(&Task::laps(Work::Get, 1, 1)).await?;
                let fact = match racer.run(&case.task(Duration::ZERO)).await {
                    Ok(Some(report)) => Fact::Round(round, report),
                    Ok(None) => continue,
                    Err(failure) => Fact::Failed(failure.to_string()),
                };
                records.push(Record { case: case.clone(), racer: name.to_owned(), fact });
            }
        }
        Ok(records)
    }

    /// Counts the requests of each racer. The pipe to the server makes them slower, so this is a
    /// separate pass.
    async fn count(
        &self,
        server: Server,
        stand: &Stand,
        cases: &[Case],
        raced: &[Record],
    ) -> Result<Vec<Record>, Failure> {
        let pipe = Pipe::start(&[stand.address()])?;
        let (mut racers, _missing) = line_up(server, pipe.addresses()[0], &self.tools);
        let mut records = Vec::new();
        // One racer after the other: requests of other racers would be counted as well.
        for named in &mut racers {
            let is_counted = |case: &&Case| {
                !case.busy && case.work.is_counted() && was_raced(raced, case, &named.0)
            };
            let cases: Vec<&Case> = cases.iter().filter(is_counted).collect();
            for case in cases {
                let fact = match stand.count(&pipe, case, named).await {
                    Ok(Some(count)) => Fact::Count(count),
                    Ok(None) => continue,
                    Err(failure) => Fact::Failed(failure.to_string()),
                };
                records.push(Record { case: case.clone(), racer: named.0.clone(), fact });
            }
        }
        Ok(records)
    }
}

/// Runs the work of this process while racers race: creates the nodes that they cache, and writes
/// in the background.
async fn background(
    server: Server,
    address: SocketAddr,
    case: &Case,
) -> Result<Option<Noise>, Failure> {
    let connect = async || synod::connect(&server.url(&address.to_string(), SESSION)).await;
    let crowd = Crowd::of(case.work.nodes());
    if case.work.nodes() > 0 {
        let client = connect().await?;
        crowd.settle(&client).await?;
        client.close().await?;
    }
    Ok(match case.work {
        Work::CacheChanges => Some(Noise::of(connect().await?, move |it| crowd.change(it))),
        _ if case.busy => Some(Noise::unrelated(connect().await?)),
        _ => None,
    })
}

/// One process does the work, another waits, and the first is killed after a while. The result is
/// the time until the second has taken over.
async fn kill(
    start: impl Fn() -> Result<Process, Failure>,
    task: &Task,
    after: Duration,
) -> Result<Option<Report>, Failure> {
    let (mut leader, mut heir) = (start()?, start()?);
    // By this time the second process has a session.
    heir.run(&Task::laps(Work::Get, 1, 1)).await?;
    if leader.run(task).await?.is_none() {
        return Ok(None);
    }
    let killed = async {
        // By this time the second process waits.
        sleep(after).await;
        drop(leader);
        Instant::now()
    };
    let led = async {
        let led = heir.run(&Task { heir: true, ..*task }).await;
        (led, Instant::now())
    };
    let (killed, (led, now)) = join(killed, led).await;
    if led?.is_none() {
        return Ok(None);
    }
    let handed =
        now.checked_duration_since(killed).ok_or("its session was lost before it was killed")?;
    Ok(Some(report(vec![handed], handed.as_secs_f64() * 1e6, None, None)))
}

fn was_raced(raced: &[Record], case: &Case, name: &str) -> bool {
    let is_it = |record: &&Record| record.case == *case && record.racer == name;
    raced.iter().filter(is_it).any(|record| matches!(record.fact, Fact::Round(..)))
}
