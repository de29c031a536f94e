//! [`Script`]: what goes wrong, where and how often.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use h2::Reason;

use super::answer::Answer;
use super::random::Storm;
use super::refusal::Refusal;

/// What a member does next: it answers a request of this kind, or sends an event.
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
    /// A watch is asked for on a stream.
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

/// What a member does instead of what it should.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Says no, and does nothing.
    Refuse(Refusal),
    /// Does it, and says no.
    ApplyAndRefuse(Refusal),
    /// Does nothing, and says nothing.
    Ignore,
    /// Does it, and says nothing.
    Mute,
    /// Closes the connection, before or after it did it.
    Cut { applied: bool },
    /// Resets the stream, before or after it did it.
    Reset { applied: bool, reason: Reason },
    /// Does it and answers, and takes no more requests on the connection.
    GoAway,
    /// Does it after so long, even if the caller is gone by then.
    Late(Duration),
    /// Does it at once, and answers after so long.
    Slow(Duration),
    /// Answers twice.
    Twice,
    /// Answers with another message.
    Edit(Edit),
    /// Ends an answer without saying how it went, after its message or before.
    NoStatus { message: bool },
    /// Sends each event by itself, and says that more is to come.
    Fragment,
    /// Ends the stream as if all were well.
    End,
}

impl Act {
    pub(crate) fn edit(change: impl Fn(Answer) -> Answer + Send + Sync + 'static) -> Self {
        Self::Edit(Edit(Arc::new(change)))
    }

    /// Answers with bytes that are no message.
    pub(crate) fn garble() -> Self {
        Self::edit(|_| Answer::Garbage(vec![0xff; 7].into()))
    }
}

/// Something that is to go wrong.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    kind: Kind,
    member: Option<usize>,
    skip: usize,
    times: usize,
    act: Act,
}

impl Rule {
    /// The next one of this kind.
    pub(crate) fn on(kind: Kind, act: Act) -> Self {
        Self { kind, member: None, skip: 0, times: 1, act }
    }

    /// Only at this member.
    pub(crate) fn at(self, member: usize) -> Self {
        Self { member: Some(member), ..self }
    }

    /// Not the first ones.
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

/// The rules that are left, and what happens where there is none.
#[derive(Debug, Default)]
pub(crate) struct Script {
    rules: Vec<Rule>,
    pub(crate) storm: Option<Storm>,
    /// How often each kind was met, scripted or not.
    pub(crate) met: Vec<(Kind, usize)>,
    /// How many acts were played.
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

    /// What is to happen now at this member.
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
