//! A persistent node that is removed together with its user: [`NodeGuard`].

use std::fmt;
use std::pin::pin;

use futures_util::future::{Either, select};
use tokio::sync::oneshot;

use crate::error::Result;
use crate::session::Session;
use crate::session::removal::OwnNode;
use crate::store::OpResult;

/// A guard that removes a node when it is dropped, or when its session is closed:
/// [`Session::guard`].
#[must_use = "the node is removed when this is dropped"]
pub struct NodeGuard {
    /// A message that keeps the node. If the sender is dropped, the node is removed.
    stays: oneshot::Sender<()>,
}

impl Session {
    /// Removes a created node in the background, as soon as the returned guard is dropped or the
    /// session is closed, whichever is first. It is for persistent nodes that one process uses: an
    /// ephemeral node is removed with its session.
    ///
    /// If the session expires, or the process is killed, the node stays: another client has to
    /// search for such nodes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::error::ErrorKind::Invalid) if the result has neither a
    /// sequence nor a stat, so that the incarnation of the node is unknown.
    pub fn guard(&self, node: &OpResult) -> Result<NodeGuard> {
        let (own, context) = (OwnNode::of(node)?, self.context.clone());
        let (stays, decision) = oneshot::channel();
        self.send(Box::pin(async move {
            let stays = match select(decision, pin!(context.state.lost())).await {
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
    /// Keeps the node.
    pub fn leave(self) {
        // If the task has ended, the session is over and the node stays anyway.
        let _left = self.stays.send(()).is_ok();
    }
}

impl fmt::Debug for NodeGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeGuard").finish_non_exhaustive()
    }
}
