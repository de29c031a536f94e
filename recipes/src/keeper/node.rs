//! [`Kept`]: the node of a keeper in one session; the owner of a node at a path; and the nodes of a
//! session that recipes own.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::future::pending;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use futures_core::Stream;
use futures_util::StreamExt as _;
use futures_util::future::{Either, select};
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{
    Change, Event, Expect, Kind, Node, OpResult, Outcome, Query, Revision, SessionId, Stat, Txn,
    View, Watch,
};

use crate::keeper::state::{KeeperShared, Wanted};
use crate::mutant::mistake;

/// The node of a keeper in one session.
pub(super) struct Kept {
    pub(super) session: Session,
    pub(super) stat: Stat,
    path: Path,
    /// The number of its data; 0 for the data of the create.
    pub(super) stored: u64,
    /// True if the node was read after its last possible change.
    pub(super) is_read: bool,
    watch: Option<Watch>,
}

/// The reason for the next step of a keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Other data is wanted.
    Wanted,
    /// The node may have changed.
    Changed,
    /// Events may have been missed.
    Outage,
    /// The session has ended.
    Lost,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// The node, with the wanted data.
    Stored,
    /// The node, with other data.
    Other,
    /// No node, or a node of another incarnation.
    Gone,
}

impl Kept {
    /// A node that exists, and is not watched yet.
    pub(super) fn new(session: &Session, path: &Path, stat: Stat, stored: u64) -> Self {
        let (session, path) = (session.clone(), path.clone());
        Self { session, stat, path, stored, is_read: false, watch: None }
    }

    /// Waits for the next reason to act.
    pub(super) async fn cause(&mut self, shared: &KeeperShared) -> Cause {
        let (session, stored) = (self.session.clone(), self.stored);
        mistake!(ReconnectResets: return {
            session.lost_or_reconnected().await;
            Cause::Lost
        });
        let (lost, wanted) = (pin!(session.lost()), pin!(shared.wants_other(stored)));
        match select(pin!(self.event()), select(lost, wanted)).await {
            Either::Left((cause, _)) => cause,
            Either::Right((Either::Left(_), _)) => Cause::Lost,
            Either::Right((Either::Right(_), _)) => Cause::Wanted,
        }
    }

    /// Waits for an event that may report a write of another client.
    async fn event(&mut self) -> Cause {
        mistake!(KeptRemovalUnnoticed: return pending().await);
        foreign_event(&mut self.watch, &self.path, &self.stat).await
    }

    /// Reads the node and watches it from then on.
    pub(super) async fn read(&mut self, path: &Path, wanted: &Wanted) -> Result<Shown> {
        let view = if self.watch.is_some() {
            self.session.read(Query::node(path)).await?
        } else {
            let (view, watch) = self.session.watch(Query::node(path).local()).await?;
            self.watch = Some(watch);
            view
        };
        self.is_read = true;
        Ok(self.record(&view, wanted))
    }

    fn record(&mut self, view: &View, wanted: &Wanted) -> Shown {
        let Some((stat, is_stored)) = shown(view, self.stat.created, wanted) else {
            return Shown::Gone;
        };
        self.stat = stat;
        mistake!(ForeignDataKept: let is_stored = is_stored || self.stored == wanted.number);
        self.stored = if is_stored { wanted.number } else { 0 };
        if is_stored { Shown::Stored } else { Shown::Other }
    }

    /// Writes data. Returns `true` if it was written; otherwise the node must be read.
    pub(super) async fn store(&mut self, path: &Path, wanted: &Wanted) -> Result<bool> {
        // The data of the node is unknown until the response.
        self.is_read = false;
        let txn = Txn::new().set(path, wanted.data.clone(), Expect::Version(self.stat.version));
        match self.session.commit(txn).await? {
            Outcome::Committed(commit) => {
                let stat = commit.results.first().and_then(|done| done.stat);
                if let Some(stat) = stat {
                    if stat.created != self.stat.created {
                        // The node was removed, and another node at the path had the same version.
                        return Ok(false);
                    }
                    (self.stat, self.is_read) = (stat, true);
                }
                self.stored = wanted.number;
                Ok(true)
            }
            Outcome::Rejected(_) => Ok(false),
        }
    }

    /// Removes the node, and returns when it is removed.
    ///
    /// The node is read first: a node of another client at the path may have the same version, and
    /// its event may be in flight.
    pub(super) async fn remove(self, path: &Path) -> Result<()> {
        self.session.remove(&OpResult::new(path.clone()).with_stat(self.stat)).await
    }
}

/// The stat of this incarnation of a node, and whether it has the wanted data.
pub(crate) fn shown(view: &View, created: Revision, wanted: &Wanted) -> Option<(Stat, bool)> {
    let node = view.node()?;
    let stat = node.stat.filter(|stat| stat.created == created)?;
    Some((stat, node.data == wanted.data))
}

/// Waits for an event that may report more than the last write. A watch that has ended is dropped.
pub(crate) async fn foreign_event<W>(watch: &mut Option<W>, path: &Path, last: &Stat) -> Cause
where
    W: Stream<Item = Event> + Unpin,
{
    loop {
        let Some(open) = watch else { return pending().await };
        match open.next().await {
            Some(Event::Changed(change)) if is_own(&change, path, last) => {}
            Some(Event::Changed(_)) => return Cause::Changed,
            Some(Event::Resync) => return Cause::Outage,
            // The session has ended, or the store cannot continue the watch.
            Some(Event::Ended(_)) | None => {
                *watch = None;
                return Cause::Outage;
            }
        }
    }
}

fn is_own(change: &Change, path: &Path, last: &Stat) -> bool {
    let wrote = matches!(change.kind, Kind::Created | Kind::Updated);
    wrote && change.path == *path && change.revision == Some(last.modified)
}

/// The reaction of a keeper to a node of another client when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occupied {
    /// The start fails.
    Refuse,
    /// The node is removed.
    TakeOver,
}

/// The node at the path at which a keeper could not create its own node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occupant {
    /// No node: it was removed since, or the path is a container.
    Nothing,
    /// A node that an earlier request of the keeper created in this session.
    Own(Stat),
    /// A node that the keeper created in an earlier session, which has ended or is about to end.
    Remnant(Stat),
    /// A node of another client, or of another keeper.
    Foreign(Stat),
}

/// The facts about a keeper's own creates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mine<'a> {
    /// The session in which it creates its node now.
    pub(super) session: SessionId,
    /// True if a create in this session may have created the node.
    pub(super) in_doubt: bool,
    /// The sessions in which it created a node before, or may have.
    pub(super) before: &'a [SessionId],
}

impl Occupant {
    pub(super) fn of(node: Option<&Node>, mine: Mine<'_>) -> Self {
        let Some(stat) = node.and_then(|node| node.stat) else { return Self::Nothing };
        match stat.owner {
            Some(owner) if owner == mine.session && mine.in_doubt => Self::Own(stat),
            Some(owner) if mine.before.contains(&owner) => Self::Remnant(stat),
            _ => Self::Foreign(stat),
        }
    }
}

/// The maximum number of abandoned nodes that are recorded.
const MAX_LEAVING: usize = 1_024;

/// The nodes that the recipes of one session own. Any other node of the session at their paths was
/// created late, by a request that was abandoned.
#[derive(Debug, Default)]
pub(crate) struct OwnNodes(Mutex<OwnNodesState>);

#[derive(Debug, Default)]
struct OwnNodesState {
    /// The owners that want the nodes, by the unique revisions of their creates.
    created: BTreeMap<Revision, Weak<()>>,
    /// The nodes that were abandoned last: being removed, or already removed.
    leaving: BTreeSet<Revision>,
    /// The number of creates in flight, by their paths.
    in_flight: BTreeMap<Path, usize>,
}

/// A create in flight.
#[must_use = "the create counts as answered when this is dropped"]
pub(crate) struct Creating<'a> {
    nodes: &'a OwnNodes,
    path: Path,
}

impl OwnNodes {
    /// Records a create in flight. The owner of its node is unknown until the returned value is
    /// dropped.
    pub(crate) fn creating(&self, path: &Path) -> Creating<'_> {
        *self.lock().in_flight.entry(path.clone()).or_default() += 1;
        Creating { nodes: self, path: path.clone() }
    }

    /// Records that a recipe has the node for this owner. Returns false if another owner has it.
    pub(crate) fn add(&self, created: Revision, owner: &Weak<()>) -> bool {
        match self.lock().created.entry(created) {
            Entry::Occupied(_) => false,
            Entry::Vacant(vacant) => {
                vacant.insert(owner.clone());
                true
            }
        }
    }

    /// Returns `true` if a recipe owns the node.
    pub(crate) fn has(&self, created: Revision) -> bool {
        self.lock().created.contains_key(&created)
    }

    /// Returns whether a recipe owns the node at this path; `None` while a create is in flight that
    /// may have created it.
    pub(crate) fn is_owned(&self, path: &Path, created: Revision) -> Option<bool> {
        let state = self.lock();
        let has = state.created.contains_key(&created);
        (has || !state.in_flight.contains_key(path)).then_some(has)
    }

    /// Returns `true` if the node at this path may soon be removed, for an owner whose create is in
    /// flight: it is being removed, its owner has been dropped, or another create is in flight that
    /// may have created it.
    pub(crate) fn may_go(&self, path: &Path, created: Revision) -> bool {
        let in_flight = self.lock().in_flight.get(path).copied().unwrap_or_default();
        self.is_given_up(created) || in_flight > 1 && !self.has(created)
    }

    /// Returns `true` if the owner of the node no longer wants it.
    pub(crate) fn is_given_up(&self, created: Revision) -> bool {
        let state = self.lock();
        let is_dropped = |owner: &Weak<()>| owner.strong_count() == 0;
        state.created.get(&created).map_or(state.leaving.contains(&created), is_dropped)
    }

    /// Records that the node is being removed, was removed, or ends with its session.
    pub(crate) fn leave(&self, created: Revision) {
        let mut state = self.lock();
        state.created.remove(&created);
        // A view of the node may be older than its removal.
        state.leaving.insert(created);
        if state.leaving.len() > MAX_LEAVING {
            state.leaving.pop_first();
        }
    }

    fn lock(&self) -> MutexGuard<'_, OwnNodesState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Creating<'_> {
    fn drop(&mut self) {
        let mut state = self.nodes.lock();
        let left = state.in_flight.remove(&self.path).and_then(|count| count.checked_sub(1));
        if let Some(left) = left.filter(|left| *left > 0) {
            state.in_flight.insert(self.path.clone(), left);
        }
    }
}

#[cfg(test)]
mod tests {
    use synod_core::path::Path;
    use synod_core::store::{Revision, Version};

    use super::*;

    #[test]
    fn a_node_is_a_keepers_by_its_session_and_by_its_creates() {
        let [now, before, other] = [1, 2, 3].map(SessionId::new);
        let stat = |owner| Stat::new(Revision::new(7), Revision::new(8), Version::new(9), owner);
        let occupant = |owner, in_doubt| {
            let node = Node::new(Path::root()).with_stat(stat(owner));
            Occupant::of(Some(&node), Mine { session: now, in_doubt, before: &[before] })
        };
        assert_eq!(occupant(Some(now), true), Occupant::Own(stat(Some(now))));
        let foreign = |owner| Occupant::Foreign(stat(owner));
        assert_eq!(
            occupant(Some(now), false),
            foreign(Some(now)),
            "another keeper of the session created it"
        );
        assert_eq!(occupant(Some(before), true), Occupant::Remnant(stat(Some(before))));
        assert_eq!(occupant(Some(other), true), foreign(Some(other)));
        assert_eq!(occupant(None, true), foreign(None), "it is not ephemeral");
        let nothing = Mine { session: now, in_doubt: true, before: &[] };
        assert_eq!(Occupant::of(None, nothing), Occupant::Nothing);
    }
}
