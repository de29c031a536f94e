//! [`Learner`]: a server's side of its connection to the leader.

use std::collections::BTreeSet;
use std::time::Duration;

use synod_core::clock::Instant;
use synod_core::store::SessionId;

use crate::cluster::link::Request;

/// How often the leader asks each server for the sessions with heartbeats.
pub(super) const PINGS: Duration = Duration::from_millis(25);

/// A server's side of its connection to the leader.
#[derive(Debug, Default)]
pub(super) struct Learner {
    /// Whether it is cut off from its leader.
    pub(super) is_alone: bool,
    /// The requests that it would forward if it were not cut off.
    pub(super) waiting: Vec<Request>,
    /// The sessions with heartbeats since its last report.
    pub(super) heard: BTreeSet<SessionId>,
    /// When the leader sends the ping that the next report answers, and when the ping arrives.
    pub(super) ping: Option<(Instant, Instant)>,
    /// When the report in flight to the leader arrives, and the sessions in it.
    pub(super) report: Option<(Instant, BTreeSet<SessionId>)>,
}

impl Learner {
    /// Brings what travels forward to `by`.
    pub(super) fn hurry(&mut self, by: Instant) {
        let ping = self.ping.as_mut().map(|(_, arrives)| arrives);
        let report = self.report.as_mut().map(|(arrives, _)| arrives);
        for arrives in ping.into_iter().chain(report) {
            *arrives = (*arrives).min(by);
        }
    }
}
