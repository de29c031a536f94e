//! [`Learner`]: a server's side of its connection to the leader.

use std::collections::BTreeSet;
use std::time::Duration;

use synod_core::clock::Instant;
use synod_core::store::SessionId;

use crate::cluster::link::Request;

/// The time between two pings by which the leader requests the sessions with heartbeats.
pub(super) const PINGS: Duration = Duration::from_millis(25);

/// A server's side of its connection to the leader.
#[derive(Debug, Default)]
pub(super) struct Learner {
    /// The server is cut off from its leader.
    pub(super) is_alone: bool,
    /// The requests that it would forward if it were not cut off.
    pub(super) waiting: Vec<Request>,
    /// The sessions with heartbeats since its last report.
    pub(super) heard: BTreeSet<SessionId>,
    /// The time at which the leader sends the ping that the next report answers, and the time at
    /// which the ping arrives.
    pub(super) ping: Option<(Instant, Instant)>,
    /// The time at which the report in flight arrives at the leader, and the sessions in it.
    pub(super) report: Option<(Instant, BTreeSet<SessionId>)>,
}

impl Learner {
    /// Moves the messages in flight forward to `by`.
    pub(super) fn hurry(&mut self, by: Instant) {
        let ping = self.ping.as_mut().map(|(_, arrives)| arrives);
        let report = self.report.as_mut().map(|(arrives, _)| arrives);
        for arrives in ping.into_iter().chain(report) {
            *arrives = (*arrives).min(by);
        }
    }
}
