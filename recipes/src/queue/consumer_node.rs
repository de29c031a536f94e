//! [`ConsumerNode`]: the ephemeral node of a process that claims items.

use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Lifetime, OpResult};
use tokio::sync::Mutex;

/// The node by which other consumers notice that the claims of this process are gone, so that they need not follow claims. It is there
/// before the first claim of a session, and goes together with the claims. Removed when dropped.
pub(super) struct ConsumerNode {
    consumers: Path,
    node: Mutex<Option<(Session, OpResult)>>,
}

impl ConsumerNode {
    /// The node in the directory at `consumers`. It is not there yet.
    pub(super) fn new(consumers: Path) -> Self {
        Self { consumers, node: Mutex::default() }
    }

    /// Creates the node for this session, if that was not done before.
    pub(super) async fn ensure(&self, session: &Session) -> Result<()> {
        let mut node = self.node.lock().await;
        if node.as_ref().is_some_and(|(owner, _)| owner.info().id == session.info().id) {
            return Ok(());
        }
        let name = session.unique(&self.consumers.join("consumer-")?)?;
        let made = session.create_sequential(&name, "", Lifetime::Session).await?.required()?;
        *node = Some((session.clone(), made));
        Ok(())
    }
}

impl Drop for ConsumerNode {
    fn drop(&mut self) {
        if let Some((session, node)) = self.node.get_mut().take() {
            session.remove_in_background(&node);
        }
    }
}
