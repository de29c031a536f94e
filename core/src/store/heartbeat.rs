//! A proof of the instant from which a leader counts the TTL of a session, [`Heartbeats`].

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Instant;

/// The answered heartbeats of one session at servers that forward heartbeats to their leader, and
/// report sessions to the leader only periodically.
///
/// For a backend whose sessions are ended by a leader, while clients talk to any server
/// (ZooKeeper):
///
/// - A heartbeat is a request that only the leader answers, in order with the other requests of its
///   session.
/// - The leader requests from each server, at least once in each `gap`, a report of the sessions
///   that the server received requests from. The requests for these reports and the answers to
///   heartbeats share one ordered stream from the leader to the server; reports and forwarded
///   heartbeats share one ordered stream back.
/// - Another server takes over a session only with the consent of the leader, which extends the
///   session.
///
/// An answer therefore does not prove that the leader extended the session for *this* heartbeat:
/// the report that names it may still be in flight when the server is cut off. The proof takes
/// three answered heartbeats: the newest; a middle one, which was answered before the newest was
/// sent; and an early one, which was answered at least one `gap` before the middle one was sent.
/// Between the leader's answers to the early and to the middle one it sent a request for a report.
/// The server had received the early heartbeat by then, and it answered that request before it
/// passed on the answer to the middle one, so before the newest was sent. The report preceded the
/// newest heartbeat, and the leader had read it when it answered. So the leader extended the
/// session after the early heartbeat was sent. If the session moved to another server in between,
/// the leader extended it for that reason, even after the early heartbeat was answered.
///
/// A heartbeat right after a reconnect counts for the same reason: see
/// [`reconnected`](Self::reconnected).
#[derive(Debug)]
pub struct Heartbeats {
    gap: Duration,
    /// Sorted by the time of sending. The first one is the newest for which the session is known to
    /// be extended.
    answered: VecDeque<Answered>,
}

#[derive(Clone, Copy, Debug)]
struct Answered {
    sent: Instant,
    received: Instant,
}

impl Heartbeats {
    /// Creates an empty record, for a leader that requests reports from its servers at least once
    /// in each `gap`.
    pub fn new(gap: Duration) -> Self {
        Self { gap, answered: VecDeque::new() }
    }

    /// Records an answered heartbeat. Returns the instant from which the leader certainly counts
    /// the TTL of the session, if the heartbeats so far prove one.
    ///
    /// `sent` is not later than the sending, `received` is not earlier than the arrival of the
    /// answer.
    pub fn answered(&mut self, sent: Instant, received: Instant) -> Option<Instant> {
        let newest = Answered { sent, received };
        let middle =
            self.answered.iter().filter(|beat| beat.received <= sent).map(|beat| beat.sent).max();
        let is_early = |beat: &Answered| {
            let reported = beat.received.checked_add(self.gap);
            reported.zip(middle).is_some_and(|(reported, middle)| reported <= middle)
        };
        let early = self.answered.iter().filter(|beat| is_early(beat)).map(|beat| beat.sent).max();
        if let Some(early) = early {
            self.answered.retain(|beat| beat.sent >= early);
        }
        let place = self.answered.partition_point(|beat| beat.sent <= sent);
        self.answered.insert(place, newest);
        early
    }

    /// Records that another connection took over the session, with the consent of the leader.
    /// Returns the instant from which the leader certainly counts.
    ///
    /// That consent was requested after the answer to every heartbeat of the previous connections.
    /// The caller calls this before it records an answer of the new connection.
    pub fn reconnected(&mut self) -> Option<Instant> {
        let newest = self.answered.back().map(|beat| beat.sent);
        self.answered.clear();
        newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const GAP: Duration = Duration::from_millis(1_500);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn an_answer_alone_proves_nothing() {
        let start = clock::now();
        let mut beats = Heartbeats::new(GAP);
        assert_eq!(beats.answered(start, start + ms(10)), None);
        assert_eq!(beats.answered(start + ms(2_000), start + ms(2_010)), None);
        // Now the first is proved, and the second is not.
        assert_eq!(beats.answered(start + ms(4_000), start + ms(4_010)), Some(start));
    }

    #[test]
    fn a_report_is_certain_only_after_a_gap_from_answer_to_sending() {
        let start = clock::now();
        let mut beats = Heartbeats::new(GAP);
        let _first = beats.answered(start, start + ms(10));
        // One gap after the sending of the first, and less than one after its answer.
        let _second = beats.answered(start + ms(1_500), start + ms(1_501));
        assert_eq!(beats.answered(start + ms(1_600), start + ms(1_601)), None);
        let mut beats = Heartbeats::new(GAP);
        let _first = beats.answered(start, start + ms(10));
        let _second = beats.answered(start + ms(1_510), start + ms(1_511));
        assert_eq!(beats.answered(start + ms(1_600), start + ms(1_601)), Some(start));
    }

    #[test]
    fn the_newest_is_sent_after_the_answer_to_the_one_in_the_middle() {
        let start = clock::now();
        let mut beats = Heartbeats::new(GAP);
        let _first = beats.answered(start, start + ms(10));
        let _slow = beats.answered(start + ms(1_600), start + ms(3_000));
        // Sent while the answer to the slow one was in flight.
        assert_eq!(beats.answered(start + ms(2_900), start + ms(3_001)), None);
        assert_eq!(beats.answered(start + ms(3_000), start + ms(3_010)), Some(start));
    }

    #[test]
    fn beats_close_to_each_other_prove_as_much_as_rare_ones() {
        let start = clock::now();
        let mut beats = Heartbeats::new(GAP);
        let mut last = None;
        for beat in 0..1_000 {
            let sent = start + ms(400) * beat;
            last = beats.answered(sent, sent + ms(1));
            assert!(beats.answered.len() < 12, "what is proved is forgotten");
        }
        // 999 is the newest, 998 the middle, and 994 the last that was answered 1.5 s earlier.
        assert_eq!(last, Some(start + ms(400) * 994));
    }

    #[test]
    fn a_reconnect_proves_what_was_answered_before_it_and_starts_again() {
        let start = clock::now();
        let mut beats = Heartbeats::new(GAP);
        assert_eq!(beats.reconnected(), None);
        let _first = beats.answered(start, start + ms(10));
        let _second = beats.answered(start + ms(2_000), start + ms(2_010));
        assert_eq!(beats.reconnected(), Some(start + ms(2_000)));
        assert_eq!(beats.answered(start + ms(4_000), start + ms(4_010)), None);
        assert_eq!(beats.reconnected(), Some(start + ms(4_000)));
    }

    #[test]
    fn a_gap_without_end_proves_nothing() {
        let start = clock::now();
        let mut beats = Heartbeats::new(Duration::MAX);
        for beat in 0..5 {
            assert_eq!(beats.answered(start + ms(1_000) * beat, start + ms(1_001) * beat), None);
        }
    }
}
