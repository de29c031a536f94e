//! The entries of a [`Book`](crate::clients::book::Book), sorted for the checks of laws:
//! [`Record`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::clients::deed::{Deed, Part};
use crate::clients::entry::{Answer, Entry, Fact, Installed, Kind, Op, Seen, Told, What};
use crate::clients::holding::{Holding, Room};
use synod_testkit::history::Value;

/// The events of a run, and the writes that the servers kept.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Record {
    /// All calls, in the order in which they began.
    pub calls: Vec<Called>,
    /// Every write that the servers kept, in their order.
    pub facts: Vec<Fact>,
    /// The events of each watch, by the call that began it.
    pub told: BTreeMap<u64, Vec<(u64, Told)>>,
    /// The reported states of sessions: the time of the report, the status, and the time at which
    /// the session was last certain.
    pub beliefs: Vec<(u64, u64, String, Option<u64>)>,
    /// The locks that each process reported to hold, without interruption.
    pub holdings: Vec<(usize, Holding)>,
    /// The locks: the kind, the directory, and the node that its holder writes.
    pub stands: BTreeSet<(Room, String, String)>,
    /// The paths of queues.
    pub queues: BTreeSet<String>,
    /// The paths of crews.
    pub crews: BTreeSet<String>,
    /// The paths of other recipes that processes use, with their parts.
    pub families: BTreeSet<(Part, String)>,
    /// The members that a full round of a double barrier has, by its path.
    pub parties: BTreeMap<String, u64>,
    /// The actions of processes there: the time of the report, and the process.
    pub deeds: Vec<(u64, usize, Deed)>,
    /// Sessions that were ended from outside before their time.
    pub ended: BTreeSet<u64>,
    /// The reports of servers about leases: the time of the report, the session, and the time until
    /// which its lease lives at least.
    pub leases: Vec<(u64, u64, u64)>,
    /// The times at which a paused server, or a server with a stalled disk, was resumed.
    pub resumed: Vec<u64>,
    /// Faults that may or may not have taken place.
    pub indeterminate: Vec<String>,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Called {
    /// Its id.
    pub id: u64,
    /// The process.
    pub process: usize,
    /// The session; zero if there is none yet.
    pub session: u64,
    /// The operation.
    pub op: Op,
    /// The time of the beginning.
    pub called: u64,
    /// The time of the end; [`u64::MAX`] if it did not end.
    pub returned: u64,
    /// The result.
    pub end: End,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "checks must know each of them")]
pub enum End {
    /// The call was applied.
    Done(Answer),
    /// The store rejected the call, or it certainly never happens.
    Not,
    /// Unknown.
    Unknown,
}

/// A law that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Breach {
    /// The law.
    pub law: &'static str,
    /// The description.
    pub what: String,
    /// The time, if the check knows it: see [`now`](crate::clients::entry::now).
    pub at: Option<u64>,
    /// The sessions that were considered alive, if the check knows them.
    pub sessions: Vec<u64>,
}

impl Breach {
    /// Creates a breach of `law` at an unknown time.
    pub fn new(law: &'static str, what: impl Into<String>) -> Self {
        Self { law, what: what.into(), at: None, sessions: Vec::new() }
    }

    /// Sets the time of the breach.
    pub fn at(self, at: u64) -> Self {
        Self { at: Some(at), ..self }
    }

    /// Sets the sessions that were considered alive.
    pub fn of(self, sessions: impl IntoIterator<Item = u64>) -> Self {
        Self { sessions: sessions.into_iter().collect(), ..self }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.law, self.what)
    }
}

impl Called {
    /// Returns the node that the call is about.
    pub fn path(&self) -> &str {
        match &self.op {
            Op::Create { path, .. }
            | Op::Ticket { path, .. }
            | Op::Set { path, .. }
            | Op::Cas { path, .. }
            | Op::Delete { path }
            | Op::Read { path, .. }
            | Op::List { path, .. }
            | Op::Observe { path }
            | Op::Stand { path, .. }
            | Op::Serve { path, .. } => path,
            Op::Open { .. } | Op::Close | Op::Exit | Op::Ping => "",
        }
    }

    /// Returns the value that the call writes.
    pub fn value(&self) -> Option<Value> {
        match self.op {
            Op::Create { value, .. }
            | Op::Ticket { value, .. }
            | Op::Set { value, .. }
            | Op::Cas { value, .. } => Some(value),
            _ => None,
        }
    }

    /// Returns the answer, if the call was applied.
    pub fn answer(&self) -> Option<&Answer> {
        match &self.end {
            End::Done(answer) => Some(answer),
            _ => None,
        }
    }

    /// Returns the nodes in the answer.
    pub(crate) fn seen(&self) -> &[Seen] {
        self.answer().map_or(&[], |answer| &answer.nodes)
    }
}

impl fmt::Display for Called {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, session, op, called, returned, end, .. } = self;
        write!(f, "process {process} session {session:x} [{called}, {returned}] {op:?} -> {end:?}")
    }
}

impl Record {
    /// Creates the record of these entries.
    pub fn of(entries: &[Entry]) -> Self {
        let mut record = Self::default();
        let mut places: BTreeMap<u64, usize> = BTreeMap::new();
        for entry in entries {
            let session = entry.s.unwrap_or_default();
            let place = entry.id.and_then(|id| places.get(&id).copied());
            match (&entry.what, entry.id, place) {
                (What::Inv { op: Op::Stand { room, path, data, .. } }, ..) => {
                    record.stands.insert((*room, path.clone(), data.clone()));
                }
                (What::Inv { op: Op::Serve { part, path, count, .. } }, ..) => {
                    record.serves(*part, path, *count);
                }
                (What::Deed { deed }, ..) => record.deeds.push((entry.t, entry.p, deed.clone())),
                (What::Inv { op }, Some(id), _) => {
                    places.insert(id, record.calls.len());
                    record.calls.push(Called {
                        id,
                        process: entry.p,
                        session,
                        op: op.clone(),
                        called: entry.t,
                        returned: u64::MAX,
                        end: End::Unknown,
                    });
                }
                (What::Ok { .. } | What::Fail { .. } | What::Info { .. }, _, Some(place)) => {
                    record.end(place, entry);
                }
                (What::Event { told }, Some(id), _) => {
                    record.told.entry(id).or_default().push((entry.t, told.clone()));
                }
                (What::Belief { status, certain }, ..) => {
                    record.beliefs.push((entry.t, session, status.clone(), *certain));
                }
                (What::Holding { holding }, ..) => record.believe(entry.p, holding),
                (What::Nemesis { what, outcome: Installed::Indeterminate }, ..) => {
                    record.indeterminate.push(what.clone());
                }
                (What::Nemesis { what, .. }, ..) => {
                    record.ended.extend(entry.s);
                    if what.starts_with("resume server") {
                        record.resumed.push(entry.t);
                    }
                }
                (What::Lease { until }, ..) => record.leases.push((entry.t, session, *until)),
                (What::Truth { fact }, ..) => record.facts.push(fact.clone()),
                _ => {}
            }
        }
        record.facts.sort_by_key(|fact| fact.revision);
        record
    }

    fn serves(&mut self, part: Part, path: &str, count: u64) {
        let path = path.to_owned();
        if part.is_of_a_crew() {
            self.crews.insert(path);
        } else if part.is_of_a_queue() {
            self.queues.insert(path);
        } else {
            if part == Part::Party {
                self.parties.insert(path.clone(), count);
            }
            self.families.insert((part, path));
        }
    }

    /// Adds a report of a holding.
    fn believe(&mut self, process: usize, holding: &Holding) {
        let same = |(by, before): &&mut (usize, Holding)| {
            let who = (*by, &before.path, before.token, before.since);
            who == (process, &holding.path, holding.token, holding.since)
        };
        match self.holdings.iter_mut().rev().find(same) {
            Some((_, before)) => *before = holding.clone(),
            None => self.holdings.push((process, holding.clone())),
        }
    }

    /// Returns the session that owns the ticket of this holding.
    pub(crate) fn owner(&self, holding: &Holding) -> Option<u64> {
        let ticket = self.facts.iter().find(|fact| {
            let line = fact.path.rsplit_once('/').map(|(line, _)| line);
            fact.kind == Kind::Created
                && fact.revision == holding.token
                && line == Some(holding.path.as_str())
        });
        ticket?.owner
    }

    /// Returns `true` for a node of a recipe: a ticket of a lock with contenders, or a node of a
    /// queue, a crew or another recipe. Recipes create and delete them as locks are held and work
    /// is done.
    pub(crate) fn is_of_a_recipe(&self, path: &str) -> bool {
        let lines = self.stands.iter().map(|(_, line, _)| line);
        let families = self.families.iter().map(|(_, path)| path);
        let mut places = lines.chain(&self.queues).chain(&self.crews).chain(families);
        places.any(|place| {
            path.strip_prefix(place.as_str()).is_some_and(|below| below.starts_with('/'))
        })
    }

    fn end(&mut self, place: usize, entry: &Entry) {
        let call = &mut self.calls[place];
        call.returned = entry.t;
        call.session = entry.s.unwrap_or_default();
        call.end = match &entry.what {
            What::Ok { answer } if answer.refused.is_none() => End::Done(answer.clone()),
            What::Ok { .. } | What::Fail { .. } => End::Not,
            _ => End::Unknown,
        };
    }

    /// Returns `true` if a write of this value was kept.
    pub(crate) fn kept(&self, value: Value) -> bool {
        self.facts.iter().any(|fact| fact.value == Some(value))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A record that is written by hand: the time is the index of the entry.
    #[derive(Default)]
    pub(in crate::check) struct Script(Vec<Entry>);

    pub(in crate::check) fn seen(path: &str, value: Value, modified: u64) -> Seen {
        let path = path.to_owned();
        Seen { path, value: Some(value), modified, created: modified, ..Seen::default() }
    }

    impl Script {
        pub(in crate::check) fn say(&mut self, s: u64, id: Option<u64>, what: What) -> u64 {
            let t = self.0.len() as u64 + 1;
            self.0.push(Entry { t, p: 1, s: Some(s), id, what });
            t
        }

        pub(in crate::check) fn begin(&mut self, s: u64, op: Op) -> u64 {
            let id = self.0.len() as u64 + 1;
            self.say(s, Some(id), What::Inv { op })
        }

        pub(in crate::check) fn ok(&mut self, s: u64, id: u64, revision: u64, nodes: Vec<Seen>) {
            let revision = (revision > 0).then_some(revision);
            let answer = Answer { revision, nodes, ..Answer::default() };
            self.say(s, Some(id), What::Ok { answer });
        }

        pub(in crate::check) fn call(&mut self, s: u64, op: Op, revision: u64, nodes: Vec<Seen>) {
            let id = self.begin(s, op);
            self.ok(s, id, revision, nodes);
        }

        pub(in crate::check) fn fails(&mut self, s: u64, op: Op, certainly: bool) {
            let id = self.begin(s, op);
            let why = "of itself".to_owned();
            self.say(s, Some(id), if certainly { What::Fail { why } } else { What::Info { why } });
        }

        pub(in crate::check) fn fact(
            &mut self,
            revision: u64,
            path: &str,
            kind: Kind,
            value: Option<Value>,
            owner: Option<u64>,
        ) {
            let path = path.to_owned();
            let fact = Fact { revision, path, kind, value, owner };
            self.say(0, None, What::Truth { fact });
        }

        pub(in crate::check) fn record(&self) -> Record {
            Record::of(&self.0)
        }
    }
}
