//! The removal of exactly the nodes that a session created, with any number of attempts.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::select;
use tokio::sync::oneshot;

use crate::clock;

use crate::error::{Error, ErrorKind, Result};
use crate::mutant::mistake;
use crate::path::Path;
use crate::retry::Retry;
use crate::session::call_context::CallContext;
use crate::session::requests::Requests;
use crate::store::{
    Expect, Lifetime, Node, Op, OpResult, Outcome, Query, RejectReason, Revision, SessionEnd,
    SessionId, Txn, Version,
};

const DOING: &str = "removing a node";

/// A node that this session created.
pub(super) struct OwnNode {
    path: Path,
    /// The incarnation; `None` if no other node ever has its path.
    created: Option<Revision>,
    ephemeral: bool,
}

/// The result of one attempt to remove a node.
enum RemovalAttempt {
    Removed,
    Missing,
    /// The node was written in between.
    Changed,
}

/// The path and the owner by which to find the node of a sequential create whose effect is unknown.
#[derive(Clone)]
pub(super) struct NodeSearch {
    /// The path that was sent; the store may have appended to it.
    path: Path,
    /// The session that must own the node.
    owner: Option<SessionId>,
}

impl OwnNode {
    pub(super) fn unique(path: Path, ephemeral: bool) -> Self {
        Self { path, created: None, ephemeral }
    }

    pub(super) fn incarnation(path: Path, created: Revision, ephemeral: bool) -> Self {
        Self { path, created: Some(created), ephemeral }
    }

    pub(super) fn of(done: &OpResult) -> Result<Self> {
        let (path, ephemeral) = (done.path.clone(), done.owner().is_some());
        match (done.sequence, done.stat) {
            (Some(_), _) => Ok(Self::unique(path, ephemeral)),
            (None, Some(stat)) => Ok(Self::incarnation(path, stat.created, ephemeral)),
            (None, None) => Err(Error::new(ErrorKind::Invalid, DOING)
                .at(&path)
                .because("the result has no stat, so the incarnation of the path is unknown")),
        }
    }

    /// Removes the node, and continues until the node is gone or its session is over.
    ///
    /// If the store rejects the removal for the TTL of the session, the removal ends. A node that
    /// is left blocks other clients only if it is ephemeral, so the session is then ended.
    pub(super) async fn remove(self, context: &CallContext) {
        self.until_gone(context, |_error| {}).await;
    }

    /// [`OwnNode::remove`] for a caller that waits. Reports whether the first request removed the
    /// node. The first error that is not an outage is reported immediately, and the removal
    /// continues.
    pub(super) async fn remove_and_report(
        self,
        context: &CallContext,
        reply: oneshot::Sender<Result<Requests>>,
    ) {
        let mut reply = Some(reply);
        let mut report = |result| {
            if let Some(reply) = reply.take() {
                let _received = reply.send(result).is_ok();
            }
        };
        let first = self.until_gone(context, |error| report(Err(error))).await;
        report(Ok(Requests::settled_if(first)));
    }

    async fn until_gone(self, context: &CallContext, mut on_error: impl FnMut(Error)) -> bool {
        let path = self.path.clone();
        let ephemeral = self.ephemeral;
        let mut since = None;
        let mut delays = Retry::forever().delays(&context.tuning.random);
        let mut first = true;
        loop {
            if context.state.is_lost_at_store()
                || (self.ephemeral && context.state.loss().is_some())
            {
                // The node is removed with its session, or can no longer be removed.
                return false;
            }
            match self.remove_once(context).await {
                Ok(RemovalAttempt::Removed) => return first,
                Ok(RemovalAttempt::Missing) => return false,
                Ok(RemovalAttempt::Changed) => {}
                Err(error) if error.kind() == ErrorKind::SessionLost => return false,
                Err(error) if self.is_final(&error) => {
                    on_error(error);
                    return false;
                }
                Err(error) if error.kind() == ErrorKind::Unreachable => {
                    tracing::debug!(%path, %error, "retrying the removal of a node");
                }
                Err(error) => {
                    let since = *since.get_or_insert_with(clock::now);
                    if clock::elapsed(since) >= context.store.session().ttl {
                        tracing::warn!(%path, %error, ephemeral, "could not remove a node; it stays");
                        if ephemeral {
                            context.state.end(SessionEnd::Closed);
                        }
                        return false;
                    }
                    tracing::debug!(%path, %error, "retrying the removal of a node");
                    on_error(error.with_unknown_effect());
                }
            }
            first = false;
            if let Some(delay) = delays.next() {
                context.rest(delay).await;
            }
        }
    }

    /// Returns `true` if the removal ends with this error. A node that is not ephemeral and has
    /// children blocks no waiter.
    fn is_final(&self, error: &Error) -> bool {
        mistake!(RemovalGivesUp: return true);
        error.kind() == ErrorKind::Refused && !self.ephemeral
    }

    async fn remove_once(&self, context: &CallContext) -> Result<RemovalAttempt> {
        let created = self.created;
        mistake!(RemovesByPath: let created = None);
        let expect = match created {
            None => Expect::Any,
            Some(created) => match self.version(context, created).await? {
                Some(version) => Expect::Version(version),
                None => return Ok(RemovalAttempt::Missing),
            },
        };
        match context.store.commit(Txn::new().delete(self.path.clone(), expect)).await? {
            Outcome::Committed(_) => Ok(RemovalAttempt::Removed),
            Outcome::Rejected(no) if no.reason == RejectReason::Missing => {
                Ok(RemovalAttempt::Missing)
            }
            Outcome::Rejected(no) if no.reason == RejectReason::OtherVersion => {
                Ok(RemovalAttempt::Changed)
            }
            Outcome::Rejected(no) => Err(Error::new(ErrorKind::Refused, DOING)
                .at(&no.path)
                .because(no.reason.to_string())),
        }
    }

    /// Returns the current version of this incarnation, if it still exists.
    async fn version(&self, context: &CallContext, created: Revision) -> Result<Option<Version>> {
        let view = context.store.read(Query::node(self.path.clone()).names_only()).await?;
        let stat = view.into_node().and_then(|node| node.stat);
        Ok(stat.filter(|stat| stat.created == created).map(|stat| stat.version))
    }
}

/// Removes every node that this session creates at `path`, except nodes that are kept, until the
/// session is over.
pub(super) async fn retract(
    context: &CallContext,
    path: Path,
    is_kept: impl Fn(Revision) -> Option<bool>,
) {
    let me = context.store.session().id;
    let forever = || Retry::forever().delays(&context.tuning.random);
    let mut delays = forever();
    while context.state.loss().is_none() {
        let observed = context.store.watch(Query::node(path.clone()).names_only()).await;
        let Ok((view, mut watch)) = observed else {
            context.rest(delays.next().unwrap_or_default()).await;
            continue;
        };
        let stat = view.into_node().and_then(|node| node.stat);
        let own = stat.filter(|stat| stat.owner == Some(me)).map(|stat| stat.created);
        let verdict = own.map_or(Some(true), &is_kept);
        match (verdict, own) {
            (Some(false), Some(created)) => {
                OwnNode::incarnation(path.clone(), created, true).remove(context).await;
            }
            (None, _) => {
                context.rest(delays.next().unwrap_or_default()).await;
                continue;
            }
            _ => {
                let _event_or_end = select(pin!(watch.next()), pin!(context.state.lost())).await;
            }
        }
        delays = forever();
    }
}

impl NodeSearch {
    /// Returns the search for the node of a sequential create that the session `me` sends.
    pub(super) fn of(op: &Op, me: SessionId) -> Option<Self> {
        let Op::Create { path, lifetime, sequential: true, .. } = op else { return None };
        let owner = (*lifetime == Lifetime::Session).then_some(me);
        Some(Self { path: path.clone(), owner })
    }

    /// Returns the node, if it exists and this session owns it.
    pub(super) async fn find(&self, context: &CallContext) -> Result<Option<OpResult>> {
        self.find_other(None, context).await
    }

    /// Returns the node, if it exists, this session owns it, and it was not created at `excluded`.
    async fn find_other(
        &self,
        excluded: Option<Revision>,
        context: &CallContext,
    ) -> Result<Option<OpResult>> {
        let Some(dir) = self.path.parent() else { return Ok(None) };
        let query = Query::children(dir.clone()).starting_with(self.path.name());
        mistake!(LooksWithoutSync: let query = query.local());
        mistake!(AdoptsStranger: let query = Query::children(dir));
        let view = context.store.read(query).await?;
        let other =
            |node: &Node| excluded.is_none() || node.stat.map(|stat| stat.created) != excluded;
        Ok(view.nodes.into_iter().filter(other).find_map(|node| self.adopt(node)))
    }

    /// Accepts a node that this session owns. A node of the same name may belong to a session that
    /// is ending: it will not stay.
    fn adopt(&self, node: Node) -> Option<OpResult> {
        let stat = node.stat?;
        let ours = stat.owner == self.owner;
        mistake!(ForeignAdopted: let ours = true);
        let named = node.path.as_str().starts_with(self.path.as_str());
        mistake!(AdoptsStranger: let named = true);
        if !ours || !named {
            return None;
        }
        let done = OpResult::new(node.path).with_stat(stat);
        Some(match node.sequence {
            Some(sequence) => done.with_sequence(sequence),
            None => done,
        })
    }

    /// Removes the nodes that late duplicates of the create request may still create once the node
    /// that was created at `created` was removed: no caller would know of them.
    pub(super) async fn remove_late(self, created: Revision, context: CallContext) {
        while let Some(late) = self.find_late(Some(created), &context).await
            && let Some(stat) = late.stat
        {
            let ephemeral = self.owner.is_some();
            OwnNode::incarnation(late.path, stat.created, ephemeral).remove(&context).await;
            mistake!(OneLateComerExpected: return);
        }
    }

    /// Removes the node, and continues to search for a while if it does not exist: its request may
    /// be delayed. If the create was sent more than once, each request may create a node, the
    /// second one when the first is removed.
    pub(super) async fn remove_found(self, repeated: bool, context: CallContext) {
        while let Some(late) = self.find_late(None, &context).await {
            OwnNode::unique(late.path, self.owner.is_some()).remove(&context).await;
            mistake!(OneLateComerExpected: return);
            if !repeated {
                return;
            }
        }
    }

    /// Searches for a node other than the one that was created at `excluded`, as long as a late
    /// request may create one. An answer after that time may reflect an earlier state, and a store
    /// that does not answer may still apply the create before it answers.
    async fn find_late(
        &self,
        excluded: Option<Revision>,
        context: &CallContext,
    ) -> Option<OpResult> {
        let ttl = context.store.session().ttl;
        let mut rejected_since = None;
        let mut last = clock::now().checked_add(ttl);
        let mut delays = Retry::forever().delays(&context.tuning.random);
        while !context.state.is_lost_at_store() {
            let over = context.state.loss().is_some();
            if over && self.owner.is_some() {
                return None;
            }
            let called = clock::now();
            match self.find_other(excluded, context).await {
                Ok(Some(late)) => return Some(late),
                Ok(None) if over => return None,
                Ok(None) if last.is_none_or(|last| called >= last) => break,
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::SessionLost => return None,
                Err(error) if error.kind() == ErrorKind::Unreachable => {
                    last = clock::now().checked_add(ttl);
                }
                Err(error) => {
                    let since = *rejected_since.get_or_insert_with(clock::now);
                    if clock::elapsed(since) >= ttl {
                        tracing::warn!(path = %self.path, %error, "could not search for a node");
                        if self.owner.is_some() {
                            // The node may exist, and others may wait for it.
                            context.state.end(SessionEnd::Closed);
                        }
                        return None;
                    }
                    last = clock::now().checked_add(ttl);
                }
            }
            context.rest(delays.next().unwrap_or(Duration::from_secs(1))).await;
        }
        self.wait_for_late(excluded, context).await
    }

    /// Waits for a request that a server held for longer than the search: a server that was paused
    /// or cut off from its leader. It creates an ephemeral node that no client knows of, and other
    /// clients would wait for it until the session ends.
    ///
    /// Only the given path is watched. A store that appends to the name rejects the requests of a
    /// connection that the session has left.
    async fn wait_for_late(
        &self,
        excluded: Option<Revision>,
        context: &CallContext,
    ) -> Option<OpResult> {
        self.owner?;
        let mut delays = Retry::forever().delays(&context.tuning.random);
        while context.state.loss().is_none() {
            if let Ok((view, mut watch)) = context.store.watch(Query::node(self.path.clone())).await
            {
                let other = |node: &Node| node.stat.map(|stat| stat.created) != excluded;
                if let Some(late) = view.into_node().filter(other).and_then(|it| self.adopt(it)) {
                    return Some(late);
                }
                let _event_or_end = select(pin!(watch.next()), pin!(context.state.lost())).await;
            }
            context.rest(delays.next().unwrap_or(Duration::from_secs(1))).await;
        }
        None
    }
}
