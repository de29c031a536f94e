//! A session that one process hands over to the next: [`SessionHandover`], and the call of a
//! backend that releases it, [`HandOver`].
//!
//! - The client stops believing in its session *before* the handover is given out: first its
//!   session task takes no more work, so that no dropped guard removes its node, then the session
//!   is lost as [`SessionEnd::HandedOver`](super::SessionEnd::HandedOver), and then the backend
//!   disconnects without ending it.
//! - Removals of nodes that were requested before are completed first. If they do not complete in
//!   time, the session is closed as usual, and nothing is handed over.
//! - A handover contains what the store requires to continue the session, and the path of its
//!   *claim*: an ephemeral node of the session, created before the session is handed over.
//! - The client that resumes first writes a unique id to the claim, if nobody has written there, in
//!   a session of its own. So one client resumes, on every store, and no other connects to the
//!   session. Then it opens the session with [`SessionOptions::resume`]. The claim remains until
//!   the session ends, or is handed over again.
//! - The session is certain only from the first answer that renews it.
//! - Nodes of the session that were created before that write belong to the former client: a recipe
//!   may adopt them, as [`Session::resumed_at`](crate::session::Session::resumed_at) separates them
//!   from the nodes of the new client.
//!
//! [`SessionOptions::resume`]: super::SessionOptions::resume

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::path::Path;
use crate::store::node::SessionId;

/// A session that was handed over: whoever has this can continue the session, with everything that
/// it holds. Keep it as secret as a password, for example in a file that only the service can read.
///
/// [`Client::hand_over`](crate::client::Client::hand_over) creates it, and
/// [`ClientOptions::resume`](crate::client::ClientOptions::resume) uses it, once.
/// [`to_text`](Self::to_text) and [`FromStr`] convert it; `Debug` shows only the id of the session.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionHandover(Box<HandoverContent>);

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HandoverContent {
    store: String,
    session: u64,
    ttl_millis: u64,
    position: u64,
    secret: Vec<u8>,
    claim: Option<Path>,
}

impl SessionHandover {
    /// Creates a handover of a session. For backends: `store` names the kind of store.
    pub fn new(store: &str, session: SessionId, ttl: Duration) -> Self {
        Self(Box::new(HandoverContent {
            store: store.to_owned(),
            session: session.get(),
            ttl_millis: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
            position: 0,
            secret: Vec::new(),
            claim: None,
        }))
    }

    /// Adds the secret with which the store recognizes the owner of the session.
    pub fn with_secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.0.secret = secret.into();
        self
    }

    /// Adds the position in the history of the store that the session has seen.
    pub fn with_position(mut self, position: u64) -> Self {
        self.0.position = position;
        self
    }

    /// Adds the path of the claim.
    pub(crate) fn with_claim(mut self, claim: Path) -> Self {
        self.0.claim = Some(claim);
        self
    }

    /// Returns an error unless the session is one of this kind of store.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`].
    pub fn of_store(&self, store: &str) -> Result<&Self> {
        if self.0.store == store {
            return Ok(self);
        }
        Err(Error::new(ErrorKind::Invalid, "resuming a session")
            .because(format!("the session is one of {}, and not of {store}", self.0.store)))
    }

    /// Returns the id of the session.
    pub fn session(&self) -> SessionId {
        SessionId::new(self.0.session)
    }

    /// Returns the TTL of the session.
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.0.ttl_millis)
    }

    /// Returns the position in the history of the store that the session has seen.
    pub fn position(&self) -> u64 {
        self.0.position
    }

    /// Returns the secret.
    pub fn secret(&self) -> &[u8] {
        &self.0.secret
    }

    pub(crate) fn claim(&self) -> Option<&Path> {
        self.0.claim.as_ref()
    }

    /// Returns the handover as one line of text, which contains the secret.
    pub fn to_text(&self) -> String {
        serde_json::to_string(&self.0).unwrap_or_default()
    }
}

impl FromStr for SessionHandover {
    type Err = Error;

    /// Reads the text of [`SessionHandover::to_text`].
    fn from_str(text: &str) -> Result<Self> {
        let invalid = || Error::new(ErrorKind::Invalid, "reading a handed over session");
        // The parser's error may contain a part of the text, and so of the secret.
        let content: HandoverContent = serde_json::from_str(text)
            .map_err(|_secret| invalid().because("the text is not one of `SessionHandover`"))?;
        if content.ttl_millis == 0 || content.claim.is_none() {
            return Err(invalid().because("the text has no TTL, or no claim"));
        }
        Ok(Self(Box::new(content)))
    }
}

impl fmt::Debug for SessionHandover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionHandover")
            .field("store", &self.0.store)
            .field("session", &self.session())
            .finish_non_exhaustive()
    }
}

/// The release of a session without its end. For backends: a session offers it by
/// [`SessionInfo::with_handover`](super::SessionInfo::with_handover).
#[async_trait]
pub trait HandOver: Send + Sync + 'static {
    /// Loses the session on this side as [`HandedOver`](super::SessionEnd::HandedOver), and then
    /// disconnects: no request of this side is sent after the return, and the session lives at the
    /// store until its TTL has passed.
    async fn hand_over(&self) -> Result<SessionHandover>;
}

/// The release of a session, if its store supports that. Not compared: two sessions with the same
/// properties are equal.
#[derive(Clone, Default)]
pub(super) struct HandoverRelease(Option<Arc<dyn HandOver>>);

impl HandoverRelease {
    pub(super) fn new(release: Arc<dyn HandOver>) -> Self {
        Self(Some(release))
    }

    pub(super) fn get(&self) -> Option<Arc<dyn HandOver>> {
        self.0.clone()
    }
}

impl fmt::Debug for HandoverRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HandoverRelease").field(&self.0.is_some()).finish()
    }
}

impl PartialEq for HandoverRelease {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for HandoverRelease {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path;

    #[test]
    fn a_text_is_read_again_and_nothing_else_shows_the_secret() {
        let (id, ttl) = (SessionId::new(u64::MAX), Duration::from_secs(10));
        let handover = SessionHandover::new("zookeeper", id, ttl)
            .with_secret(*b"hunter2")
            .with_position(u64::MAX)
            .with_claim(path!("/synod-handover/1"));
        let text = handover.to_text();
        assert_eq!(text.parse::<SessionHandover>().expect("its own text"), handover);
        assert!(!text.contains('\n'));
        let shown = format!("{handover:?}");
        assert!(!shown.contains("104") && !shown.contains("handover/1"), "{shown}");
        assert_eq!(handover.of_store("etcd").expect_err("another").kind(), ErrorKind::Invalid);
        for wrong in ["", "{}", "null", &text[1..], &text.replace("10000", "0")] {
            let error = wrong.parse::<SessionHandover>().expect_err("no handover");
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(!format!("{error:?}").contains("104"), "{error:?}");
        }
        let unclaimed = SessionHandover::new("memory", id, Duration::MAX).to_text();
        assert!(unclaimed.parse::<SessionHandover>().is_err());
    }
}
