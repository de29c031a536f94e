//! [`EventLog`]: the last events of a mirror, for readers that take them later.

use std::collections::VecDeque;

use crate::mirror::event::CacheEvent;

/// The limit of events that are kept.
pub(super) const MAX_EVENTS: usize = 4_096;

/// The limit of bytes of data that the events keep in memory, without the last event.
const MAX_BYTES: usize = 8 << 20;

/// The last events, each with a number, once for all readers. Slow readers do not make it keep
/// more.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    events: VecDeque<CacheEvent>,
    /// The number of the first event that it has.
    first: u64,
    bytes: usize,
    readers: usize,
}

/// The result if the log no longer has an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missed;

impl EventLog {
    /// Adds an event. Without readers there is no need to keep it.
    pub(super) fn push(&mut self, event: CacheEvent) {
        self.bytes += event.size();
        self.events.push_back(event);
        while self.readers == 0 && !self.events.is_empty()
            || self.events.len() > MAX_EVENTS
            || self.bytes > MAX_BYTES && self.events.len() > 1
        {
            self.forget_first();
        }
    }

    /// Makes every reader start again, because the log cannot hold the new events.
    pub(super) fn miss(&mut self) {
        self.first = self.next() + 1;
        self.events.clear();
        self.bytes = 0;
    }

    fn forget_first(&mut self) {
        if let Some(event) = self.events.pop_front() {
            self.bytes -= event.size();
            self.first += 1;
        }
    }

    /// The number of the next event.
    pub(super) fn next(&self) -> u64 {
        self.first + u64::try_from(self.events.len()).unwrap_or(u64::MAX)
    }

    /// The event with this number, if it exists yet.
    pub(super) fn at(&self, number: u64) -> Result<Option<CacheEvent>, Missed> {
        let place = number.checked_sub(self.first).ok_or(Missed)?;
        Ok(usize::try_from(place).ok().and_then(|place| self.events.get(place)).cloned())
    }

    pub(super) fn join(&mut self) {
        self.readers += 1;
    }

    pub(super) fn leave(&mut self) {
        self.readers -= 1;
        while self.readers == 0 && !self.events.is_empty() {
            self.forget_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use synod_core::path;
    use synod_core::store::{Node, Revision, Stat, Version};

    use super::*;

    fn event(bytes: usize) -> CacheEvent {
        let stat = Stat::new(Revision::ZERO, Revision::ZERO, Version::new(0), None);
        CacheEvent::Created(Node::new(path!("/a")).with(Bytes::from(vec![0; bytes]), stat))
    }

    #[test]
    fn a_log_keeps_the_last_events_while_there_are_readers() {
        let mut log = EventLog::default();
        log.push(CacheEvent::Stale);
        assert!(log.at(0).is_err(), "there was no reader");
        log.join();
        assert_eq!(log.next(), 1);
        log.push(event(1));
        assert!(matches!(log.at(1), Ok(Some(_))) && matches!(log.at(2), Ok(None)));
        (0..MAX_EVENTS).for_each(|_| log.push(event(1)));
        assert!(log.at(1).is_err() && matches!(log.at(2), Ok(Some(_))));
        assert_eq!((log.events.len(), log.bytes), (MAX_EVENTS, MAX_EVENTS));
        log.leave();
        assert!(log.events.is_empty() && log.bytes == 0);
        assert!(log.at(log.next() - 1).is_err());
    }

    #[test]
    fn events_that_are_too_many_for_every_reader_are_missed_by_all() {
        let mut log = EventLog::default();
        log.join();
        log.push(event(1));
        log.miss();
        assert!(log.at(0).is_err() && log.at(1).is_err() && log.bytes == 0);
        let next = log.next();
        assert!(matches!(log.at(next), Ok(None)));
        log.push(CacheEvent::Stale);
        assert!(matches!(log.at(next), Ok(Some(CacheEvent::Stale))));
    }

    #[test]
    fn a_log_keeps_a_limited_number_of_bytes() {
        let mut log = EventLog::default();
        log.join();
        (0..9).for_each(|_| log.push(event(1 << 20)));
        assert_eq!(log.events.len(), 8);
        log.push(event(MAX_BYTES + 1));
        assert_eq!(log.events.len(), 1, "the last event is kept, whatever its size");
    }
}
