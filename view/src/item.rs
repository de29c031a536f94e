//! [`Item`]: a recipe at a path, with its current state.

use std::collections::BTreeMap;

use serde_json::Value;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Node, Query, SessionId};
use synod_recipes::crew::{Crew, CrewSnapshot};
use synod_recipes::discovery::Instance;
use synod_recipes::layout::{barrier, crew, queue, schedule};
use synod_recipes::lock::{Claim, Contender, inspect};
use synod_recipes::partition::Partition;
use synod_recipes::presence::{Group, Member};
use synod_recipes::queue::{Queue, QueueStats};
use synod_recipes::schedule::{Schedule, ScheduleState};

use crate::recognition::{Certainty, OtherQueue, Sign};

/// A recipe at a path, with its state when it was read.
#[derive(Debug)]
#[non_exhaustive]
pub struct Item {
    /// The path of the recipe.
    pub path: Path,
    /// The certainty that it is this recipe.
    pub certainty: Certainty,
    /// The state.
    pub state: ItemState,
}

/// The state of a recipe.
#[derive(Debug)]
#[non_exhaustive]
pub enum ItemState {
    /// The holders and the waiters of a lock, of a semaphore or of an election, in order.
    Contenders(Contest, Vec<Contender>),
    /// A queue.
    Queue {
        /// The number of items in each state.
        stats: QueueStats,
        /// The number of items that each session has claimed.
        claims: BTreeMap<SessionId, usize>,
    },
    /// A crew.
    Crew {
        /// Its workers and its tasks.
        snapshot: CrewSnapshot,
        /// The master, and the candidates for its place.
        masters: Vec<Contender>,
    },
    /// A schedule.
    Schedule {
        /// The last run, and the next date.
        state: ScheduleState,
        /// The process that runs it, and the candidates for its place.
        leaders: Vec<Contender>,
    },
    /// The items of a partition, each with the name of the member that holds it.
    Partition(BTreeMap<String, String>),
    /// The number of parties that have counted down.
    CountDown(usize),
    /// A double barrier.
    DoubleBarrier {
        /// The number of members that wait or are inside.
        members: usize,
        /// True once the members may enter.
        is_open: bool,
    },
    /// The members of a group: the nodes of sessions in one directory.
    Group(Vec<Member>),
    /// The instances of a service, each with its session.
    Service(Vec<(Instance<Value>, SessionId)>),
    /// The number of items in a queue of another library.
    OtherQueue(OtherQueue, usize),
    /// The directory must not be read with these credentials.
    Denied(Error),
}

/// The right for which contenders wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Contest {
    /// A lock, exclusive or shared, or the lead of a
    /// [`LeaderSelector`](synod_recipes::election::LeaderSelector), whose tickets are those of a lock.
    Lock,
    /// The permits of a semaphore.
    Semaphore,
    /// The lead of an election.
    Election,
}

impl Contest {
    /// The right that the tickets of these contenders name.
    pub fn of(contenders: &[Contender]) -> Self {
        let is_permit = |one: &Contender| matches!(one.claim, Claim::Permits(_));
        if contenders.iter().any(is_permit) {
            Self::Semaphore
        } else if contenders.iter().any(|one| one.path.name().contains("latch-")) {
            Self::Election
        } else {
            Self::Lock
        }
    }
}

impl ItemState {
    /// Returns `true` if nobody uses the recipe, and nothing is left to be done. Its directories
    /// may stay for a while, and look like those of another program.
    fn is_empty(&self) -> bool {
        match self {
            Self::Queue { stats, .. } => {
                stats.ready + stats.delayed + stats.claimed + stats.dead == 0
            }
            Self::Crew { snapshot, masters } => {
                let CrewSnapshot { paused, workers, tasks, .. } = snapshot;
                !paused && workers.is_empty() && tasks.is_empty() && masters.is_empty()
            }
            Self::Partition(holders) => holders.is_empty(),
            Self::CountDown(count) | Self::OtherQueue(_, count) => *count == 0,
            Self::DoubleBarrier { members, .. } => *members == 0,
            _ => false,
        }
    }
}

impl Item {
    pub(crate) fn new(path: Path, certainty: Certainty, state: ItemState) -> Self {
        Self { path, certainty, state }
    }

    /// Reads the recipe that was recognised at a path. `None` if it is not there, or if nobody uses
    /// it and nothing is left in it.
    ///
    /// # Errors
    ///
    /// The errors that are common to all calls: see [`Client`]. What must not be read is an item
    /// that [says so](ItemState::Denied).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn read(
        client: &Client,
        path: &Path,
        sign: Sign,
        certainty: Certainty,
    ) -> Result<Option<Self>> {
        let state = match read_state(client, path, sign).await {
            Err(error) if error.kind() == ErrorKind::Denied => Some(ItemState::Denied(error)),
            // The nodes belong to another program that uses the same names.
            Err(error) if error.kind() == ErrorKind::Corrupt => None,
            state => state?.filter(|state| !state.is_empty()),
        };
        let certainty = match &state {
            // The record was read, and it is one.
            Some(ItemState::Schedule { .. }) => Certainty::Certain,
            // So were those of tasks or of workers.
            Some(ItemState::Crew { snapshot, .. })
                if !snapshot.tasks.is_empty() || !snapshot.workers.is_empty() =>
            {
                Certainty::Certain
            }
            // Nodes that belong to no session may be somebody's data.
            Some(ItemState::Contenders(_, all)) if all.iter().all(|one| one.owner.is_none()) => {
                Certainty::Likely
            }
            _ => certainty,
        };
        Ok(state.map(|state| Self::new(path.clone(), certainty, state)))
    }
}

async fn read_state(client: &Client, path: &Path, sign: Sign) -> Result<Option<ItemState>> {
    Ok(match sign {
        Sign::Contenders => {
            let contenders = inspect(client, path).await?;
            let is_any = !contenders.is_empty();
            is_any.then(|| ItemState::Contenders(Contest::of(&contenders), contenders))
        }
        Sign::Queue => Some(read_queue(client, path).await?),
        Sign::Crew => Some(ItemState::Crew {
            snapshot: Crew::new(client, path.clone()).snapshot().await?,
            masters: inspect(client, path.join(crew::MASTER)?).await?,
        }),
        Sign::Schedule => match Schedule::state_of(client, path).await? {
            Some(state) => {
                let leaders = inspect(client, path.join(schedule::LEADER)?).await?;
                Some(ItemState::Schedule { state, leaders })
            }
            None => None,
        },
        Sign::Partition => {
            let partition = Partition::new(client, path.clone(), [""; 0]);
            Some(ItemState::Partition(partition.holders().await?))
        }
        Sign::CountDown => {
            let is_party = |name: &str| name.starts_with(barrier::PARTY);
            Some(ItemState::CountDown(count(client, path, is_party).await?))
        }
        Sign::DoubleBarrier => {
            let names = names_in(client, path).await?;
            let is_member = |node: &&Node| node.path.name().starts_with(barrier::MEMBER);
            let members = names.iter().filter(is_member).count();
            let is_open = names.iter().any(|node| node.path.name() == barrier::READY);
            Some(ItemState::DoubleBarrier { members, is_open })
        }
        Sign::Group => {
            let members = Group::new(client, path.clone()).members().await?;
            (!members.is_empty()).then(|| of_members(members))
        }
        Sign::OtherQueue(kind) => {
            let dir = match kind.items() {
                Some(items) => path.join(items)?,
                None => path.clone(),
            };
            Some(ItemState::OtherQueue(kind, count(client, &dir, |_| true).await?))
        }
    })
}

async fn read_queue(client: &Client, path: &Path) -> Result<ItemState> {
    let stats = Queue::<Value>::new(client, path.clone()).stats().await?;
    let mut claims = BTreeMap::new();
    if stats.claimed > 0 {
        // These nodes have no data.
        let nodes = client.read(Query::children(path.join(queue::CLAIMS)?)).await?.nodes;
        let owners = nodes.iter().filter_map(|node| node.stat.and_then(|stat| stat.owner));
        owners.for_each(|owner| *claims.entry(owner).or_default() += 1);
    }
    Ok(ItemState::Queue { stats, claims })
}

/// The members as a service, if each of them has the data of an instance.
fn of_members(members: Vec<Member>) -> ItemState {
    let instance = |member: &Member| {
        let instance = serde_json::from_slice::<Instance<Value>>(&member.data);
        instance.ok().map(|instance| (instance, member.session))
    };
    match members.iter().map(instance).collect() {
        Some(instances) => ItemState::Service(instances),
        None => ItemState::Group(members),
    }
}

async fn names_in(client: &Client, dir: &Path) -> Result<Vec<Node>> {
    Ok(client.read(Query::children(dir).names_only()).await?.nodes)
}

async fn count(client: &Client, dir: &Path, of: impl Fn(&str) -> bool) -> Result<usize> {
    let names = names_in(client, dir).await?;
    Ok(names.iter().filter(|node| of(node.path.name())).count())
}
