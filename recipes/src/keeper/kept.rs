//! [`Kept`]: the node of a keeper, as it is known in one session.

use std::future::pending;
use std::pin::pin;

use futures_core::Stream;
use futures_util::StreamExt as _;
use futures_util::future::{Either, select};
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{
    Change, Event, Expect, Kind, OpResult, Outcome, Query, Revision, Stat, Txn, View, Watch,
};

use crate::keeper::page::{KeeperPage, Wanted};
use crate::mutant::mistake;

/// The node of a keeper in one session.
pub(super) struct Kept {
    pub(super) session: Session,
    pub(super) stat: Stat,
    path: Path,
    /// The number of the data that it has; 0 if it is none that was set.
    pub(super) stored: u64,
    /// Whether it was read since it may have changed.
    pub(super) is_read: bool,
    watch: Option<Watch>,
}

/// What makes a keeper go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Other data is wanted.
    Wanted,
    /// The node may have changed.
    Changed,
    /// Something may have been missed.
    Outage,
    /// The session is over.
    Lost,
}

/// What a look has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// The node, with the data that is wanted.
    Stored,
    /// The node, with other data.
    Other,
    /// No node, or another one.
    Gone,
}

impl Kept {
    /// A node that is there, and is not watched yet.
    pub(super) fn new(session: &Session, path: &Path, stat: Stat, stored: u64) -> Self {
        let (session, path) = (session.clone(), path.clone());
        Self { session, stat, path, stored, is_read: false, watch: None }
    }

    /// Waits for the next thing to do.
    pub(super) async fn cause(&mut self, page: &KeeperPage) -> Cause {
        let (session, stored) = (self.session.clone(), self.stored);
        mistake!(ReconnectResets: return {
            session.lost_or_reconnected().await;
            Cause::Lost
        });
        let (lost, wanted) = (pin!(session.lost()), pin!(page.wants_other(stored)));
        match select(pin!(self.event()), select(lost, wanted)).await {
            Either::Left((prompt, _)) => prompt,
            Either::Right((Either::Left(_), _)) => Cause::Lost,
            Either::Right((Either::Right(_), _)) => Cause::Wanted,
        }
    }

    /// Waits for an event that may be about more than this keeper's own writes.
    async fn event(&mut self) -> Cause {
        mistake!(KeptRemovalUnnoticed: return pending().await);
        foreign_event(&mut self.watch, &self.path, &self.stat).await
    }

    /// Reads the node, which is watched from then on.
    pub(super) async fn look(&mut self, path: &Path, wanted: &Wanted) -> Result<Shown> {
        let view = if self.watch.is_some() {
            self.session.read(Query::node(path)).await?
        } else {
            let (view, watch) = self.session.watch(Query::node(path).local()).await?;
            self.watch = Some(watch);
            view
        };
        self.is_read = true;
        Ok(self.learn(&view, wanted))
    }

    fn learn(&mut self, view: &View, wanted: &Wanted) -> Shown {
        let Some((stat, is_stored)) = shown(view, self.stat.created, wanted) else {
            return Shown::Gone;
        };
        self.stat = stat;
        mistake!(ForeignDataKept: let is_stored = is_stored || self.stored == wanted.number);
        self.stored = if is_stored { wanted.number } else { 0 };
        if is_stored { Shown::Stored } else { Shown::Other }
    }

    /// Writes data. Returns whether it was written; if not, the node has to be read.
    pub(super) async fn store(&mut self, path: &Path, wanted: &Wanted) -> Result<bool> {
        // Until it is answered, what the node has is not known.
        self.is_read = false;
        let txn = Txn::new().set(path, wanted.data.clone(), Expect::Version(self.stat.version));
        match self.session.commit(txn).await? {
            Outcome::Committed(commit) => {
                let stat = commit.results.first().and_then(|done| done.stat);
                if let Some(stat) = stat {
                    if stat.created != self.stat.created {
                        // It was removed, and another node there had the same version.
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

    /// Removes the node, and returns when it is gone.
    ///
    /// The node is read first: that of another client there may have the same version, and its event may be on its way.
    pub(super) async fn remove(self, path: &Path) -> Result<()> {
        self.session.remove(&OpResult::new(path.clone()).with_stat(self.stat)).await
    }
}

/// The stat of this incarnation of a node, and whether it has the data that is wanted.
pub(crate) fn shown(view: &View, created: Revision, wanted: &Wanted) -> Option<(Stat, bool)> {
    let node = view.node()?;
    let stat = node.stat.filter(|stat| stat.created == created)?;
    Some((stat, node.data == wanted.data))
}

/// Waits for an event that may be about more than what was written last. A watch that is over is dropped.
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
            // The session is over, or the store cannot go on with the watch.
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
