//! [`FollowUp`]: the query at the end of a transaction, sent right after the transaction, or not at
//! all if its answer is known.

use std::sync::{Arc, OnceLock};

use synod_core::path::Path;
use synod_core::store::{Commit, Detail, Freshness, Op, Query, Scope, Sequence, Txn, View};

use crate::client::Client;
use crate::connection::Connection;
use crate::error::Trouble;
use crate::listing_cache::ListingCache;
use crate::listing_cache::sole_contender::{Listing, PendingCreate};
use crate::read::{listed, named, read};
use crate::selection::sequence;

/// The response to a follow-up read, with the containers that it found.
pub(crate) type Response = Result<(View, Vec<Path>), Trouble>;

/// The query of a transaction in flight.
pub(crate) struct FollowUp<'a> {
    connection: &'a Connection,
    listings: &'a ListingCache,
    client: &'a Arc<Client>,
    query: Query,
    if_rejected: bool,
    /// The sequence above which no child is shown: that of the transaction's own ticket, known from
    /// the response to its create.
    own: OnceLock<Sequence>,
    /// The create of the ticket, if the listing may be omitted.
    create: Option<PendingCreate>,
    /// The only child, if there was only one, and the czxid of its directory.
    only: OnceLock<(String, i64)>,
}

impl<'a> FollowUp<'a> {
    pub(crate) fn of(
        connection: &'a Connection,
        listings: &'a ListingCache,
        client: &'a Arc<Client>,
        txn: &Txn,
    ) -> Option<Self> {
        // It follows the transaction on the same connection, so it needs no sync.
        let query = txn.look.clone()?.local();
        let (own, only, if_rejected) = (OnceLock::new(), OnceLock::new(), txn.look_if_rejected);
        Some(Self { connection, listings, client, query, if_rejected, own, create: None, only })
    }

    /// Decides whether the read is sent with the transaction, and not only after a rejection.
    pub(crate) fn decide_to_send_along(&self) -> bool {
        !self.if_rejected || self.connection.rejections.count_down()
    }

    /// Decides whether the read is omitted after the transaction, which is this one operation and
    /// is sent next. [`Self::late`] may still find that the read is needed.
    pub(crate) fn decide_to_omit(&mut self, op: &Op) -> bool {
        let names = (self.query.scope, self.query.detail) == (Scope::Children, Detail::Names);
        if names && self.lists(op) {
            self.create = self.listings.before_create(self.client, &self.query.path);
        }
        self.create.as_ref().is_some_and(|create| create.skips_listing)
    }

    /// Returns `true` if the operation creates a sequential child in the directory of the query.
    fn lists(&self, op: &Op) -> bool {
        op.is_sequential() && op.path().parent_str() == Some(self.query.path.as_str())
    }

    /// Records the path that the transaction created.
    pub(crate) fn record_own(&self, op: &Op, created: &str) {
        if self.lists(op)
            && let Some(sequence) = sequence(created)
        {
            let _first = self.own.set(sequence).is_ok();
        }
    }

    /// The answer to the query of a transaction that was sent without the read: known, or requested
    /// now. `None` as in [`Self::view_after`].
    pub(crate) async fn late(mut self, commit: &Commit) -> Option<View> {
        if self.if_rejected {
            return None;
        }
        if let Some(view) = self.known(commit) {
            return Some(view);
        }
        // Boxed: usually the answer is known.
        Box::pin(async {
            let response = self.request().await;
            self.view_after(response, commit).await
        })
        .await
    }

    fn known(&mut self, commit: &Commit) -> Option<View> {
        let done = commit.results.first()?;
        let own = done.sequence?;
        let _first = self.own.set(own).is_ok();
        let create = self.create.as_mut()?;
        let is_only = self.listings.created(&self.query.path, create, done, Listing::Omitted);
        let revision = commit.revision.filter(|_| is_only)?;
        Some(named(&self.query, vec![done.path.name().to_owned()], Some(own), revision))
    }

    /// Sends the query; to be polled after the transaction.
    pub(crate) async fn request(&self) -> Response {
        let connection = self.connection;
        if self.create.is_none() {
            return read(connection, self.client, &self.query, &self.own).await;
        }
        let (seen, sync) = (connection.seen(), self.query.freshness == Freshness::Latest);
        let (names, stat) = listed(connection, self.client, &self.query, sync).await?;
        let mut revision = seen;
        if let Some(stat) = &stat {
            revision = connection.see(stat).max(seen);
            if let [only] = &names[..] {
                let _first = self.only.set((only.clone(), stat.czxid)).is_ok();
            }
        }
        Ok((named(&self.query, names, self.own.get().copied(), revision), vec![]))
    }

    /// The view to return, after the transaction was applied. `None` if the read was refused or
    /// lost: an error here would be mistaken for an error of the transaction without an effect.
    pub(crate) async fn view_after(&mut self, response: Response, commit: &Commit) -> Option<View> {
        if self.if_rejected {
            return None;
        }
        let mut view = self.view(response).await?;
        // A read after the commit reflects it.
        view.revision = view.revision.max(commit.revision.unwrap_or_default());
        if let (Some(create), [done]) = (&mut self.create, &commit.results[..]) {
            let only = self.only.get().filter(|(only, _)| only == done.path.name());
            let listing = only.map_or(Listing::Others, |(_, czxid)| Listing::OnlyChild(*czxid));
            self.listings.created(&self.query.path, create, done, listing);
        }
        Some(view)
    }

    /// The view to return, after the transaction was refused. The server answers the requests of a
    /// connection in their order, so it has applied every change that led to the refusal. `None` as
    /// in [`Self::view_after`].
    pub(crate) async fn view_of_refusal(mut self, response: Response) -> Option<View> {
        self.view(response).await
    }

    /// A view that is requested only now, after the refusal was received. It needs no sync either:
    /// a session's reads reflect all responses that it received before.
    pub(crate) async fn view_now(mut self) -> Option<View> {
        let response = self.request().await;
        self.view(response).await
    }

    async fn view(&mut self, mut response: Response) -> Option<View> {
        if response.is_err() && self.query.freshness == Freshness::Local {
            // The read was lost with its connection.
            self.query.freshness = Freshness::Latest;
            response = Box::pin(self.request()).await;
        }
        match response {
            Ok((view, _)) => Some(view),
            Err(trouble) => {
                tracing::debug!(path = %self.query.path, ?trouble, "a read after a commit failed");
                None
            }
        }
    }
}
