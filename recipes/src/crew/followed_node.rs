//! [`FollowedNode`]: a node as a session sees it, time and again.

use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Event, Query, View, Watch};

use crate::crew::insist::insist;

/// A node that a session follows. The first look begins the watch.
pub(super) struct FollowedNode<'a> {
    session: &'a Session,
    query: Query,
    watch: Option<Watch>,
}

impl<'a> FollowedNode<'a> {
    /// Nothing has been sent when this returns.
    pub(super) fn new(session: &'a Session, path: &Path) -> Self {
        Self { session, query: Query::node(path).local(), watch: None }
    }

    /// The node as it is, at first; and then after each reason to look again.
    pub(super) async fn next(&mut self) -> Result<View> {
        let (session, query) = (self.session, &self.query);
        if let Some(watch) = &mut self.watch
            && let Some(Event::Changed(_) | Event::Resync) = watch.next().await
        {
            return insist(session, || session.read(query.clone())).await;
        }
        let (view, watch) = insist(session, || session.observe(query.clone())).await?;
        self.watch = Some(watch);
        Ok(view)
    }
}
