//! The items of queues, as the servers kept them: [`Items`].

use std::collections::{BTreeMap, BTreeSet};

use crate::check::record::Record;
use crate::clients::entry::{Fact, Kind};
use synod_testkit::history::Value;

/// The items of all queues of a record.
#[derive(Debug, Default)]
pub(super) struct Items<'a> {
    pub(super) all: BTreeMap<Value, Item<'a>>,
    /// The claims that are left at the end.
    pub(super) claims: BTreeSet<&'a str>,
    /// The effects of the work on items: the revision, the item, and the token of its delivery.
    pub(super) effects: Vec<(u64, Value, u64)>,
}

/// One item.
#[derive(Debug, Default)]
pub(super) struct Item<'a> {
    /// The parts of its names that stay the same: one for each applied put.
    pub(super) keys: BTreeSet<&'a str>,
    /// Its current nodes.
    pub(super) nodes: BTreeSet<&'a str>,
    /// Its claims, by their tokens: the sessions that own them.
    pub(super) claims: BTreeMap<u64, u64>,
    /// The revisions at which it was removed, with the token of the claim that was removed with it.
    pub(super) ends: Vec<(u64, Option<u64>)>,
}

impl<'a> Items<'a> {
    pub(super) fn of(record: &'a Record) -> Self {
        let mut items = Self::default();
        for queue in &record.queues {
            let below = |fact: &&'a Fact| in_queue(queue, &fact.path).is_some();
            let facts: Vec<&'a Fact> = record.facts.iter().filter(below).collect();
            let mut place = Place { queue, names: BTreeMap::new(), tokens: BTreeMap::new() };
            for together in facts.chunk_by(|a, b| a.revision == b.revision) {
                place.learn(&mut items, together);
            }
        }
        items
    }
}

/// One queue, up to some revision.
struct Place<'a> {
    queue: &'a str,
    /// Each name that an item had.
    names: BTreeMap<&'a str, Value>,
    /// The token of the claim of each name.
    tokens: BTreeMap<&'a str, u64>,
}

impl<'a> Place<'a> {
    /// Applies the writes of one transaction.
    fn learn(&mut self, items: &mut Items<'a>, facts: &[&'a Fact]) {
        let (mut came, mut gone) = (BTreeSet::new(), Vec::new());
        for fact in facts {
            let Some((dir, name)) = in_queue(self.queue, &fact.path) else { continue };
            match (dir, fact.kind) {
                ("items" | "claimed", Kind::Created) => {
                    let Some(value) = fact.value else { continue };
                    self.names.insert(name, value);
                    let item = items.all.entry(value).or_default();
                    item.keys.insert(key(name));
                    item.nodes.insert(&fact.path);
                    came.insert(value);
                }
                ("items" | "claimed", Kind::Deleted) => gone.push((name, &*fact.path)),
                ("done", Kind::Created) => {
                    let numbers = name.split_once('-').map(|(a, b)| (a.parse(), b.parse()));
                    if let Some((Ok(item), Ok(token))) = numbers {
                        items.effects.push((fact.revision, item, token));
                    }
                }
                ("claims", Kind::Created) => drop(items.claims.insert(name)),
                ("claims", Kind::Deleted) => drop(items.claims.remove(name)),
                _ => {}
            }
        }
        self.claims(items, facts);
        for (name, path) in gone {
            let Some(value) = self.names.get(name) else { continue };
            let item = items.all.entry(*value).or_default();
            item.nodes.remove(path);
            if !came.contains(value) {
                let removed = |fact: &&&Fact| {
                    fact.kind == Kind::Deleted
                        && in_queue(self.queue, &fact.path) == Some(("claims", name))
                };
                let claim = facts.iter().find(removed).and_then(|_| self.tokens.get(name));
                let revision = facts.first().map_or(0, |fact| fact.revision);
                item.ends.push((revision, claim.copied()));
            }
        }
    }

    fn claims(&mut self, items: &mut Items<'a>, facts: &[&'a Fact]) {
        for fact in facts.iter().filter(|fact| fact.kind == Kind::Created) {
            if let Some(("claims", name)) = in_queue(self.queue, &fact.path)
                && let Some(value) = self.names.get(name)
            {
                self.tokens.insert(name, fact.revision);
                let item = items.all.entry(*value).or_default();
                item.claims.insert(fact.revision, fact.owner.unwrap_or_default());
            }
        }
    }
}

/// Returns the directory of a node within a queue, and its name there.
fn in_queue<'a>(queue: &str, path: &'a str) -> Option<(&'a str, &'a str)> {
    path.strip_prefix(queue)?.strip_prefix('/')?.split_once('/')
}

/// Returns the part of the name of an item that stays the same: see the names of `Queue`.
fn key(name: &str) -> &str {
    let rest = name.strip_prefix("entry-").and_then(|rest| rest.split_once('-'));
    let rest = rest.map_or(name, |(_priority, rest)| rest);
    match rest.strip_prefix('+').and_then(|rest| rest.split_once('-')) {
        Some((_changing, key)) => key,
        None => rest,
    }
}
