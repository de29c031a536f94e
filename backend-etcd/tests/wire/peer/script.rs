//! [`Script`]: which faults happen, where and how often.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use h2::Reason;

use super::answer::Answer;
use super::random::Storm;
use super::refusal::Refusal;

/// An action of a member that a script can change: answering a kind of request, or sending an
/// event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Range,
    Put,
    Delete,
    Txn,
    Grant,
    KeepAlive,
    Revoke,
    Authenticate,
    /// A stream of watches is opened.
    Watch,
    /// A watch is requested on a stream.
    Create,
    Cancel,
    Progress,
    /// Events are sent on a stream.
    Push,
}

/// Changes an answer.
#[derive(Clone)]
pub(crate) struct Edit(pub(crate) Arc<dyn Fn(Answer) -> Answer + Send + Sync>);

impl fmt::Debug for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Edit")
    }
}

/// The act of a member instead of its normal action.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Returns an error, without applying the request.
    Refuse(Refusal),
    /// Applies the request, and returns an error.
    ApplyAndRefuse(Refusal),
    /// Neither applies the request nor answers.
    Ignore,
    /// Applies the request, and does not answer.
    Mute,
    /// Closes the connection, after or before applying the request.
    Cut { applied: bool },
    /// Resets the stream, after or before applying the request.
    Reset { applied: bool, reason: Reason },
    /// Applies the request and answers, and takes no more requests on the connection.
    GoAway,
    /// Applies the request after this time, even if the caller is gone by then.
    Late(Duration),
    /// Applies the request at once, and answers after this time.
    Slow(Duration),
    /// Answers twice.
    Twice,
    /// Answers with another message.
    Edit(Edit),
    /// Ends an answer without its status, after its message or before.
    NoStatus { message: bool },
    /// Sends each event separately, with the mark that more follow.
    Fragment,
    /// Ends the stream without an error.
    End,
}

impl Act {
    pub(crate) fn edit(change: impl Fn(Answer) -> Answer + Send + Sync + 'static) -> Self {
        Self::Edit(Edit(Arc::new(change)))
    }

    /// Answers with bytes that cannot be decoded.
    pub(crate) fn garble() -> Self {
        Self::edit(|_| Answer::Garbage(vec![0xff; 7].into()))
    }
}

/// One scripted fault.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    kind: Kind,
    member: Option<usize>,
    skip: usize,
    times: usize,
    act: Act,
}

impl Rule {
    /// Applies to the next action of this kind.
    pub(crate) fn on(kind: Kind, act: Act) -> Self {
        Self { kind, member: None, skip: 0, times: 1, act }
    }

    /// Only at this member.
    pub(crate) fn at(self, member: usize) -> Self {
        Self { member: Some(member), ..self }
    }

    /// Skips this number of matches first.
    pub(crate) fn behind(self, skip: usize) -> Self {
        Self { skip, ..self }
    }

    pub(crate) fn times(self, times: usize) -> Self {
        Self { times, ..self }
    }

    pub(crate) fn always(self) -> Self {
        self.times(usize::MAX)
    }
}

/// The remaining rules, and the random faults where no rule applies.
#[derive(Debug, Default)]
pub(crate) struct Script {
    rules: Vec<Rule>,
    pub(crate) storm: Option<Storm>,
    /// The number of requests of each kind, scripted or not.
    pub(crate) met: Vec<(Kind, usize)>,
    /// The number of acts that were played.
    pub(crate) played: usize,
}

impl Script {
    pub(crate) fn add(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    pub(crate) fn clear(&mut self) {
        self.rules.clear();
        self.storm = None;
    }

    /// The act to play now at this member, if any.
    pub(crate) fn next(&mut self, kind: Kind, member: usize, network: usize) -> Option<Act> {
        match self.met.iter_mut().find(|(met, _)| *met == kind) {
            Some((_, count)) => *count += 1,
            None => self.met.push((kind, 1)),
        }
        let fits = |rule: &Rule| rule.kind == kind && rule.member.is_none_or(|at| at == member);
        let ruled = self.rules.iter().position(fits).and_then(|place| self.play(place));
        let act = ruled.or_else(|| self.storm.as_ref().and_then(|storm| storm.act(kind, network)));
        self.played += usize::from(act.is_some());
        act
    }

    fn play(&mut self, place: usize) -> Option<Act> {
        let rule = &mut self.rules[place];
        if rule.skip > 0 {
            rule.skip -= 1;
            return None;
        }
        let act = rule.act.clone();
        rule.times -= 1;
        if rule.times == 0 {
            self.rules.remove(place);
        }
        Some(act)
    }
}
