//! [`SingleOperation`]: a transaction of one operation, for which etcd has a smaller request.

use std::sync::Arc;

use bytes::Bytes;
use etcd_client::proto::{PbResponseHeader, PbTxnOpResponse};
use etcd_client::{PutOptions, Txn as Request, TxnOp};
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{Expect, Op, Outcome, RejectReason, Rejected, Txn};

use crate::committing::Committing;
use crate::error::is_missing;
use crate::key;
use crate::link::Link;
use crate::plan::{SMALL, none_in};
use crate::reader::{rewritten, unsure};

/// The only operation of a transaction, without a version condition.
pub(crate) enum SingleOperation<'a> {
    Set(&'a Path, &'a Bytes),
    Delete(&'a Path),
}

/// The result of a delete.
struct Deleted {
    header: Option<PbResponseHeader>,
    /// The number of deleted keys; `None` if the node has children.
    count: Option<i64>,
}

impl<'a> SingleOperation<'a> {
    pub(crate) fn of(txn: &'a Txn) -> Option<Self> {
        match (&txn.ops[..], &txn.look) {
            ([Op::Set { path, data, expect: Expect::Any }], None) if data.len() <= SMALL => {
                Some(Self::Set(path, data))
            }
            ([Op::Delete { path, expect: Expect::Any }], None) => Some(Self::Delete(path)),
            _ => None,
        }
    }

    pub(crate) async fn send(self, committing: &Committing<'_>) -> Result<Outcome> {
        match self {
            Self::Set(path, data) => committing.put(path, data).await,
            Self::Delete(path) => committing.delete(path).await,
        }
    }
}

impl Committing<'_> {
    /// Sends a set as the plain call. With `ignore_lease` etcd refuses it if the key is missing,
    /// which costs the server less than a transaction with that condition.
    async fn put(&self, path: &Path, data: &Bytes) -> Result<Outcome> {
        let asking = |link: Arc<Link>| {
            let keep = PutOptions::new().with_ignore_lease().with_prev_key();
            let (key, data) = (key::of(path), data.clone());
            async move {
                match link.put(key, data, keep).await {
                    Ok(answer) => Ok(Some(answer.0)),
                    Err(error) if is_missing(&error) => Ok(None),
                    Err(error) => Err(error),
                }
            }
        };
        let seen = self.reader.history.seen();
        let Some(answer) = self.reader.endpoints.call(self.call, asking).await? else {
            return Ok(refused(path, RejectReason::Missing));
        };
        let at = self.reader.history.answered(answer.header.as_ref(), seen).map_err(unsure)?;
        // The answer contains the previous state of the node.
        let now = answer.prev_kv.map(|before| rewritten(before, at));
        let commit = self.commit_of(&[now.as_ref()], at).await.map_err(unsure)?;
        Ok(Outcome::Committed(commit))
    }

    /// Deletes, and derives the outcome from the number of deleted keys.
    async fn delete(&self, path: &Path) -> Result<Outcome> {
        let endpoints = &self.reader.endpoints;
        if self.tickets.take(path) {
            let asking = |link: Arc<Link>| {
                let key = key::of(path);
                async move { plain(&link, key).await }
            };
            let seen = self.reader.history.seen();
            let deleted = endpoints.call(self.call, asking).await?;
            if deleted.count != Some(0) {
                return self.deleted(path, deleted, seen).await;
            }
            // Another client deleted it, and may have created something below its path.
        }
        let asking = |link: Arc<Link>| {
            let key = key::of(path);
            async move { childless(&link, key, path).await }
        };
        let seen = self.reader.history.seen();
        let deleted = endpoints.call(self.call, asking).await?;
        self.deleted(path, deleted, seen).await
    }

    async fn deleted(&self, path: &Path, deleted: Deleted, seen: i64) -> Result<Outcome> {
        let Deleted { header, count } = deleted;
        let at = self.reader.history.answered(header.as_ref(), seen).map_err(unsure)?;
        match count {
            // Also for a container, which has children but no key.
            None => Ok(refused(path, RejectReason::HasChildren)),
            Some(0) => Ok(refused(path, RejectReason::Missing)),
            Some(_) => Ok(Outcome::Committed(self.commit_of(&[None], at).await.map_err(unsure)?)),
        }
    }
}

async fn plain(link: &Link, key: Vec<u8>) -> Result<Deleted, etcd_client::Error> {
    let answer = link.delete(key).await?.0;
    Ok(Deleted { header: answer.header, count: Some(answer.deleted) })
}

/// Deletes a node that has no children.
async fn childless(link: &Link, key: Vec<u8>, path: &Path) -> Result<Deleted, etcd_client::Error> {
    let delete = TxnOp::delete(key, None);
    let request = Request::new().when([none_in(key::below(path))]).and_then([delete]);
    let answer = link.txn(request).await?.0;
    let header = answer.header;
    let count = answer.responses.into_iter().find_map(|op| match op.response? {
        PbTxnOpResponse::ResponseDeleteRange(range) => Some(range.deleted),
        _ => None,
    });
    Ok(Deleted { header, count: count.filter(|_| answer.succeeded) })
}

fn refused(path: &Path, why: RejectReason) -> Outcome {
    Outcome::Rejected(Rejected::new(0, path.clone(), why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_small_data_is_written_by_the_call_that_answers_with_what_was_there() {
        let is_single = |size: usize| {
            let path = Path::new("/a").expect("valid");
            let txn = Txn::new().set(path, vec![0; size], Expect::Any);
            SingleOperation::of(&txn).is_some()
        };
        assert!(is_single(SMALL));
        assert!(!is_single(SMALL + 1));
    }
}
