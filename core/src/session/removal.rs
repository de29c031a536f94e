//! Removing exactly the nodes that a session made, however long that takes.

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

/// A node that this session made.
pub(super) struct Own {
    path: Path,
    /// Its incarnation; `None` if no other node ever has its path.
    created: Option<Revision>,
    ephemeral: bool,
}

/// The result of one attempt to remove a node.
enum Tried {
    Removed,
    Missing,
    /// It was written meanwhile.
    Changed,
}

/// How to find the node of a sequential create whose effect is unknown.
#[derive(Clone)]
pub(super) struct Trail {
    /// The path that was given; the store may have added to it.
    path: Path,
    /// The session that must own it.
    owner: Option<SessionId>,
}

impl Own {
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

    /// Removes it, and does not give up before it is gone or its session is over.
    ///
    /// A store that refuses for as long as the session lives without a sign of life is not asked for ever. A node that
    /// stays then does harm only if it is ephemeral: others wait for it. So the session is ended with it.
    pub(super) async fn remove(self, context: &CallContext) {
        self.until_gone(context, |_error| {}).await;
    }

    /// [`Own::remove`] for a caller that waits; and whether the first request removed it. An error that the store
    /// says for certain is returned at once, and the removal goes on.
    pub(super) async fn tell_until_gone(
        self,
        context: &CallContext,
        tell: oneshot::Sender<Result<Requests>>,
    ) {
        let mut tell = Some(tell);
        let mut heard = |result| {
            if let Some(tell) = tell.take() {
                let _heard = tell.send(result).is_ok();
            }
        };
        let first = self.until_gone(context, |error| heard(Err(error))).await;
        heard(Ok(Requests::settled_if(first)));
    }

    async fn until_gone(self, context: &CallContext, mut refused: impl FnMut(Error)) -> bool {
        let path = self.path.clone();
        let ephemeral = self.ephemeral;
        let mut since = None;
        let mut delays = Retry::forever().delays(&context.tuning.random);
        let mut first = true;
        loop {
            if context.state.is_gone() || (self.ephemeral && context.state.loss().is_some()) {
                // It goes with its session, or nothing can be done about it.
                return false;
            }
            match self.remove_once(context).await {
                Ok(Tried::Removed) => return first,
                Ok(Tried::Missing) => return false,
                Ok(Tried::Changed) => {}
                Err(error) if error.kind() == ErrorKind::SessionLost => return false,
                Err(error) if self.is_given_up(&error) => {
                    refused(error);
                    return false;
                }
                Err(error) if error.kind() == ErrorKind::Unreachable => {
                    tracing::debug!(%path, %error, "trying again to remove a node");
                }
                Err(error) => {
                    let since = *since.get_or_insert_with(clock::now);
                    if clock::elapsed(since) >= context.store.session().ttl {
                        tracing::warn!(%path, %error, ephemeral, "a node that was given up stays");
                        if ephemeral {
                            context.state.end(SessionEnd::Closed);
                        }
                        return false;
                    }
                    tracing::debug!(%path, %error, "trying again to remove a node");
                    refused(error.with_unknown_effect());
                }
            }
            first = false;
            if let Some(delay) = delays.next() {
                context.rest(delay).await;
            }
        }
    }

    /// Whether the removal ends with this error. A node that is not ephemeral and has others below it blocks no
    /// waiter.
    fn is_given_up(&self, error: &Error) -> bool {
        mistake!(RemovalGivesUp: return true);
        error.kind() == ErrorKind::Refused && !self.ephemeral
    }

    async fn remove_once(&self, context: &CallContext) -> Result<Tried> {
        let created = self.created;
        mistake!(RemovesByPath: let created = None);
        let expect = match created {
            None => Expect::Any,
            Some(created) => match self.version(context, created).await? {
                Some(version) => Expect::Version(version),
                None => return Ok(Tried::Missing),
            },
        };
        match context.store.commit(Txn::new().delete(self.path.clone(), expect)).await? {
            Outcome::Committed(_) => Ok(Tried::Removed),
            Outcome::Rejected(no) if no.reason == RejectReason::Missing => Ok(Tried::Missing),
            Outcome::Rejected(no) if no.reason == RejectReason::OtherVersion => Ok(Tried::Changed),
            Outcome::Rejected(no) => Err(Error::new(ErrorKind::Refused, DOING)
                .at(&no.path)
                .because(no.reason.to_string())),
        }
    }

    /// Which version this incarnation is in, if it still is.
    async fn version(&self, context: &CallContext, created: Revision) -> Result<Option<Version>> {
        let view = context.store.read(Query::node(self.path.clone()).names_only()).await?;
        let stat = view.into_node().and_then(|node| node.stat);
        Ok(stat.filter(|stat| stat.created == created).map(|stat| stat.version))
    }
}

/// Removes every node that this session makes at `path`, but for those that are kept, until the session is over.
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
                Own::incarnation(path.clone(), created, true).remove(context).await;
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

impl Trail {
    /// The trail of a sequential create that the session `me` sends.
    pub(super) fn of(op: &Op, me: SessionId) -> Option<Self> {
        let Op::Create { path, lifetime, sequential: true, .. } = op else { return None };
        let owner = (*lifetime == Lifetime::Session).then_some(me);
        Some(Self { path: path.clone(), owner })
    }

    /// The node, if it is there and this session's.
    pub(super) async fn find(&self, context: &CallContext) -> Result<Option<OpResult>> {
        self.find_other(None, context).await
    }

    /// The node, if it is there and this session's, and was not created at `known`.
    async fn find_other(
        &self,
        known: Option<Revision>,
        context: &CallContext,
    ) -> Result<Option<OpResult>> {
        let Some(dir) = self.path.parent() else { return Ok(None) };
        let query = Query::children(dir.clone()).starting_with(self.path.name());
        mistake!(LooksWithoutSync: let query = query.local());
        mistake!(AdoptsStranger: let query = Query::children(dir));
        let view = context.store.read(query).await?;
        let other = |node: &Node| known.is_none() || node.stat.map(|stat| stat.created) != known;
        Ok(view.nodes.into_iter().filter(other).find_map(|node| self.adopt(node)))
    }

    /// A node of the same name may belong to a session that is ending: it is not this session's, and will not stay.
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

    /// Removes what other sendings of the create make after all, when the node of one, `created` then, was
    /// removed again already. No caller would know of it.
    pub(super) async fn guard(self, created: Revision, context: CallContext) {
        while let Some(late) = self.comes_late(Some(created), &context).await
            && let Some(stat) = late.stat
        {
            let ephemeral = self.owner.is_some();
            Own::incarnation(late.path, stat.created, ephemeral).remove(&context).await;
            mistake!(OneLateComerExpected: return);
        }
    }

    /// Removes the node, and goes on looking for a while if it is not there: it may come late. If it was sent
    /// more than once, each of them may make one, the second when the first is removed.
    pub(super) async fn erase(self, repeated: bool, context: CallContext) {
        while let Some(late) = self.comes_late(None, &context).await {
            Own::unique(late.path, self.owner.is_some()).remove(&context).await;
            mistake!(OneLateComerExpected: return);
            if !repeated {
                return;
            }
        }
    }

    /// Looks for a node other than the one that was created at `known`, for as long as one may come. What
    /// is answered after that time may be of a moment within it; and a store that does not answer may
    /// still have the create before it.
    async fn comes_late(&self, known: Option<Revision>, context: &CallContext) -> Option<OpResult> {
        let ttl = context.store.session().ttl;
        let mut refused = None;
        let mut last = clock::now().checked_add(ttl);
        let mut delays = Retry::forever().delays(&context.tuning.random);
        while !context.state.is_gone() {
            let over = context.state.loss().is_some();
            if over && self.owner.is_some() {
                return None;
            }
            let called = clock::now();
            match self.find_other(known, context).await {
                Ok(Some(late)) => return Some(late),
                Ok(None) if over => return None,
                Ok(None) if last.is_none_or(|last| called >= last) => break,
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::SessionLost => return None,
                Err(error) if error.kind() == ErrorKind::Unreachable => {
                    last = clock::now().checked_add(ttl);
                }
                Err(error) => {
                    let since = *refused.get_or_insert_with(clock::now);
                    if clock::elapsed(since) >= ttl {
                        tracing::warn!(path = %self.path, %error, "could not look for a node");
                        if self.owner.is_some() {
                            // It may be there, and others may wait for it.
                            context.state.end(SessionEnd::Closed);
                        }
                        return None;
                    }
                    last = clock::now().checked_add(ttl);
                }
            }
            context.rest(delays.next().unwrap_or(Duration::from_secs(1))).await;
        }
        self.comes_last(known, context).await
    }

    /// Waits for a request that a server held for longer than the looks go on: a server that was paused or cut
    /// off from its leader. It makes an ephemeral node that no client knows of, and other clients would wait
    /// for it until the session ends.
    ///
    /// Only the given path is watched. A store that adds to the name refuses the requests of a connection that the session
    /// has left.
    async fn comes_last(&self, known: Option<Revision>, context: &CallContext) -> Option<OpResult> {
        self.owner?;
        let mut delays = Retry::forever().delays(&context.tuning.random);
        while context.state.loss().is_none() {
            if let Ok((view, mut watch)) = context.store.watch(Query::node(self.path.clone())).await
            {
                let other = |node: &Node| node.stat.map(|stat| stat.created) != known;
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
