//! [`Shared`]: the state that the threads and the sessions of one handle share.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rusqlite::Connection;
use synod_core::clock::{self, Instant};
use synod_core::error::{Error, Result};
use synod_core::store::{Life, SessionEnd, SessionId};
use tokio::sync::oneshot;

use crate::job::Job;
use crate::machine::Machine;
use crate::peers::Peers;
use crate::place::Place;
use crate::queue::Queue;
use crate::seat::Seat;
use crate::watches::Watches;

/// A read, and its answer.
pub(crate) type ReadJob = Box<dyn FnOnce(&Connection) + Send>;

/// The state that the threads and the sessions of one handle share.
pub(crate) struct Shared {
    pub(crate) place: Place,
    pub(crate) seat: Seat,
    pub(crate) machine: Machine,
    pub(crate) peers: Peers,
    pub(crate) watches: Watches,
    pub(crate) writes: Queue<Box<dyn Job>>,
    pub(crate) reads: Queue<ReadJob>,
    /// Requests of the writer to look whether a checkpoint is due.
    pub(crate) checkpoints: Queue<()>,
    sessions: Mutex<Sessions>,
    /// The number of changes of the filter when it was written.
    published: Mutex<u64>,
    /// Notified when the heartbeats have something to do.
    beat: Condvar,
    is_stopped: AtomicBool,
}

/// The sessions of this handle.
#[derive(Default)]
struct Sessions {
    own: BTreeMap<SessionId, Own>,
    /// Sessions whose owner has dropped them.
    dropped: Vec<Dropped>,
    /// `true` once the directory is another one.
    is_gone: bool,
}

/// A session whose owner has dropped it.
struct Dropped {
    id: SessionId,
    end: Instant,
    /// The handle, which stays until then: else the session would end now.
    _handle: Option<Handle>,
}

/// A handle of which only the life matters.
pub(crate) type Handle = Arc<dyn Any + Send + Sync>;

/// A session of this handle.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) ttl: Duration,
    pub(crate) state: OwnState,
}

#[derive(Debug)]
pub(crate) enum OwnState {
    /// Waits for its first heartbeat.
    Opening(oneshot::Sender<Result<Arc<Life>>>),
    /// Kept by its owner, who may have been dropped before it knew of it.
    Open(Weak<Life>),
}

impl Shared {
    pub(crate) fn new(place: Place, seat: Seat, machine: Machine) -> Self {
        Self {
            place,
            seat,
            machine,
            peers: Peers::default(),
            watches: Watches::default(),
            writes: Queue::new(),
            reads: Queue::new(),
            checkpoints: Queue::new(),
            sessions: Mutex::default(),
            published: Mutex::default(),
            beat: Condvar::new(),
            is_stopped: AtomicBool::new(false),
        }
    }

    /// Ends the threads. They end by themselves, and nobody waits for them.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.writes.close();
        self.reads.close();
        self.checkpoints.close();
        self.seat.wake();
        // With the lock, so that the heartbeats are either before their check or waiting.
        let _sessions = self.sessions();
        self.beat.notify_all();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Writes the filter of the watches, for all writers, if it has changed. A watch is written
    /// before its view is read.
    pub(crate) fn publish_filter(&self) -> io::Result<()> {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        if *published != self.watches.filter_changes() {
            let (changes, bits) = self.watches.filter();
            self.seat.publish(&bits)?;
            *published = changes;
        }
        Ok(())
    }

    /// Adds a session, and requests its first heartbeat.
    pub(crate) fn add_session(
        &self,
        id: SessionId,
        ttl: Duration,
        opened: oneshot::Sender<Result<Arc<Life>>>,
    ) {
        let own = Own { ttl, state: OwnState::Opening(opened) };
        self.sessions().own.insert(id, own);
        self.beat.notify_all();
    }

    /// Leaves a session to end after its time to live: nothing renews it any more. The handle is
    /// kept until then.
    pub(crate) fn drop_session(&self, id: SessionId, after: Duration, handle: Option<Handle>) {
        let end = clock::true_now() + after;
        let mut sessions = self.sessions();
        let own = sessions.own.remove(&id);
        sessions.dropped.push(Dropped { id, end, _handle: handle });
        drop(sessions);
        drop(own);
        // The tick is to notice the end in time.
        self.seat.wake();
    }

    /// Forgets a session that has ended.
    pub(crate) fn forget_session(&self, id: SessionId) {
        let mut sessions = self.sessions();
        let own = sessions.own.remove(&id);
        let (over, left) = std::mem::take(&mut sessions.dropped)
            .into_iter()
            .partition::<Vec<_>, _>(|dropped| dropped.id == id);
        sessions.dropped = left;
        drop(sessions);
        // Without the lock: the last handle stops the threads.
        drop((own, over));
    }

    /// Returns the ids of the sessions of this handle, and the shortest time to live.
    pub(crate) fn own_sessions(&self) -> (Vec<SessionId>, Option<Duration>) {
        let sessions = self.sessions();
        let shortest = sessions.own.values().map(|own| own.ttl).min();
        (sessions.own.keys().copied().collect(), shortest)
    }

    /// Returns `true` if the handle has this session, or had it until its owner dropped it.
    pub(crate) fn has_session(&self, id: SessionId) -> bool {
        let sessions = self.sessions();
        sessions.own.contains_key(&id) || sessions.dropped.iter().any(|dropped| dropped.id == id)
    }

    /// Returns the sessions whose owner dropped them and whose time to live has passed.
    pub(crate) fn overdue_sessions(&self) -> Vec<SessionId> {
        let now = clock::true_now();
        let sessions = self.sessions();
        let over = sessions.dropped.iter().filter(|dropped| dropped.end <= now);
        over.map(|dropped| dropped.id).collect()
    }

    /// Returns the time at which the next dropped session ends.
    pub(crate) fn next_dropped_end(&self) -> Option<Instant> {
        self.sessions().dropped.iter().map(|dropped| dropped.end).min()
    }

    /// Records a heartbeat that was sent at `sent`, for a session that was in the database after
    /// it.
    pub(crate) fn renew(&self, id: SessionId, sent: Instant) {
        let mut sessions = self.sessions();
        let Some(own) = sessions.own.get_mut(&id) else { return };
        let ttl = own.ttl;
        if let OwnState::Open(life) = &own.state {
            let life = life.upgrade();
            drop(sessions);
            match life.filter(|life| life.loss().is_none()) {
                Some(life) => life.renew(sent),
                // Its owner was dropped, or has given it up by its own clock.
                None => self.drop_session(id, ttl, None),
            }
            return;
        }
        let life = Arc::new(Life::new(ttl, sent, Duration::ZERO));
        let before = std::mem::replace(&mut own.state, OwnState::Open(Arc::downgrade(&life)));
        drop(sessions);
        if let OwnState::Opening(opened) = before {
            // The next heartbeat notices if nobody receives it.
            let _received = opened.send(Ok(life)).is_ok();
        }
    }

    /// Records that a session has ended in the database.
    pub(crate) fn lose(&self, id: SessionId) {
        let lost = self.sessions().own.remove(&id);
        if let Some(own) = lost {
            own.lose();
        }
    }

    /// Fails the sessions that are being opened, as there can be no heartbeat.
    pub(crate) fn fail_opening(&self, error: &Error) {
        let mut sessions = self.sessions();
        let all = std::mem::take(&mut sessions.own);
        let (failed, open): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(_, own)| own.is_opening());
        sessions.own = open.into_iter().collect();
        drop(sessions);
        for (id, own) in failed {
            self.drop_session(id, own.ttl, None);
            if let OwnState::Opening(opened) = own.state {
                let _received = opened.send(Err(error.clone())).is_ok();
            }
        }
    }

    /// Ends all sessions, as the directory is not the one that they are in.
    pub(crate) fn lose_all(&self) {
        let mut sessions = self.sessions();
        sessions.is_gone = true;
        let lost = std::mem::take(&mut sessions.own);
        let dropped = std::mem::take(&mut sessions.dropped);
        drop(sessions);
        drop(dropped);
        for own in lost.into_values() {
            own.lose();
        }
    }

    /// Returns `true` once the directory is another one.
    pub(crate) fn is_gone(&self) -> bool {
        self.sessions().is_gone
    }

    /// Waits until a session is being opened, or for `limit`; forever if that is `None`.
    pub(crate) fn wait_for_beat(&self, limit: Option<Duration>) {
        let sessions = self.sessions();
        let is_idle = |sessions: &mut Sessions| {
            !sessions.own.values().any(Own::is_opening) && !self.is_stopped()
        };
        match limit {
            Some(limit) => drop(self.beat.wait_timeout_while(sessions, limit, is_idle)),
            None => drop(self.beat.wait_while(sessions, is_idle)),
        }
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Own {
    fn is_opening(&self) -> bool {
        matches!(self.state, OwnState::Opening(_))
    }

    fn lose(self) {
        match self.state {
            OwnState::Open(life) => {
                if let Some(life) = life.upgrade() {
                    life.lose(SessionEnd::Expired);
                }
            }
            OwnState::Opening(opened) => {
                let error = SessionEnd::Expired.error("opening a session");
                let _received = opened.send(Err(error)).is_ok();
            }
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileBackend")
            .field("directory", &self.place.path())
            .field("seat", &self.seat.id())
            .finish_non_exhaustive()
    }
}
