//! [`FollowedNode`]: a node as a session sees it, time and again.

use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Query, View, Watch};

use crate::crew::insist::insist;

/// A node that a session follows. Each look asks for one event, so that nothing is left at the server after it.
pub(super) struct FollowedNode<'a> {
    session: &'a Session,
    query: Query,
    watch: Option<Watch>,
}

impl<'a> FollowedNode<'a> {
    /// Nothing has been sent when this returns.
    pub(super) fn new(session: &'a Session, path: &Path) -> Self {
        Self { session, query: Query::node(path).local().once(), watch: None }
    }

    /// The node as it is, at first; and then after each reason to look again. If there is none, that is a reason.
    pub(super) async fn next(&mut self) -> Result<View> {
        if let Some(watch) = &mut self.watch {
            let _whatever_it_says = watch.next().await;
        }
        let (session, query) = (self.session, &self.query);
        let (view, watch) = insist(session, || session.watch(query.clone())).await?;
        self.watch = Some(watch);
        Ok(view)
    }
}
