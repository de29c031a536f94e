//! [`serve`]: one process of a measurement.

use std::io::{BufRead as _, Read as _, Write as _, stdin, stdout};
use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use super::files::FileLock;
use super::job::{Job, Rival};
use super::lap::{Lap, clock};
use super::recipes::Recipes;
use super::sqlite::Table;
use crate::racer::Failure;

/// Does the work of process number `index`, as its standard input says: a number of milliseconds.
///
/// `place` is a directory, or the address of a server. `sum` is the file with the number of laps.
///
/// # Errors
///
/// If the work fails.
pub fn serve(rival: Rival, job: Job, place: &str, sum: &Path, index: usize) -> Result<(), Failure> {
    let mut lap: Box<dyn Lap> = match rival {
        Rival::Flock | Rival::Fcntl => Box::new(FileLock::open(rival, Path::new(place), sum)?),
        Rival::Table => Box::new(Table::open(job, Path::new(place), sum, index)?),
        _ => Box::new(Recipes::open(rival, job, place, sum, index)?),
    };
    if job == Job::Death && index == 0 {
        lap.hold()?;
        say("held")?;
        // Until it is killed.
        stdin().lock().read_to_end(&mut Vec::new())?;
        return Ok(());
    }
    say("ready")?;
    if job == Job::Death {
        lap.hold()?;
        return say(&clock().to_string());
    }
    let mut line = String::new();
    stdin().lock().read_line(&mut line)?;
    let time = Duration::from_millis(line.trim().parse()?);
    // The writer of a wake goes on until the other process has seen enough.
    let endless = job == Job::Wake && index == 0;
    let (started, mut laps) = (Instant::now(), Vec::new());
    while endless || started.elapsed() < time {
        laps.push(lap.lap()?.as_secs_f64() * 1e6);
    }
    say(&serde_json::to_string(&laps)?)
}

fn say(line: &str) -> Result<(), Failure> {
    let mut output = stdout().lock();
    writeln!(output, "{line}")?;
    Ok(output.flush()?)
}
