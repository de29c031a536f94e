//! [`Contest`]: starts the processes of each measurement, and compares them.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::job::{JOBS, Job, RIVALS, Rival, number};
use super::lap::clock;
use super::recipes::url;
use crate::crowd::Crowd;
use crate::racer::Failure;
#[cfg(feature = "servers")]
use crate::stand::{Server, Stand};

/// The duration of a measurement, in milliseconds.
const MILLIS: u64 = 1_000;

/// The number of measurements of each kind.
const ROUNDS: usize = 3;

/// The number of deaths that are measured.
const DEATHS: usize = 30;

/// The same where a server waits for the end of a session.
const SLOW_DEATHS: usize = 3;

/// The time in which a process requests a lock.
const QUEUED: Duration = Duration::from_millis(200);

/// The measurements to take.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a command has each of them")]
pub struct Contest {
    /// The place for the store, the files and the tables.
    pub directory: PathBuf,
    /// Only jobs with this in their name.
    pub only: Option<String>,
}

/// One measurement. Times are in microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(clippy::exhaustive_structs, reason = "a line of the results")]
pub struct Row {
    /// The work.
    pub job: String,
    /// The number of processes.
    pub processes: usize,
    /// The way to do it.
    pub rival: String,
    /// The laps of all processes in a second.
    pub rate: f64,
    /// Half of the laps took no longer.
    pub p50: f64,
    /// All but a hundredth of the laps took no longer.
    pub p99: f64,
    /// The longest lap.
    pub max: f64,
    /// The laps of the process with the fewest, as a share of those of the one with the most.
    pub fairness: f64,
}

/// The servers that take part: they do not wait for the disk.
#[derive(Default)]
struct Servers {
    #[cfg(feature = "servers")]
    zookeeper: Option<Stand>,
    #[cfg(feature = "servers")]
    etcd: Option<Stand>,
}

/// A process of a measurement, which is killed when this is dropped.
struct Process {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Contest {
    /// Takes all measurements.
    ///
    /// # Errors
    ///
    /// If a process fails, or a lock lets two in.
    pub fn run(&self, progress: impl Fn(&str)) -> Result<Vec<Row>, Failure> {
        let servers = Servers::start();
        let mut rows = Vec::new();
        let jobs = JOBS.iter().map(|(job, _)| *job);
        let is_wanted =
            |job: &Job| self.only.as_ref().is_none_or(|only| job.to_string().contains(only));
        for job in jobs.filter(is_wanted) {
            for processes in job.processes() {
                for (rival, _) in RIVALS.iter().filter(|(rival, _)| rival.does(job)) {
                    let home = self.directory.join(format!("{job}-{processes}-{rival}"));
                    let Some(place) = servers.place(*rival, &home) else { continue };
                    fs::create_dir_all(&home)?;
                    let race = Race { rival: *rival, job, place, sum: home.join("sum") };
                    let row = race.measure(*processes)?;
                    progress(&serde_json::to_string(&row)?);
                    rows.push(row);
                    fs::remove_dir_all(&home)?;
                }
            }
        }
        Ok(rows)
    }
}

impl Servers {
    /// Starts those that this machine has.
    #[cfg(feature = "servers")]
    fn start() -> Self {
        let start = |server| Stand::start(server, false).ok();
        Self { zookeeper: start(Server::Zookeeper), etcd: start(Server::Etcd) }
    }

    #[cfg(not(feature = "servers"))]
    fn start() -> Self {
        Self::default()
    }

    /// The address of the server of a rival, if it takes part.
    #[cfg(feature = "servers")]
    fn address(&self, rival: Rival) -> Option<String> {
        let server = if rival == Rival::Etcd { &self.etcd } else { &self.zookeeper };
        server.as_ref().map(|server| server.address().to_string())
    }

    #[cfg(not(feature = "servers"))]
    #[expect(clippy::unused_self, reason = "with servers there is something to look up")]
    fn address(&self, _rival: Rival) -> Option<String> {
        None
    }

    /// The place of a rival; `None` if it does not take part.
    fn place(&self, rival: Rival, home: &Path) -> Option<String> {
        match rival {
            Rival::Zookeeper | Rival::Etcd => self.address(rival),
            _ => Some(home.display().to_string()),
        }
    }
}

struct Race {
    rival: Rival,
    job: Job,
    place: String,
    sum: PathBuf,
}

impl Race {
    fn measure(&self, processes: usize) -> Result<Row, Failure> {
        if self.job.nodes() > 0 {
            self.settle()?;
        }
        let rounds: Result<Vec<_>, Failure> = match self.job {
            Job::Death => self.deaths().map(|laps| vec![vec![laps]]),
            _ => (0..ROUNDS).map(|_| self.round(processes)).collect(),
        };
        let rounds = rounds?;
        let mut all: Vec<f64> = rounds.iter().flatten().flatten().copied().collect();
        all.sort_unstable_by(f64::total_cmp);
        if self.job == Job::Lock {
            let (sum, laps) = (number(&self.sum)?, all.len());
            if usize::try_from(sum)? != laps {
                return Err(format!("{}: {sum} additions in {laps} laps", self.rival).into());
            }
        }
        let counts: Vec<usize> = (0..rounds[0].len())
            .map(|process| rounds.iter().map(|round| round[process].len()).sum())
            .collect();
        let (least, most) = (counts.iter().min(), counts.iter().max());
        let at = |share: f64| all.get(index(share, all.len())).copied().unwrap_or_default();
        Ok(Row {
            job: self.job.to_string(),
            processes,
            rival: self.rival.to_string(),
            rate: float(all.len()) / (float(ROUNDS) * float(usize::try_from(MILLIS)?) / 1e3),
            p50: at(0.5),
            p99: at(0.99),
            max: at(1.0),
            fairness: float(least.copied().unwrap_or(0)) / float(most.copied().unwrap_or(1).max(1)),
        })
    }

    /// The durations of the laps of each process.
    fn round(&self, processes: usize) -> Result<Vec<Vec<f64>>, Failure> {
        let mut all: Vec<Process> =
            (0..processes).map(|index| self.start(index)).collect::<Result<_, _>>()?;
        for process in &mut all {
            process.expect("ready")?;
        }
        for process in &mut all {
            writeln!(process.input, "{MILLIS}")?;
        }
        // The first process of a wake writes until it is killed.
        let measured = if self.job == Job::Wake { &mut all[1..] } else { &mut all[..] };
        measured.iter_mut().map(|process| Ok(serde_json::from_str(&process.line()?)?)).collect()
    }

    /// The times from the end of a holder to the next grant.
    fn deaths(&self) -> Result<Vec<f64>, Failure> {
        let is_slow = matches!(self.rival, Rival::Zookeeper | Rival::Etcd);
        (0..if is_slow { SLOW_DEATHS } else { DEATHS }).map(|_| self.death()).collect()
    }

    fn death(&self) -> Result<f64, Failure> {
        let mut holder = self.start(0)?;
        holder.expect("held")?;
        let mut heir = self.start(1)?;
        heir.expect("ready")?;
        // By then it waits.
        sleep(QUEUED);
        let killed = clock();
        holder.child.kill()?;
        let granted: u64 = heir.line()?.parse()?;
        let took = granted.checked_sub(killed).ok_or("the lock was granted before the death")?;
        Ok(Duration::from_nanos(took).as_secs_f64() * 1e6)
    }

    /// Creates the nodes that are cached.
    fn settle(&self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = synod::connect(&url(self.rival, self.job, &self.place)).await?;
            Crowd::of(self.job.nodes()).settle(&client).await?;
            Ok(client.close().await?)
        })
    }

    fn start(&self, index: usize) -> Result<Process, Failure> {
        let mut program = Command::new(std::env::current_exe()?);
        program.arg("process").args([self.rival.to_string(), self.job.to_string()]);
        program.arg(&self.place).arg(&self.sum).arg(index.to_string());
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().ok_or("its standard input is not piped")?;
        let output = child.stdout.take().ok_or("its standard output is not piped")?;
        Ok(Process { child, input, output: BufReader::new(output).lines() })
    }
}

impl Process {
    fn line(&mut self) -> Result<String, Failure> {
        Ok(self.output.next().ok_or("a process ended before it answered")??)
    }

    fn expect(&mut self, line: &str) -> Result<(), Failure> {
        let said = self.line()?;
        if said == line { Ok(()) } else { Err(format!("{said:?}, and not {line:?}").into()) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait()).is_ok();
    }
}

/// Prints the measurements: for each the share of the directory's result.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let same = |other: &&Row| {
            other.job == row.job && other.processes == row.processes && other.rival == "directory"
        };
        let ratio = rows.iter().find(same).map_or(0.0, |ours| {
            if matches!(row.job.as_str(), "wake" | "death") {
                row.p50 / ours.p50
            } else {
                ours.rate / row.rate
            }
        });
        let Row { job, processes, rival, rate, p50, p99, max, fairness } = row;
        let _room = writeln!(
            text,
            "{job:<12}{processes:>3} {rival:<10}{rate:>9.0}/s  p50 {p50:>9.0}  p99 {p99:>9.0}  \
             max {max:>9.0} us  fair {fairness:.2}  directory is {ratio:.2} times as fast"
        );
    }
    text
}

fn index(share: f64, count: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the list")]
    let index = (float(count.saturating_sub(1)) * share) as usize;
    index
}

#[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
fn float(number: usize) -> f64 {
    number as f64
}
