//! Sends a [`Plan`]; a refusal of the server is either final or resolved (`resolve.rs`).

use std::collections::BTreeSet;

use futures_util::future::{OptionFuture, join_all, join3};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{
    Commit, Lifetime, Op, OpResult, Outcome, Rejected, Revision, SessionId, Stat, Txn, Version,
    View,
};
use tokio::time::Instant;

use crate::client::{MultiWriteError, MultiWriteResult, ZkError, ZkStat};
use crate::commit::follow_up::FollowUp;
use crate::commit::plan::{Act, Facts, Plan, Role, Step};
use crate::commit::resolve::{InFlight, without_effect};
use crate::commit::single::{
    Refusal, StepResult, definite, exhausted, fill_in, record_tickets, request, reserve_node,
    send_single, single_op, undo_create,
};
use crate::connection::Connection;
use crate::containers::{self, translate};
use crate::error::{Sort, Trouble};
use crate::listing_cache::ListingCache;
use crate::selection::{LAST, sequence};

mod follow_up;
mod occupant;
mod plan;
mod resolve;
mod single;

pub(crate) use self::plan::version;

/// The maximum number of plans for a transaction while other clients change the nodes that it
/// depends on; plus one for each of its operations, which may each have to be resolved.
const MAX_ATTEMPTS: usize = 40;

/// Applies a transaction that was validated.
pub(crate) async fn commit(
    connection: &Connection,
    listings: &ListingCache,
    txn: &Txn,
) -> Result<Outcome> {
    let client = connection.client("commit")?;
    let vacated = vacated(connection, txn);
    let mut refused = None;
    if let Some(op) = single_op(txn, &vacated) {
        let follow_up = FollowUp::of(connection, listings, &client, txn);
        match send_single(connection, listings, &client, op, follow_up).await? {
            Ok(commit) => return Ok(Outcome::Committed(commit)),
            Err(refusal) => refused = Some(refusal),
        }
    }
    let facts = Facts { vacated, ..Facts::default() };
    // Boxed: most transactions do not need this future, and should not carry its state.
    Box::pin(
        InFlight { connection, listings, client: &client, txn, facts, follow_up: None }
            .commit(refused),
    )
    .await
}

/// The operations that create a non-ephemeral node at a path where the session has just removed a
/// container.
fn vacated(connection: &Connection, txn: &Txn) -> BTreeSet<usize> {
    let stays = |op: &Op| match op {
        Op::Create { lifetime, sequential, .. } => {
            !sequential && !matches!(lifetime, Lifetime::Session | Lifetime::Container)
        }
        _ => false,
    };
    let ops = txn.ops.iter().enumerate();
    ops.filter(|(_, op)| stays(op) && connection.vacated.has(op.path()))
        .map(|(index, _)| index)
        .collect()
}

/// The result of sending a plan.
enum Attempt<'a> {
    Applied(Commit),
    /// With the view of the follow-up read, if one was sent along.
    Refused(&'a Step, ZkError, Option<View>),
}

/// The answer to a request: everything was applied, or the step at this index was refused.
type Answer = Result<Vec<StepResult>, (usize, ZkError)>;

impl<'a> InFlight<'a> {
    /// Plans and sends the transaction until it is applied or finally refused. `refused` is the
    /// answer if it was already sent without a plan.
    async fn commit(mut self, mut refused: Option<Refusal>) -> Result<Outcome> {
        if self.may_check_containers() {
            Box::pin(self.find_containers()).await.map_err(without_effect)?;
        }
        for _ in 0..MAX_ATTEMPTS + self.txn.ops.len() {
            let plan = Plan::new(&self.txn.ops, &self.facts, &self.connection.access)?;
            let attempt = match (refused.take(), plan.steps.last()) {
                (Some((error, view)), Some(own)) => Attempt::Refused(own, error, view),
                _ => match Box::pin(self.without_sequence(&plan)).await? {
                    Some(step) => Attempt::Refused(step, ZkError::NodeExists, None),
                    None => self.send(&plan).await?,
                },
            };
            match attempt {
                Attempt::Applied(commit) => return Ok(Outcome::Committed(commit)),
                Attempt::Refused(step, error, view) => {
                    self.follow_up = view;
                    if let Some(reason) = Box::pin(self.resolve(step, error)).await? {
                        let path = self.txn.ops[step.index].path().clone();
                        let rejected = Rejected::new(step.index, path, reason);
                        let view = self.view_of_refusal().await;
                        return Ok(Outcome::Rejected(rejected.with_look(view)));
                    }
                }
            }
        }
        Err(Error::new(ErrorKind::Unreachable, "commit")
            .because("the nodes that the transaction depends on kept changing"))
    }

    /// The view of the follow-up read of a transaction that was refused. If nothing was read after
    /// the refused request, the read that was sent with it shows the reason for the refusal.
    /// Otherwise a later read found the reason, which may be newer than that view.
    async fn view_of_refusal(&mut self) -> Option<View> {
        if self.txn.look_if_rejected {
            self.connection.rejections.record();
        }
        if self.follow_up.is_some() {
            return self.follow_up.take();
        }
        match self.follow_up_read() {
            Some(follow_up) => Box::pin(follow_up.view_now()).await,
            None => None,
        }
    }

    fn follow_up_read(&self) -> Option<FollowUp<'a>> {
        FollowUp::of(self.connection, self.listings, self.client, self.txn)
    }

    /// The sequential create whose directory has no number left, in a transaction of several
    /// operations. A single create can be undone, but several operations cannot, so the directory
    /// is read first.
    async fn without_sequence<'p>(&self, plan: &'p Plan) -> Result<Option<&'p Step>> {
        if is_plain(self.txn, plan) {
            return Ok(None);
        }
        let own = plan.steps.iter().filter(|step| step.role == Role::Own);
        for step in own.filter(|step| self.txn.ops[step.index].is_sequential()) {
            let Some(dir) = self.txn.ops[step.index].path().parent() else { continue };
            let answer = self.connection.answer(self.client.check_stat(dir.as_str())).await;
            let stat = answer.map_err(without_effect)?;
            if stat.is_some_and(|stat| next_sequence(stat.cversion, stat.num_children) > LAST.get())
            {
                return Ok(Some(step));
            }
        }
        Ok(None)
    }

    async fn send<'p>(&self, plan: &'p Plan) -> Result<Attempt<'p>> {
        // Added before the request, because it may be applied without an answer.
        for step in plan.steps.iter().filter(|step| step.role == Role::Guard) {
            self.connection.guards.add(step.act.path(), Instant::now());
        }
        for container in self.facts.empty_containers.values().flat_map(|empty| &empty.containers) {
            self.connection.vacated.add(container, Instant::now());
        }
        let mut follow_up = self.follow_up_read().filter(FollowUp::decide_to_send_along);
        let request = async {
            let answer = if is_plain(self.txn, plan) {
                self.send_plain(&plan.steps).await
            } else {
                Box::pin(self.send_multi(&plan.steps)).await
            };
            if let (Ok(Ok(results)), Some(follow_up)) = (&answer, &follow_up) {
                self.record_own(&plan.steps, results, follow_up);
            }
            answer
        };
        let read: OptionFuture<_> = follow_up.as_ref().map(FollowUp::request).into();
        let revision_source = async {
            match self.revision_source(plan) {
                Some(path) => {
                    self.connection.answer(self.client.check_stat(path)).await.ok().flatten()
                }
                None => None,
            }
        };
        // All requests are sent before any answer is awaited.
        let (answer, source, response) = join3(request, revision_source, read).await;
        let results = match answer.map_err(|trouble| trouble.translate("commit", Sort::Write))? {
            Ok(results) => results,
            Err((step, error)) => {
                let view = match (follow_up, response) {
                    (Some(follow_up), Some(response)) => {
                        Box::pin(follow_up.view_of_refusal(response)).await
                    }
                    _ => None,
                };
                return Ok(Attempt::Refused(&plan.steps[step], error, view));
            }
        };
        let is_single = is_plain(self.txn, plan);
        let own = plan.steps.iter().zip(&results).filter(|(step, _)| step.role == Role::Own);
        for (step, result) in own {
            // In a transaction of several, a number from the reserve is accepted as long as it is
            // unique.
            let created = match reserve_node(&self.txn.ops[step.index], result) {
                Some(created) if is_single || sequence(created).is_none() => created,
                _ => continue,
            };
            let error = undo_create(self.connection, self.client, created).await?;
            // The other operations cannot be undone.
            return if is_single {
                Ok(Attempt::Refused(step, error, None))
            } else {
                Err(exhausted())
            };
        }
        let is_own = |stat: &ZkStat| stat.ephemeral_owner == self.client.session_id();
        let revision = source.filter(is_own).map(|stat| translate(&stat).created);
        let mut commit = self.commit_of(&plan.steps, results, revision)?;
        if let (Some(follow_up), Some(response)) = (&mut follow_up, response) {
            commit.look = follow_up.view_after(response, &commit).await;
        }
        Ok(Attempt::Applied(commit))
    }

    /// A node that the plan creates, and whose stat has the revision of the transaction: for a
    /// transaction of several, some servers do not return the stat of creates (ZOOKEEPER-4026). The
    /// session owns the node, so no other client can have replaced it.
    fn revision_source<'p>(&self, plan: &'p Plan) -> Option<&'p str> {
        let writes = |step: &Step| matches!(step.act, Act::Set { .. });
        if self.connection.returns_create_stats()
            || is_plain(self.txn, plan)
            || plan.steps.iter().any(writes)
        {
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

    /// Returns `true` if the step creates a node of a kind whose stat some servers do not return.
    /// They return that of a container, and that of a node with a time to live.
    fn is_ordinary(&self, step: &Step) -> bool {
        let op = &self.txn.ops[step.index];
        step.role == Role::Own
            && matches!(op, Op::Create { lifetime: Lifetime::Persistent | Lifetime::Session, .. })
    }

    /// Passes the path of the session's own ticket to the follow-up read.
    fn record_own(&self, steps: &[Step], results: &[StepResult], follow_up: &FollowUp<'_>) {
        for (step, result) in steps.iter().zip(results) {
            if let (StepResult::Created(Some(path), _), Role::Own) = (result, &step.role) {
                follow_up.record_own(&self.txn.ops[step.index], path);
            }
        }
    }

    /// Sends one operation as the plain call, after the creates of its missing ancestors.
    async fn send_plain(&self, steps: &[Step]) -> Result<Answer, Trouble> {
        let Some((own, ancestors)) = steps.split_last() else { return Ok(Ok(Vec::new())) };
        if !ancestors.is_empty() {
            // Boxed: needed only once for many calls.
            return Box::pin(self.send_with_ancestors(ancestors, own)).await;
        }
        let op = &self.txn.ops[own.index];
        let answer = async { definite(request(self.connection, self.client, op).await) };
        let answer = self.connection.answer(answer).await?;
        Ok(answer.map(|result| vec![result]).map_err(|error| (0, error)))
    }

    async fn send_with_ancestors(&self, ancestors: &[Step], own: &Step) -> Result<Answer, Trouble> {
        let requests = ancestors.iter().filter_map(|step| match &step.act {
            Act::Create { path, data, options } => Some(self.client.create(path, data, options)),
            _ => None,
        });
        let requests: Vec<_> = requests.collect();
        // A container that never had a child is never collected, and would stay if the following
        // requests did not arrive.
        let probe: OptionFuture<_> = match &ancestors.last().map(|step| &step.role) {
            Some(Role::Ancestor(innermost)) => Some(self.create_and_delete_child(innermost)).into(),
            _ => None.into(),
        };
        let last = ancestors.len();
        let request = request(self.connection, self.client, &self.txn.ops[own.index]);
        let answers = async {
            let (created, _probe, request) = join3(join_all(requests), probe, request).await;
            let created = created.into_iter().enumerate();
            let refused = created.filter_map(|(step, created)| Some((step, created.err()?)));
            let mut refused = refused.filter(|(_, error)| *error != ZkError::NodeExists);
            match request {
                Err(ZkError::NoNode) => Ok(Err(refused.next().unwrap_or((last, ZkError::NoNode)))),
                answer => Ok(definite(answer)?.map_err(|error| (last, error))),
            }
        };
        Ok(self.connection.answer(answers).await?.map(|result| {
            let mut all: Vec<StepResult> = ancestors.iter().map(|_| StepResult::Nothing).collect();
            all.push(result);
            all
        }))
    }

    fn create_and_delete_child(&self, dir: &Path) -> impl Future<Output = ()> + use<'_, 'a> {
        let probe = containers::probe(dir);
        let options = containers::options(&self.connection.access, dir);
        let mut writer = self.client.new_multi_writer();
        writer.add_create(&probe, b"", &options);
        writer.add_delete(&probe, None);
        let response = writer.commit();
        async move {
            // If this request failed, so do the requests that follow it.
            let _done = response.await.is_ok();
        }
    }

    async fn send_multi(&self, steps: &[Step]) -> Result<Answer, Trouble> {
        let mut writer = self.client.new_multi_writer();
        for step in steps {
            step.act.add_to(&mut writer);
        }
        let response = writer.commit();
        let answer = async {
            match response.await {
                Ok(results) => Ok(Ok(results)),
                Err(MultiWriteError::OperationFailed { index, source }) => Ok(Err((index, source))),
                Err(MultiWriteError::RequestFailed(source)) => Err(source),
            }
        };
        Ok(self.connection.answer(answer).await?.map(|results| {
            let all = steps.iter().zip(results).map(|(step, result)| match result {
                MultiWriteResult::Create { path, stat } => {
                    if !stat.is_unknown() && self.is_ordinary(step) {
                        self.connection.record_create_stats();
                    }
                    StepResult::Created(Some(path), stat)
                }
                MultiWriteResult::SetData { stat } => StepResult::Stat(stat),
                MultiWriteResult::Done => StepResult::Nothing,
            });
            all.collect()
        }))
    }

    /// Converts the results into those of the `Store` trait. `source_revision` is used if no result
    /// has a revision.
    fn commit_of(
        &self,
        steps: &[Step],
        results: Vec<StepResult>,
        source_revision: Option<Revision>,
    ) -> Result<Commit> {
        let mut done: Vec<OpResult> =
            self.txn.ops.iter().map(|op| OpResult::new(op.path().clone())).collect();
        let mut revision = None;
        for (step, result) in steps.iter().zip(results) {
            let (op, done) = (&self.txn.ops[step.index], &mut done[step.index]);
            let counts = match &result {
                StepResult::Nothing => false,
                StepResult::Stat(_) => matches!(step.role, Role::Own | Role::Again),
                StepResult::Created(..) => step.role == Role::Own,
            };
            if counts && let Some(at) = fill_in(self.connection, op, result, done)? {
                revision = Some(at);
            }
        }
        let revision = revision.or(source_revision);
        for (op, done) in self.txn.ops.iter().zip(&mut done) {
            if done.stat.is_none() {
                done.stat = revision.and_then(|at| self.stat_of_new(op, at));
            }
            record_tickets(self.connection, self.listings, op, done);
        }
        Ok(Commit::new(revision, done, None))
    }

    /// The stat of a node that the transaction created, which the server did not return: it can be
    /// computed from the revision.
    fn stat_of_new(&self, op: &Op, at: Revision) -> Option<Stat> {
        let Op::Create { lifetime, .. } = op else { return None };
        let owner = match lifetime {
            Lifetime::Session => Some(SessionId::new(self.client.session_id().cast_unsigned())),
            Lifetime::Persistent => None,
            // A container has no owner, and the owner that a server writes for a node with a time
            // to live depends on the version of the server.
            Lifetime::Container | Lifetime::Ttl(_) => return None,
        };
        Some(Stat::new(at, at, Version::new(0), owner))
    }
}

/// The number of the next sequential child. The server counts all children that were ever created,
/// and reports (`cversion`) twice that number less the number of present children.
fn next_sequence(cversion: i32, num_children: i32) -> u64 {
    u64::from(cversion.wrapping_add(num_children).cast_unsigned() / 2)
}

/// Returns `true` if a plan is one operation that has a plain call, plus at most creates of its
/// ancestors.
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
    fn the_next_sequence_is_the_number_of_children_ever_created() {
        // Children ever created, and children present.
        for (created, present) in
            [(0_i32, 0), (1, 1), (7, 2), (1 << 30, 9), (i32::MAX - 1, 0), (i32::MAX, 5)]
        {
            let cversion = i32::wrapping_sub(created.wrapping_mul(2), present);
            assert_eq!(
                next_sequence(cversion, present),
                u64::from(created.unsigned_abs()),
                "{created} {present}"
            );
        }
    }
}
