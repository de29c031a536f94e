//! The thread of the heartbeats.
//!
//! A process that is stopped holds its seat and renews nothing, so its sessions end after their
//! time to live: by whoever sees no heartbeat for that long. Both sides use the file `ID.beat`
//! under its lock. The owner locks it, reads its clock, reads which of its sessions are still in
//! the database, writes the number of the heartbeat, and unlocks. The observer, in its turn, tries
//! the lock, compares the number, ends the sessions, commits, and unlocks. So either the observer
//! sees the new number, or the owner sees that its sessions are gone.
//!
//! No heartbeat needs the turn: otherwise one process that is stopped in its turn would end the
//! sessions of all.

use std::io;
use std::time::Duration;

use rusqlite::Connection;
use synod_core::clock::{self, Instant};
use synod_core::store::SessionId;

use crate::fault::Fault;
use crate::job::Call;
use crate::sessions::{self, Reason};
use crate::shared::Shared;
use crate::writing::Writing;

/// The number of heartbeats in the time to live of a session.
const BEATS: u32 = 4;

/// The delay after a heartbeat that failed.
const DELAY: Duration = Duration::from_millis(20);

/// Beats until the handle is stopped.
pub(crate) fn run(shared: &Shared, db: &Connection) {
    let (mut beats, mut unknown) = (0, Vec::new());
    while !shared.is_stopped() {
        let (own, shortest) = shared.own_sessions();
        if own.is_empty() {
            shared.wait_for_beat(None);
            continue;
        }
        beats += 1;
        let mut delay = shortest.map(|ttl| ttl / BEATS);
        match beat(shared, db, beats) {
            Ok((sent, alive)) => {
                end_unknown(shared, &alive, &mut unknown);
                for id in own {
                    if alive.contains(&id) {
                        shared.renew(id, sent);
                    } else {
                        shared.lose(id);
                    }
                }
            }
            Err(Fault::Gone) => shared.lose_all(),
            Err(fault) => {
                tracing::warn!("a heartbeat failed: {}", fault.to_error("the heartbeat"));
                shared.fail_opening(&fault.to_error("opening a session"));
                delay = delay.map(|delay| delay.min(DELAY));
            }
        }
        shared.wait_for_beat(delay);
    }
}

/// Ends the sessions of this seat that nobody has: a commit that failed may be found later, and
/// with it the session that it opened. One that is just being opened is unknown for a moment, and
/// not by two heartbeats.
fn end_unknown(shared: &Shared, alive: &[SessionId], before: &mut Vec<SessionId>) {
    let unknown = alive.iter().copied().filter(|id| !shared.has_session(*id));
    let (twice, once) = unknown.partition::<Vec<_>, _>(|id| before.contains(id));
    for id in twice {
        let end = move |writing: &mut Writing<'_>| writing.end(id, Reason::Dropped);
        let (call, _claim, _answer) = Call::new("the end of an unknown session", end);
        shared.writes.push(Box::new(call));
    }
    *before = once;
}

/// Sends one heartbeat. Returns its time, and the sessions that had not ended.
fn beat(shared: &Shared, db: &Connection, number: u64) -> Result<(Instant, Vec<SessionId>), Fault> {
    let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let to_fault = |error: io::Error| if is_gone(&error) { Fault::Gone } else { error.into() };
    shared.place.check().map_err(to_fault)?;
    let lock = shared.seat.lock_beat(shared.place.seats()).map_err(to_fault)?;
    let sent = clock::now();
    let alive = sessions::of_seat(db, shared.seat.id(), u64::MAX)?;
    lock.stamp(number)?;
    Ok((sent, alive))
}
