//! A service that counts words: workers on any number of machines, which may be killed at any time.
//! The totals are exact even then.
//!
//! ```text
//! cargo run --example word_count -- count docs
//!
//! cargo run --example word_count --all-features -- --store 'zk://localhost:2181/words?acl=open' work
//! cargo run --example word_count --all-features -- --store 'zk://localhost:2181/words?acl=open' count docs
//! ```
//!
//! The first command counts alone, in memory. With a store each machine that helps runs a worker,
//! and one of them is the master. Each machine has the files under the same path.
//!
//! A task is a piece of a file, and its id is computed from the path and the state of the file and
//! the position of the piece. So a restarted `count` submits the same tasks, and gets the stored
//! results. The result of a task is the words in its piece. A task has one result, for any number
//! of attempts, and each result is added once.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is for people")]

use std::convert::Infallible;
use std::error::Error as StdError;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;

use futures_util::future::{Either, select, try_join};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use synod::clock::sleep;
use synod::crew::{Assignment, Crew, CrewWorker, NewTask, TaskEnd, TaskStatus};
use synod::{Client, Config, Result, Retry, path};

use crate::arguments::{Arguments, Job};
use crate::piece::Piece;
use crate::words::Words;

mod arguments;
mod piece;
#[cfg(test)]
mod tests;
mod words;

type Failure = Box<dyn StdError + Send + Sync>;

/// The number of bytes of a piece. The words of a piece and their numbers have to fit into a node.
const PIECE: u64 = 128 * 1024;
/// The number of tasks of one `count` that are open at the same time.
const OPEN: usize = 64;
/// The number of words that are printed.
const ROWS: usize = 20;

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            let mut cause = failure.source();
            while let Some(error) = cause {
                eprintln!("  because: {error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}

/// Executes the command of the arguments, until it is done or interrupted.
async fn run() -> Result<(), Failure> {
    let Arguments { store, job } = Arguments::parse(std::env::args().skip(1))?;
    let client = Config::new(&store)?.connect().await?;
    let job = pin!(async {
        match job {
            Job::Work { tasks } => match work(&client, tasks).await? {},
            Job::Count { place } if store.starts_with("mem:") => {
                // No other process reaches this store.
                let working = pin!(work(&client, CrewWorker::new()));
                match select(pin!(count_all(&client, place)), working).await {
                    Either::Left((counted, _)) => counted,
                    Either::Right((ended, _)) => match ended? {},
                }
            }
            Job::Count { place } => count_all(&client, place).await,
        }
    });
    let done = match select(job, pin!(tokio::signal::ctrl_c())).await {
        Either::Left((done, _)) => done,
        Either::Right((interrupted, _)) => Ok(interrupted?),
    };
    // The tasks of this process are assigned to others immediately, and not after its session
    // expires.
    let closed = client.close().await;
    done.and(Ok(closed?))
}

fn crew(client: &Client) -> Crew {
    Crew::new(client, path!("/word-count"))
}

/// Does tasks, and assigns them while it is the master, through all outages.
async fn work(client: &Client, worker: CrewWorker) -> Result<Infallible> {
    let crew = crew(client);
    let (ended, _) = try_join(crew.work(worker, attempt), crew.lead()).await?;
    match ended {}
}

/// Counts the words of one piece.
#[expect(clippy::disallowed_methods, reason = "it reads a file, and the others are not to wait")]
async fn attempt(task: Assignment) -> Result<Vec<u8>, Failure> {
    let counting = tokio::task::spawn_blocking(move || {
        let piece: Piece = serde_json::from_slice(&task.data)?;
        Ok::<_, Failure>(serde_json::to_vec(&piece.count()?)?)
    });
    let counted = counting.await?;
    match &counted {
        Ok(_) => tracing::debug!(id = task.id, "counted"),
        Err(error) => tracing::warn!(id = task.id, %error, "not counted"),
    }
    counted
}

async fn count_all(client: &Client, place: PathBuf) -> Result<(), Failure> {
    let pieces = Piece::all_in(&place, PIECE)?;
    eprintln!("{} pieces are to be counted by the workers that there are", pieces.len());
    println!("{}", count(client, pieces).await?.table(ROWS));
    Ok(())
}

/// The words of all pieces. No two pieces are the same.
async fn count(client: &Client, pieces: Vec<Piece>) -> Result<Words, Failure> {
    let results = stream::iter(pieces).map(|piece| counted(client, piece));
    let sum = results.buffer_unordered(OPEN).try_fold(Words::default(), |mut sum, words| async {
        sum.add(words);
        Ok(sum)
    });
    sum.await
}

/// The words of one piece, by the workers.
async fn counted(client: &Client, piece: Piece) -> Result<Words, Failure> {
    let data = piece.data()?;
    let digest = digest(&data);
    let mut round = 0;
    loop {
        let id = format!("{digest:032x}-{round}");
        match Box::pin(insist(client, || ask(client, &id, &data))).await? {
            // It was removed after the retention, before it was read.
            Asked::Now(None) => {}
            Asked::Before(TaskEnd::Done(words)) | Asked::Now(Some(TaskEnd::Done(words))) => {
                return Ok(serde_json::from_slice(&words)?);
            }
            // The end of a task does not change. A task that failed in an earlier `count` gets
            // another try under another id.
            Asked::Before(_) => round += 1,
            Asked::Now(Some(TaskEnd::Failed(why))) => {
                return Err(format!("{}: not counted: {why}", piece.file).into());
            }
            // These tasks have no deadline: another program has submitted the same tasks with one.
            Asked::Now(Some(TaskEnd::Cancelled | TaskEnd::Expired)) => {
                let file = piece.file;
                return Err(format!("{file}: its task {id} was cancelled: count again").into());
            }
        }
    }
}

/// The end of a task: before this program submitted the task, or since.
enum Asked {
    Before(TaskEnd),
    Now(Option<TaskEnd>),
}

async fn ask(client: &Client, id: &str, data: &[u8]) -> Result<Asked> {
    let crew = crew(client);
    if let Some(TaskStatus::Over(end)) = crew.task(id)?.status().await? {
        return Ok(Asked::Before(end));
    }
    let task = crew.submit(id, NewTask::new(data.to_vec()).retries(2)).await?;
    Ok(Asked::Now(task.wait().await?))
}

/// Repeats a request until the store answers.
async fn insist<T>(client: &Client, ask: impl AsyncFn() -> Result<T>) -> Result<T> {
    let mut delays = Retry::forever().delays(client.random());
    loop {
        match ask().await {
            Err(error) if client.is_transient(&error) => {
                tracing::warn!(%error, "the store does not answer; asking again");
                sleep(delays.next().unwrap_or_default()).await;
            }
            answered => return answered,
        }
    }
}

/// FNV-1a with 128 bits: the same number for the same bytes, in every program.
fn digest(bytes: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(BASIS, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}
