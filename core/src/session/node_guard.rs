//! [`NodeGuard`]: a persistent node that is removed together with its user.

use std::fmt;
use std::pin::pin;

use futures_util::future::{Either, select};
use tokio::sync::oneshot;

use crate::error::Result;
use crate::session::Session;
use crate::session::removal::Own;
use crate::store::OpResult;

/// Removes a node when it is dropped, and when its session is closed: [`Session::guard`].
#[must_use = "the node is removed when this is dropped"]
pub struct NodeGuard {
    /// Says that the node is to stay. Dropping it removes the node.
    stays: oneshot::Sender<()>,
}

impl Session {
    /// Removes a node that a create made, in the background, as soon as the returned guard is dropped or the session is closed,
    /// whichever is first. It is for persistent nodes that are of use to one process: an ephemeral one goes with its session anyway.
    ///
    /// If the session expires, or the process is killed, the node stays: another client has to look for such nodes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::error::ErrorKind::Invalid) if neither a sequence nor a stat says which incarnation of
    /// its path the node is.
    pub fn guard(&self, node: &OpResult) -> Result<NodeGuard> {
        let (own, context) = (Own::of(node)?, self.context.clone());
        let (stays, told) = oneshot::channel();
        self.send(Box::pin(async move {
            let stays = match select(told, pin!(context.state.lost())).await {
                Either::Left((stays, _)) => stays.is_ok(),
                Either::Right(_) => false,
            };
            if !stays {
                own.remove(&context).await;
            }
        }));
        Ok(NodeGuard { stays })
    }
}

impl NodeGuard {
    /// Leaves the node where it is.
    pub fn leave(self) {
        // Without its task the session is over, and the node stays, too.
        let _left = self.stays.send(()).is_ok();
    }
}

impl fmt::Debug for NodeGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeGuard").finish_non_exhaustive()
    }
}
