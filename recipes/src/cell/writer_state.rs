//! [`WriterState`]: the write id of a writer and the nodes that it knows; [`Written`]: one write,
//! sent until its effect is known.

use bytes::Bytes;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::retry::Retry;
use synod_core::session::Session;
use synod_core::store::{Commit, Expect, Lifetime, Outcome, RejectReason, Stat, Txn, View};

use crate::cell::change::{DOING, StoredValue};
use crate::cell::promotion::{PriorityGate, ValueNodes};
use crate::mutant::mistake;
use crate::support::exactly_once::attempts::{CommitAttempts, CommitReply};
use crate::support::exactly_once::settling::write_id_removed;
use crate::support::exactly_once::write_id::{WriteId, WriteVerdict};

/// The start of the name of a write id below a value.
const NAME: &str = "writer-";

/// The index of the check of the gate in a write.
const GATE: usize = 1;

/// The write id of a writer below its value, and the value and the gate, if they are known.
pub(super) struct WriterState {
    pub(super) write_id: WriteId,
    pub(super) value: Option<StoredValue>,
    pub(super) gate: Option<PriorityGate>,
}

/// The effect of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Applied,
    /// The write was not applied, and never will be: there is another value, or the session is
    /// over.
    Lost,
    /// The session is over, and the write may have been applied.
    InDoubt,
}

impl WriterState {
    /// Creates a write id below the value, and reads the value once the write id exists. `None` if
    /// there is no node.
    pub(super) async fn open(session: &Session, nodes: &ValueNodes) -> Result<Option<Self>> {
        let txn = Txn::new().check(&nodes.value, Expect::Any);
        let txn = WriteId::create_with(txn, session, &nodes.value.join(NAME)?)?;
        match session.commit(txn.look(nodes.query())).await? {
            Outcome::Rejected(no) if no.index == 0 => Ok(None),
            outcome => {
                let mut commit = outcome.required()?;
                let view = commit.look.take();
                let write_id = WriteId::created_by(&mut commit, session, DOING)?;
                let mut state = Self { write_id, value: None, gate: None };
                state.record_view(nodes, view);
                Ok(Some(state))
            }
        }
    }

    /// Creates the node with this value, and a write id below it. `None` if there is a node.
    pub(super) async fn create(
        session: &Session,
        nodes: &ValueNodes,
        data: Bytes,
    ) -> Result<Option<Self>> {
        let value = Txn::new().create(&nodes.value, data.clone(), Lifetime::Persistent);
        let txn = WriteId::create_with(value, session, &nodes.value.join(NAME)?)?;
        mistake!(CreatesWithoutMark: let txn = {
            Txn::new().create(&nodes.value, data.clone(), Lifetime::Persistent)
        });
        match session.commit(txn).await? {
            Outcome::Rejected(no) if no.index == 0 && no.reason == RejectReason::Exists => Ok(None),
            outcome => {
                let mut commit = outcome.required()?;
                let stat = commit.results.first().and_then(|done| done.stat);
                let value = stat.map(|stat| StoredValue { data, stat });
                let write_id = WriteId::created_by(&mut commit, session, DOING)?;
                Ok(Some(Self { write_id, value, gate: None }))
            }
        }
    }

    /// Records the nodes of a view. Without a view, the known value is discarded.
    pub(super) fn record_view(&mut self, nodes: &ValueNodes, view: Option<View>) {
        let (value, mut gate) = nodes.found(view.unwrap_or_default());
        if let (Some(old), Some(new)) = (self.gate.take(), &mut gate) {
            new.inherit(old);
        }
        (self.value, self.gate) = (value, gate);
    }

    /// Returns the known value, or reads the value once the write id exists. `None` if the write id
    /// or the value is gone.
    pub(super) async fn refresh(&mut self, nodes: &ValueNodes) -> Result<Option<StoredValue>> {
        mistake!(ReadsFirst: self.value = None);
        if !self.write_id.is_known() && self.write_id.read().await?.is_none() {
            return Ok(None);
        }
        let session = self.write_id.session().clone();
        for was_created in [false, true] {
            if self.value.is_none() || nodes.lacks(self.gate.as_ref()) {
                self.record_view(nodes, Some(session.read(nodes.query()).await?));
            }
            if self.value.is_none() || !nodes.lacks(self.gate.as_ref()) {
                return Ok(self.value.clone());
            }
            if !was_created {
                nodes.create_gate(&session).await?;
            }
        }
        Err(nodes.missing_gate())
    }

    /// Returns `true` if the session of the write id is lost.
    pub(super) fn is_lost(&self) -> bool {
        self.write_id.session().is_lost()
    }

    /// Records an applied write.
    fn record_write(&mut self, stat: Option<Stat>, commit: &Commit, data: Bytes) {
        self.write_id.record_write(stat);
        let written = commit.results.first().and_then(|done| done.stat);
        self.value = written.map(|stat| StoredValue { data, stat });
    }
}

/// Discards the known value, which is or may be out of date.
pub(super) fn forget_value(state: &mut Option<WriterState>) {
    if let Some(state) = state {
        state.value = None;
    }
}

/// Discards the state, and returns `None`, if a request failed because the session was lost. Any
/// other error is returned.
pub(super) fn unless_lost<T>(
    state: &mut Option<WriterState>,
    result: Result<T>,
) -> Result<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::SessionLost => {
            *state = None;
            Ok(None)
        }
        result => result.map(Some),
    }
}

/// Replaces a value by `data`, within the time limit of a call. After every result except an
/// applied write, the state has no outdated value.
///
/// A write that `yields` is lost if a promoted change has closed the gate. A write with an unknown
/// effect does not yield: its effect is determined first, as a delayed request may still be
/// applied.
pub(super) async fn replace(
    state: &mut Option<WriterState>,
    nodes: &ValueNodes,
    from: &StoredValue,
    data: Bytes,
    yields: bool,
) -> Result<Written> {
    let Some(WriterState { write_id, gate, .. }) = state else { return Ok(Written::Lost) };
    let session = write_id.session().clone();
    let expect = Expect::Version(from.stat.version);
    let set = Txn::new().set(&nodes.value, data.clone(), expect).look_if_rejected(nodes.query());
    let (stamped, number) = write_id.stamp(set.clone());
    mistake!(WritesWithoutMark: let stamped = set);
    let gate = gate.as_ref().filter(|_| yields);
    let mut txn = gate.map_or_else(|| stamped.clone(), |gate| gate.guard(stamped.clone()));
    let limit = Retry::until_elapsed(session.timeout());
    let mut attempts = CommitAttempts::new(&session, &limit);
    loop {
        let error = match attempts.send(&txn).await {
            CommitReply::Applied(stat, commit) => {
                if let Some(state) = state {
                    state.record_write(stat, &commit, data);
                }
                return Ok(Written::Applied);
            }
            CommitReply::Rejected(no) if no.index == GATE && attempts.in_doubt() => {
                txn = stamped.clone();
                continue;
            }
            // The write id had the expected version, so no request was applied. None will be
            // applied later, because the expected version of the value does not recur while the
            // write id exists.
            CommitReply::Rejected(no) => {
                if let Some(state) = state {
                    state.record_view(nodes, no.look);
                }
                return Ok(Written::Lost);
            }
            CommitReply::WriteIdChanged => {
                return judge(state, nodes, &number, attempts.in_doubt()).await;
            }
            CommitReply::Failed(error) => return fail(state, error, attempts.in_doubt()),
            CommitReply::Unanswered(error) => error,
        };
        mistake!(LostAnswerIsLostRace: {
            forget_value(state);
            return Ok(Written::Lost);
        });
        if let Err(error) = attempts.wait(error).await {
            return fail(state, error, true);
        }
    }
}

/// Determines from the write id, which another request has changed, whether a write was applied.
async fn judge(
    state: &mut Option<WriterState>,
    nodes: &ValueNodes,
    number: &[u8],
    in_doubt: bool,
) -> Result<Written> {
    let Some(WriterState { write_id, value, .. }) = state else { return Ok(Written::Lost) };
    *value = None;
    let node = match write_id.read().await {
        Ok(node) => node,
        Err(error) => return fail(state, error, in_doubt),
    };
    match WriteVerdict::of(node.as_ref(), number) {
        WriteVerdict::Applied(_) => Ok(Written::Applied),
        // The request expects a version that the write id never has again.
        WriteVerdict::Open(_) | WriteVerdict::Void => Ok(Written::Lost),
        WriteVerdict::Gone => {
            *state = None;
            if in_doubt { Err(write_id_removed(DOING).at(&nodes.value)) } else { Ok(Written::Lost) }
        }
    }
}

/// The result of a write that cannot continue. The state is dropped and the write id with it, so
/// that a delayed request is rejected.
fn fail(state: &mut Option<WriterState>, error: Error, in_doubt: bool) -> Result<Written> {
    *state = None;
    mistake!(LossEndsChange: return Err(error.with_unknown_effect()));
    let in_doubt = in_doubt || error.has_unknown_effect();
    match (error.kind(), in_doubt) {
        (ErrorKind::SessionLost, false) => Ok(Written::Lost),
        (ErrorKind::SessionLost, true) => Ok(Written::InDoubt),
        (_, false) => Err(error),
        (_, true) => Err(error.with_unknown_effect()),
    }
}
