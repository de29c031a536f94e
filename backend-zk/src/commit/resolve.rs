//! Examines the tree for a transaction: before it is sent, and after it was refused.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use synod_core::error::{Error, Result};
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime, Op, RejectReason, Txn, View};

use crate::client::{Client, ZkError};
use crate::commit::occupant::{EmptyContainers, Occupant, occupant, occupant_below};
use crate::commit::plan::{Facts, Role, Step};
use crate::connection::Connection;
use crate::containers::{children_created, is_container, translate};
use crate::error::{Sort, Trouble, denied};
use crate::listing_cache::ListingCache;

/// A transaction in flight, and the facts found for it so far.
pub(crate) struct InFlight<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) listings: &'a ListingCache,
    pub(crate) client: &'a Arc<Client>,
    pub(crate) txn: &'a Txn,
    pub(crate) facts: Facts,
    /// The view of the follow-up read that was sent with the last refused request. Removed when a
    /// later read finds the reason for a refusal.
    pub(crate) follow_up: Option<View>,
}

impl<'a> InFlight<'a> {
    /// Returns `true` if a path must be read before the transaction is sent.
    pub(crate) fn may_check_containers(&self) -> bool {
        self.txn.ops.iter().any(|op| self.may_be_container(op))
    }

    fn may_be_container(&self, op: &Op) -> bool {
        match op {
            Op::Check { path, expect: Expect::Any } => !self.connection.has_ticket(path),
            Op::Check { path, expect: Expect::Version(version) } => {
                version.get() == 0 && !self.connection.has_ticket(path)
            }
            _ => false,
        }
    }

    /// Finds the checked paths that are containers. At the server, a check for any node also passes
    /// for a container, and so does a check for the version that containers have. So a checked path
    /// is read first, unless it is a ticket of this session: a guarded write takes one round trip.
    /// A path that is a node when it is read, and a container when the transaction arrives, is not
    /// detected.
    pub(crate) async fn find_containers(&mut self) -> Result<(), Trouble> {
        let ops = self.txn.ops.iter().enumerate().filter(|(_, op)| self.may_be_container(op));
        let paths: Vec<(usize, &Path)> = ops.map(|(index, op)| (index, op.path())).collect();
        let sync = self.client.sync("/");
        let reads = paths.iter().map(|(_, path)| self.client.get_data(path.as_str()));
        let reads: Vec<_> = reads.collect();
        let answers =
            self.connection.answer(async { Ok((sync.await?, join_all(reads).await).1) }).await?;
        for ((index, path), answer) in paths.into_iter().zip(answers) {
            match answer {
                // The root is not a node.
                Ok((data, stat)) if path.is_root() || is_container(&data, &stat) => {
                    self.facts.on_container.insert(index);
                }
                // Any other error will be the result of the check itself.
                _ => {}
            }
        }
        Ok(())
    }

    /// Decides whether a refusal is final. If not, the facts for the next plan have been updated.
    pub(crate) async fn resolve(
        &mut self,
        step: &Step,
        error: ZkError,
    ) -> Result<Option<RejectReason>> {
        let index = step.index;
        match (&step.role, error) {
            (Role::Own, error) => return self.resolve_own(index, error).await,
            (Role::Ancestor(path), ZkError::NodeExists) => {
                self.facts.missing.remove(path);
            }
            (Role::Ancestor(_), ZkError::NoNode) => self.find_missing().await?,
            (Role::Ancestor(_), ZkError::NoChildrenForEphemerals) => {
                return Ok(Some(RejectReason::BelowEphemeral));
            }
            (Role::Absence(path), error) => return self.resolve_absence(index, path, error).await,
            // The container in the way is gone, or has been replaced.
            (Role::EmptyContainers, ZkError::NoAuth) => {
                return Err(without_effect(Trouble::Zk(ZkError::NoAuth)));
            }
            (Role::EmptyContainers, _) => {
                self.facts.empty_containers.clear();
                // These facts depend on the numbers of created children, too.
                self.facts.below.clear();
            }
            (Role::Ancestor(path), ZkError::NoAuth) => {
                return Err(denied("commit", path.parent().as_ref().unwrap_or(path), "create"));
            }
            (Role::Ancestor(_) | Role::Again | Role::Guard | Role::Undo, error) => {
                return Err(without_effect(Trouble::Zk(error)));
            }
        }
        Ok(None)
    }

    async fn resolve_absence(
        &mut self,
        index: usize,
        path: &Path,
        error: ZkError,
    ) -> Result<Option<RejectReason>> {
        let op = &self.txn.ops[index];
        let parent = path.parent().unwrap_or_else(Path::root);
        match error {
            ZkError::NodeExists if path == op.path() => {
                return self.replace_container(index).await;
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
            ZkError::NoChildrenForEphemerals => self.check_parent(index, parent).await?,
            ZkError::NoAuth => return Err(denied("commit", &parent, "create")),
            error => return Err(without_effect(Trouble::Zk(error))),
        }
        Ok(None)
    }

    /// Checks that the parent of a path is an ephemeral node: such a node has no children. As with
    /// empty containers, no other child may be created in the parent's directory until the
    /// transaction arrives, so the parent is still the same node then.
    async fn check_parent(&mut self, index: usize, ephemeral: Path) -> Result<()> {
        if !self.creates(index, &ephemeral) {
            let dir = ephemeral.parent().unwrap_or_else(Path::root);
            // Read before the node itself, so that a creation in between is noticed.
            let above = self.client.check_stat(dir.as_str());
            let own = self.client.check_stat(ephemeral.as_str());
            let answers = self.connection.answer(async { Ok((above.await?, own.await?)) }).await;
            let (Some(above), Some(own)) = answers.map_err(without_effect)? else { return Ok(()) };
            if translate(&own).owner.is_none() {
                return Ok(());
            }
            let children_created = [(dir, children_created(&above))].into();
            self.facts
                .empty_containers
                .insert(index, EmptyContainers { children_created, ..EmptyContainers::default() });
        }
        self.facts.below.insert(index, ephemeral);
        Ok(())
    }

    async fn resolve_own(&mut self, index: usize, error: ZkError) -> Result<Option<RejectReason>> {
        let op = &self.txn.ops[index];
        Ok(match (op, error) {
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
            (Op::Create { .. }, ZkError::NodeExists) => self.replace_container(index).await?,
            (_, ZkError::NoNode) => Some(RejectReason::Missing),
            (Op::Delete { .. }, ZkError::NotEmpty) => self.clear_below(index).await?,
            (Op::Set { .. }, ZkError::BadVersion) => Some(RejectReason::OtherVersion),
            (_, ZkError::BadVersion) => Some(self.other_version(index).await?),
            (Op::Set { path, .. }, ZkError::NoAuth) if self.find_no_node(path).await? => {
                Some(RejectReason::Missing)
            }
            (op, ZkError::NoAuth) => return Err(denied_op(op)),
            (_, error) => return Err(without_effect(Trouble::Zk(error))),
        })
    }

    /// Decides about a path that must be free and is taken: an empty container is replaced.
    async fn replace_container(&mut self, index: usize) -> Result<Option<RejectReason>> {
        let path = self.txn.ops[index].path();
        if self.creates_below(index, path) {
            return Ok(Some(RejectReason::Exists));
        }
        if self.follow_up_shows(path) {
            return Ok(Some(RejectReason::Exists));
        }
        self.follow_up = None;
        let occupant =
            occupant(self.connection, self.client, path, &self.deleted_before(index)).await;
        Ok(match occupant.map_err(without_effect)? {
            Occupant::Nothing => None,
            Occupant::Node => Some(RejectReason::Exists),
            Occupant::EmptyContainers(empty) => {
                self.facts.empty_containers.insert(index, empty);
                None
            }
        })
    }

    /// Decides about a node to be deleted that has children: empty containers are deleted with it.
    async fn clear_below(&mut self, index: usize) -> Result<Option<RejectReason>> {
        let path = self.txn.ops[index].path();
        self.follow_up = None;
        let below = if self.creates_below(index, path) {
            Occupant::Node
        } else {
            let below =
                occupant_below(self.connection, self.client, path, &self.deleted_before(index))
                    .await;
            below.map_err(without_effect)?
        };
        Ok(match below {
            Occupant::Nothing => None,
            Occupant::Node => Some(RejectReason::HasChildren),
            Occupant::EmptyContainers(_) if self.find_no_node(path).await? => {
                Some(RejectReason::Missing)
            }
            Occupant::EmptyContainers(empty) => {
                self.facts.empty_containers.insert(index, empty);
                None
            }
        })
    }

    /// Decides about a version that differs. It may be the version of a container, which is not a
    /// node.
    async fn other_version(&mut self, index: usize) -> Result<RejectReason> {
        let txn = self.txn;
        let op = &txn.ops[index];
        if !self.find_no_node(op.path()).await? {
            return Ok(RejectReason::OtherVersion);
        }
        if matches!(op, Op::Delete { .. }) && self.creates_below(index, op.path()) {
            return Ok(RejectReason::HasChildren);
        }
        let below =
            occupant_below(self.connection, self.client, op.path(), &self.deleted_before(index))
                .await;
        Ok(match (op, below.map_err(without_effect)?) {
            (Op::Delete { .. }, Occupant::Node) => RejectReason::HasChildren,
            _ => RejectReason::Missing,
        })
    }

    /// Returns true if the path has no node: it is empty, or a container. A container that caused
    /// the refusal may have been collected since.
    async fn find_no_node(&mut self, path: &Path) -> Result<bool> {
        if self.facts.missing.contains(path) {
            return Ok(true);
        }
        if self.follow_up_shows(path) {
            return Ok(false);
        }
        self.follow_up = None;
        let (sync, data) = (self.client.sync("/"), self.client.get_data(path.as_str()));
        let answer = self.connection.answer(async { Ok((sync.await?, data.await).1) }).await;
        match answer.map_err(without_effect)? {
            Ok((data, stat)) => Ok(is_container(&data, &stat)),
            Err(ZkError::NoNode) => Ok(true),
            Err(error) => Err(without_effect(Trouble::Zk(error))),
        }
    }

    /// Returns `true` if the follow-up read that was sent with the refused request found a node at
    /// the path.
    fn follow_up_shows(&self, path: &Path) -> bool {
        let nodes = self.follow_up.iter().flat_map(|view| &view.nodes);
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
        let answer =
            self.connection.answer(async { Ok((sync.await?, join_all(reads).await).1) }).await;
        let mut missing = BTreeSet::new();
        for (above, stat) in above.into_iter().zip(answer.map_err(without_effect)?) {
            if stat.map_err(|error| without_effect(Trouble::Zk(error)))?.is_none() {
                missing.insert(above);
            }
        }
        for (index, op) in self.txn.ops.iter().enumerate().filter(|(_, op)| is_absence(op)) {
            let stays_missing =
                |above: &Path| missing.contains(above) && !self.creates_at_or_below(index, above);
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
    fn deleted_before(&self, index: usize) -> BTreeSet<&'a Path> {
        let before = &self.txn.ops[..index];
        before.iter().filter(|op| matches!(op, Op::Delete { .. })).map(Op::path).collect()
    }

    /// Returns `true` if the transaction creates something below `path` before this operation.
    fn creates_below(&self, index: usize, path: &Path) -> bool {
        let before = &self.txn.ops[..index];
        before.iter().any(|op| is_create(op) && op.path().is_below(path))
    }

    /// Returns `true` if the transaction creates `path` before this operation.
    fn creates(&self, index: usize, path: &Path) -> bool {
        self.txn.ops[..index].iter().any(|op| is_create(op) && op.path() == path)
    }

    /// Returns `true` if the transaction creates `path`, or something below it, before this
    /// operation.
    fn creates_at_or_below(&self, index: usize, path: &Path) -> bool {
        self.creates(index, path) || self.creates_below(index, path)
    }
}

/// Returns `true` if the operation creates a visible node.
fn is_create(op: &Op) -> bool {
    matches!(op, Op::Create { .. }) && !is_container_create(op)
}

/// Returns `true` if the operation only requires that nothing exists.
fn is_absence(op: &Op) -> bool {
    matches!(op, Op::Check { expect: Expect::Absent, .. }) || is_container_create(op)
}

fn is_container_create(op: &Op) -> bool {
    matches!(op, Op::Create { lifetime: Lifetime::Container, .. })
}

/// The error of a request after which nothing can have changed.
pub(crate) fn without_effect(trouble: Trouble) -> Error {
    trouble.translate("commit", Sort::Read)
}

/// The error of an operation that an access list does not permit. The permissions to create and to
/// delete a node are those of its parent.
fn denied_op(op: &Op) -> Error {
    let path = op.path();
    let parent = path.parent().unwrap_or_else(Path::root);
    match op {
        Op::Create { .. } => denied("commit", &parent, "create"),
        Op::Delete { .. } => denied("commit", &parent, "delete"),
        Op::Set { .. } => denied("commit", path, "write"),
        Op::Check { .. } => denied("commit", path, "read"),
    }
}
