//! Examines the tree for a transaction: before it is sent, and after it was refused.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use synod_core::error::{Error, Result};
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime, Op, RejectReason, Txn, View};

use crate::client::{Client, ZkError};
use crate::connection::Connection;
use crate::container::{Hollow, Standing, standing, standing_below};
use crate::error::{Sort, Trouble};
use crate::hub::Hub;
use crate::plan::{Facts, Role, Step};
use crate::stat::{births, is_container, translate};

/// A transaction in flight, and the facts found for it so far.
pub(crate) struct Writing<'a> {
    pub(crate) hub: &'a Arc<Hub>,
    pub(crate) wire: &'a Connection,
    pub(crate) client: &'a Arc<Client>,
    pub(crate) txn: &'a Txn,
    pub(crate) facts: Facts,
    /// The answer to the look that was sent with the last refused request. Taken when something is read after it.
    pub(crate) seen: Option<View>,
}

impl<'a> Writing<'a> {
    /// Whether a path must be read before it is sent.
    pub(crate) fn may_meet_ghosts(&self) -> bool {
        self.txn.ops.iter().any(|op| self.may_be_ghost(op))
    }

    fn may_be_ghost(&self, op: &Op) -> bool {
        match op {
            Op::Check { path, expect: Expect::Any } => !self.wire.knows(path),
            Op::Check { path, expect: Expect::Version(version) } => {
                version.get() == 0 && !self.wire.knows(path)
            }
            _ => false,
        }
    }

    /// A check that passes for any node passes for a container too, and so does a check for the
    /// version that containers have. So a checked path is read first, unless it is a ticket of this
    /// session: a guarded write takes one round trip. A path that is a node when it is read, and a
    /// container when the transaction arrives, is not noticed.
    pub(crate) async fn find_ghosts(&mut self) -> Result<(), Trouble> {
        let ops = self.txn.ops.iter().enumerate().filter(|(_, op)| self.may_be_ghost(op));
        let asked: Vec<(usize, &Path)> = ops.map(|(index, op)| (index, op.path())).collect();
        let sync = self.client.sync("/");
        let reads = asked.iter().map(|(_, path)| self.client.get_data(path.as_str()));
        let reads: Vec<_> = reads.collect();
        let answers =
            self.wire.answer(async { Ok((sync.await?, join_all(reads).await).1) }).await?;
        for ((index, path), answer) in asked.into_iter().zip(answers) {
            match answer {
                // The root is no node.
                Ok((data, stat)) if path.is_root() || is_container(&data, &stat) => {
                    self.facts.ghosts.insert(index);
                }
                // Any other error will be the result of the check itself.
                _ => {}
            }
        }
        Ok(())
    }

    /// Decides whether a refusal is final. If not, the facts for the next plan have been updated.
    pub(crate) async fn mend(
        &mut self,
        step: &Step,
        said: ZkError,
    ) -> Result<Option<RejectReason>> {
        let index = step.index;
        match (&step.role, said) {
            (Role::Own, said) => return self.mend_own(index, said).await,
            (Role::Ancestor(path), ZkError::NodeExists) => {
                self.facts.missing.remove(path);
            }
            (Role::Ancestor(_), ZkError::NoNode) => self.find_missing().await?,
            (Role::Ancestor(_), ZkError::NoChildrenForEphemerals) => {
                return Ok(Some(RejectReason::BelowEphemeral));
            }
            (Role::Absence(path), said) => return self.mend_absence(index, path, said).await,
            // The container in the way is gone, or is something else by now.
            (Role::Hollow, ZkError::NoAuth) => return Err(unsent(Trouble::Said(ZkError::NoAuth))),
            (Role::Hollow, _) => {
                self.facts.hollow.clear();
                // These stand on births, too.
                self.facts.below.clear();
            }
            (Role::Ancestor(_) | Role::Again | Role::Guard | Role::Undo, said) => {
                return Err(unsent(Trouble::Said(said)));
            }
        }
        Ok(None)
    }

    async fn mend_absence(
        &mut self,
        index: usize,
        path: &Path,
        said: ZkError,
    ) -> Result<Option<RejectReason>> {
        let op = &self.txn.ops[index];
        let parent = path.parent().unwrap_or_else(Path::root);
        match said {
            ZkError::NodeExists if path == op.path() => {
                return self.give_way(index).await;
            }
            ZkError::NodeExists => {
                self.facts.absent.remove(&index);
            }
            ZkError::NoNode => {
                self.find_missing().await?;
                // A path that the transaction itself removes still exists at this point.
                let higher =
                    self.facts.absent.get(&index).is_some_and(|above| path.is_below(above));
                if !higher {
                    self.facts.absent.insert(index, parent);
                }
            }
            ZkError::NoChildrenForEphemerals if is_container_create(op) => {
                return Ok(Some(RejectReason::BelowEphemeral));
            }
            ZkError::NoChildrenForEphemerals => self.lean_on(index, parent).await?,
            said => return Err(unsent(Trouble::Said(said))),
        }
        Ok(None)
    }

    /// Nothing is below the node of a session. As with empty containers, its directory is given no other child until the
    /// transaction arrives: so it is still that node then.
    async fn lean_on(&mut self, index: usize, ephemeral: Path) -> Result<()> {
        if !self.makes(index, &ephemeral) {
            let dir = ephemeral.parent().unwrap_or_else(Path::root);
            // Read before the node itself, so that a creation in between is noticed.
            let above = self.client.check_stat(dir.as_str());
            let own = self.client.check_stat(ephemeral.as_str());
            let answers = self.wire.answer(async { Ok((above.await?, own.await?)) }).await;
            let (Some(above), Some(own)) = answers.map_err(unsent)? else { return Ok(()) };
            if translate(&own).owner.is_none() {
                return Ok(());
            }
            let births = [(dir, births(&above))].into();
            self.facts.hollow.insert(index, Hollow { births, ..Hollow::default() });
        }
        self.facts.below.insert(index, ephemeral);
        Ok(())
    }

    async fn mend_own(&mut self, index: usize, said: ZkError) -> Result<Option<RejectReason>> {
        let op = &self.txn.ops[index];
        Ok(match (op, said) {
            (Op::Create { .. }, ZkError::NoNode) => {
                self.find_missing().await?;
                None
            }
            (Op::Create { .. }, ZkError::NoChildrenForEphemerals) => {
                Some(RejectReason::BelowEphemeral)
            }
            (Op::Create { sequential: true, .. }, ZkError::NodeExists) => {
                Some(RejectReason::SequenceExhausted)
            }
            (Op::Create { .. }, ZkError::NodeExists) => self.give_way(index).await?,
            (_, ZkError::NoNode) => Some(RejectReason::Missing),
            (Op::Delete { .. }, ZkError::NotEmpty) => self.clear_below(index).await?,
            (Op::Set { .. }, ZkError::BadVersion) => Some(RejectReason::OtherVersion),
            (_, ZkError::BadVersion) => Some(self.other_version(index).await?),
            (Op::Set { path, .. }, ZkError::NoAuth) if self.is_no_node(path).await? => {
                Some(RejectReason::Missing)
            }
            (_, said) => return Err(unsent(Trouble::Said(said))),
        })
    }

    /// A path that must be free is taken: an empty container is removed.
    async fn give_way(&mut self, index: usize) -> Result<Option<RejectReason>> {
        let path = self.txn.ops[index].path();
        if self.makes_below(index, path) {
            return Ok(Some(RejectReason::Exists));
        }
        if self.is_seen(path) {
            return Ok(Some(RejectReason::Exists));
        }
        self.seen = None;
        let found = standing(self.wire, self.client, path, &self.gone(index)).await;
        Ok(match found.map_err(unsent)? {
            Standing::Nothing => None,
            Standing::Something => Some(RejectReason::Exists),
            Standing::Hollow(hollow) => {
                self.facts.hollow.insert(index, hollow);
                None
            }
        })
    }

    /// A node to be deleted has children: empty containers are deleted with it.
    async fn clear_below(&mut self, index: usize) -> Result<Option<RejectReason>> {
        let path = self.txn.ops[index].path();
        self.seen = None;
        let hollow = if self.makes_below(index, path) {
            Standing::Something
        } else {
            let below = standing_below(self.wire, self.client, path, &self.gone(index)).await;
            below.map_err(unsent)?
        };
        Ok(match hollow {
            Standing::Nothing => None,
            Standing::Something => Some(RejectReason::HasChildren),
            Standing::Hollow(_) if self.is_no_node(path).await? => Some(RejectReason::Missing),
            Standing::Hollow(hollow) => {
                self.facts.hollow.insert(index, hollow);
                None
            }
        })
    }

    /// The version differs; or it was the version of a container, which is no node.
    async fn other_version(&mut self, index: usize) -> Result<RejectReason> {
        let txn = self.txn;
        let op = &txn.ops[index];
        if !self.is_no_node(op.path()).await? {
            return Ok(RejectReason::OtherVersion);
        }
        if matches!(op, Op::Delete { .. }) && self.makes_below(index, op.path()) {
            return Ok(RejectReason::HasChildren);
        }
        let below = standing_below(self.wire, self.client, op.path(), &self.gone(index)).await;
        Ok(match (op, below.map_err(unsent)?) {
            (Op::Delete { .. }, Standing::Something) => RejectReason::HasChildren,
            _ => RejectReason::Missing,
        })
    }

    /// Whether the path has no node: nothing at all, or a container. A container that caused the
    /// refusal may have been collected since.
    async fn is_no_node(&mut self, path: &Path) -> Result<bool> {
        if self.facts.missing.contains(path) {
            return Ok(true);
        }
        if self.is_seen(path) {
            return Ok(false);
        }
        self.seen = None;
        let (sync, data) = (self.client.sync("/"), self.client.get_data(path.as_str()));
        let answer = self.wire.answer(async { Ok((sync.await?, data.await).1) }).await;
        match answer.map_err(unsent)? {
            Ok((data, stat)) => Ok(is_container(&data, &stat)),
            Err(ZkError::NoNode) => Ok(true),
            Err(said) => Err(unsent(Trouble::Said(said))),
        }
    }

    /// Whether the look that was sent after the refused request found a node at the path.
    fn is_seen(&self, path: &Path) -> bool {
        let nodes = self.seen.iter().flat_map(|view| &view.nodes);
        nodes.into_iter().any(|node| node.path == *path && node.stat.is_some())
    }

    /// Finds the missing ancestors of all paths of the transaction: where one is missing, others
    /// usually are too.
    async fn find_missing(&mut self) -> Result<()> {
        let ops = self.txn.ops.iter().filter(|op| is_absence(op) || is_create(op));
        let above: BTreeSet<Path> = ops.flat_map(|op| op.path().ancestors()).collect();
        let sync = self.client.sync("/");
        let reads = above.iter().map(|above| self.client.check_stat(above.as_str()));
        let reads: Vec<_> = reads.collect();
        let answer = self.wire.answer(async { Ok((sync.await?, join_all(reads).await).1) }).await;
        let mut missing = BTreeSet::new();
        for (above, found) in above.into_iter().zip(answer.map_err(unsent)?) {
            if found.map_err(|said| unsent(Trouble::Said(said)))?.is_none() {
                missing.insert(above);
            }
        }
        for (index, op) in self.txn.ops.iter().enumerate().filter(|(_, op)| is_absence(op)) {
            let stays_missing =
                |above: &Path| missing.contains(above) && !self.makes_at_or_below(index, above);
            // The last ancestor is the highest.
            let Some(highest) = op.path().ancestors().filter(stays_missing).last() else {
                continue;
            };
            // An ancestor that the transaction itself removes is higher, and stays absent.
            let higher = self.facts.absent.get(&index).is_some_and(|above| highest.is_below(above));
            if !higher {
                self.facts.absent.insert(index, highest);
            }
        }
        self.facts.missing = missing;
        Ok(())
    }

    /// The paths that the transaction deletes before this operation.
    fn gone(&self, index: usize) -> BTreeSet<&'a Path> {
        let before = &self.txn.ops[..index];
        before.iter().filter(|op| matches!(op, Op::Delete { .. })).map(Op::path).collect()
    }

    /// Whether the transaction creates something below `path` before this operation.
    fn makes_below(&self, index: usize, path: &Path) -> bool {
        let before = &self.txn.ops[..index];
        before.iter().any(|op| is_create(op) && op.path().is_below(path))
    }

    /// Whether the transaction creates `path` before this operation.
    fn makes(&self, index: usize, path: &Path) -> bool {
        self.txn.ops[..index].iter().any(|op| is_create(op) && op.path() == path)
    }

    /// Whether the transaction creates `path`, or something below it, before this operation.
    fn makes_at_or_below(&self, index: usize, path: &Path) -> bool {
        self.makes(index, path) || self.makes_below(index, path)
    }
}

/// Whether it creates a visible node.
fn is_create(op: &Op) -> bool {
    matches!(op, Op::Create { .. }) && !is_container_create(op)
}

/// Whether it only requires that nothing exists.
fn is_absence(op: &Op) -> bool {
    matches!(op, Op::Check { expect: Expect::Absent, .. }) || is_container_create(op)
}

fn is_container_create(op: &Op) -> bool {
    matches!(op, Op::Create { lifetime: Lifetime::Container, .. })
}

/// The error while nothing that was sent can have changed anything.
pub(crate) fn unsent(trouble: Trouble) -> Error {
    trouble.translate("commit", Sort::Read)
}
