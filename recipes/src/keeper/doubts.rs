//! [`Doubts`]: the creates of a keeper that may still take effect.

use futures_util::future::poll_immediate;
use synod_core::session::Session;
use synod_core::store::SessionId;

/// The creates that were not answered and whose node was not seen, by their sessions.
#[derive(Debug, Default)]
pub(crate) struct Doubts(Vec<Doubt>);

#[derive(Debug)]
struct Doubt {
    session: Session,
    creates: u32,
}

impl Doubts {
    /// Records a create of unknown effect.
    pub(crate) fn add(&mut self, session: &Session) {
        match self.of(session.info().id) {
            Some(doubt) => doubt.creates += 1,
            None => self.0.push(Doubt { session: session.clone(), creates: 1 }),
        }
    }

    /// Whether a create in this session may have made a node.
    pub(crate) fn has(&self, session: SessionId) -> bool {
        self.0.iter().any(|doubt| doubt.session.info().id == session)
    }

    /// Records that the node of one of them was seen: each makes one at most.
    pub(crate) fn was_seen(&mut self, session: SessionId) {
        if let Some(doubt) = self.of(session) {
            doubt.creates -= 1;
        }
        self.0.retain(|doubt| doubt.creates > 0);
    }

    /// Forgets those of sessions that the store has called over: an ended session makes no node.
    pub(crate) async fn forget_ended(&mut self) {
        let mut open = Vec::new();
        for doubt in self.0.drain(..) {
            let is_lost = doubt.session.is_lost();
            let closed = async { is_lost && doubt.session.close().await.is_ok() };
            if poll_immediate(closed).await != Some(true) {
                open.push(doubt);
            }
        }
        self.0 = open;
    }

    /// Waits until the store has said whether the sessions that are lost are over. Returns those in which a create may still
    /// take effect.
    pub(crate) async fn settle(self) -> Vec<Session> {
        let mut open = Vec::new();
        for Doubt { session, .. } in self.0 {
            if !session.is_lost() || session.close().await.is_err() {
                open.push(session);
            }
        }
        open
    }

    fn of(&mut self, session: SessionId) -> Option<&mut Doubt> {
        self.0.iter_mut().find(|doubt| doubt.session.info().id == session)
    }
}
