//! [`Comparison`]: compares the results of two stores, except for numbers that each may assign in
//! its own way.

use std::collections::BTreeMap;

use synod_core::store::{Revision, Stat};

use crate::differential::model::Model;
use crate::differential::neutral::{Entry, Told};
use crate::differential::program::{Act, Ask, Life, Reach, TICKET, Verb, name};

/// Pairs of corresponding numbers of two stores.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    revisions: Pairs<u64>,
    versions: BTreeMap<(String, u64), Pairs<u64>>,
}

/// Numbers of one store and of another, one to one.
#[derive(Debug)]
struct Pairs<T> {
    there: BTreeMap<T, T>,
    back: BTreeMap<T, T>,
}

/// Two answers that agree, or differ within the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agreement {
    Same,
    /// One store still had an empty container to delete, but the other had not. If that affects
    /// other writes, the rest cannot be compared.
    Parted {
        for_good: bool,
    },
}

impl<T> Default for Pairs<T> {
    fn default() -> Self {
        Self { there: BTreeMap::new(), back: BTreeMap::new() }
    }
}

impl<T: Ord + Copy> Pairs<T> {
    fn meet(&mut self, a: T, b: T) -> bool {
        let (there, back) = (self.there.get(&a), self.back.get(&b));
        if (there, back) == (Some(&b), Some(&a)) {
            return true;
        }
        if there.is_some() || back.is_some() {
            return false;
        }
        self.there.insert(a, b);
        self.back.insert(b, a);
        true
    }

    fn is_in_order(&self) -> bool {
        self.there.values().is_sorted()
    }
}

impl Comparison {
    /// Compares the answers of two stores to a transaction.
    pub(crate) fn outcome(
        &mut self,
        acts: &[Act],
        model: &Model,
        (a, b): (&Told, &Told),
    ) -> Result<Agreement, String> {
        if let Some(for_good) = excuse(acts, model, a, b).or_else(|| excuse(acts, model, b, a)) {
            return Ok(Agreement::Parted { for_good });
        }
        match (a, b) {
            (
                Told::Committed { revision: ours, done, .. },
                Told::Committed { revision: theirs, done: other, .. },
            ) => {
                self.done(acts, done, other)?;
                let writes = acts.iter().any(|act| is_seen(&act.verb));
                if let (true, Some(ours), Some(theirs)) = (writes, ours, theirs) {
                    self.revision(*ours, *theirs)?;
                }
                Ok(Agreement::Same)
            }
            _ => plain(a, b).map(|()| Agreement::Same),
        }
    }

    fn done(&mut self, acts: &[Act], a: &[Entry], b: &[Entry]) -> Result<(), String> {
        if a.len() != acts.len() || b.len() != acts.len() {
            return Err(format!("{} and {} things done of {}", a.len(), b.len(), acts.len()));
        }
        for ((act, a), b) in acts.iter().zip(a).zip(b) {
            let drawn = matches!(act.verb, Verb::Draw { .. });
            if (a.sequence.is_some(), b.sequence.is_some()) != (drawn, drawn) {
                return Err(format!("which of these has a sequence: {a}, {b}"));
            }
            if a.place != act.place || b.place != act.place {
                return Err(format!("{a} and {b} were /{}", act.place));
            }
            let told = match act.verb {
                Verb::Create { life: Life::Container, .. } => false,
                Verb::Create { .. } | Verb::Draw { .. } | Verb::Set { .. } => true,
                // The contract guarantees nothing about these.
                Verb::Delete { .. } | Verb::Check { .. } => continue,
            };
            if !told && (a.stat.is_some() || b.stat.is_some()) {
                return Err(format!("a container has no stat: {a}, {b}"));
            }
            self.stats(a, b, told && acts.len() == 1)?;
        }
        Ok(())
    }

    /// Compares two views.
    pub(crate) fn view(
        &mut self,
        ask: &Ask,
        model: &Model,
        (a, b): (&[Entry], &[Entry]),
    ) -> Result<(), String> {
        let windowed = !matches!(ask.reach, Reach::Node | Reach::Children { .. } | Reach::Subtree);
        if windowed && a.iter().chain(b).any(|entry| !model.is_live(&entry.place)) {
            // A container with the name of a deleted ticket: a store may also find a sequence in
            // it.
            return Ok(());
        }
        let shown = |entry: &&Entry| !model.may_linger(&entry.place);
        let a: Vec<&Entry> = a.iter().filter(shown).collect();
        let b: Vec<&Entry> = b.iter().filter(shown).collect();
        let places = |of: &[&Entry]| of.iter().map(|e| e.place.clone()).collect::<Vec<_>>();
        if places(&a) != places(&b) {
            return Err("not the same nodes, or in another order".into());
        }
        let listing = !matches!(ask.reach, Reach::Node | Reach::Subtree);
        let needs_stat = !ask.names_only || ask.reach == Reach::Node;
        for (a, b) in a.into_iter().zip(b) {
            if a.data != b.data {
                return Err(format!("other data: {a}, {b}"));
            }
            if ask.names_only && !a.data.is_empty() {
                return Err(format!("data where names were asked for: {a}, {b}"));
            }
            let ticket = name(&a.place).starts_with(TICKET) && model.is_live(&a.place);
            let numbered = listing && ticket;
            if numbered && (a.sequence.is_none() || b.sequence.is_none()) {
                return Err(format!("a ticket without its sequence: {a}, {b}"));
            }
            self.stats(a, b, needs_stat)?;
            if needs_stat && model.is_live(&a.place) && a.stat.is_none() {
                return Err(format!("a node without a stat: {a}, {b}"));
            }
        }
        Ok(())
    }

    fn stats(&mut self, a: &Entry, b: &Entry, needed: bool) -> Result<(), String> {
        match (a.stat, b.stat) {
            (Some(ours), Some(theirs)) => self.stat(&a.place, ours, theirs)?,
            (None, None) => return Ok(()),
            _ if !needed => return Ok(()),
            _ => return Err(format!("only one of them returns a stat: {a}, {b}")),
        }
        if a.owner == b.owner { Ok(()) } else { Err(format!("other owners: {a}, {b}")) }
    }

    fn stat(&mut self, place: &str, a: Stat, b: Stat) -> Result<(), String> {
        self.revision(a.created, b.created)?;
        self.revision(a.modified, b.modified)?;
        let versions = self.versions.entry((place.to_owned(), a.created.get())).or_default();
        if versions.meet(a.version.get(), b.version.get()) {
            return Ok(());
        }
        Err(format!("versions {} and {} of /{place} were not a pair before", a.version, b.version))
    }

    fn revision(&mut self, a: Revision, b: Revision) -> Result<(), String> {
        if !self.revisions.meet(a.get(), b.get()) {
            return Err(format!("revisions {a} and {b} were not a pair before"));
        }
        if !self.revisions.is_in_order() {
            return Err(format!("revisions {a} and {b} order what happened in two ways"));
        }
        Ok(())
    }
}

/// Compares results without numbers.
pub(crate) fn plain(a: &Told, b: &Told) -> Result<(), String> {
    let same = match (a, b) {
        (
            Told::Failed { kind, effect, .. },
            Told::Failed { kind: other_kind, effect: other_effect, .. },
        ) => (kind, effect) == (other_kind, other_effect),
        (
            Told::Rejected { index, place, why, .. },
            Told::Rejected { index: other_index, place: other_place, why: other_why, .. },
        ) => (index, place, why) == (other_index, other_place, other_why),
        (Told::Over(why), Told::Over(other)) => why == other,
        (Told::Committed { .. }, Told::Committed { .. }) | (Told::Viewed(_), Told::Viewed(_)) => {
            true
        }
        _ => false,
    };
    if same { Ok(()) } else { Err("not the same answer".into()) }
}

/// Returns `Some` if `a` missed an empty container that `b` still had: `true` if their trees then
/// differ.
fn excuse(acts: &[Act], model: &Model, a: &Told, b: &Told) -> Option<bool> {
    let Told::Rejected { index, why: synod_core::store::RejectReason::Missing, .. } = a else {
        return None;
    };
    let act = acts.get(*index)?;
    let lingers = |act: &Act| {
        matches!(act.verb, Verb::Delete { .. })
            && !model.is_live(&act.place)
            && model.may_be_container(&act.place)
    };
    if !lingers(act) {
        return None;
    }
    match b {
        Told::Rejected { index: later, .. } if later > index => Some(false),
        Told::Committed { .. } => Some(acts.iter().any(|act| is_seen(&act.verb) && !lingers(act))),
        _ => None,
    }
}

/// Returns `true` if an operation changes anything visible.
fn is_seen(verb: &Verb) -> bool {
    !matches!(verb, Verb::Check { .. } | Verb::Create { life: Life::Container, .. })
}
