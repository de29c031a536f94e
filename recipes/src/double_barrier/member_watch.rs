//! [`MemberWatch`]: a watch of the members of a barrier, across sessions.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::poll_immediate;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Change, Event, Kind, Query, View, Watch};

use crate::double_barrier::member::{MAX_REMEMBERED, is_our_name, names};
use crate::double_barrier::present::Present;

/// A watch of the nodes of a barrier. It reports when to read, and which members are gone: their
/// names are never reused. Only a view proves that a member exists.
pub(super) struct MemberWatch {
    client: Client,
    path: Path,
    open: Option<(Session, Watch)>,
    /// The members of this library that were reported as gone. `None` if members that left since
    /// the last opening may be missing here.
    gone: Option<BTreeSet<String>>,
    /// The members by the last view and the later events. `None` if they are unknown, or if there
    /// are nodes of other libraries.
    known: Option<Present>,
}

/// An event of a watch.
pub(super) enum News {
    Changed(Change),
    /// Any change may have happened.
    Anything,
}

impl MemberWatch {
    /// A watch that is not open yet.
    pub(super) fn new(client: &Client, path: &Path) -> Self {
        Self { client: client.clone(), path: path.clone(), open: None, gone: None, known: None }
    }

    /// Opens the watch in this session. Earlier events are dropped: the caller reads after this
    /// call.
    pub(super) async fn open(&mut self, session: &Session) -> Result<()> {
        let gone = self.gone.get_or_insert_default();
        if gone.len() > MAX_REMEMBERED / 2 {
            gone.clear();
        }
        while let Some((of, watch)) = &mut self.open
            && of.info().id == session.info().id
        {
            match poll_immediate(watch.next()).await {
                None => return Ok(()),
                Some(Some(Event::Changed(change))) => self.remember(&change),
                Some(Some(Event::Resync)) => self.known = None,
                Some(_) => self.open = None,
            }
        }
        self.known = None;
        // With data, because some stores do not report which node changed to a watch of names only.
        let (_view, watch) = session.watch(Query::children(&self.path).hints()).await?;
        self.open = Some((session.clone(), watch));
        Ok(())
    }

    /// The current members: from the response to a change, or from a read that begins after the
    /// watch.
    pub(super) async fn present(&mut self, view: Option<View>) -> Result<Present> {
        let view = if let Some(view) = view { view } else { self.read().await? };
        if Present::is_known_by_names(&view) {
            let present = Present::of(&view);
            self.known = self.open.is_some().then(|| present.clone());
            return Ok(present);
        }
        self.known = None;
        // A node with another name is a member if it is ephemeral; its owner shows that.
        Ok(Present::of(&self.client.read(Query::children(&self.path)).await?))
    }

    /// Reads in the session of the watch. The result is not older than the start of the watch and
    /// its events.
    async fn read(&mut self) -> Result<View> {
        let session = if let Some((session, _watch)) = &self.open
            && !session.is_lost()
        {
            session.clone()
        } else {
            let session = self.client.session().await?;
            self.open(&session).await?;
            self.gone = None;
            session
        };
        session.read(names(&self.path).local()).await
    }

    /// Waits for the next event.
    pub(super) async fn news(&mut self) -> News {
        let Some((_, watch)) = &mut self.open else { return News::Anything };
        match watch.next().await {
            Some(Event::Changed(change)) => {
                self.remember(&change);
                return News::Changed(change);
            }
            Some(Event::Resync) => {}
            _ => self.open = None,
        }
        self.gone = None;
        self.known = None;
        News::Anything
    }

    /// Returns `true` if a member that arrives now needs no read: [`Self::until_there`] returns the
    /// members.
    pub(super) fn is_known(&self) -> bool {
        self.known.is_some()
    }

    /// Waits until this member, which arrived after the last view, is reported. Returns the members
    /// at that time; `None` if they are unknown. A member that arrived earlier may be reported
    /// later, merged with its later changes.
    pub(super) async fn until_there(&mut self, name: &str) -> Option<Present> {
        while !self.known.as_ref()?.has(name) {
            let News::Changed(change) = self.news().await else { return None };
            // It was removed immediately, and its create is not reported.
            if change.kind == Kind::Deleted && change.path.name() == name {
                return None;
            }
        }
        self.known.clone()
    }

    /// The members of this library that existed at some time since the last opening and are gone.
    /// `None` if they are unknown.
    pub(super) fn gone(&self) -> Option<&BTreeSet<String>> {
        self.gone.as_ref()
    }

    fn remember(&mut self, change: &Change) {
        self.known = self.known.take().and_then(|known| known.after(change));
        let name = change.path.name();
        let Some(gone) = self.gone.as_mut().filter(|_| is_our_name(name)) else { return };
        if change.kind == Kind::Deleted {
            gone.insert(name.to_owned());
        }
        if gone.len() > MAX_REMEMBERED {
            self.gone = None;
        }
    }
}

impl fmt::Debug for MemberWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberWatch").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The reaction of a waiting member when another member gives up before the round is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnLoss {
    /// The member continues to wait for another one.
    #[default]
    Wait,
    /// The member gives up, too: [`DoubleBarrier::enter`](crate::barrier::DoubleBarrier::enter)
    /// fails.
    Fail,
}

/// The place of a double barrier, and the parameters that its members share.
#[derive(Clone, Debug)]
pub(super) struct BarrierPlace {
    pub(super) client: Client,
    pub(super) path: Path,
    pub(super) parties: NonZeroU32,
    pub(super) on_loss: OnLoss,
    /// True if all members must specify the same number of parties.
    pub(super) same_parties: bool,
    /// The watch of a member that has left, for the next round.
    idle: Arc<Mutex<Option<MemberWatch>>>,
}

impl BarrierPlace {
    pub(super) fn new(client: &Client, path: Path, parties: NonZeroU32) -> Self {
        let (client, on_loss) = (client.clone(), OnLoss::default());
        Self { client, path, parties, on_loss, same_parties: false, idle: Arc::default() }
    }

    /// A watch of the members: the watch of an earlier round, if it is not in use.
    pub(super) fn watch(&self) -> MemberWatch {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        idle.unwrap_or_else(|| MemberWatch::new(&self.client, &self.path))
    }

    /// Stores a watch for the next round.
    pub(super) fn keep(&self, watch: MemberWatch) {
        let last = self.idle.lock().unwrap_or_else(PoisonError::into_inner).replace(watch);
        // Dropped outside the lock.
        drop(last);
    }
}
