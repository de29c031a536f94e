//! The thread that observes the changes, the other seats, and due sessions and nodes.
//!
//! It waits for three things: a byte in its own FIFO, after which there may be changes; the end of
//! the FIFO of another seat, after which it tries that seat's lock; and a tick. The tick finds no
//! change that a watch covers unless a process was stopped or killed between its commit and its
//! wake.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use synod_core::clock::{self, Instant};

use crate::care::{self, Witness};
use crate::changes::{self, Entry, News};
use crate::fault::Fault;
use crate::meta::Meta;
use crate::peers::Other;
use crate::seat_id::SeatId;
use crate::shared::Shared;
use crate::tree::Tree;

/// The longest time between two ticks.
const TICK: Duration = Duration::from_secs(1);

/// Observes until the handle is stopped.
pub(crate) fn run(shared: &Arc<Shared>, db: &Connection, seen: u64) {
    let mut lookout = Lookout { shared, db, seen, witness: Witness::default(), next: None };
    while !shared.is_stopped() {
        let others = shared.peers.all();
        lookout.wait(&others);
        shared.seat.drain();
        if let Err(fault) = lookout.publish() {
            tracing::warn!("the changes cannot be read: {}", fault.to_error("the observation"));
        }
        // Of watches that have ended: a bit too many only wakes for nothing.
        if let Err(error) = shared.publish_filter() {
            tracing::debug!("the filter of the watches was not written: {error}");
        }
        if let Err(fault) = lookout.look_after() {
            tracing::warn!("the other processes: {}", fault.to_error("the observation"));
        }
    }
}

struct Lookout<'a> {
    shared: &'a Arc<Shared>,
    db: &'a Connection,
    /// The revision up to which the changes were delivered.
    seen: u64,
    witness: Witness,
    /// The time of the next tick.
    next: Option<Instant>,
}

impl Lookout<'_> {
    /// Waits for a wake, the end of a seat, or the next tick.
    fn wait(&self, others: &[(SeatId, Arc<Other>)]) {
        let own = self.shared.seat.wake_fd();
        let living: Vec<&Arc<Other>> =
            others.iter().map(|(_, other)| other).filter(|other| !other.has_ended()).collect();
        let lives = living.iter().map(|other| other.peer.life_fd());
        let all = std::iter::once(own).chain(lives);
        let mut polled: Vec<PollFd<'_>> =
            all.map(|fd: BorrowedFd<'_>| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let now = clock::true_now();
        let rest = self.next.map_or(Duration::ZERO, |next| next.saturating_duration_since(now));
        // Rounded up, so that the tick is due when it wakes.
        let rest = Timespec::try_from(rest + Duration::from_micros(100)).unwrap_or_default();
        if poll(&mut polled, Some(&rest)).is_err() {
            // A signal: what it would have reported is found again by the next call.
            return;
        }
        for (other, polled) in living.iter().zip(&polled[1..]) {
            if polled.revents().intersects(PollFlags::HUP | PollFlags::ERR) {
                other.set_ended();
            }
        }
    }

    /// Delivers the changes since the last call.
    fn publish(&mut self) -> Result<(), Fault> {
        let (meta, entries) = self.read()?;
        let seats = self.shared.place.seats();
        self.shared.peers.refresh(seats, self.shared.seat.id(), meta.seats)?;
        let lost = meta.trimmed > self.seen;
        let wanted = self.shared.watches.wanted(&entries);
        let mut changes = Vec::with_capacity(entries.len());
        for (entry, is_wanted) in entries.into_iter().zip(wanted) {
            let node = match &entry.news {
                News::Changed { path, .. } if is_wanted => {
                    Tree(self.db).unchanged(path, entry.revision)?
                }
                _ => None,
            };
            changes.push((entry, node.map(|node| node.with_sequence(None))));
        }
        self.seen = meta.revision;
        for delivery in self.shared.watches.deliveries(&changes, lost) {
            delivery.send();
        }
        for (entry, _) in &changes {
            if let News::Ended(session) = entry.news {
                self.shared.lose(session);
            }
        }
        Ok(())
    }

    fn read(&self) -> Result<(Meta, Vec<Entry>), Fault> {
        let snapshot = self.db.unchecked_transaction()?;
        let meta = Meta::read(&snapshot)?;
        let entries = if meta.revision > self.seen {
            changes::after(&snapshot, self.seen)?
        } else {
            Vec::new()
        };
        Ok((meta, entries))
    }

    /// Ends due sessions, of dead and stopped processes, and due nodes.
    fn look_after(&mut self) -> Result<(), Fault> {
        let now = clock::true_now();
        // One that is overdue could not be ended: the next tick tries again.
        if let Some(end) = self.shared.next_dropped_end().filter(|end| *end > now) {
            self.next = self.next.map(|next| next.min(end));
        }
        if self.witness.is_busy() {
            self.next = Some(now + TICK);
            return Ok(());
        }
        let (mut tasks, delay) = care::dead_seats(self.shared)?;
        if self.next.is_none_or(|next| next <= now) {
            let (due, shortest) = self.witness.due(self.shared, self.db)?;
            tasks.extend(due);
            // Often enough to notice the end of the shortest session in a quarter of its time.
            let tick = shortest.map_or(TICK, |ttl| (ttl / 4).min(TICK));
            self.next = Some(now + tick);
        }
        if let Some(delay) = delay {
            self.next = self.next.map(|next| next.min(now + delay));
        }
        self.witness.submit(self.shared, tasks);
        Ok(())
    }
}
