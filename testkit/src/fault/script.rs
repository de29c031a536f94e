//! A single fault at a single call: [`Cue`].

use std::time::Duration;

use serde::{Deserialize, Serialize};
use synod_core::path::Path;
use synod_core::store::{Op, Query, Txn};

use crate::choice::Actor;
use crate::fault::site::Site;

/// A call of the contract, or the kind of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verb {
    /// The opening of a session.
    Open,
    /// A read.
    Read,
    /// An observation.
    Watch,
    /// Any commit.
    Commit,
    /// A commit with a create.
    Create,
    /// A commit with a set.
    Set,
    /// A commit with a delete.
    Delete,
    /// The close of the session.
    Close,
}

/// A fault of a script: it fires once, at a call that matches.
///
/// # Examples
///
/// ```
/// use synod_testkit::fault::{Cue, Plan, Site, Verb};
///
/// let next_create = Cue::new(Site::ReplyLost).of(Verb::Create);
/// let third_commit = Cue::new(Site::ReplyLost).of(Verb::Commit).nth(3);
/// let plan = Plan::scripted([next_create, third_commit]);
/// assert_eq!(plan.pending(), 2);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a cue does nothing until a plan has it"]
pub struct Cue {
    pub(super) site: Site,
    pub(super) lasting: Option<Duration>,
    verb: Option<Verb>,
    actor: Option<Actor>,
    under: Option<Path>,
    /// The number of matching calls that it still skips.
    pass: u64,
}

impl Cue {
    /// Creates a fault at the next call.
    pub fn new(site: Site) -> Self {
        Self { site, lasting: None, verb: None, actor: None, under: None, pass: 0 }
    }

    /// Restricts the fault to this verb.
    pub fn of(mut self, verb: Verb) -> Self {
        self.verb = Some(verb);
        self
    }

    /// Restricts the fault to the calls of this actor.
    pub fn by(mut self, actor: Actor) -> Self {
        self.actor = Some(actor);
        self
    }

    /// Restricts the fault to calls on this path or a path below it.
    pub fn under(mut self, path: Path) -> Self {
        self.under = Some(path);
        self
    }

    /// Selects the `n`-th of the matching calls, from one, counted from when the cue was added to
    /// the plan.
    pub fn nth(mut self, n: u64) -> Self {
        self.pass = n.saturating_sub(1);
        self
    }

    /// Sets the duration of the delay; by default, the maximum of the plan's
    /// [`Faults`](crate::fault::Faults).
    pub fn lasting(mut self, lasting: Duration) -> Self {
        self.lasting = Some(lasting);
        self
    }

    /// Counts a call that matches. Returns `true` for the call at which the fault fires.
    pub(super) fn count_match(&mut self, actor: Actor, call: &Asked<'_>) -> bool {
        let fits = call.takes(self.site)
            && self.verb.is_none_or(|verb| call.is(verb))
            && self.actor.is_none_or(|wanted| wanted == actor)
            && self.under.as_ref().is_none_or(|path| call.is_under(path));
        if fits && self.pass > 0 {
            self.pass -= 1;
            return false;
        }
        fits
    }
}

/// The verb and the path of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    verb: Verb,
    path: Option<&'a Path>,
    ops: &'a [Op],
}

impl<'a> Asked<'a> {
    /// Describes the opening or the close of a session.
    pub(super) fn bare(verb: Verb) -> Self {
        Self { verb, path: None, ops: &[] }
    }

    pub(super) fn query(verb: Verb, query: &'a Query) -> Self {
        Self { verb, path: Some(&query.path), ops: &[] }
    }

    pub(super) fn commit(txn: &'a Txn) -> Self {
        Self { verb: Verb::Commit, path: txn.ops.first().map(Op::path), ops: &txn.ops }
    }

    pub(super) fn path(&self) -> Option<&'a Path> {
        self.path
    }

    /// Returns the verb; of a commit, the kind of its first write.
    pub(super) fn telling_verb(&self) -> Verb {
        self.ops.iter().find_map(verb_of).unwrap_or(self.verb)
    }

    /// Returns `true` if this fault can happen to the call.
    pub(super) fn takes(&self, site: Site) -> bool {
        site != Site::AppliedLate || self.verb == Verb::Commit
    }

    fn is(&self, verb: Verb) -> bool {
        self.verb == verb || self.ops.iter().any(|op| verb_of(op) == Some(verb))
    }

    fn is_under(&self, dir: &Path) -> bool {
        self.ops.iter().map(Op::path).chain(self.path).any(|path| path == dir || path.is_below(dir))
    }
}

fn verb_of(op: &Op) -> Option<Verb> {
    match op {
        Op::Check { .. } => None,
        Op::Create { .. } => Some(Verb::Create),
        Op::Set { .. } => Some(Verb::Set),
        Op::Delete { .. } => Some(Verb::Delete),
    }
}
