//! [`Model`]: the known state of a program's tree, as far as the stores agree on it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use synod_core::store::{Kind, Revision, Sequence, Version};

use crate::differential::program::{Act, Life, Verb, is_below, parent};

/// The state after the steps so far.
#[derive(Debug, Default)]
pub(crate) struct Model {
    /// The owner of each node, if it is ephemeral.
    live: BTreeMap<String, Option<usize>>,
    /// Paths at which a container is or was: an empty container is collected immediately or later.
    containers: BTreeSet<String>,
    versions: BTreeMap<String, Vec<Vec<Version>>>,
    tickets: BTreeMap<String, Vec<Sequence>>,
    deeds: Vec<Deed>,
    /// The sessions that have seen the last write: their local reads do not lag.
    informed: BTreeSet<usize>,
}

/// A change that happened.
#[derive(Clone, Debug)]
pub(crate) struct Deed {
    pub(crate) step: usize,
    pub(crate) place: String,
    pub(crate) kind: Kind,
    pub(crate) data: Option<Bytes>,
    /// The revision at each store that reports it.
    pub(crate) revisions: Vec<Option<Revision>>,
}

impl Model {
    /// Returns `true` if a store may still list or delete a container here although it is empty.
    pub(crate) fn may_linger(&self, place: &str) -> bool {
        let there = self.live.contains_key(place);
        !there && self.may_be_container(place) && !self.is_occupied(place)
    }

    pub(crate) fn may_be_container(&self, place: &str) -> bool {
        self.containers.contains(place)
    }

    pub(crate) fn is_live(&self, place: &str) -> bool {
        self.live.contains_key(place)
    }

    fn is_occupied(&self, place: &str) -> bool {
        self.live.keys().any(|node| is_below(node, place))
    }

    pub(crate) fn deeds(&self) -> &[Deed] {
        &self.deeds
    }

    /// The version that was reported last, or an earlier one, in the numbering of each store.
    pub(crate) fn version(&self, place: &str, back: usize) -> Option<&Vec<Version>> {
        self.versions.get(place).and_then(|told| told.iter().rev().nth(back))
    }

    /// The sequences of a ticket, if its directory has not been empty since.
    pub(crate) fn sequences(&self, ticket: &str) -> Option<&Vec<Sequence>> {
        self.tickets.get(ticket)
    }

    /// Returns `true` if local reads of this session are up to date.
    pub(crate) fn is_informed(&self, who: usize) -> bool {
        self.informed.contains(&who)
    }

    /// Records that a session has made a latest read.
    pub(crate) fn inform(&mut self, who: usize) {
        self.informed.insert(who);
    }

    /// Records an attempted operation. A store may keep the containers of a rejected operation for
    /// a while.
    pub(crate) fn tried(&mut self, acts: &[Act]) {
        for act in acts {
            let (made, itself) = match act.verb {
                Verb::Create { life, .. } => (true, life == Life::Container),
                Verb::Draw { .. } => (true, false),
                _ => (false, false),
            };
            let mut above = if made { parent(&act.place) } else { None };
            while let Some(place) = above {
                self.containers.insert(place.to_owned());
                above = parent(place);
            }
            if itself {
                self.containers.insert(act.place.clone());
            }
        }
    }

    /// Records applied operations. `revisions` has, for each operation, its revision at each store.
    pub(crate) fn did(
        &mut self,
        (step, who): (usize, usize),
        acts: &[Act],
        revisions: &[Vec<Option<Revision>>],
    ) {
        for (act, revisions) in acts.iter().zip(revisions) {
            let place = act.place.clone();
            let (kind, data) = match act.verb {
                Verb::Check { .. } | Verb::Create { life: Life::Container, .. } => continue,
                // The delete of a lingering container.
                Verb::Delete { .. } if !self.live.contains_key(&place) => continue,
                Verb::Create { data, life } | Verb::Draw { data, life } => {
                    let owner = (life == Life::Session).then_some(who);
                    self.live.insert(place.clone(), owner);
                    (Kind::Created, Some(data))
                }
                Verb::Set { data, .. } => (Kind::Updated, Some(data)),
                Verb::Delete { .. } => {
                    self.live.remove(&place);
                    (Kind::Deleted, None)
                }
            };
            if kind != Kind::Updated {
                self.versions.remove(&place);
                // The sequences of its own directory start again.
                self.tickets.retain(|ticket, _| parent(ticket) != Some(&place));
            }
            let (data, revisions) = (data.map(bytes), revisions.clone());
            self.deeds.push(Deed { step, place, kind, data, revisions });
            self.informed = BTreeSet::from([who]);
        }
        self.forget_lines();
    }

    /// Records the end of a session, and the deletion of its nodes.
    pub(crate) fn ended(&mut self, step: usize, who: usize, stores: usize) {
        let gone: Vec<String> = self.owned_by(who).map(ToOwned::to_owned).collect();
        for place in gone {
            self.live.remove(&place);
            self.versions.remove(&place);
            let (kind, data, revisions) = (Kind::Deleted, None, vec![None; stores]);
            self.deeds.push(Deed { step, place, kind, data, revisions });
            self.informed.clear();
        }
        self.forget_lines();
    }

    fn owned_by(&self, who: usize) -> impl Iterator<Item = &str> {
        let owned = self.live.iter().filter(move |(_, owner)| **owner == Some(who));
        owned.map(|(place, _)| place.as_str())
    }

    /// A directory that was empty may number its tickets from the start.
    fn forget_lines(&mut self) {
        let live = &self.live;
        let occupied = |dir: &str| live.keys().any(|node| is_below(node, dir));
        self.tickets.retain(|ticket, _| parent(ticket).is_some_and(occupied));
    }

    /// Records the versions that all stores returned for a node.
    pub(crate) fn know(&mut self, place: &str, versions: Vec<Version>) {
        let told = self.versions.entry(place.to_owned()).or_default();
        if self.live.contains_key(place) && told.last() != Some(&versions) {
            told.push(versions);
        }
    }

    pub(crate) fn drawn(&mut self, ticket: &str, sequences: Vec<Sequence>) {
        self.tickets.insert(ticket.to_owned(), sequences);
    }
}

/// The data for a number; empty for zero.
pub(crate) fn bytes(data: u64) -> Bytes {
    if data == 0 { Bytes::new() } else { Bytes::from(data.to_string()) }
}
