//! [`Look`]: the query at the end of a transaction, sent right after it, or not at all if its
//! answer is known.

use std::sync::{Arc, OnceLock};

use synod_core::path::Path;
use synod_core::store::{Commit, Detail, Freshness, Op, Query, Scope, Sequence, Txn, View};

use crate::client::Client;
use crate::error::Trouble;
use crate::hub::Hub;
use crate::read::{listed, named, read};
use crate::selection::sequence;
use crate::sole_contender::Draw;

/// The answer to a look, with the containers that it found.
pub(crate) type Seen = Result<(View, Vec<Path>), Trouble>;

/// The query of a transaction in flight.
pub(crate) struct Look<'a> {
    hub: &'a Arc<Hub>,
    client: &'a Arc<Client>,
    query: Query,
    if_rejected: bool,
    /// The sequence above which no child is shown: that of the transaction's own ticket, known from
    /// its answer.
    own: OnceLock<Sequence>,
    /// The creation of the ticket, if its directory may be known.
    draw: Option<Draw>,
    /// The only child, if there was only one, and the birth of its directory.
    only: OnceLock<(String, i64)>,
}

impl<'a> Look<'a> {
    pub(crate) fn of(hub: &'a Arc<Hub>, client: &'a Arc<Client>, txn: &Txn) -> Option<Self> {
        // On the same connection, after the transaction, it needs no sync.
        let query = txn.look.clone()?.local();
        let (own, only, if_rejected) = (OnceLock::new(), OnceLock::new(), txn.look_if_rejected);
        Some(Self { hub, client, query, if_rejected, own, draw: None, only })
    }

    /// Whether it is sent along, and not only after a rejection.
    pub(crate) fn is_sent_along(&self) -> bool {
        !self.if_rejected || self.hub.wire.races.is_lost_lately()
    }

    /// Whether the transaction, which is this one operation and is sent next, needs no look, unless
    /// [`Self::late`] finds otherwise.
    pub(crate) fn may_be_known(&mut self, op: &Op) -> bool {
        let names = (self.query.scope, self.query.detail) == (Scope::Children, Detail::Names);
        if names && self.is_among(op) {
            self.draw = self.hub.draw(self.client, &self.query.path);
        }
        self.draw.as_ref().is_some_and(|draw| draw.bet)
    }

    /// Whether it creates a sequential child in the directory of the query.
    fn is_among(&self, op: &Op) -> bool {
        op.is_sequential() && op.path().parent_str() == Some(self.query.path.as_str())
    }

    /// Records the path that the transaction created.
    pub(crate) fn note(&self, op: &Op, made: &str) {
        if self.is_among(op)
            && let Some(sequence) = sequence(made)
        {
            let _first = self.own.set(sequence).is_ok();
        }
    }

    /// The answer to the query of a transaction that was sent without a look: known, or queried
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
            let seen = self.ask().await;
            self.view_after(seen, commit).await
        })
        .await
    }

    fn known(&mut self, commit: &Commit) -> Option<View> {
        let done = commit.results.first()?;
        let own = done.sequence?;
        let _first = self.own.set(own).is_ok();
        let known = self.hub.won(&self.query.path, self.draw.as_mut()?, done);
        let then = commit.revision.filter(|_| known)?;
        Some(named(&self.query, vec![done.path.name().to_owned()], Some(own), then))
    }

    /// Sends the query; to be polled after the transaction.
    pub(crate) async fn ask(&self) -> Seen {
        let wire = &self.hub.wire;
        if self.draw.is_none() {
            return read(wire, self.client, &self.query, &self.own).await;
        }
        let (seen, sync) = (wire.seen(), self.query.freshness == Freshness::Latest);
        let (names, stat) = listed(wire, self.client, &self.query, sync).await?;
        let mut revision = seen;
        if let Some(stat) = &stat {
            revision = wire.see(stat).max(seen);
            if let [only] = &names[..] {
                let _first = self.only.set((only.clone(), stat.czxid)).is_ok();
            }
        }
        Ok((named(&self.query, names, self.own.get().copied(), revision), vec![]))
    }

    /// The view to return, after the transaction was applied. `None` if the look was refused or
    /// lost: an error here would be taken for an error of the transaction, as if it had done
    /// nothing.
    pub(crate) async fn view_after(&mut self, answer: Seen, commit: &Commit) -> Option<View> {
        if self.if_rejected {
            return None;
        }
        let mut view = self.view(answer).await?;
        // A read after the commit reflects it.
        view.revision = view.revision.max(commit.revision.unwrap_or_default());
        if let (Some(draw), [done]) = (&self.draw, &commit.results[..]) {
            let only = self.only.get().filter(|(only, _)| only == done.path.name());
            self.hub.looked(&self.query.path, draw, done, only.map(|(_, birth)| *birth));
        }
        Some(view)
    }

    /// The view to return, after the transaction was refused. The server answers the requests of a
    /// connection in their order, so it has applied all that led to the refusal. `None` as in
    /// [`Self::view_after`].
    pub(crate) async fn view_of_refusal(mut self, answer: Seen) -> Option<View> {
        self.view(answer).await
    }

    /// A view that is asked for only now, after the refusal was received: also without a sync, as a session's reads reflect
    /// what it was answered before.
    pub(crate) async fn view_now(mut self) -> Option<View> {
        let seen = self.ask().await;
        self.view(seen).await
    }

    async fn view(&mut self, mut answer: Seen) -> Option<View> {
        if answer.is_err() && self.query.freshness == Freshness::Local {
            // It was lost with its connection.
            self.query.freshness = Freshness::Latest;
            answer = Box::pin(self.ask()).await;
        }
        match answer {
            Ok((view, _)) => Some(view),
            Err(trouble) => {
                tracing::debug!(path = %self.query.path, ?trouble, "a look after a commit failed");
                None
            }
        }
    }
}
