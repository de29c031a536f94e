//! [`Doubts`]: the creates of a keeper that may still take effect.

use futures_util::future::{join_all, poll_immediate};
use synod_core::client::{Client, ConnectionState};
use synod_core::clock::{self, Instant};
use synod_core::session::Session;
use synod_core::store::SessionId;
use tokio::sync::watch;

/// The creates that were not answered and whose node was not seen, by their sessions.
///
/// The store rejects a create once its session has ended there. The end of the session is known if
/// the store confirms its close; or if the store has answered a later session of the client without
/// interruption for twice the TTL of the earlier session: that session was silent all this time,
/// and no change of leader has extended it.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    open: Vec<Doubt>,
    steady: Option<Steady>,
}

#[derive(Debug)]
struct Doubt {
    session: Session,
    creates: u32,
}

/// The live session, and the time since which there was no outage in it.
#[derive(Debug)]
struct Steady {
    session: SessionId,
    connection: watch::Receiver<ConnectionState>,
    since: Instant,
}

impl Doubts {
    /// Records a create of unknown effect.
    pub(crate) fn add(&mut self, session: &Session) {
        match self.of(session.info().id) {
            Some(doubt) => doubt.creates += 1,
            None => self.open.push(Doubt { session: session.clone(), creates: 1 }),
        }
    }

    /// Returns `true` if a create in this session may have created a node.
    pub(crate) fn has(&self, session: SessionId) -> bool {
        self.open.iter().any(|doubt| doubt.session.info().id == session)
    }

    /// Records that the node of one of these creates was seen. A request creates at most one node.
    pub(crate) fn record_seen(&mut self, session: SessionId) {
        if let Some(doubt) = self.of(session) {
            doubt.creates -= 1;
        }
        self.open.retain(|doubt| doubt.creates > 0);
    }

    /// Records an outage of the store: its sessions may live longer than assumed.
    pub(crate) fn record_outage(&mut self) {
        if let Some(steady) = &mut self.steady {
            steady.connection.mark_unchanged();
            steady.since = clock::now();
        }
    }

    /// Forgets creates in sessions that have ended at the store, as seen from the live session
    /// `now`.
    pub(crate) async fn forget_ended(&mut self, client: &Client, now: &Session) {
        let session = now.info().id;
        if self.steady.as_ref().is_none_or(|steady| steady.session != session) {
            let (connection, since) = (client.state(), clock::now());
            self.steady = Some(Steady { session, connection, since });
        }
        let mut open = Vec::new();
        for doubt in std::mem::take(&mut self.open) {
            let is_lost = doubt.session.is_lost();
            let closed = async { is_lost && doubt.session.close().await.is_ok() };
            if !self.is_outlived(&doubt) && poll_immediate(closed).await != Some(true) {
                open.push(doubt);
            }
        }
        self.open = open;
    }

    /// Waits until the store has confirmed whether the lost sessions have ended. Returns the
    /// sessions in which a create may still take effect.
    pub(crate) async fn settle(self) -> Vec<Session> {
        let open = self.open.iter().filter(|doubt| !self.is_outlived(doubt));
        let settled = open.map(|doubt| async move {
            let is_over = doubt.session.is_lost() && doubt.session.close().await.is_ok();
            (!is_over).then(|| doubt.session.clone())
        });
        join_all(settled).await.into_iter().flatten().collect()
    }

    fn is_outlived(&self, doubt: &Doubt) -> bool {
        let of = doubt.session.info();
        self.steady.as_ref().is_some_and(|steady| {
            let is_later = steady.session != of.id && doubt.session.is_lost();
            let has_no_break = steady.connection.has_changed().is_ok_and(|changed| !changed);
            is_later && has_no_break && clock::elapsed(steady.since) >= of.ttl.saturating_mul(2)
        })
    }

    fn of(&mut self, session: SessionId) -> Option<&mut Doubt> {
        self.open.iter_mut().find(|doubt| doubt.session.info().id == session)
    }
}
