//! Sends a [`Plan`]; an operation that the server refuses is either final or repaired (`refusal.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::{OptionFuture, join_all, join3};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{
    Commit, Lifetime, Op, OpResult, Outcome, Rejected, Revision, SessionId, Stat, Txn, Version,
    View,
};
use tokio::time::Instant;

use crate::client::{MultiWriteError, MultiWriteResult, ZkError, ZkStat};
use crate::connection::Connection;
use crate::container;
use crate::error::{Sort, Trouble};
use crate::hub::Hub;
use crate::look::Look;
use crate::plan::{Act, Facts, Plan, Role, Step};
use crate::refusal::{Writing, unsent};
use crate::selection::{LAST, sequence};
use crate::single_operation::{
    Got, Refusal, definite, exhausted, lone, ran_out, remember, request, send_lone, take_back,
    take_result,
};
use crate::stat::translate;

/// How often a transaction is planned again while other clients change the nodes that it depends
/// on; plus once for each of its operations, which may each need a repair of their own.
const ATTEMPTS: usize = 40;

/// Applies a transaction that was validated.
pub(crate) async fn commit(hub: &Arc<Hub>, txn: &Txn) -> Result<Outcome> {
    let wire = &*hub.wire;
    let client = wire.client("commit")?;
    let vacated = vacated(wire, txn);
    let mut refused = None;
    if let Some(op) = lone(txn, &vacated) {
        match send_lone(hub, &client, op, Look::of(hub, &client, txn)).await? {
            Ok(commit) => return Ok(Outcome::Committed(commit)),
            Err((said, seen)) => refused = Some((said, seen)),
        }
    }
    let facts = Facts { vacated, ..Facts::default() };
    // Boxed: most transactions do not need this future, and should not carry its state.
    Box::pin(Writing { hub, wire, client: &client, txn, facts, seen: None }.commit(refused)).await
}

/// The operations that create a lasting node where the session has just removed a container.
fn vacated(wire: &Connection, txn: &Txn) -> BTreeSet<usize> {
    let stays = |op: &Op| match op {
        Op::Create { lifetime, sequential, .. } => {
            !sequential && !matches!(lifetime, Lifetime::Session | Lifetime::Container)
        }
        _ => false,
    };
    let ops = txn.ops.iter().enumerate();
    ops.filter(|(_, op)| stays(op) && wire.vacated.has(op.path())).map(|(index, _)| index).collect()
}

/// The result of sending a plan.
enum Sent<'a> {
    Done(Commit),
    /// With the answer to the look, if one was sent along.
    Refused(&'a Step, ZkError, Option<View>),
}

/// The answer to a request: everything was applied, or the step at this index was refused.
type Answer = Result<Vec<Got>, (usize, ZkError)>;

impl<'a> Writing<'a> {
    /// Plans and sends until the transaction is done or finally refused. `refused` is the answer if
    /// it was already sent without a plan.
    async fn commit(mut self, mut refused: Option<Refusal>) -> Result<Outcome> {
        if self.may_meet_ghosts() {
            Box::pin(self.find_ghosts()).await.map_err(unsent)?;
        }
        for _ in 0..ATTEMPTS + self.txn.ops.len() {
            let plan = Plan::new(&self.txn.ops, &self.facts, self.wire.access)?;
            let sent = match (refused.take(), plan.steps.last()) {
                (Some((said, seen)), Some(own)) => Sent::Refused(own, said, seen),
                _ => match Box::pin(self.without_sequence(&plan)).await? {
                    Some(step) => Sent::Refused(step, ZkError::NodeExists, None),
                    None => self.send(&plan).await?,
                },
            };
            match sent {
                Sent::Done(commit) => return Ok(Outcome::Committed(commit)),
                Sent::Refused(step, said, seen) => {
                    self.seen = seen;
                    if let Some(why) = Box::pin(self.mend(step, said)).await? {
                        let path = self.txn.ops[step.index].path().clone();
                        let no = Rejected::new(step.index, path, why);
                        return Ok(Outcome::Rejected(no.with_look(self.look_of_refusal().await)));
                    }
                }
            }
        }
        Err(Error::new(ErrorKind::Unreachable, "commit")
            .because("the nodes that the transaction depends on kept changing"))
    }

    /// The answer to the look of a transaction that was refused. If nothing was read since it was sent, the one that was
    /// sent along shows what led to the refusal. Otherwise the reads found the reason, and it may be newer.
    async fn look_of_refusal(&mut self) -> Option<View> {
        if self.txn.look_if_rejected {
            self.wire.races.lost();
        }
        if self.seen.is_some() {
            return self.seen.take();
        }
        match Look::of(self.hub, self.client, self.txn) {
            Some(look) => Box::pin(look.view_now()).await,
            None => None,
        }
    }

    /// The sequential create, in a transaction of several operations, whose directory has no number
    /// left. A single create can be undone, several operations cannot; so the directory is read
    /// before.
    async fn without_sequence<'p>(&self, plan: &'p Plan) -> Result<Option<&'p Step>> {
        if is_plain(self.txn, plan) {
            return Ok(None);
        }
        let own = plan.steps.iter().filter(|step| step.role == Role::Own);
        for step in own.filter(|step| self.txn.ops[step.index].is_sequential()) {
            let Some(dir) = self.txn.ops[step.index].path().parent() else { continue };
            let answer = self.wire.answer(self.client.check_stat(dir.as_str())).await;
            let stat = answer.map_err(unsent)?;
            if stat.is_some_and(|stat| next_sequence(stat.cversion, stat.num_children) > LAST.get())
            {
                return Ok(Some(step));
            }
        }
        Ok(None)
    }

    async fn send<'p>(&self, plan: &'p Plan) -> Result<Sent<'p>> {
        // Added before the request, because it may be applied without an answer.
        for step in plan.steps.iter().filter(|step| step.role == Role::Guard) {
            self.wire.guards.add(step.act.path(), Instant::now());
        }
        for container in self.facts.hollow.values().flat_map(|hollow| &hollow.containers) {
            self.wire.vacated.add(container, Instant::now());
        }
        let mut look = Look::of(self.hub, self.client, self.txn).filter(Look::is_sent_along);
        let request = async {
            let answer = if is_plain(self.txn, plan) {
                self.send_plain(&plan.steps).await
            } else {
                Box::pin(self.send_multi(&plan.steps)).await
            };
            if let (Ok(Ok(got)), Some(look)) = (&answer, &look) {
                self.note_own(&plan.steps, got, look);
            }
            answer
        };
        let asked: OptionFuture<_> = look.as_ref().map(Look::ask).into();
        let witness = async {
            match self.witness(plan) {
                Some(path) => self.wire.answer(self.client.check_stat(path)).await.ok().flatten(),
                None => None,
            }
        };
        // All requests are sent before any answer is awaited.
        let (answer, witness, seen) = join3(request, witness, asked).await;
        let got = match answer.map_err(|trouble| trouble.translate("commit", Sort::Write))? {
            Ok(got) => got,
            Err((step, said)) => {
                let seen = match (look, seen) {
                    (Some(look), Some(seen)) => Box::pin(look.view_of_refusal(seen)).await,
                    _ => None,
                };
                return Ok(Sent::Refused(&plan.steps[step], said, seen));
            }
        };
        let alone = is_plain(self.txn, plan);
        for (step, got) in plan.steps.iter().zip(&got).filter(|(step, _)| step.role == Role::Own) {
            // In a transaction of several, a number from the reserve is accepted as long as it is
            // unique.
            let made = match ran_out(&self.txn.ops[step.index], got) {
                Some(made) if alone || sequence(made).is_none() => made,
                _ => continue,
            };
            let said = take_back(self.wire, self.client, made).await?;
            // The other operations cannot be undone.
            return if alone { Ok(Sent::Refused(step, said, None)) } else { Err(exhausted()) };
        }
        let own = |stat: &ZkStat| stat.ephemeral_owner == self.client.session_id();
        let witnessed = witness.filter(own).map(|stat| translate(&stat).created);
        let mut commit = self.done(&plan.steps, got, witnessed)?;
        if let (Some(look), Some(seen)) = (&mut look, seen) {
            commit.look = look.view_after(seen, &commit).await;
        }
        Ok(Sent::Done(commit))
    }

    /// A node that the plan creates and whose stat has the revision: for a transaction of several,
    /// some servers do not return the stat of creates (ZOOKEEPER-4026). The session owns it, so no
    /// other client can have replaced it.
    fn witness<'p>(&self, plan: &'p Plan) -> Option<&'p str> {
        let writes = |step: &Step| matches!(step.act, Act::Set { .. });
        if self.wire.hears_births() || is_plain(self.txn, plan) || plan.steps.iter().any(writes) {
            return None;
        }
        plan.steps.iter().find_map(|step| match (&self.txn.ops[step.index], &step.act) {
            (
                Op::Create { lifetime: Lifetime::Session, sequential: false, .. },
                Act::Create { path, .. },
            ) if step.role == Role::Own => Some(path.as_str()),
            _ => None,
        })
    }

    /// Whether it creates a node of a kind whose stat some servers do not return. They return that of a container, and that of
    /// a node with a time to live.
    fn is_ordinary(&self, step: &Step) -> bool {
        let op = &self.txn.ops[step.index];
        step.role == Role::Own
            && matches!(op, Op::Create { lifetime: Lifetime::Persistent | Lifetime::Session, .. })
    }

    /// Passes the path of the session's own ticket to the look.
    fn note_own(&self, steps: &[Step], got: &[Got], look: &Look<'_>) {
        for (step, got) in steps.iter().zip(got) {
            if let (Got::Made(Some(path), _), Role::Own) = (got, &step.role) {
                look.note(&self.txn.ops[step.index], path);
            }
        }
    }

    /// Sends one operation as the plain call, after the creates of its missing ancestors.
    async fn send_plain(&self, steps: &[Step]) -> Result<Answer, Trouble> {
        let Some((own, ancestors)) = steps.split_last() else { return Ok(Ok(Vec::new())) };
        if !ancestors.is_empty() {
            // Boxed: needed only once for many calls.
            return Box::pin(self.send_below(ancestors, own)).await;
        }
        let op = &self.txn.ops[own.index];
        let answer = async { definite(request(self.wire, self.client, op).await) };
        Ok(self.wire.answer(answer).await?.map(|got| vec![got]).map_err(|said| (0, said)))
    }

    async fn send_below(&self, ancestors: &[Step], own: &Step) -> Result<Answer, Trouble> {
        let made = ancestors.iter().filter_map(|step| match &step.act {
            Act::Create { path, data, options } => Some(self.client.create(path, data, options)),
            _ => None,
        });
        let made: Vec<_> = made.collect();
        // A container that never had a child is never collected, and would stay if the rest did not
        // arrive.
        let used: OptionFuture<_> = match &ancestors.last().map(|step| &step.role) {
            Some(Role::Ancestor(innermost)) => Some(self.use_once(innermost)).into(),
            _ => None.into(),
        };
        let last = ancestors.len();
        let request = request(self.wire, self.client, &self.txn.ops[own.index]);
        let answers = async {
            let (made, _used, request) = join3(join_all(made), used, request).await;
            let made = made.into_iter().enumerate();
            let refused = made.filter_map(|(step, made)| Some((step, made.err()?)));
            let mut refused = refused.filter(|(_, said)| *said != ZkError::NodeExists);
            match request {
                Err(ZkError::NoNode) => Ok(Err(refused.next().unwrap_or((last, ZkError::NoNode)))),
                answer => Ok(definite(answer)?.map_err(|said| (last, said))),
            }
        };
        Ok(self.wire.answer(answers).await?.map(|got| {
            let mut all: Vec<Got> = ancestors.iter().map(|_| Got::Nothing).collect();
            all.push(got);
            all
        }))
    }

    fn use_once(&self, dir: &Path) -> impl Future<Output = ()> + use<'_, 'a> {
        let probe = container::probe(dir);
        let options = container::options(self.wire.access);
        let mut writer = self.client.new_multi_writer();
        writer.add_create(&probe, b"", &options);
        writer.add_delete(&probe, None);
        let sent = writer.commit();
        async move {
            // If this request failed, so do those that follow it.
            let _used = sent.await.is_ok();
        }
    }

    async fn send_multi(&self, steps: &[Step]) -> Result<Answer, Trouble> {
        let mut writer = self.client.new_multi_writer();
        for step in steps {
            step.act.add_to(&mut writer);
        }
        let sent = writer.commit();
        let answer = async {
            match sent.await {
                Ok(results) => Ok(Ok(results)),
                Err(MultiWriteError::OperationFailed { index, source }) => Ok(Err((index, source))),
                Err(MultiWriteError::RequestFailed(source)) => Err(source),
            }
        };
        Ok(self.wire.answer(answer).await?.map(|results| {
            let got = steps.iter().zip(results).map(|(step, result)| match result {
                MultiWriteResult::Create { path, stat } => {
                    if !stat.is_unknown() && self.is_ordinary(step) {
                        self.wire.hear_births();
                    }
                    Got::Made(Some(path), stat)
                }
                MultiWriteResult::SetData { stat } => Got::Stat(stat),
                MultiWriteResult::Done => Got::Nothing,
            });
            got.collect()
        }))
    }

    /// Converts the results into those of the `Store` trait. The revision may be known otherwise.
    fn done(&self, steps: &[Step], got: Vec<Got>, witnessed: Option<Revision>) -> Result<Commit> {
        let mut done: Vec<OpResult> =
            self.txn.ops.iter().map(|op| OpResult::new(op.path().clone())).collect();
        let mut revision = None;
        for (step, got) in steps.iter().zip(got) {
            let (op, done) = (&self.txn.ops[step.index], &mut done[step.index]);
            let counts = match &got {
                Got::Nothing => false,
                Got::Stat(_) => matches!(step.role, Role::Own | Role::Again),
                Got::Made(..) => step.role == Role::Own,
            };
            if counts && let Some(when) = take_result(self.wire, op, got, done)? {
                revision = Some(when);
            }
        }
        let revision = revision.or(witnessed);
        for (op, done) in self.txn.ops.iter().zip(&mut done) {
            if done.stat.is_none() {
                done.stat = revision.and_then(|at| self.stat_of_new(op, at));
            }
            remember(self.hub, op, done);
        }
        Ok(Commit::new(revision, done, None))
    }

    /// The stat of a node that the transaction created, where the server did not return it: all of it follows from the revision.
    fn stat_of_new(&self, op: &Op, at: Revision) -> Option<Stat> {
        let Op::Create { lifetime, .. } = op else { return None };
        let owner = match lifetime {
            Lifetime::Session => Some(SessionId::new(self.client.session_id().cast_unsigned())),
            Lifetime::Persistent => None,
            // A container has none, and what a server writes as the owner of the others depends on its version.
            Lifetime::Container | Lifetime::Ttl(_) => return None,
        };
        Some(Stat::new(at, at, Version::new(0), owner))
    }
}

/// The number of the next sequential child. The server counts all children that were ever created,
/// and reports twice that number less the number of present children.
fn next_sequence(told: i32, there: i32) -> u64 {
    u64::from(told.wrapping_add(there).cast_unsigned() / 2)
}

/// Whether a plan is one operation that has a plain call, plus at most creates of its ancestors.
fn is_plain(txn: &Txn, plan: &Plan) -> bool {
    let Some((own, ancestors)) = plan.steps.split_last() else { return true };
    txn.ops.len() == 1
        && own.role == Role::Own
        && !matches!(own.act, Act::Check { .. })
        && ancestors.iter().all(|step| matches!(step.role, Role::Ancestor(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_sequence_is_how_many_children_were_ever_made() {
        // Children ever created, and children present.
        for (made, there) in
            [(0_i32, 0), (1, 1), (7, 2), (1 << 30, 9), (i32::MAX - 1, 0), (i32::MAX, 5)]
        {
            let told = i32::wrapping_sub(made.wrapping_mul(2), there);
            assert_eq!(
                next_sequence(told, there),
                u64::from(made.unsigned_abs()),
                "{made} {there}"
            );
        }
    }
}
