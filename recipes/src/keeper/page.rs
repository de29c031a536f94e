//! [`KeeperPage`]: what a keeper and its task know in common: the data that is wanted, what is stored, and whether the node is there.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use synod_core::clock::{self, Instant};
use synod_core::error::{Error, Result};
use synod_core::session::Session;
use synod_core::store::Revision;
use tokio::sync::{Notify, oneshot, watch};

use crate::keeper::presence::Presence;
use crate::mutant::mistake;

/// The most data that is remembered besides the last, in case that the store refuses the last.
const REMEMBERED: usize = 16;

/// What a keeper and its task know in common.
#[derive(Debug)]
pub(crate) struct KeeperPage {
    sets: Mutex<Sets>,
    /// Woken when other data is wanted.
    asked: Notify,
    known: watch::Sender<KnownNode>,
}

/// The data that is wanted, and its number: each set has one.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) number: u64,
    pub(crate) data: Bytes,
}

/// The data that was set and may be stored, and the callers that wait for it.
#[derive(Debug)]
struct Sets {
    /// The number of the last set.
    last: u64,
    /// The last data that the store had; at first, that of the first create.
    stored: Wanted,
    /// The data that was set since, and was not refused. The last is wanted; those before it, in case that the last is refused.
    newer: VecDeque<Wanted>,
    waiting: BTreeMap<u64, oneshot::Sender<Result<()>>>,
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
        let first = Wanted { number: 1, data };
        let stored = Wanted { number: 0, data: first.data.clone() };
        let (newer, waiting) = (VecDeque::from([first]), BTreeMap::new());
        Self {
            sets: Mutex::new(Sets { last: 1, stored, newer, waiting, is_over: false }),
            asked: Notify::new(),
            known: watch::Sender::new(KnownNode { presence: Presence::Absent, lasts: None }),
        }
    }

    /// The data that is wanted now.
    pub(crate) fn wanted(&self) -> Wanted {
        self.lock().wanted().clone()
    }

    /// Records other data. What is returned says that this data, or later data, is stored, or that the store refuses it; it closes
    /// once the keeper has ended.
    pub(crate) fn want(&self, data: Bytes) -> oneshot::Receiver<Result<()>> {
        let (tell, told) = oneshot::channel();
        mistake!(SetWhileAwayForgotten: if !self.is_there() {
            let _heard = tell.send(Ok(())).is_ok();
            return told;
        });
        self.lock().add(data, tell);
        self.asked.notify_waiters();
        told
    }

    /// Waits until other data is wanted than that of this number.
    pub(crate) async fn wants_other(&self, than: u64) {
        loop {
            // Listens from here on, so that a set between the look and the wait wakes too.
            let asked = self.asked.notified();
            if self.lock().wanted().number != than {
                return;
            }
            asked.await;
        }
    }

    /// Records that the store has this data.
    pub(crate) fn is_stored(&self, wanted: &Wanted) {
        let settled = self.lock().record_stored(wanted);
        for tell in settled {
            let _heard = tell.send(Ok(())).is_ok();
        }
    }

    /// Records that the store certainly never takes this data: the data before it that was not refused is wanted again, if no other
    /// was set since. False if the keeper has no other data: it is that of its first create.
    pub(crate) fn record_refused(&self, number: u64, why: &Error) -> bool {
        let (is_other, refused) = self.lock().record_refused(number);
        if let Some(tell) = refused {
            let _heard = tell.send(Err(why.clone())).is_ok();
        }
        is_other
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
        let waiting = {
            let mut sets = self.lock();
            sets.is_over = true;
            std::mem::take(&mut sets.waiting)
        };
        drop(waiting);
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

    fn lock(&self) -> MutexGuard<'_, Sets> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
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

impl Sets {
    fn wanted(&self) -> &Wanted {
        self.newer.back().unwrap_or(&self.stored)
    }

    fn add(&mut self, data: Bytes, tell: oneshot::Sender<Result<()>>) {
        if self.is_over {
            return;
        }
        self.last += 1;
        self.newer.push_back(Wanted { number: self.last, data });
        if self.newer.len() > REMEMBERED + 1 {
            let _oldest = self.newer.pop_front();
        }
        self.waiting.retain(|_, tell| !tell.is_closed());
        self.waiting.insert(self.last, tell);
    }

    /// Returns the callers whose data is stored, or replaced by what is.
    fn record_stored(&mut self, wanted: &Wanted) -> Vec<oneshot::Sender<Result<()>>> {
        self.newer.retain(|newer| newer.number > wanted.number);
        self.stored = wanted.clone();
        let later = self.waiting.split_off(&(wanted.number + 1));
        std::mem::replace(&mut self.waiting, later).into_values().collect()
    }

    fn record_refused(&mut self, number: u64) -> (bool, Option<oneshot::Sender<Result<()>>>) {
        if self.stored.number == 0 && self.newer.iter().all(|newer| newer.number == number) {
            return (false, None);
        }
        self.newer.retain(|newer| newer.number != number);
        (true, self.waiting.remove(&number))
    }
}

#[cfg(test)]
mod tests {
    use synod_core::error::ErrorKind;

    use super::*;

    fn answer(told: &mut oneshot::Receiver<Result<()>>) -> Option<bool> {
        told.try_recv().ok().map(|result| result.is_ok())
    }

    #[test]
    fn what_is_refused_gives_way_to_the_data_before_it_that_was_not() {
        let (page, why) = (KeeperPage::new("first".into()), Error::new(ErrorKind::TooLarge, "set"));
        assert!(!page.record_refused(1, &why), "there is no other");
        page.is_stored(&page.wanted());
        let [mut good, mut large, mut larger] =
            ["good", "large", "larger"].map(|data| page.want(data.into()));
        assert!(page.record_refused(4, &why) && page.wanted().data == "large");
        assert!(page.record_refused(3, &why) && page.wanted().data == "good");
        assert_eq!([answer(&mut large), answer(&mut larger)], [Some(false); 2]);
        assert_eq!(answer(&mut good), None, "it is not stored yet");
        page.is_stored(&page.wanted());
        assert_eq!(answer(&mut good), Some(true));
        // Data that was replaced before it was tried is settled by what replaced it.
        let [mut replaced, mut last] = ["replaced", "last"].map(|data| page.want(data.into()));
        page.is_stored(&page.wanted());
        assert_eq!([answer(&mut replaced), answer(&mut last)], [Some(true); 2]);
        let mut ended = page.want("late".into());
        page.end();
        assert!(matches!(ended.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        assert!(matches!(
            page.want("later".into()).try_recv(),
            Err(oneshot::error::TryRecvError::Closed)
        ));
    }

    #[test]
    fn a_limited_number_of_sets_is_remembered() {
        let page = KeeperPage::new("first".into());
        page.is_stored(&page.wanted());
        for number in 0..100 {
            drop(page.want(number.to_string().into()));
        }
        let sets = page.lock();
        assert_eq!((sets.newer.len(), sets.waiting.len()), (REMEMBERED + 1, 1));
        assert_eq!((sets.wanted().number, sets.stored.number), (101, 1));
    }
}
