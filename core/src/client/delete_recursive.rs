//! The removal of a node and everything below it, [`Client::delete_recursive`].

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::client::Client;
use crate::clock::sleep;
use crate::error::{Error, ErrorKind, Result};
use crate::path::Path;
use crate::retry::Retry;
use crate::store::{Expect, Node, Outcome, Query, RejectReason, Txn, Version};

/// The maximum number of nodes in a transaction. Every store accepts this many.
const BATCH: usize = 40;

/// The maximum number of reads of the tree while other clients change it.
const MAX_ROUNDS: usize = 100;

/// The progress of a recursive delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deletion {
    /// The number of nodes removed so far.
    pub deleted: usize,
    /// The number of nodes found so far, including the removed nodes. It grows if other clients
    /// create nodes meanwhile.
    pub found: usize,
}

/// # Removing many nodes
impl Client {
    /// Removes the node at `path` and every node below it, and returns the number of removed nodes:
    /// zero if there were none.
    ///
    /// It reads the tree and removes the deepest nodes first, 40 in one transaction, until a read
    /// finds no node. Nodes that other clients create meanwhile are removed, too. A node that was
    /// written after the read is removed only after the next read. It is not atomic: other clients
    /// see a part of the tree meanwhile, and after an error a part may be left. A later call then
    /// removes the rest.
    ///
    /// The [timeout](crate::client::ClientOptions::timeout) applies to each request, not to the
    /// whole call. A transaction whose answer is lost is resolved by the next read: nodes that are
    /// gone then count as removed.
    ///
    /// On ZooKeeper a delayed request may remove a node that is created again, as for
    /// [`Client::delete`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Refused`] if other clients create or write nodes faster than this call removes
    /// them, and the errors that are common to all calls: see [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call removes no further nodes after the request in flight.
    ///
    /// # Examples
    ///
    /// ```
    /// # use synod_core::client::Client;
    /// # use synod_core::error::Result;
    /// # use synod_core::path;
    /// # async fn example(client: Client) -> Result<()> {
    /// let removed = client.delete_recursive(&path!("/jobs/2025")).await?;
    /// println!("{removed} nodes are gone");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn delete_recursive(&self, path: &Path) -> Result<usize> {
        self.delete_recursive_with(path, |_deletion| {}).await
    }

    /// [`Client::delete_recursive`] that calls `progress` after each read and each transaction.
    ///
    /// # Errors
    ///
    /// As [`Client::delete_recursive`].
    ///
    /// # Cancel safety
    ///
    /// As [`Client::delete_recursive`].
    pub async fn delete_recursive_with(
        &self,
        path: &Path,
        mut progress: impl FnMut(Deletion),
    ) -> Result<usize> {
        let (mut deletion, mut unanswered) = (Deletion::default(), Vec::new());
        let mut delays = Retry::contended().delays(self.random());
        for _ in 0..MAX_ROUNDS {
            let mut nodes = self.versions_below(path).await?;
            deletion.deleted += count_gone(&std::mem::take(&mut unanswered), &nodes);
            deletion.found = deletion.deleted + nodes.len();
            progress(deletion);
            if nodes.is_empty() {
                return Ok(deletion.deleted);
            }
            let before = deletion.deleted;
            // The path of a child is longer than that of its parent.
            nodes.sort_by_key(|(path, _)| Reverse(path.as_str().len()));
            for batch in nodes.chunks(BATCH) {
                deletion.deleted += self.delete_batch(batch, &mut unanswered).await?;
                progress(deletion);
            }
            if deletion.deleted == before {
                sleep(delays.next().unwrap_or_default()).await;
            }
        }
        Err(Error::new(ErrorKind::Refused, "deleting recursively").at(path).because(
            "other clients keep creating or writing nodes there: stop them, then repeat the call",
        ))
    }

    /// Reads the nodes at and below a path, without containers.
    async fn versions_below(&self, path: &Path) -> Result<Vec<(Path, Version)>> {
        let nodes = self.read(Query::subtree(path)).await?.nodes;
        let version = |node: Node| node.stat.map(|stat| (node.path, stat.version));
        Ok(nodes.into_iter().filter_map(version).collect())
    }

    /// Removes the nodes in one transaction, or one by one if a node has changed. Adds the nodes
    /// whose removal was not answered.
    async fn delete_batch(
        &self,
        batch: &[(Path, Version)],
        unanswered: &mut Vec<(Path, Version)>,
    ) -> Result<usize> {
        let delete = |txn: Txn, (path, version): &(Path, Version)| {
            txn.delete(path, Expect::Version(*version))
        };
        match self.commit(batch.iter().fold(Txn::new(), delete)).await {
            Ok(Outcome::Committed(_)) => return Ok(batch.len()),
            Ok(Outcome::Rejected(_)) => {}
            Err(error) if is_unanswered(&error) => {
                unanswered.extend_from_slice(batch);
                return Ok(0);
            }
            Err(error) => return Err(error),
        }
        let mut deleted = 0;
        for node @ (path, version) in batch {
            match self.delete(path, Expect::Version(*version)).await {
                Ok(Outcome::Committed(())) => deleted += 1,
                Ok(Outcome::Rejected(no)) if is_passing(no.reason) => {}
                Ok(outcome) => outcome.required()?,
                Err(error) if is_unanswered(&error) => unanswered.push(node.clone()),
                Err(error) => return Err(error),
            }
        }
        Ok(deleted)
    }
}

/// Returns `true` for a reason that another read and another attempt resolve.
fn is_passing(reason: RejectReason) -> bool {
    use RejectReason::{HasChildren, Missing, OtherVersion};
    matches!(reason, Missing | OtherVersion | HasChildren)
}

/// Returns `true` if a request may have been applied, and the store may answer the next one.
fn is_unanswered(error: &Error) -> bool {
    error.has_unknown_effect() && error.kind().is_outage()
}

/// Returns the number of nodes that are not among those that are left.
fn count_gone(nodes: &[(Path, Version)], left: &[(Path, Version)]) -> usize {
    let left: BTreeSet<&Path> = left.iter().map(|(path, _)| path).collect();
    nodes.iter().filter(|(path, _)| !left.contains(path)).count()
}
