//! [`Look`]: the query that a transaction ends with, sent right behind it.

use std::sync::OnceLock;

use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{Freshness, Op, Query, Revision, Sequence, Txn, View};
use zookeeper_client::Client;

use crate::error::{Sort, Trouble};
use crate::read::read;
use crate::sift::sequence;
use crate::wire::Wire;

/// The query of a transaction that is on its way.
pub(crate) struct Look<'a> {
    wire: &'a Wire,
    client: &'a Client,
    query: Query,
    /// The ticket above which nothing is shown; known when the transaction is answered.
    own: OnceLock<Sequence>,
}

impl<'a> Look<'a> {
    pub(crate) fn of(wire: &'a Wire, client: &'a Client, txn: &Txn) -> Option<Self> {
        // Behind the transaction, it needs no sync.
        let query = txn.look.clone()?.local();
        Some(Self { wire, client, query, own: OnceLock::new() })
    }

    /// The transaction made this.
    pub(crate) fn note(&self, op: &Op, made: &str) {
        if op.is_sequential()
            && op.path().parent_str() == Some(self.query.path.as_str())
            && let Some(sequence) = sequence(made)
        {
            let _first = self.own.set(sequence).is_ok();
        }
    }

    /// Asks; to be polled behind the transaction.
    pub(crate) async fn ask(&self) -> Result<(View, Vec<Path>), Trouble> {
        read(self.wire, self.client, &self.query, &self.own).await
    }

    /// What is told of the answer, now that the transaction was done.
    pub(crate) async fn told(
        &mut self,
        mut answer: Result<(View, Vec<Path>), Trouble>,
        committed: Option<Revision>,
    ) -> Result<View> {
        if answer.is_err() {
            // It got lost.
            self.query.freshness = Freshness::Latest;
            answer = Box::pin(self.ask()).await;
        }
        let (mut view, _) = answer.map_err(|trouble| trouble.translate("commit", Sort::Write))?;
        // What was read behind a commit reflects it.
        view.revision = view.revision.max(committed.unwrap_or_default());
        Ok(view)
    }
}
