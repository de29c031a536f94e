//! Ends sessions of processes that died or were stopped, dropped sessions, and nodes whose time to
//! live has passed.
//!
//! Any handle does this for all. It finds due sessions and nodes without the turn, and decides in
//! the turn.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rusqlite::{Connection, params};
use synod_core::clock::{self, Instant};
use synod_core::path::Path;
use synod_core::store::SessionId;

use crate::fault::Fault;
use crate::job::Call;
use crate::seat::{self, DeadSeat};
use crate::seat_id::SeatId;
use crate::sessions::{self, Reason};
use crate::shared::Shared;
use crate::writing::Writing;

/// The number of nodes that end in one transaction.
const NODES: usize = 256;

/// Something that is due.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    /// A seat whose lock was free.
    Dead(SeatId),
    /// A seat without a heartbeat for this time, whose last one has the number `beat`; `None` if
    /// its file is gone.
    Silent { seat: SeatId, beat: Option<u64>, silence: Duration },
    /// A session of this handle whose owner dropped it.
    Dropped(SessionId),
    /// A session that lingered for its time to live after its process ended.
    Lingered(SessionId),
    /// A node that was not written since `modified` for its time to live.
    Node { path: Path, modified: u64 },
}

/// The heartbeats and the nodes that this handle has seen, by its own clock. A clock of another
/// process is not evidence: it may be in another namespace.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    /// The last heartbeat of each seat, and the time since which it is the last.
    beats: BTreeMap<SeatId, (Option<u64>, Instant)>,
    /// The nodes with a time to live by another clock, and the time since which they are unchanged.
    nodes: BTreeMap<Path, (u64, Instant)>,
    /// The sessions that linger by another clock, and the time since which they are known.
    lingering: BTreeMap<SessionId, Instant>,
    /// `true` while tasks wait for the turn.
    is_busy: Arc<AtomicBool>,
}

/// Returns the seats whose lock is to be tried in the turn, as it seems to be free: of those whose
/// FIFO has ended, and of the new ones. Also returns the time after which to call this again, if
/// the lock of a seat whose FIFO has ended is still held.
pub(crate) fn dead_seats(shared: &Shared) -> Result<(Vec<Task>, Option<Duration>), Fault> {
    let (mut dead, mut delay, now) = (Vec::new(), None, clock::true_now());
    for (id, other) in shared.peers.all() {
        if !other.take_suspect() {
            continue;
        }
        if seat::is_free(shared.place.seats(), id)? {
            dead.push(Task::Dead(id));
        } else if other.has_ended() {
            delay = delay.into_iter().chain(other.try_later(now)).min();
        }
    }
    Ok((dead, delay))
}

impl Witness {
    /// Returns the due tasks, and the shortest time to live of the sessions of other handles.
    pub(crate) fn due(
        &mut self,
        shared: &Shared,
        db: &Connection,
    ) -> Result<(Vec<Task>, Option<Duration>), Fault> {
        let now = clock::true_now();
        let mut tasks: Vec<Task> =
            shared.overdue_sessions().into_iter().map(Task::Dropped).collect();
        let mut seats = sessions::seats(db)?;
        seats.retain(|(seat, _)| *seat != shared.seat.id());
        self.beats.retain(|seat, _| seats.iter().any(|(there, _)| there == seat));
        for (seat, shortest) in &seats {
            let beat = seat::last_beat(shared.place.seats(), *seat)?;
            let (last, since) = self.beats.entry(*seat).or_insert((beat, now));
            if *last != beat {
                (*last, *since) = (beat, now);
            }
            let silence = now.saturating_duration_since(*since);
            if silence >= Duration::from_millis(*shortest) {
                tasks.push(Task::Silent { seat: *seat, beat, silence });
            }
        }
        tasks.extend(self.lingered(shared, db, now)?);
        tasks.extend(self.nodes_due(shared, db, now)?);
        // A forked child may keep the lock of a seat whose FIFO has ended, or may have kept it.
        for (_, other) in shared.peers.all() {
            other.suspect_again();
        }
        let shortest = seats.iter().map(|(_, ttl)| Duration::from_millis(*ttl)).min();
        Ok((tasks, shortest))
    }

    fn lingered(
        &mut self,
        shared: &Shared,
        db: &Connection,
        now: Instant,
    ) -> Result<Vec<Task>, Fault> {
        let mut over = sessions::overdue(db, &shared.machine)?;
        let elsewhere = sessions::lingering_elsewhere(db, &shared.machine)?;
        self.lingering.retain(|id, _| elsewhere.iter().any(|(there, _)| there == id));
        for (id, ttl) in elsewhere {
            let since = *self.lingering.entry(id).or_insert(now);
            if now.saturating_duration_since(since) >= Duration::from_millis(ttl) {
                over.push(id);
            }
        }
        Ok(over.into_iter().map(Task::Lingered).collect())
    }

    fn nodes_due(
        &mut self,
        shared: &Shared,
        db: &Connection,
        now: Instant,
    ) -> Result<Vec<Task>, Fault> {
        let clock = shared.machine.clock();
        let mut tasks = Vec::new();
        let sql = "SELECT path, modified FROM nodes WHERE clock = ?1 AND due <= ?2 LIMIT ?3";
        let mut statement = db.prepare_cached(sql)?;
        let mut rows = statement.query(params![clock, shared.machine.now(), NODES])?;
        while let Some(row) = rows.next()? {
            let path = Path::new(row.get_ref(0)?.as_str().unwrap_or_default())?;
            tasks.push(Task::Node { path, modified: row.get(1)? });
        }
        // Written before the machine was started again, or by a clock of another namespace.
        let sql = "SELECT path, modified, ttl FROM nodes WHERE clock IS NOT NULL AND clock <> ?1";
        let mut statement = db.prepare_cached(sql)?;
        let mut rows = statement.query([clock])?;
        let mut nodes = BTreeMap::new();
        while let Some(row) = rows.next()? {
            let path = Path::new(row.get_ref(0)?.as_str().unwrap_or_default())?;
            let (modified, ttl): (u64, u64) = (row.get(1)?, row.get(2)?);
            let known = self.nodes.get(&path).filter(|(known, _)| *known == modified);
            let since = known.map_or(now, |(_, since)| *since);
            let age = now.saturating_duration_since(since);
            if age >= Duration::from_millis(ttl) && tasks.len() < 2 * NODES {
                tasks.push(Task::Node { path: path.clone(), modified });
            }
            nodes.insert(path, (modified, since));
        }
        self.nodes = nodes;
        Ok(tasks)
    }

    /// Returns `true` while tasks wait for the turn. The observer is woken afterwards.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Acquire)
    }

    /// Has the tasks done in the turn.
    pub(crate) fn submit(&self, shared: &Arc<Shared>, tasks: Vec<Task>) {
        if tasks.is_empty() {
            return;
        }
        self.is_busy.store(true, Ordering::Release);
        let done = Done { is_busy: self.is_busy.clone(), shared: Arc::downgrade(shared) };
        let (call, _claim, _answer) = Call::new("the end of what is due", move |writing| {
            let Some(shared) = done.shared.upgrade() else { return Ok(()) };
            tasks.iter().try_for_each(|task| perform(&shared, writing, task))
        });
        shared.writes.push(Box::new(call));
    }
}

/// Reports that the tasks are done, or dropped.
struct Done {
    is_busy: Arc<AtomicBool>,
    shared: Weak<Shared>,
}

impl Drop for Done {
    fn drop(&mut self) {
        self.is_busy.store(false, Ordering::Release);
        if let Some(shared) = self.shared.upgrade() {
            shared.seat.wake();
        }
    }
}

fn perform(shared: &Arc<Shared>, writing: &mut Writing<'_>, task: &Task) -> Result<(), Fault> {
    match task {
        Task::Dead(seat) => end_dead(shared, writing, *seat),
        Task::Silent { seat, beat, silence } => end_silent(shared, writing, *seat, *beat, *silence),
        Task::Node { path, modified } => writing.expire_node(path, *modified),
        Task::Lingered(session) => writing.end(*session, Reason::Lingered),
        Task::Dropped(session) => {
            writing.end(*session, Reason::Dropped)?;
            let (shared, session) = (shared.clone(), *session);
            writing.after.push(Box::new(move |_| shared.forget_session(session)));
            Ok(())
        }
    }
}

/// Ends the sessions of a seat if its lock is granted: only that proves that its owner is dead.
fn end_dead(shared: &Arc<Shared>, writing: &mut Writing<'_>, seat: SeatId) -> Result<(), Fault> {
    let Some(dead) = DeadSeat::judge(shared.place.seats(), seat)? else { return Ok(()) };
    writing.end_seat(seat)?;
    writing.meta.seats += 1;
    writing.after.push(Box::new(move |place| dead.remove(place.seats())));
    Ok(())
}

/// Ends the sessions of a seat that was silent for longer than their time to live.
fn end_silent(
    shared: &Arc<Shared>,
    writing: &mut Writing<'_>,
    seat: SeatId,
    beat: Option<u64>,
    silence: Duration,
) -> Result<(), Fault> {
    let seats = shared.place.seats();
    let lock = match beat {
        Some(beat) => match seat::try_lock_beat(seats, seat)? {
            // Kept until the commit: until then its owner waits.
            Some(lock) if lock.read()? == beat => Some(lock),
            _ => return Ok(()),
        },
        // Its owner notices it, too, and believes no longer than its last heartbeat says.
        None if seat::last_beat(seats, seat)?.is_none() => None,
        None => return Ok(()),
    };
    let silence_ms = u64::try_from(silence.as_millis()).unwrap_or(u64::MAX);
    for session in sessions::of_seat(writing.db, seat, silence_ms)? {
        writing.end(session, Reason::Silent)?;
    }
    writing.after.push(Box::new(move |_| drop(lock)));
    Ok(())
}
