//! [`KeeperPage`]: what a keeper and its task know in common: the data that is wanted, what is stored, and whether the node is there.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use synod_core::clock::{self, Instant};
use synod_core::error::{Error, Result};
use synod_core::session::Session;
use synod_core::store::Revision;
use tokio::sync::{Notify, watch};

use crate::keeper::presence::Presence;
use crate::mutant::mistake;

/// What a keeper and its task know in common.
#[derive(Debug)]
pub(crate) struct KeeperPage {
    wanted: Mutex<Wanted>,
    /// Woken when other data is wanted.
    asked: Notify,
    stored: watch::Sender<Stored>,
    known: watch::Sender<KnownNode>,
}

/// The data that is wanted, and its number: each set has one.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) number: u64,
    pub(crate) data: Bytes,
}

/// The last data that the store had, and why it refused a later one.
#[derive(Debug)]
struct Stored {
    last: Wanted,
    refused: Option<(u64, Error)>,
    is_over: bool,
}

/// What is known of the node, and what it depends on.
#[derive(Debug)]
pub(crate) struct KnownNode {
    pub(crate) presence: Presence,
    lasts: Option<Lasts>,
}

/// For how long a node is certainly there.
#[derive(Clone, Debug)]
pub(crate) enum Lasts {
    /// As long as this session certainly lives.
    Session(Session),
    /// Until then.
    Until(Instant),
}

impl KeeperPage {
    pub(crate) fn new(data: Bytes) -> Self {
        let wanted = Wanted { number: 1, data };
        let last = Wanted { number: 0, data: wanted.data.clone() };
        Self {
            wanted: Mutex::new(wanted),
            asked: Notify::new(),
            stored: watch::Sender::new(Stored { last, refused: None, is_over: false }),
            known: watch::Sender::new(KnownNode { presence: Presence::Absent, lasts: None }),
        }
    }

    /// The data that is wanted now.
    pub(crate) fn wanted(&self) -> Wanted {
        self.lock().clone()
    }

    /// Records other data. Returns its number.
    pub(crate) fn want(&self, data: Bytes) -> u64 {
        mistake!(SetWhileAwayForgotten: if !self.is_there() {
            return self.stored.borrow().last.number;
        });
        let number = {
            let mut wanted = self.lock();
            *wanted = Wanted { number: wanted.number + 1, data };
            wanted.number
        };
        self.asked.notify_waiters();
        number
    }

    /// Waits until other data is wanted than that of this number.
    pub(crate) async fn wants_other(&self, than: u64) {
        loop {
            // Listens from here on, so that a set between the look and the wait wakes too.
            let asked = self.asked.notified();
            if self.lock().number != than {
                return;
            }
            asked.await;
        }
    }

    /// Waits until the data of this number, or later data, is stored or refused. `None` once the keeper has ended.
    pub(crate) async fn stored(&self, number: u64) -> Option<Result<()>> {
        let mut stored = self.stored.subscribe();
        let is_settled = |stored: &Stored| stored.of(number).is_some() || stored.is_over;
        let settled = stored.wait_for(is_settled).await.ok()?;
        settled.of(number)
    }

    /// Records that the store has this data.
    pub(crate) fn is_stored(&self, wanted: &Wanted) {
        self.stored.send_modify(|stored| stored.last = wanted.clone());
    }

    /// Records that the store certainly never takes this data: the data before it is wanted again, if no other was set since.
    pub(crate) fn is_refused(&self, number: u64, why: Error) {
        let last = self.stored.borrow().last.data.clone();
        {
            let mut wanted = self.lock();
            if wanted.number == number {
                *wanted = Wanted { number: number + 1, data: last };
            }
        }
        self.stored.send_modify(|stored| stored.refused = Some((number, why)));
    }

    pub(crate) fn presence(&self) -> Presence {
        self.known.borrow().presence.clone()
    }

    /// What is known of the node, as it changes.
    pub(crate) fn watch(&self) -> watch::Receiver<KnownNode> {
        self.known.subscribe()
    }

    /// Whether the node is certainly there.
    pub(crate) fn is_there(&self) -> bool {
        let known = self.known.borrow();
        known.presence.is_there() && known.lasts.as_ref().is_some_and(Lasts::is_certain)
    }

    pub(crate) fn is_made(&self, created: Revision, lasts: Lasts) {
        let presence = Presence::There(created);
        self.known.send_replace(KnownNode { presence, lasts: Some(lasts) });
    }

    /// Records that the node that is there lasts longer than was known.
    pub(crate) fn lasts(&self, lasts: Lasts) {
        self.known.send_if_modified(|known| {
            known.lasts = Some(lasts);
            false
        });
    }

    pub(crate) fn is_gone(&self) {
        self.turn(Presence::Absent, |last| matches!(last, Presence::Absent));
    }

    pub(crate) fn is_denied(&self, why: &Error) {
        let is_known =
            |last: &Presence| matches!(last, Presence::Refused(last) if last.kind() == why.kind());
        self.turn(Presence::Refused(why.clone()), is_known);
    }

    /// Records that the keeper has ended.
    pub(crate) fn end(&self) {
        self.is_gone();
        self.stored.send_modify(|stored| stored.is_over = true);
    }

    fn turn(&self, presence: Presence, is_known: impl FnOnce(&Presence) -> bool) {
        self.known.send_if_modified(|known| {
            if is_known(&known.presence) {
                return false;
            }
            *known = KnownNode { presence, lasts: None };
            true
        });
    }

    fn lock(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lasts {
    fn is_certain(&self) -> bool {
        match self {
            Self::Session(session) => session.is_certain(),
            Self::Until(end) => clock::now() < *end,
        }
    }
}

impl Stored {
    /// What became of the set with this number, if that is known.
    fn of(&self, number: u64) -> Option<Result<()>> {
        match &self.refused {
            Some((refused, why)) if *refused == number => Some(Err(why.clone())),
            _ => (self.last.number >= number).then_some(Ok(())),
        }
    }
}
