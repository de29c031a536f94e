//! [`LastingCreate`]: creates a node that no session owns, once, and knows it again when the answer is lost.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::session::Session;
use synod_core::store::{Lifetime, Query, Rejected, Revision, Stat, Txn, Version, View};

use crate::keeper::failures::DOING;
use crate::stamped::Stamped;
use crate::stamped::mark::Marks;
use crate::stamped::sent::{Evidence, Sent};

/// A create of a node with a time to live. The node has no owner, by which it could be known again: a mark says what became of
/// the create. It is next to the node, in a directory of its own, and is removed as soon as that is known.
pub(super) struct LastingCreate<'a> {
    pub(super) client: &'a Client,
    pub(super) path: &'a Path,
    pub(super) marks: &'a Path,
}

/// What became of it.
pub(super) enum Creation {
    /// The node was created. Its version may not be known.
    Created(Stat),
    Rejected(Rejected),
    /// It was not created, and no request is on its way.
    Nothing,
}

impl LastingCreate<'_> {
    /// Creates the node, and finds out whether it did.
    pub(super) async fn send(
        &self,
        session: &Session,
        data: Bytes,
        lifetime: Lifetime,
    ) -> Result<Creation> {
        let txn = Txn::new().create(self.path, data, lifetime);
        let marks = Marks::new(self.marks.clone(), "node-", DOING);
        let evidence = Vacancy { path: self.path, made: Mutex::default() };
        let (client, marks, evidence) = (self.client, &marks, &evidence);
        let limit = Retry::until_elapsed(session.timeout());
        Ok(match (Stamped { client, marks, session, evidence, limit }).send(txn).await? {
            Sent::Applied(commit) => {
                let done = commit.and_then(|commit| commit.results.into_iter().next()?.stat);
                done.or_else(|| evidence.made()).map_or(Creation::Nothing, Creation::Created)
            }
            Sent::Rejected(no) => Creation::Rejected(no),
            Sent::Lost => Creation::Nothing,
        })
    }
}

/// Without a node at the path nothing is left of a create, whether it was applied or not.
struct Vacancy<'a> {
    path: &'a Path,
    made: Mutex<Option<Revision>>,
}

impl Vacancy<'_> {
    fn made(&self) -> Option<Stat> {
        let at = *self.made.lock().unwrap_or_else(PoisonError::into_inner);
        at.map(|at| Stat::new(at, at, Version::new(0), None))
    }
}

impl Evidence for Vacancy<'_> {
    fn whole(&self) -> Option<Query> {
        Some(Query::node(self.path))
    }

    fn is_untouched(&self, view: &View) -> bool {
        !view.nodes.iter().any(|node| node.path == *self.path && node.stat.is_some())
    }

    fn was_applied(&self, at: Revision) {
        *self.made.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
    }
}
