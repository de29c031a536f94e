//! [`Committer`]: commits what a run has read and written, until it is known whether it was applied.

use std::collections::BTreeSet;

use synod_core::client::Client;
use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::retry::{Delays, Retry};
use synod_core::session::Session;
use synod_core::store::{Expect, Node, Op, Outcome, Query, Rejected, Stat, Txn, View};

use crate::mutant::mistake;
use crate::transaction::footprint::{AfterRejection, DOING, Footprint};
use crate::transaction::mark::{CommitMark, Marks};

/// How often a transaction is sent again although the store shows no reason for its rejection.
const UNEXPLAINED: u32 = 3;

/// The data of a mark with which no transaction is applied any more.
const VOID: &str = "void";

/// What became of a run.
pub(super) enum Fate {
    /// It is committed.
    Committed,
    /// It is not, and never will be. With what the next run knows already, if its session is the same.
    Lost(Option<Footprint>),
}

/// The result of sending a transaction.
enum Sent {
    Applied,
    Rejected(Rejected),
    /// It was not applied, and never will be. The session is lost, or the mark.
    Lost,
}

/// What commits need.
pub(super) struct Committer<'a> {
    pub(super) client: &'a Client,
    pub(super) marks: &'a Marks,
    pub(super) session: &'a Session,
    pub(super) one_moment: bool,
}

impl Committer<'_> {
    pub(super) async fn commit(&self, mut footprint: Footprint) -> Result<Fate> {
        let unknown = footprint.unknown();
        if !unknown.is_empty() && !self.find(&mut footprint, &unknown).await? {
            return Ok(Fate::Lost(Some(footprint.next())));
        }
        let (mut unexplained, mut delays) = (0, Retry::contended().delays(self.session.chance()));
        loop {
            let ops = footprint.ops();
            if !ops.iter().any(Op::is_write) {
                return self.confirm(footprint).await;
            }
            let no = match Box::pin(self.write(&footprint, ops)).await? {
                Sent::Applied => return Ok(Fate::Committed),
                Sent::Lost => return Ok(Fate::Lost(None)),
                Sent::Rejected(no) => no,
            };
            match self.judge(&mut footprint, &no).await? {
                AfterRejection::RunAgain => return Ok(Fate::Lost(Some(footprint.next()))),
                AfterRejection::SendAgain => {}
                AfterRejection::Unexplained if unexplained < UNEXPLAINED => {
                    unexplained += 1;
                    sleep(delays.next().unwrap_or_default()).await;
                }
                AfterRejection::Unexplained | AfterRejection::Refused => return Err(refused(&no)),
            }
        }
    }

    /// Reads what is written without having been read. Returns whether it is unchanged since the first read, and so is what
    /// was read.
    async fn find(&self, footprint: &mut Footprint, unknown: &BTreeSet<Path>) -> Result<bool> {
        let Some(query) = footprint.query(unknown) else { return Ok(true) };
        let view = self.session.read(query.clone().local()).await?;
        Ok(footprint.learn(&query, view)? == Some(true) && !footprint.is_later(unknown))
    }

    /// Commits a run that has only read. What is of one moment is committed already.
    async fn confirm(&self, mut footprint: Footprint) -> Result<Fate> {
        let checked = footprint.ops().len();
        if self.one_moment || checked < 2 {
            return Ok(Fate::Committed);
        }
        let Some(query) = footprint.whole() else { return Ok(Fate::Committed) };
        let view = self.session.read(query.clone()).await?;
        Ok(match footprint.learn(&query, view)? {
            Some(true) => Fate::Committed,
            _ => Fate::Lost(Some(footprint.next())),
        })
    }

    async fn judge(&self, footprint: &mut Footprint, no: &Rejected) -> Result<AfterRejection> {
        let Some(query) = footprint.whole() else { return Ok(AfterRejection::Refused) };
        let view = match &no.look {
            Some(view) => view.clone(),
            None => self.session.read(query.clone()).await?,
        };
        footprint.judge(no, &query, view)
    }

    /// Sends a transaction until it is answered, or until a call would have failed.
    async fn write(&self, footprint: &Footprint, ops: Vec<Op>) -> Result<Sent> {
        let mut mark = self.marks.take(self.session).await.map_err(harmless)?;
        let (mut txn, number) = mark.stamp(ops);
        if let Some(query) = footprint.whole() {
            txn = txn.look_if_rejected(query);
        }
        let limit = Retry::until_elapsed(self.session.time_limit());
        let (mut delays, mut doubt) = (limit.delays(self.session.chance()), false);
        let cause = loop {
            let error = match Answer::of(self.session.commit(txn.clone()).await, doubt) {
                Answer::Applied(stat) => {
                    mark.learn(stat).into_iter().for_each(|mark| self.marks.give_back(mark));
                    return Ok(Sent::Applied);
                }
                Answer::Unapplied(end) => {
                    self.marks.give_back(mark);
                    return end;
                }
                Answer::MarkGone => return Ok(Sent::Lost),
                Answer::Failed(error) => return Err(error),
                Answer::Doubtful(cause) => break cause,
                Answer::Unanswered(error) => error,
            };
            let Some(delay) = delays.next() else { return Err(error.with_unknown_effect()) };
            doubt = true;
            sleep(delay).await;
        };
        let settled = Settling { client: self.client, mark: &mark, number: &number, footprint };
        settled.settle(cause).await
    }
}

/// What one sending of a transaction says.
enum Answer {
    Applied(Option<Stat>),
    /// It was not applied, and no request is on its way.
    Unapplied(Result<Sent>),
    /// It was not applied, and the mark is of no more use.
    MarkGone,
    Failed(Error),
    /// It has to be sent again.
    Unanswered(Error),
    /// An earlier request was applied, or may still be.
    Doubtful(Option<Error>),
}

impl Answer {
    /// `doubt` says whether an earlier sending was not answered.
    fn of(answer: Result<Outcome>, doubt: bool) -> Self {
        let error = match answer {
            Ok(Outcome::Committed(commit)) => {
                return Self::Applied(commit.done.first().and_then(|done| done.stat));
            }
            Ok(Outcome::Rejected(_)) if doubt => return Self::Doubtful(None),
            // Another client removed the mark.
            Ok(Outcome::Rejected(no)) if no.index == 0 => return Self::MarkGone,
            Ok(Outcome::Rejected(no)) => return Self::Unapplied(Ok(rejected(no))),
            Err(error) => error,
        };
        let doubt = doubt || error.is_ambiguous();
        mistake!(TransactionRunsAgain: if doubt {
            return Self::MarkGone;
        });
        match error.kind() {
            ErrorKind::Unreachable if doubt => Self::Unanswered(error),
            ErrorKind::SessionLost if doubt => Self::Doubtful(Some(error)),
            ErrorKind::SessionLost => Self::MarkGone,
            _ if doubt => Self::Failed(error.with_unknown_effect()),
            _ => Self::Unapplied(Err(error)),
        }
    }
}

/// A transaction that may have been applied.
struct Settling<'a> {
    client: &'a Client,
    mark: &'a CommitMark,
    number: &'a [u8],
    footprint: &'a Footprint,
}

impl Settling<'_> {
    /// Finds out by the mark whether the transaction was applied, in whatever session. If not, the mark is made void, so
    /// that it never will be.
    async fn settle(&self, cause: Option<Error>) -> Result<Sent> {
        let mut tries = Tries::new(self.client);
        mistake!(LossEndsChange: return Err(unknown(cause)));
        loop {
            let view = match self.look().await {
                Ok(view) => view,
                Err(error) => {
                    tries.rest(error).await?;
                    continue;
                }
            };
            let Some(mark) = view.nodes.iter().find(|node| node.path == *self.mark.path()) else {
                return if self.footprint.is_untouched(&view) {
                    Ok(Sent::Lost)
                } else {
                    Err(unknown(cause))
                };
            };
            if mark.data == self.number {
                return Ok(Sent::Applied);
            }
            if mark.data == VOID {
                return Ok(Sent::Lost);
            }
            if let Err(error) = self.void(mark).await {
                tries.rest(error).await?;
            }
        }
    }

    /// The mark, and what the transaction was to write.
    async fn look(&self) -> Result<View> {
        let session = self.client.session().await?;
        let whole = self.footprint.whole();
        let more = whole.iter().flat_map(Query::nodes_asked).take(Query::MOST_NODES - 1).cloned();
        session.read(Query::nodes(self.mark.path(), more)).await
    }

    /// Makes the mark void if no transaction has changed it yet.
    async fn void(&self, mark: &Node) -> Result<()> {
        let Some(stat) = mark.stat else { return Ok(()) };
        let session = self.client.session().await?;
        let txn = Txn::new().set(self.mark.path(), VOID, Expect::Version(stat.version));
        session.commit(txn).await.map(drop)
    }
}

/// The tries to find out about a transaction.
struct Tries<'a> {
    client: &'a Client,
    delays: Delays,
}

impl<'a> Tries<'a> {
    fn new(client: &'a Client) -> Self {
        Self { client, delays: Retry::until_elapsed(client.time_limit()).delays(client.chance()) }
    }

    /// Waits before another try, if one may succeed, and a call would not have failed yet.
    async fn rest(&mut self, error: Error) -> Result<()> {
        let delay = self.delays.next().filter(|_| self.client.is_transient(&error));
        let Some(delay) = delay else { return Err(error.with_unknown_effect()) };
        sleep(delay).await;
        Ok(())
    }
}

/// A rejection of the operations of a run: without the mark.
fn rejected(no: Rejected) -> Sent {
    let Rejected { index, path, why, look, .. } = no;
    Sent::Rejected(Rejected::new(index - 1, path, why).with_look(look))
}

fn refused(no: &Rejected) -> Error {
    Error::new(ErrorKind::Refused, DOING).at(&no.path).because(no.why.to_string())
}

/// The error of a transaction whose mark is gone, while nothing proves that it was not applied.
fn unknown(cause: Option<Error>) -> Error {
    let Some(cause) = cause else {
        return Error::new(ErrorKind::Corrupt, DOING)
            .because("another client removed the node that says whether it was applied")
            .with_unknown_effect();
    };
    Error::new(ErrorKind::SessionLost, DOING)
        .because("the session was lost before the answer, and what it writes was written since")
        .with_unknown_effect()
        .caused_by(cause)
}

/// The error of a preparation, which has no effect on what the transaction writes.
fn harmless(error: Error) -> Error {
    if !error.is_ambiguous() {
        return error;
    }
    Error::new(error.kind(), DOING)
        .because("the node by which it is recognized could not be made")
        .caused_by(error)
}
