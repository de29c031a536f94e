//! [`Shared`]: the state that the members of a cluster share, and the faults of each.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use synod_core::task::spawn;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tonic::Code;

use super::answer::Answer;
use super::refusal::Refusal;
use super::request::Request;
use super::script::{Act, Kind, Script};
use super::shown::Shown;
use super::state::State;

/// The time that a member waits for a leader, or for the others, before it returns an error.
const TIMEOUT: Duration = Duration::from_secs(7);

/// A callback for the id of a lease that expires.
type Ended = Box<dyn Fn(i64) + Send + Sync>;

/// One state, shared by several members.
pub(crate) struct Shared {
    state: Mutex<State>,
    script: Mutex<Script>,
    members: Mutex<Vec<Member>>,
    /// Set whenever something happened, so that a test can wait for a change.
    pub(crate) moved: Shown<()>,
    pub(crate) watches: AtomicUsize,
    pub(crate) connections: AtomicUsize,
    /// The number of all connections so far.
    pub(crate) dialled: AtomicUsize,
    pub(crate) networks: AtomicUsize,
    pub(crate) ended: Mutex<Option<Ended>>,
}

/// The condition of a member.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own that a script sets")]
pub(crate) struct Member {
    /// The member accepts no connection.
    pub(crate) down: bool,
    /// The member has no leader, and so cannot agree with the others.
    pub(crate) leaderless: bool,
    /// The member has no vote, and answers only few requests.
    pub(crate) learner: bool,
    /// The member applies nothing after this revision.
    pub(crate) behind: Option<i64>,
    /// The version that it reports, if any.
    pub(crate) version: Option<&'static str>,
    /// Not a member, but etcd's gRPC proxy in front of one.
    pub(crate) proxy: bool,
    /// The behaviour of a new connection.
    pub(crate) door: Door,
}

/// The behaviour of a new connection, as with a dead host or a load balancer without servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Door {
    /// A connection that reaches the member.
    #[default]
    Open,
    /// No connection: the attempt gets no answer.
    Drops,
    /// A connection that is accepted and closed.
    Closes,
    /// A connection that is accepted, and on which nothing comes back.
    Silent,
}

/// The sender of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller {
    pub(crate) token: Option<String>,
    pub(crate) wants_leader: bool,
}

impl Shared {
    pub(crate) fn new(members: usize) -> Self {
        Self {
            state: Mutex::default(),
            script: Mutex::default(),
            members: Mutex::new(vec![Member::default(); members]),
            moved: Shown::default(),
            watches: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            dialled: AtomicUsize::new(0),
            networks: AtomicUsize::new(0),
            ended: Mutex::default(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn next(&self, kind: Kind, member: usize, network: usize) -> Option<Act> {
        self.script().next(kind, member, network)
    }

    pub(crate) fn member(&self, member: usize) -> Member {
        self.members()[member]
    }

    pub(crate) fn members(&self) -> MutexGuard<'_, Vec<Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_member(&self, member: usize, set: impl FnOnce(&mut Member)) {
        set(&mut self.members()[member]);
        self.moved();
    }

    /// Restarts every member, so that all connections break; `change` is made while they are down.
    pub(crate) async fn restart(&self, change: impl FnOnce(&mut State)) {
        let members = self.members().len();
        for member in 0..members {
            self.set_member(member, |member| member.down = true);
        }
        sleep(Duration::from_millis(100)).await;
        change(&mut self.state());
        for member in 0..members {
            self.set_member(member, |member| member.down = false);
        }
    }

    pub(crate) fn moved(&self) {
        self.moved.set(());
    }

    /// The revision up to which a member has applied changes.
    pub(crate) fn applied(&self, member: usize) -> i64 {
        let behind = self.member(member).behind;
        let revision = self.state().keys.revision;
        behind.map_or(revision, |behind| behind.min(revision))
    }

    /// Applies a request, once the members agree.
    pub(crate) async fn apply(
        &self,
        member: usize,
        caller: &Caller,
        request: &Request,
    ) -> Result<Answer, Refusal> {
        let serializable = request.is_serializable();
        self.admits(member, caller, serializable)?;
        if !serializable && timeout(TIMEOUT, self.agrees(member)).await.is_err() {
            return Err(Refusal::etcd(Code::Unavailable, "request timed out"));
        }
        let applied = self.applied(member);
        let mut state = self.state();
        if request.is_of_keys() || request.is_of_leases() && state.users.guards_leases {
            state.users.check(caller.token.as_deref())?;
        }
        let answer = state.apply(member, applied, request);
        drop(state);
        self.moved();
        answer
    }

    /// [`Shared::apply`] after this time, even if the caller is gone.
    pub(crate) async fn apply_late(
        self: Arc<Self>,
        member: usize,
        caller: Caller,
        request: Request,
        late: Duration,
    ) -> Result<Answer, Refusal> {
        let (tell, told) = oneshot::channel();
        let work = async move {
            sleep(late).await;
            let answer = self.apply(member, &caller, &request).await;
            let _heard = tell.send(answer).is_ok();
        };
        spawn(work).let_go();
        told.await.unwrap_or_else(|_gone| Err(Refusal::new(Code::Unavailable, "gone")))
    }

    /// Checks that a member accepts requests of this kind.
    pub(crate) fn admits(
        &self,
        member: usize,
        caller: &Caller,
        serializable: bool,
    ) -> Result<(), Refusal> {
        let member = self.member(member);
        if member.learner && !serializable {
            return Err(Refusal::etcd(Code::Unavailable, "rpc not supported for learner"));
        }
        if member.leaderless && caller.wants_leader {
            return Err(Refusal::etcd(Code::Unavailable, "no leader"));
        }
        Ok(())
    }

    async fn agrees(&self, member: usize) {
        let mut moved = self.moved.subscribe();
        loop {
            let now = self.member(member);
            if !now.leaderless && now.behind.is_none() {
                return;
            }
            moved.changed().await;
        }
    }

    /// Expires each lease when its time is over.
    pub(crate) async fn expire(self: Arc<Self>) {
        let mut moved = self.moved.subscribe();
        loop {
            let first = self.state().leases.first();
            let Some((lease, at)) = first else {
                moved.changed().await;
                continue;
            };
            if timeout(at.saturating_duration_since(tokio::time::Instant::now()), moved.changed())
                .await
                .is_ok()
            {
                continue;
            }
            if let Some(ended) = &*self.ended.lock().unwrap_or_else(PoisonError::into_inner) {
                ended(lease);
            }
            let _ended = self.state().end(lease).is_ok();
            self.moved();
        }
    }

    pub(crate) fn count(count: &AtomicUsize) -> usize {
        count.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("state", &self.state).finish_non_exhaustive()
    }
}

/// Counts one object as long as it lives.
#[derive(Debug)]
pub(crate) struct Counted {
    shared: Arc<Shared>,
    of: fn(&Shared) -> &AtomicUsize,
}

impl Counted {
    pub(crate) fn new(shared: &Arc<Shared>, of: fn(&Shared) -> &AtomicUsize) -> Self {
        of(shared).fetch_add(1, Ordering::Relaxed);
        Self { shared: shared.clone(), of }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.of)(&self.shared).fetch_sub(1, Ordering::Relaxed);
    }
}
