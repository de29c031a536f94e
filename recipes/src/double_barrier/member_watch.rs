//! [`MemberWatch`]: the changes at a barrier, followed across sessions.

use std::collections::BTreeSet;
use std::fmt;

use futures_util::future::poll_immediate;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Change, Event, Kind, Query, View, Watch};

use crate::double_barrier::member::{is_our_name, names};
use crate::double_barrier::present::Present;

/// The most names of members that are remembered because they are gone.
const REMEMBERED: usize = 1_000;

/// A watch of the nodes of a barrier. It says when to look, and which members are gone: the name of one is never used again. That
/// one is there only a view shows.
pub(super) struct MemberWatch {
    client: Client,
    path: Path,
    open: Option<(Session, Watch)>,
    /// The members of this library that were reported as gone. `None` if those that went since it was opened last are not all
    /// among them.
    gone: Option<BTreeSet<String>>,
    /// The members by the last look and what was reported since. `None` if that is not known, or there are nodes of others.
    known: Option<Present>,
}

/// What a watch says.
pub(super) enum News {
    Changed(Change),
    /// Anything may have happened.
    Anything,
}

impl MemberWatch {
    /// Watches nothing yet.
    pub(super) fn new(client: &Client, path: &Path) -> Self {
        Self { client: client.clone(), path: path.clone(), open: None, gone: None, known: None }
    }

    /// Watches from here on, in this session. What was reported before is dropped: the caller looks after this.
    pub(super) async fn open(&mut self, session: &Session) -> Result<()> {
        let gone = self.gone.get_or_insert_default();
        if gone.len() > REMEMBERED / 2 {
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
        // With data, because to a watch of names alone some stores do not say which node changed.
        let (_view, watch) = session.watch(Query::children(&self.path).hints()).await?;
        self.open = Some((session.clone(), watch));
        Ok(())
    }

    /// The members that there are now: as the store said in the answer to a change, or by a look that begins after the watch.
    pub(super) async fn present(&mut self, seen: Option<View>) -> Result<Present> {
        let view = if let Some(view) = seen { view } else { self.look().await? };
        if Present::is_known_by_names(&view) {
            let present = Present::of(&view);
            self.known = self.open.is_some().then(|| present.clone());
            return Ok(present);
        }
        self.known = None;
        // A node with another name is a member if it is ephemeral, which its owner shows.
        Ok(Present::of(&self.client.read(Query::children(&self.path)).await?))
    }

    /// What the session of the watch sees: no less than was there when the watch began, and than what the watch has reported.
    async fn look(&mut self) -> Result<View> {
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

    /// Waits for news.
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

    /// Whether a member that comes now needs no look: [`Self::until_there`] returns the members.
    pub(super) fn knows(&self) -> bool {
        self.known.is_some()
    }

    /// Waits until this member, which came after the last look, is reported. Those that are known to be there then; `None` if that
    /// is not known. One that came before may be reported later, with what it did meanwhile.
    pub(super) async fn until_there(&mut self, name: &str) -> Option<Present> {
        while !self.known.as_ref()?.has(name) {
            let News::Changed(change) = self.news().await else { return None };
            // It was removed at once, and that it came is not reported.
            if change.kind == Kind::Deleted && change.path.name() == name {
                return None;
            }
        }
        self.known.clone()
    }

    /// The members of this library that are gone, of all that came or were there since it was opened last. `None` if that is not
    /// known.
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
        if gone.len() > REMEMBERED {
            self.gone = None;
        }
    }
}

impl fmt::Debug for MemberWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberWatch").field("path", &self.path).finish_non_exhaustive()
    }
}
