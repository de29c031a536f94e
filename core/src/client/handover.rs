//! [`Client::hand_over`]: the end of a client whose session continues in another process.

use tokio::sync::oneshot;

use crate::client::Client;
use crate::client::reconnect::Close;
use crate::error::{Error, ErrorKind, Result};
use crate::path::Path;
use crate::session::SessionClaim;
use crate::store::{Lifetime, SessionHandover, Txn};

const HANDING_OVER: &str = "handing a session over";

/// The directory of the claims.
const CLAIMS: &str = "synod-handover";

impl Client {
    /// Closes this client without ending its session, and returns the session for a client of the
    /// next process, which continues it with [`ClientOptions::resume`]. Ephemeral nodes stay, and
    /// so does the lead of a service that restarts within the TTL of the session:
    /// `Election::resume` and `Mutex::resume` of the recipes return the guards, with the same
    /// tokens.
    ///
    /// Before this returns, no guard and no session of this client is held any more, on any store.
    /// Guards that are dropped after the call do not remove their nodes. *All* other nodes of the
    /// session stay, too, also the tickets of calls that still wait. So end other work before, or
    /// use a client of its own for the guards that are handed over. A request in flight may still
    /// take effect.
    ///
    /// [`ClientOptions::resume`]: crate::client::ClientOptions::resume
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if the store cannot hand a session over, and the errors of
    /// [`Session::commit`](crate::session::Session::commit) for the claim: in these cases the
    /// client is unchanged. [`ErrorKind::SessionLost`] if the session ended, and
    /// [`ErrorKind::Unreachable`] if the removal of a dropped guard was not answered in time: then
    /// the client is closed, and so is its session.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may close the client. The session then expires after its TTL.
    pub async fn hand_over(&self) -> Result<SessionHandover> {
        // The claim is beside the nodes of this client, but has its path in the store.
        let whole = Self { root: Path::root(), ..self.clone() };
        let session = whole.session().await?;
        if session.info().handover().is_none() {
            return Err(Error::new(ErrorKind::Unsupported, HANDING_OVER)
                .because("this store ends a session together with its client"));
        }
        let claim = Path::new(&format!("/{CLAIMS}/{}", session.random().id()))?;
        let claim = claim.within(&self.root)?;
        let create = Txn::new().create(claim.clone(), "", Lifetime::Session);
        session.commit(create).await?.required()?;
        if let Some(SessionClaim { path, stat }) = session.claim() {
            session.remove_incarnation_in_background(path.clone(), stat.created);
        }
        let (reply, answer) = oneshot::channel();
        let lost = || Error::new(ErrorKind::SessionLost, HANDING_OVER);
        self.close.send(Close::HandOver(session.info().id, reply)).map_err(|_closed| lost())?;
        let handed = answer.await.map_err(|_ended| lost())?;
        Ok(handed?.with_claim(claim))
    }
}
