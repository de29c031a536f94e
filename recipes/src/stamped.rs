//! [`Stamped`]: transactions that are applied once, and whose effect is found out when an answer is lost.
//!
//! Every transaction sets a *mark*, a node of its sender, to its number, and expects the version that the mark has.
//! So it is applied once however often it is sent, and the mark says afterwards whether it was. What holds for all recipes:
//!
//! - A transaction in doubt is settled by its mark alone, in whatever session: the mark has its number, or is made void, so that
//!   a late request is rejected.
//! - A mark is ephemeral, or [lasting](Marks::lasting): persistent, so that the next session settles what the last one left in
//!   doubt. If an ephemeral mark has gone with its session, [`Evidence`] may prove that nothing was applied. Without it the effect
//!   is unknown.
//! - Each transaction that is on its way has a mark of its own: two that expected the version of one would exclude each other.

use synod_core::client::Client;
use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::retry::Retry;
use synod_core::session::Session;
use synod_core::store::{Commit, Outcome, Rejected, Stat, Txn};

use crate::mutant::mistake;
use crate::stamped::mark::{CommitMark, Marks};
use crate::stamped::sent::{Evidence, Sent};
use crate::stamped::settling::Settling;

pub(crate) mod date;
pub(crate) mod due;
pub(crate) mod handing;
pub(crate) mod mark;
pub(crate) mod old_marks;
pub(crate) mod sent;
mod settling;
pub(crate) mod writes;

/// Sends transactions of one session.
pub(crate) struct Stamped<'a> {
    pub(crate) client: &'a Client,
    pub(crate) marks: &'a Marks,
    pub(crate) session: &'a Session,
    pub(crate) evidence: &'a dyn Evidence,
    /// How long it is sent again while it is not answered.
    pub(crate) limit: Retry,
}

impl Stamped<'_> {
    /// Sends a transaction until it is answered, or until the limit.
    pub(crate) async fn send(&self, txn: Txn) -> Result<Sent> {
        let (doing, session) = (self.marks.doing(), self.session);
        let mark = self.marks.take(session).await.map_err(|error| harmless(error, doing))?;
        if let Some(sent) = self.send_with(mark, txn.clone()).await? {
            return Ok(sent);
        }
        // Another client took the mark for that of a process that is gone.
        let mark = self.marks.create(session).await.map_err(|error| harmless(error, doing))?;
        Ok(self.send_with(mark, txn).await?.unwrap_or(Sent::Lost))
    }

    /// Sends a transaction with this mark. `None` if it was not applied, as the mark is gone.
    async fn send_with(&self, mut mark: CommitMark, txn: Txn) -> Result<Option<Sent>> {
        let Self { client, marks, session, evidence, ref limit } = *self;
        let (txn, number) = mark.stamp(txn);
        let (mut delays, mut doubt) = (limit.delays(session.random()), false);
        let cause = loop {
            let error = match Answer::of(session.commit(txn.clone()).await, doubt) {
                Answer::Applied(stat, commit) => {
                    mark.learn(stat).into_iter().for_each(|mark| marks.give_back(mark));
                    return Ok(Some(Sent::Applied(Some(commit))));
                }
                Answer::Unapplied(end) => {
                    marks.give_back(mark);
                    return end.map(Some);
                }
                Answer::MarkGone => return Ok(None),
                Answer::Doubtful(cause) => break cause,
                Answer::Unanswered(error) => error,
            };
            let Some(delay) = delays.next() else { return Err(error.with_unknown_effect()) };
            doubt = true;
            sleep(delay).await;
        };
        let (mark, doing) = (&mark, marks.doing());
        let settling = Settling { client, mark, number: &number, evidence, doing, limit };
        settling.settle(cause).await.map(Some)
    }
}

/// What one sending of a transaction says.
enum Answer {
    /// With the stat of the mark, and what the other operations did.
    Applied(Option<Stat>, Commit),
    /// It was not applied, and no request is on its way.
    Unapplied(Result<Sent>),
    /// It was not applied, and the mark is of no more use.
    MarkGone,
    /// It has to be sent again.
    Unanswered(Error),
    /// An earlier request was applied, or may still be.
    Doubtful(Option<Error>),
}

impl Answer {
    /// `doubt` says whether an earlier sending was not answered.
    fn of(answer: Result<Outcome>, doubt: bool) -> Self {
        let error = match answer {
            Ok(Outcome::Committed(mut commit)) => {
                let mark = commit.results.drain(..commit.results.len().min(1)).next();
                return Self::Applied(mark.and_then(|done| done.stat), commit);
            }
            Ok(Outcome::Rejected(_)) if doubt => return Self::Doubtful(None),
            // Another client removed the mark.
            Ok(Outcome::Rejected(no)) if no.index == 0 => return Self::MarkGone,
            Ok(Outcome::Rejected(no)) => return Self::Unapplied(Ok(rejected(no))),
            Err(error) => error,
        };
        let doubt = doubt || error.has_unknown_effect();
        mistake!(TransactionRunsAgain: if doubt {
            return Self::MarkGone;
        });
        match error.kind() {
            ErrorKind::Unreachable if doubt => Self::Unanswered(error),
            ErrorKind::SessionLost if !doubt => Self::Unapplied(Ok(Sent::Lost)),
            _ if doubt => Self::Doubtful(Some(error)),
            _ => Self::Unapplied(Err(error)),
        }
    }
}

/// A rejection of the other operations: without the mark.
fn rejected(no: Rejected) -> Sent {
    let Rejected { index, path, reason, look, .. } = no;
    Sent::Rejected(Rejected::new(index - 1, path, reason).with_look(look))
}

/// The error of a preparation, which has no effect on what the transaction writes.
fn harmless(error: Error, doing: &'static str) -> Error {
    if !error.has_unknown_effect() {
        return error;
    }
    Error::new(error.kind(), doing)
        .because("the node by which it is recognized could not be made")
        .caused_by(error)
}
