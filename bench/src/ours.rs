//! [`Ours`]: synod as a racer.
//!
//! One file for each group of tasks: plain nodes, locks and so on. To add a recipe, add a file here
//! and a line in `run.rs`.

use std::convert::Infallible;
use std::sync::Arc;

use synod::Client;
use synod::Path;
use synod::discovery::Registration;
use synod::election::Leader;
use synod::{Config, Lifetime};
use synod_core::store::{Expect, Outcome, Query, SessionOptions, Store};
use tokio::task::JoinSet;

use crate::racer::Failure;

mod barrier;
mod cache;
mod crew;
mod instance;
mod leader;
mod lock;
mod node;
mod partition;
mod queue;
mod run;
mod share;
mod transaction;
mod value;
mod watch;

/// The data that is written.
pub const DATA: &[u8] = &[b'x'; 100];

/// Clients as applications use them: with deadlines, retries and undoing of dropped calls.
#[derive(Debug)]
pub struct Ours {
    config: Config,
    dir: Path,
    clients: Vec<Client>,
    /// The leadership that is held until the end.
    leader: Option<Leader>,
    /// The instance that is there until the end.
    registered: Option<Registration>,
    /// The tasks of a member of a crew, which run until the end.
    background: JoinSet<synod::Result<Infallible>>,
}

/// The same, without the optional features of recipes.
#[derive(Debug)]
pub struct Plain(pub Ours);

/// A session without a client: no retries, no layers. It shows their cost.
#[derive(Debug)]
pub struct Floor {
    store: Arc<dyn Store>,
    dir: Path,
}

impl Ours {
    /// Connects to the store of the URL, and works below `dir`.
    ///
    /// # Errors
    ///
    /// If the URL is invalid, or the store cannot be reached.
    pub async fn open(url: &str, dir: &str) -> Result<Self, Failure> {
        let mut ours = Self {
            config: Config::new(url)?,
            dir: Path::new(dir)?,
            clients: Vec::new(),
            leader: None,
            registered: None,
            background: JoinSet::new(),
        };
        ours.sessions(1).await?;
        Ok(ours)
    }

    /// Removes the nodes below the directory, which must no longer be in use.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn clean_up(mut self) -> Result<(), Failure> {
        self.background.shutdown().await;
        if let Some(leader) = self.leader.take() {
            leader.resign().await?;
        }
        if let Some(registered) = self.registered.take() {
            registered.unregister().await?;
        }
        for client in &self.clients[1..] {
            client.close().await?;
        }
        let all = self.clients[0].read(Query::subtree(&self.dir).names_only()).await?;
        // In reverse order, so that children come before their parents.
        for node in all.nodes.into_iter().rev().filter(|node| node.stat.is_some()) {
            // It may have been deleted with its session meanwhile.
            let _deleted = self.clients[0].delete(&node.path, Expect::Any).await?;
        }
        Ok(self.clients[0].close().await?)
    }

    /// `count` clients, each with a session of its own.
    async fn sessions(&mut self, count: usize) -> Result<&[Client], Failure> {
        while self.clients.len() < count {
            self.clients.push(self.config.connect().await?);
        }
        Ok(&self.clients[..count])
    }

    /// `count` clients with one session.
    fn shared(&self, count: usize) -> Vec<Client> {
        vec![self.clients[0].clone(); count]
    }
}

impl Floor {
    /// Connects to the store of the URL, and works below `dir`.
    ///
    /// # Errors
    ///
    /// If the URL is invalid, or the store cannot be reached.
    pub async fn open(url: &str, dir: &str) -> Result<Self, Failure> {
        let config = Config::new(url)?;
        let options = SessionOptions::new(config.session.unwrap_or(SESSION));
        let store = config.backend()?.open(&options).await?;
        Ok(Self { store: Arc::from(store), dir: Path::new(dir)? })
    }
}

/// The time to live of a bare session if the URL has none.
const SESSION: std::time::Duration = std::time::Duration::from_secs(60);

/// The result of a write that cannot conflict.
fn done<T>(outcome: Outcome<T>) -> Result<T, Failure> {
    match outcome {
        Outcome::Committed(done) => Ok(done),
        Outcome::Rejected(why) => Err(format!("refused: {why:?}").into()),
    }
}

/// Creates a node unless it exists.
async fn ensure(client: &Client, path: &Path) -> Result<(), Failure> {
    match client.create(path, DATA, Lifetime::Persistent).await? {
        // It may exist from an earlier task.
        Outcome::Committed(_) | Outcome::Rejected(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crowd::Crowd;
    use crate::noise::Noise;
    use crate::racer::Racer as _;
    use crate::task::{Task, Work};

    #[tokio::test(start_paused = true)]
    async fn all_work_can_be_done_and_leaves_nothing() {
        let url = "mem://ours?session=60s";
        let mut ours = Ours::open(url, "/mine").await.expect("memory is there");
        let crowd = Crowd::of(60);
        crowd.settle(&ours.clients[0]).await.expect("memory answers");
        for work in Work::ALL {
            let task =
                Task { nodes: 60, waiting: work.waiting().min(70), ..Task::laps(work, 3, 2) };
            let client = ours.clients[0].clone();
            let changes = (work == Work::CacheChanges)
                .then(|| Noise::of(client, move |number| crowd.change(number)));
            let done = ours.run(&task).await.expect("nothing fails");
            if let Some(report) = done {
                let laps = match work {
                    Work::Drain => 3,
                    Work::DoubleBarrier
                    | Work::CacheSmall
                    | Work::CacheLarge
                    | Work::CacheMemory
                    | Work::CacheSeen
                    | Work::Partition
                    | Work::SharedValue
                    | Work::Observe
                    | Work::Resign
                    | Work::ResignLate => 2,
                    _ if work.kills() => 1,
                    // All that arrived at once.
                    Work::CacheChanges => report.laps.max(2),
                    _ => 6,
                };
                assert_eq!(report.laps, laps, "{work}");
            }
            drop(changes);
        }
        ours.clean_up().await.expect("memory answers");

        let client = synod::connect(url).await.expect("memory is there");
        let left = client.read(Query::subtree(Path::root())).await.expect("memory answers");
        let left: Vec<&str> = left.nodes.iter().map(|node| node.path.as_str()).collect();
        assert!(!left.iter().any(|path| path.starts_with("/mine")), "{left:?}");
    }
}
