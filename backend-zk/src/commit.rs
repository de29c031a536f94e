//! Writing: a [`Plan`] is sent, and what the server refuses is either final or mended.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use futures_util::future::{OptionFuture, join, join_all};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{
    Commit, Done, Expect, Freshness, Lifetime, Op, Outcome, Query, Rejected, Sequence, Txn,
    Version, View, Why,
};
use zookeeper_client::{
    Client, Error as ZkError, MultiWriteError, MultiWriteResult, Stat as ZkStat,
};

use crate::container::{self, Standing, standing, standing_below};
use crate::error::{Sort, Trouble};
use crate::plan::{Act, Facts, Plan, Role, Step};
use crate::read::{self, translate};
use crate::sift::sequence;
use crate::wire::Wire;

/// How often a transaction is planned again while others change what it stands on.
const ATTEMPTS: usize = 40;

/// Applies a transaction that was validated.
pub(crate) async fn commit(wire: &Wire, txn: &Txn) -> Result<Outcome> {
    let client = wire.client("commit")?;
    let mut writing = Writing { wire, client: &client, txn, facts: Facts::default() };
    writing.find_ghosts().await.map_err(unsent)?;
    for _ in 0..ATTEMPTS {
        let plan = Plan::new(&txn.ops, &writing.facts, wire.access)?;
        match writing.send(&plan).await? {
            Sent::Done(commit) => return Ok(Outcome::Committed(commit)),
            Sent::Refused(step, said) => {
                if let Some(why) = writing.mend(step, said).await? {
                    let path = txn.ops[step.index].path().clone();
                    return Ok(Outcome::Rejected(Rejected::new(step.index, path, why)));
                }
            }
        }
    }
    Err(Error::new(ErrorKind::Unreachable, "commit")
        .because("what the transaction stands on kept changing"))
}

struct Writing<'a> {
    wire: &'a Wire,
    client: &'a Client,
    txn: &'a Txn,
    facts: Facts,
}

/// What became of a plan.
enum Sent<'a> {
    Done(Commit),
    Refused(&'a Step, ZkError),
}

/// What a step that was done gave back.
enum Got {
    Nothing,
    Stat(ZkStat),
    Made(String, ZkStat),
}

/// The answer to a request: everything was done, or the step at this place was refused.
type Answer = Result<Vec<Got>, (usize, ZkError)>;

impl<'a> Writing<'a> {
    /// A check that passes for any node passes for a container, too, and so does one for the version
    /// that containers have. So what is checked is looked at first, unless it is a ticket of this
    /// session: a guarded write takes one round trip. What is a node when it is looked at, and a
    /// container when the transaction comes, is not noticed.
    async fn find_ghosts(&mut self) -> Result<(), Trouble> {
        let first = Version::new(0);
        let doubtful = |op: &Op| match op {
            Op::Check { path, expect } => {
                (*expect == Expect::Any || *expect == Expect::Version(first))
                    && !self.wire.knows(path)
            }
            _ => false,
        };
        let ops = self.txn.ops.iter().enumerate().filter(|(_, op)| doubtful(op));
        let asked: Vec<(usize, &Path)> = ops.map(|(index, op)| (index, op.path())).collect();
        if asked.is_empty() {
            return Ok(());
        }
        let sync = self.client.sync("/");
        let reads = asked.iter().map(|(_, path)| self.client.get_data(path.as_str()));
        let reads: Vec<_> = reads.collect();
        let answers =
            self.wire.answer(async { Ok((sync.await?, join_all(reads).await).1) }).await?;
        for ((index, path), answer) in asked.into_iter().zip(answers) {
            match answer {
                // The root is no node.
                Ok((data, stat)) if path.is_root() || container::is_container(&data, &stat) => {
                    self.facts.ghosts.insert(index);
                }
                // Whatever else is wrong, the check will tell.
                _ => {}
            }
        }
        Ok(())
    }

    async fn send<'p>(&self, plan: &'p Plan) -> Result<Sent<'p>> {
        let own = OnceLock::new();
        let request = async {
            let answer = if is_plain(self.txn, plan) {
                self.send_plain(&plan.steps).await
            } else {
                self.send_multi(&plan.steps).await
            };
            if let Ok(Ok(got)) = &answer {
                self.note_own(&plan.steps, got, &own);
            }
            answer
        };
        let query = self.txn.look.clone().map(Query::local);
        let look: OptionFuture<_> =
            query.as_ref().map(|query| read::read(self.wire, self.client, query, &own)).into();
        // Both leave before either is answered.
        let (answer, look) = join(request, look).await;
        let got = match answer.map_err(|trouble| trouble.translate("commit", Sort::Write))? {
            Ok(got) => got,
            Err((step, said)) => return Ok(Sent::Refused(&plan.steps[step], said)),
        };
        let mut commit = self.done(&plan.steps, got)?;
        if let Some(look) = look {
            let mut view = match look {
                Ok((view, _)) => view,
                Err(_) => self.look_again(&own).await?,
            };
            // What was read behind a commit reflects it.
            view.revision = view.revision.max(commit.revision.unwrap_or_default());
            commit.look = Some(view);
        }
        Ok(Sent::Done(commit))
    }

    /// The transaction was done, and its look got lost.
    async fn look_again(&self, own: &OnceLock<Sequence>) -> Result<View> {
        let Some(mut query) = self.txn.look.clone() else { return Ok(View::default()) };
        query.freshness = Freshness::Latest;
        let again = read::read(self.wire, self.client, &query, own).await;
        let (view, _) = again.map_err(|trouble| trouble.translate("commit", Sort::Write))?;
        Ok(view)
    }

    /// Tells the look which ticket is its own.
    fn note_own(&self, steps: &[Step], got: &[Got], own: &OnceLock<Sequence>) {
        let Some(look) = &self.txn.look else { return };
        for (step, got) in steps.iter().zip(got) {
            let op = &self.txn.ops[step.index];
            if let (Got::Made(path, _), true) = (got, op.is_sequential() && step.role == Role::Own)
                && op.path().parent_str() == Some(look.path.as_str())
                && let Some(sequence) = sequence(path)
            {
                let _first = own.set(sequence).is_ok();
            }
        }
    }

    /// Sends one operation as the plain call, with its missing ancestors ahead of it.
    async fn send_plain(&self, steps: &[Step]) -> Result<Answer, Trouble> {
        let Some((own, ancestors)) = steps.split_last() else { return Ok(Ok(Vec::new())) };
        let made = ancestors.iter().filter_map(|step| match &step.act {
            Act::Create { path, data, options } => Some(self.client.create(path, data, options)),
            _ => None,
        });
        let made: Vec<_> = made.collect();
        // A container in which nothing ever was would stay for good, should the rest not arrive.
        let used: OptionFuture<_> = match &ancestors.last().map(|step| &step.role) {
            Some(Role::Ancestor(innermost)) => Some(self.use_once(innermost)).into(),
            _ => None.into(),
        };
        let last = steps.len() - 1;
        let request = self.request(&own.act);
        let answers = async {
            let (made, _used, request) =
                futures_util::future::join3(join_all(made), used, request).await;
            let made = made.into_iter().enumerate();
            let refused = made.filter_map(|(step, made)| Some((step, made.err()?)));
            let mut refused = refused.filter(|(_, said)| *said != ZkError::NodeExists);
            Ok(match request {
                Ok(got) => Ok(Ok(got)),
                Err(ZkError::NoNode) if last > 0 => {
                    Err(refused.next().unwrap_or((last, ZkError::NoNode)))
                }
                Err(said) => Ok(Err(said)),
            })
        };
        Ok(match self.wire.answer(answers).await? {
            Err(refused) => Err(refused),
            Ok(Ok(got)) => {
                let mut all: Vec<Got> = ancestors.iter().map(|_| Got::Nothing).collect();
                all.push(got);
                Ok(all)
            }
            Ok(Err(said)) => return Self::refused(last, said),
        })
    }

    /// What is no definite answer to this very step is the trouble of the whole request.
    fn refused(step: usize, said: ZkError) -> Result<Answer, Trouble> {
        if crate::error::is_definite(&said) {
            Ok(Err((step, said)))
        } else {
            Err(Trouble::Said(said))
        }
    }

    fn use_once(&self, dir: &Path) -> impl Future<Output = ()> + use<'_, 'a> {
        let probe = container::probe(dir);
        let options = container::options(self.wire.access);
        let mut writer = self.client.new_multi_writer();
        let added = writer.add_create(&probe, b"", &options).and(writer.add_delete(&probe, None));
        let sent = added.is_ok().then(|| writer.commit());
        async move {
            if let Some(sent) = sent {
                // If it failed, so does what comes behind it.
                let _used = sent.await.is_ok();
            }
        }
    }

    fn request<'s>(&'s self, act: &'s Act) -> impl Future<Output = Result<Got, ZkError>> + 's {
        use futures_util::future::Either;
        match act {
            Act::Create { path, data, options } => {
                let made = self.client.create(path, data, options);
                Either::Left(Either::Left(async move {
                    let (stat, sequence) = made.await?;
                    let path = match sequence.into_i64() {
                        -1 => path.clone(),
                        _ => format!("{path}{sequence}"),
                    };
                    Ok(Got::Made(path, stat))
                }))
            }
            Act::Set { path, data, version } => {
                let set = self.client.set_data(path, data, *version);
                Either::Left(Either::Right(async move { Ok(Got::Stat(set.await?)) }))
            }
            Act::Delete { path, version } => {
                let deleted = self.client.delete(path, *version);
                Either::Right(Either::Left(async move { deleted.await.map(|()| Got::Nothing) }))
            }
            Act::Check { .. } => {
                Either::Right(Either::Right(async { Err(ZkError::Unimplemented) }))
            }
        }
    }

    async fn send_multi(&self, steps: &[Step]) -> Result<Answer, Trouble> {
        let mut writer = self.client.new_multi_writer();
        for step in steps {
            step.act.add_to(&mut writer).map_err(Trouble::Said)?;
        }
        let sent = writer.commit();
        let answer = async {
            match sent.await {
                Ok(results) => Ok(Ok(results)),
                Err(MultiWriteError::OperationFailed { index, source }) => Ok(Err((index, source))),
                Err(MultiWriteError::RequestFailed { source }) => Err(source),
            }
        };
        Ok(self.wire.answer(answer).await?.map(|results| {
            let got = results.into_iter().map(|result| match result {
                MultiWriteResult::Create { path, stat } => Got::Made(path, stat),
                MultiWriteResult::SetData { stat } => Got::Stat(stat),
                _ => Got::Nothing,
            });
            got.collect()
        }))
    }

    /// What the floor calls it.
    fn done(&self, steps: &[Step], got: Vec<Got>) -> Result<Commit> {
        let mut done: Vec<Done> =
            self.txn.ops.iter().map(|op| Done::new(op.path().clone())).collect();
        let mut revision = None;
        for (step, got) in steps.iter().zip(got) {
            let (op, done) = (&self.txn.ops[step.index], &mut done[step.index]);
            let stat = match got {
                Got::Stat(stat) if matches!(step.role, Role::Own | Role::Again) => stat,
                Got::Made(path, stat) if step.role == Role::Own => {
                    if op.is_sequential() {
                        done.path = Path::new(&path)?;
                        done.sequence = Some(sequence(&path).ok_or_else(exhausted)?);
                    }
                    stat
                }
                _ => continue,
            };
            // Some servers do not tell it of creates among others (ZOOKEEPER-4026).
            if !stat.is_invalid() {
                self.wire.see(&stat);
                let stat = translate(&stat);
                revision = Some(stat.modified);
                done.stat = Some(stat);
            }
        }
        for (op, done) in self.txn.ops.iter().zip(&done) {
            match op {
                Op::Create { sequential: true, .. } => self.wire.know(&done.path),
                Op::Delete { path, .. } => self.wire.forget(path),
                _ => {}
            }
        }
        Ok(Commit::new(revision, done, None))
    }

    /// Decides whether a refusal is final. If not, the next plan will do better.
    async fn mend(&mut self, step: &Step, said: ZkError) -> Result<Option<Why>> {
        let index = step.index;
        match (&step.role, said) {
            (Role::Own, said) => return self.mend_own(index, said).await,
            (Role::Ancestor(path), ZkError::NodeExists) => {
                self.facts.missing.remove(path);
            }
            (Role::Ancestor(_), ZkError::NoNode) => self.find_missing(index).await?,
            (Role::Ancestor(_), ZkError::NoChildrenForEphemerals) => {
                return Ok(Some(Why::BelowEphemeral));
            }
            (Role::Absence(path), said) => return self.mend_absence(index, path, said).await,
            // What stood in the way is no more, or is something else.
            (Role::Hollow, ZkError::NoAuth) => return Err(unsent(Trouble::Said(ZkError::NoAuth))),
            (Role::Hollow, _) => {
                self.facts.hollow.clear();
                self.facts.below.remove(&index);
            }
            (Role::Ancestor(_) | Role::Again | Role::Undo, said) => {
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
    ) -> Result<Option<Why>> {
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
                self.facts.absent.insert(index, parent);
            }
            ZkError::NoChildrenForEphemerals if is_container_create(op) => {
                return Ok(Some(Why::BelowEphemeral));
            }
            ZkError::NoChildrenForEphemerals => {
                self.facts.below.insert(index, parent);
            }
            said => return Err(unsent(Trouble::Said(said))),
        }
        Ok(None)
    }

    async fn mend_own(&mut self, index: usize, said: ZkError) -> Result<Option<Why>> {
        let op = &self.txn.ops[index];
        Ok(match (op, said) {
            (Op::Create { .. }, ZkError::NoNode) => {
                self.find_missing(index).await?;
                None
            }
            (Op::Create { .. }, ZkError::NoChildrenForEphemerals) => Some(Why::BelowEphemeral),
            (Op::Create { sequential: true, .. }, ZkError::NodeExists) => {
                Some(Why::SequenceExhausted)
            }
            (Op::Create { .. }, ZkError::NodeExists) => self.give_way(index).await?,
            (_, ZkError::NoNode) => Some(Why::Missing),
            (Op::Delete { .. }, ZkError::NotEmpty) => self.clear_below(index).await?,
            (Op::Set { .. }, ZkError::BadVersion) => Some(Why::OtherVersion),
            (_, ZkError::BadVersion) => Some(self.other_version(index).await?),
            (Op::Set { path, .. }, ZkError::NoAuth) if self.is_container(path).await? => {
                Some(Why::Missing)
            }
            (_, said) => return Err(unsent(Trouble::Said(said))),
        })
    }

    /// Something stands where nothing should: an empty container gives way.
    async fn give_way(&mut self, index: usize) -> Result<Option<Why>> {
        let path = self.txn.ops[index].path();
        if self.makes_below(index, path) {
            return Ok(Some(Why::Exists));
        }
        let found = standing(self.wire, self.client, path, &self.gone(index)).await;
        Ok(match found.map_err(unsent)? {
            Standing::Nothing => None,
            Standing::Something => Some(Why::Exists),
            Standing::Hollow(hollow) => {
                self.facts.hollow.insert(index, hollow);
                None
            }
        })
    }

    /// Something is below what is to be deleted: empty containers go with it.
    async fn clear_below(&mut self, index: usize) -> Result<Option<Why>> {
        let path = self.txn.ops[index].path();
        let hollow = if self.makes_below(index, path) {
            Standing::Something
        } else {
            let below = standing_below(self.wire, self.client, path, &self.gone(index)).await;
            below.map_err(unsent)?
        };
        Ok(match hollow {
            Standing::Nothing => None,
            Standing::Something => Some(Why::HasChildren),
            Standing::Hollow(_) if self.is_container(path).await? => Some(Why::Missing),
            Standing::Hollow(hollow) => {
                self.facts.hollow.insert(index, hollow);
                None
            }
        })
    }

    /// The version is another: or it is a container's, which is none.
    async fn other_version(&self, index: usize) -> Result<Why> {
        let op = &self.txn.ops[index];
        if !self.is_container(op.path()).await? {
            return Ok(Why::OtherVersion);
        }
        if matches!(op, Op::Delete { .. }) && self.makes_below(index, op.path()) {
            return Ok(Why::HasChildren);
        }
        let below = standing_below(self.wire, self.client, op.path(), &self.gone(index)).await;
        Ok(match (op, below.map_err(unsent)?) {
            (Op::Delete { .. }, Standing::Something) => Why::HasChildren,
            _ => Why::Missing,
        })
    }

    async fn is_container(&self, path: &Path) -> Result<bool> {
        if self.facts.missing.contains(path) {
            return Ok(true);
        }
        let (sync, data) = (self.client.sync("/"), self.client.get_data(path.as_str()));
        let answer = self.wire.answer(async { Ok((sync.await?, data.await).1) }).await;
        match answer.map_err(unsent)? {
            Ok((data, stat)) => Ok(container::is_container(&data, &stat)),
            Err(ZkError::NoNode) => Ok(false),
            Err(said) => Err(unsent(Trouble::Said(said))),
        }
    }

    /// Finds out which ancestors of an operation's path are to be made.
    async fn find_missing(&mut self, index: usize) -> Result<()> {
        let ancestors: Vec<Path> = self.txn.ops[index].path().ancestors().collect();
        let sync = self.client.sync("/");
        let reads = ancestors.iter().map(|above| self.client.check_stat(above.as_str()));
        let reads: Vec<_> = reads.collect();
        let answer = self.wire.answer(async { Ok((sync.await?, join_all(reads).await).1) }).await;
        let found = answer.map_err(unsent)?;
        for (above, found) in ancestors.into_iter().zip(found) {
            if found.map_err(|said| unsent(Trouble::Said(said)))?.is_none() {
                self.facts.missing.insert(above);
            }
        }
        Ok(())
    }

    /// What the transaction deletes before this operation.
    fn gone(&self, index: usize) -> BTreeSet<&'a Path> {
        let before = &self.txn.ops[..index];
        before.iter().filter(|op| matches!(op, Op::Delete { .. })).map(Op::path).collect()
    }

    /// Whether the transaction makes something below `path` before this operation.
    fn makes_below(&self, index: usize, path: &Path) -> bool {
        let before = &self.txn.ops[..index];
        before.iter().any(|op| {
            matches!(op, Op::Create { lifetime, .. } if *lifetime != Lifetime::Container)
                && op.path().is_below(path)
        })
    }
}

/// Whether a plan is one operation that has a plain call, with nothing but ancestors to be made.
fn is_plain(txn: &Txn, plan: &Plan) -> bool {
    let Some((own, ancestors)) = plan.steps.split_last() else { return true };
    txn.ops.len() == 1
        && own.role == Role::Own
        && !matches!(own.act, Act::Check { .. })
        && ancestors.iter().all(|step| matches!(step.role, Role::Ancestor(_)))
}

fn is_container_create(op: &Op) -> bool {
    matches!(op, Op::Create { lifetime: Lifetime::Container, .. })
}

/// Trouble while nothing that was sent can have changed anything.
fn unsent(trouble: Trouble) -> Error {
    trouble.translate("commit", Sort::Read)
}

/// The server's counter has overflowed, and the node that it was written on was made.
fn exhausted() -> Error {
    Error::new(ErrorKind::Backend, "commit")
        .because("the directory ran out of sequence numbers; use another")
        .with_unknown_effect()
}
