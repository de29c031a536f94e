//! Checks the items that consumers of queues had: no item is lost, invented or doubled, no two
//! consumers hold a delivery, and a stale consumer acknowledges nothing. L-Q-1 to L-Q-6.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::items::{Item, Items};
use crate::check::record::{Breach, Record};
use crate::clients::deed::{Deed, Effect};
use synod_testkit::history::Value;

/// Returns every item that was lost, invented, doubled, or held by two at the same time.
pub fn check(record: &Record) -> Vec<Breach> {
    if record.queues.is_empty() {
        return Vec::new();
    }
    let (items, said) = (Items::of(record), Said::of(record));
    let values: BTreeSet<&Value> = items.all.keys().chain(said.all.keys()).collect();
    let (nothing, none) = (Item::default(), OfItem::default());
    let mut found = Vec::new();
    for value in values {
        let (item, said) =
            (items.all.get(value).unwrap_or(&nothing), said.all.get(value).unwrap_or(&none));
        found.extend(check_put(*value, item, said));
        found.extend(check_ends(*value, item, said));
        found.extend(check_holds(*value, item, said));
        found.extend(check_effects(*value, &items, item, said));
    }
    found.extend(check_unaccounted(&items, &said));
    let left = items.claims.iter();
    found.extend(left.map(|name| Breach::new("L-Q-4", format!("the claim of {name} is left"))));
    found
}

/// The reports of processes about items.
#[derive(Debug, Default)]
struct Said {
    all: BTreeMap<Value, OfItem>,
    /// The number of takes with an unknown result.
    open: usize,
}

/// The reports of processes about one item.
#[derive(Debug, Default)]
struct OfItem {
    /// The result of its put, if one began.
    put: Option<Effect>,
    /// The number of takes that returned it.
    taken: usize,
    /// The last report of each holding, by the token and the time at which it began.
    holds: BTreeMap<(u64, u64), Held>,
    /// The time at which a process knew that it had the item finally, with the token if it had
    /// claimed it.
    ended: Vec<(u64, Option<u64>)>,
    /// Its acknowledgements by their tokens: whether an effect was written with them, and their
    /// end.
    acks: BTreeMap<u64, (bool, Effect)>,
}

/// A claim of an item: the times of the request and of the grant, and the last time at which it was
/// certain.
#[derive(Clone, Copy, Debug)]
struct Held {
    asked: u64,
    since: u64,
    certain: u64,
}

impl Said {
    fn of(record: &Record) -> Self {
        let mut said = Self::default();
        for (t, _, deed) in &record.deeds {
            match *deed {
                Deed::Puts { item } => said.at(item).put = Some(Effect::Unknown),
                Deed::Put { item, effect } => said.at(item).put = Some(effect),
                Deed::Takes => said.open += 1,
                Deed::Took { item, effect } => {
                    said.open -= usize::from(effect != Effect::Unknown);
                    if let Some(item) = item {
                        said.at(item).taken += 1;
                        said.at(item).ended.push((*t, None));
                    }
                }
                Deed::Holds { item, token, asked, since, certain } => {
                    said.at(item).holds.insert((token, since), Held { asked, since, certain });
                }
                Deed::Acks { item, token, with } => {
                    said.at(item).acks.insert(token, (with, Effect::Unknown));
                }
                Deed::Acked { item, token, with, effect } => {
                    said.at(item).acks.insert(token, (with, effect));
                    if effect == Effect::Done {
                        said.at(item).ended.push((*t, Some(token)));
                    }
                }
                _ => {}
            }
        }
        said
    }

    fn at(&mut self, item: Value) -> &mut OfItem {
        self.all.entry(item).or_default()
    }
}

/// Checks that an item exists once if its put was answered, and not if the put failed.
fn check_put(value: Value, item: &Item, said: &OfItem) -> Vec<Breach> {
    let what = format!("{value}: {said:?}, {item:?}");
    let mut found = Vec::new();
    match (said.put, item.keys.len()) {
        (Some(Effect::Done), 0) => found.push(("L-Q-1", "it was put, and was never there")),
        (None, _) => found.push(("L-Q-2", "it was not put")),
        (Some(Effect::None), 1..) => found.push(("L-Q-3", "its put failed, and it was there")),
        (Some(_), 2..) => found.push(("L-Q-3", "one put made two of it")),
        _ => {}
    }
    if item.keys.is_empty() && (said.taken > 0 || !said.holds.is_empty()) {
        found.push(("L-Q-2", "it was had, and was never there"));
    }
    if !item.nodes.is_empty() {
        found.push(("L-Q-4", "it is left, with no consumer that has it"));
    }
    found.into_iter().map(|(law, why)| Breach::new(law, format!("{why}: {what}"))).collect()
}

/// Checks that an item ends once, and that the process that received that answer was the last to
/// claim it.
fn check_ends(value: Value, item: &Item, said: &OfItem) -> Vec<Breach> {
    let what = format!("{value}: {said:?}, {item:?}");
    let mut found = Vec::new();
    let acked = said.acks.iter().filter(|(_, (_, effect))| *effect == Effect::Done);
    let acked: Vec<u64> = acked.map(|(token, _)| *token).collect();
    if said.taken + acked.len() > 1 {
        found.push(("L-Q-5", "it was had for good more than once"));
    }
    let by_claims: Vec<u64> = item.ends.iter().filter_map(|(_, claim)| *claim).collect();
    if acked.iter().any(|token| !by_claims.contains(token)) {
        found.push(("L-Q-6", "a claim acknowledged it that it was not removed with"));
    }
    if by_claims.iter().any(|token| !is_acknowledged(said, *token)) {
        found.push(("L-Q-1", "it was removed with a claim that did not acknowledge it"));
    }
    let last = item.claims.keys().next_back();
    if by_claims.iter().any(|token| Some(token) != last) {
        found.push(("L-Q-6", "a stale claim ended it, or it was claimed after its end"));
    }
    found.into_iter().map(|(law, why)| Breach::new(law, format!("{why}: {what}"))).collect()
}

fn is_acknowledged(said: &OfItem, token: u64) -> bool {
    said.acks.get(&token).is_some_and(|(_, effect)| *effect != Effect::None)
}

/// Checks that no two consumers hold an item at the same time, that none holds it after another one
/// has finally taken it, and that each later holder has a larger token.
fn check_holds(value: Value, item: &Item, said: &OfItem) -> Vec<Breach> {
    let mut found = Vec::new();
    for ((token, _), held) in &said.holds {
        let Held { since, certain, .. } = *held;
        let Some(owner) = item.claims.get(token) else {
            let what = format!("{value}: the claim {token} was never there: {item:?}");
            found.push(Breach::new("L-Q-6", what));
            continue;
        };
        let others = said.holds.iter().filter(|((other, _), it)| {
            other != token && it.since <= since && since <= it.certain && since <= certain
        });
        for ((other, _), _) in others {
            let what = format!("{value}: {other} and {token} held it at {since}: {said:?}");
            let owners = [Some(owner), item.claims.get(other)];
            let owners = owners.into_iter().flatten().copied();
            found.push(Breach::new("L-Q-6", what).at(since).of(owners));
        }
        let over = said.ended.iter().filter(|(t, by)| certain > *t && *by != Some(*token));
        found.extend(over.map(|(t, _)| {
            let what = format!("{value}: {token} held it after its end at {t}: {said:?}");
            Breach::new("L-Q-6", what).at(certain).of([*owner])
        }));
        let later = said.holds.iter().filter(|((other, _), it)| other < token && it.asked > since);
        found.extend(later.map(|((other, _), _)| {
            let what = format!("{value}: {other} came after {token}: {said:?}");
            Breach::new("L-Q-6", what)
        }));
    }
    found
}

/// Checks that the effect of the work on an item is written with the acknowledgement, or not at
/// all.
fn check_effects(value: Value, items: &Items<'_>, item: &Item, said: &OfItem) -> Vec<Breach> {
    let written = items.effects.iter().filter(|(_, of, _)| *of == value);
    let written: BTreeMap<u64, u64> = written.map(|(at, _, token)| (*token, *at)).collect();
    let mut found = Vec::new();
    for (token, at) in &written {
        if !item.ends.contains(&(*at, Some(*token))) {
            found.push(format!("{value}: an effect without its end, at {at} by {token}: {item:?}"));
        }
    }
    for (token, (with, effect)) in &said.acks {
        let is_written = written.contains_key(token);
        let is_its_end = item.ends.iter().any(|(_, claim)| *claim == Some(*token));
        if *with && (*effect == Effect::Done || is_its_end) && !is_written {
            found.push(format!("{value}: {token} acknowledged it, and its effect is missing"));
        }
        if is_written && (!*with || *effect == Effect::None) {
            found.push(format!("{value}: {token} did not acknowledge it, and its effect is there"));
        }
    }
    found.into_iter().map(|what| Breach::new("L-Q-6", what)).collect()
}

/// Checks that an item that disappeared without a claim was taken: by a process that has it, or by
/// one that did not receive the answer.
fn check_unaccounted(items: &Items<'_>, said: &Said) -> Option<Breach> {
    let taken = |value: &Value| said.all.get(value).map_or(0, |said| said.taken);
    let lost: Vec<_> = items
        .all
        .iter()
        .filter(|(value, item)| {
            let gone = item.ends.iter().filter(|(_, claim)| claim.is_none()).count();
            item.nodes.is_empty() && item.ends.len() == gone && taken(value) == 0
        })
        .collect();
    (lost.len() > said.open).then(|| {
        let what = format!("lost, where {} takes may have had one each: {lost:?}", said.open);
        Breach::new("L-Q-1", what)
    })
}

#[cfg(test)]
mod tests;
