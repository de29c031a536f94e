//! [`Peers`]: the seats of the other handles, open.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use synod_core::clock::Instant;

use crate::filter::Probes;
use crate::seat::{self, Peer};
use crate::seat_id::SeatId;

/// The other seats, as of a number of seats that were added and removed.
#[derive(Debug, Default)]
pub(crate) struct Peers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    as_of: Option<u64>,
    seats: BTreeMap<SeatId, Arc<Other>>,
}

/// The seat of another handle.
#[derive(Debug)]
pub(crate) struct Other {
    pub(crate) peer: Peer,
    /// `true` if its lock is to be tried: after its FIFO was opened, as an end before that is not
    /// reported, and after the FIFO has reported an end.
    suspect: AtomicBool,
    /// `true` since the FIFO has reported an end: it does so again and again.
    ended: AtomicBool,
    /// The time at which the lock was still held although the FIFO had ended.
    held_since: OnceLock<Instant>,
}

/// The shortest delay before the lock of a seat whose FIFO has ended is tried again.
const SHORTEST_DELAY: Duration = Duration::from_millis(1);

/// The time after which only the ticks try it again.
const LONGEST_DELAY: Duration = Duration::from_secs(1);

impl Peers {
    /// Opens new seats, and closes removed ones, if there are any since the last call.
    pub(crate) fn refresh(&self, seats: BorrowedFd<'_>, own: SeatId, as_of: u64) -> io::Result<()> {
        let mut state = self.lock();
        if state.as_of == Some(as_of) {
            return Ok(());
        }
        let mut there = BTreeMap::new();
        for id in seat::list(seats)?.into_iter().filter(|id| *id != own) {
            let other = match state.seats.get(&id) {
                Some(other) => other.clone(),
                None => match Peer::open(seats, id) {
                    Ok(peer) => Arc::new(Other::new(peer)),
                    // It is being created, or removed.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                },
            };
            there.insert(id, other);
        }
        state.seats = there;
        state.as_of = Some(as_of);
        Ok(())
    }

    /// Wakes the observers of the other handles that the changes may concern.
    pub(crate) fn wake(&self, probes: &Probes) {
        for (id, other) in &self.lock().seats {
            // A filter that cannot be read may have any bit.
            let may_concern = || {
                !probes.is_empty()
                    && other.peer.filter().map_or(true, |bits| probes.may_concern(&bits))
            };
            if probes.names(*id) || may_concern() {
                other.peer.wake();
            }
        }
    }

    /// Returns the other seats.
    pub(crate) fn all(&self) -> Vec<(SeatId, Arc<Other>)> {
        self.lock().seats.iter().map(|(id, other)| (*id, other.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Other {
    fn new(peer: Peer) -> Self {
        let (suspect, ended) = (AtomicBool::new(true), AtomicBool::new(false));
        Self { peer, suspect, ended, held_since: OnceLock::new() }
    }

    /// Has the lock tried again after the returned time, if there is one: the kernel closes the
    /// files of a dead process one after the other, and not always the lock first.
    pub(crate) fn try_later(&self, now: Instant) -> Option<Duration> {
        let delay =
            delay_after(now.saturating_duration_since(*self.held_since.get_or_init(|| now)))?;
        self.suspect.store(true, Ordering::Relaxed);
        Some(delay)
    }

    /// Records that its FIFO has reported an end.
    pub(crate) fn set_ended(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.suspect.store(true, Ordering::Relaxed);
    }

    /// Has the lock tried again if its FIFO has reported an end.
    pub(crate) fn suspect_again(&self) {
        self.suspect.fetch_or(self.has_ended(), Ordering::Relaxed);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Returns `true`, once, if its lock is to be tried.
    pub(crate) fn take_suspect(&self) -> bool {
        self.suspect.swap(false, Ordering::Relaxed)
    }
}

/// Returns the delay before the next try of a lock that was held for this time.
fn delay_after(held: Duration) -> Option<Duration> {
    (held < LONGEST_DELAY).then(|| held.max(SHORTEST_DELAY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_still_held_is_tried_again_soon_and_ever_less_often() {
        let (mut held, mut tries) = (Duration::ZERO, 0);
        while let Some(delay) = delay_after(held) {
            held += delay;
            tries += 1;
        }
        assert_eq!(tries, 11, "its delay doubles");
        assert_eq!(held, Duration::from_millis(1_024));
    }
}
