//! [`Present`]: the current members, and the next step of a member that wants to enter.
//! [`Round`]: the members that enter together, as the node `ready` lists them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use synod_core::path::Path;
use synod_core::store::{Change, Expect, Kind, Node, Revision, Sequence, Version, View};

use crate::double_barrier::member::{GivenUp, is_our_name};
use crate::layout::barrier::READY;
use crate::mutant::mistake;

/// The members that currently exist.
#[derive(Clone, Debug, Default)]
pub(super) struct Present {
    /// The members. Members of this library have their position in the order of arrival.
    members: BTreeMap<String, Option<Sequence>>,
    /// The names, or prefixes of names, of members that do not count although their nodes may
    /// exist: earlier nodes of this client, and members that gave up.
    discounted: BTreeSet<String>,
    is_ready: bool,
    as_of: Revision,
}

/// The next step of a member that wants to enter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Its round has begun.
    Enter(Round),
    /// The round is full, and this member is the last: it begins the round of these members.
    Begin(BTreeSet<String>),
    /// The round is not full, or another member begins it.
    Wait,
    /// Its node is gone.
    Gone,
}

impl Present {
    /// The members in a listing. Members of other libraries are recognized by their owners.
    pub(super) fn of(view: &View) -> Self {
        let is_member = |node: &&Node| {
            let owned = || node.stat.is_some_and(|stat| stat.owner.is_some());
            is_our_name(node.path.name()) || owned()
        };
        let members = view.nodes.iter().filter(is_member);
        let members = members.map(|node| (node.path.name().to_owned(), node.sequence)).collect();
        let is_ready = view.nodes.iter().any(|node| node.path.name() == READY);
        Self { members, is_ready, as_of: view.revision, discounted: BTreeSet::new() }
    }

    /// Excludes the members that gave up at the barrier in this directory.
    pub(super) fn discount(&mut self, given_up: &GivenUp, dir: &Path) {
        let is_there = |name: &str| self.members.contains_key(name);
        self.discounted = given_up.among(dir, is_there, self.as_of);
    }

    /// Excludes the former nodes of `me`, whose names begin with these prefixes.
    pub(super) fn discount_former(&mut self, me: &str, own: &[String]) {
        let former = own.iter().filter(|prefix| !me.starts_with(prefix.as_str()));
        self.discounted.extend(former.cloned());
    }

    /// Excludes members that were reported as gone: a delayed request may have created the node
    /// again.
    pub(super) fn discount_gone(&mut self, gone: &BTreeSet<String>) {
        let is_gone = |name: &&String| gone.contains(*name);
        self.discounted.extend(self.members.keys().filter(is_gone).cloned());
    }

    /// Returns `true` if the names alone show which nodes are members.
    pub(super) fn is_known_by_names(view: &View) -> bool {
        let mut names = view.nodes.iter().map(|node| node.path.name());
        names.all(|name| name == READY || is_our_name(name))
    }

    /// Returns `true` if the node `ready` exists.
    pub(super) fn is_ready(&self) -> bool {
        self.is_ready
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.members.keys()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.members.contains_key(name)
    }

    pub(super) fn has_any(&self, names: &BTreeSet<String>) -> bool {
        names.iter().any(|name| self.has(name))
    }

    /// Records that a member arrived. Its position is unknown.
    pub(super) fn record_arrival(&mut self, name: &str) {
        self.members.entry(name.to_owned()).or_default();
    }

    /// Records that a member left. Returns `true` if it existed and counted.
    pub(super) fn record_departure(&mut self, name: &str) -> bool {
        self.members.remove(name).is_some() && self.counts(name)
    }

    /// The members after a change. `None` if the name does not show that.
    pub(super) fn after(mut self, change: &Change) -> Option<Self> {
        let name = change.path.name();
        match change.kind {
            Kind::Created | Kind::Updated if name == READY => self.is_ready = true,
            Kind::Deleted if name == READY => self.is_ready = false,
            // The create of a member may be reported together with its later changes.
            Kind::Created | Kind::Updated if is_our_name(name) => self.record_arrival(name),
            Kind::Deleted if is_our_name(name) => drop(self.members.remove(name)),
            _ => return None,
        }
        Some(self)
    }

    /// Adds the position of a member.
    pub(super) fn placed(mut self, name: &str, place: Option<Sequence>) -> Self {
        self.members.insert(name.to_owned(), place);
        self
    }

    /// Returns `true` if all members count.
    pub(super) fn count_all(&self) -> bool {
        self.members.keys().all(|name| self.counts(name))
    }

    pub(super) fn counts(&self, name: &str) -> bool {
        !self.discounted.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }

    /// The members that count, with their positions.
    pub(super) fn counted(&self) -> impl Iterator<Item = (&String, Option<Sequence>)> {
        let counted = self.members.iter().filter(|(name, _)| self.counts(name));
        counted.map(|(name, place)| (name, *place))
    }

    /// Returns `true` if there are at least this many members.
    pub(super) fn has_at_least(&self, parties: usize) -> bool {
        self.members.len() >= parties
    }

    /// The next step of `me`, while `last` is the last round that began.
    pub(super) fn step(&self, me: &str, parties: usize, last: Option<&Round>) -> NextStep {
        if !self.has(me) {
            return NextStep::Gone;
        }
        if let Some(round) = last {
            if round.has(me) {
                return NextStep::Enter(round.clone());
            }
            if round.members().is_some_and(|members| self.has_any(members)) {
                return NextStep::Wait;
            }
        }
        let mut waiting: Vec<_> = self.counted().map(|(name, place)| (place, name)).collect();
        waiting.sort();
        waiting.truncate(parties);
        // Members of another library begin their rounds themselves.
        let last_of_ours = waiting.iter().rfind(|(place, _)| place.is_some());
        if waiting.len() == parties && last_of_ours.is_some_and(|(_, name)| *name == me) {
            return NextStep::Begin(waiting.into_iter().map(|(_, name)| name.clone()).collect());
        }
        NextStep::Wait
    }
}

/// The first line of its data, if this library wrote it.
const OURS: &str = "synod";

/// A round that has begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Round {
    /// The names of its members. `None` if another library wrote it: then it is open to all.
    members: Option<BTreeSet<String>>,
    version: Option<Version>,
}

impl Round {
    pub(super) fn of(node: &Node) -> Self {
        let text = std::str::from_utf8(&node.data).unwrap_or_default();
        let mut lines = text.split('\n');
        let members = (lines.next() == Some(OURS)).then(|| lines.map(str::to_owned).collect());
        Self { members, version: node.stat.map(|stat| stat.version) }
    }

    pub(super) fn new(members: BTreeSet<String>, version: Option<Version>) -> Self {
        Self { members: Some(members), version }
    }

    /// The data of the node.
    pub(super) fn data(members: &BTreeSet<String>) -> Bytes {
        let names = members.iter().map(String::as_str);
        Bytes::from([OURS].into_iter().chain(names).collect::<Vec<_>>().join("\n"))
    }

    /// Returns `true` if all its members are of this library.
    pub(super) fn is_ours(&self) -> bool {
        let members = self.members.as_ref();
        members.is_some_and(|members| members.iter().all(|name| is_our_name(name)))
    }

    /// The required state of `ready` if no other round has begun since.
    pub(super) fn expected(&self) -> Expect {
        self.version.map_or(Expect::Any, Expect::Version)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        mistake!(ReadyIsForAll: return true);
        self.members.as_ref().is_none_or(|members| members.contains(name))
    }

    /// The members of the round without `me`. In a round that another library began, all existing
    /// members.
    pub(super) fn others<'a>(
        &self,
        me: &str,
        present: impl Iterator<Item = &'a String>,
    ) -> BTreeSet<String> {
        let mut others = self.members.clone().unwrap_or_else(|| present.cloned().collect());
        others.remove(me);
        others
    }

    /// The members, if this library wrote them.
    pub(super) fn members(&self) -> Option<&BTreeSet<String>> {
        self.members.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use synod_core::path;

    use super::*;

    fn set(names: &str) -> BTreeSet<String> {
        names.chars().map(String::from).collect()
    }

    /// Members by one letter, in the order of arrival; members in capitals are of another library.
    fn present(names: &str) -> Present {
        let place = |(at, name): (usize, char)| {
            let place = name.is_lowercase().then(|| Sequence::new(at as u64));
            (name.to_string(), place)
        };
        let members = names.chars().enumerate().map(place).collect();
        Present { members, ..Present::default() }
    }

    #[test]
    fn a_member_that_gave_up_counts_for_the_round_that_it_was_in_alone() {
        let mut present = present("ab");
        present.discounted = set("a");
        assert_eq!(present.step("b", 2, None), NextStep::Wait, "b is alone");
        assert_eq!(present.step("b", 1, None), NextStep::Begin(set("b")));
        assert_eq!(present.step("b", 1, Some(&round("a"))), NextStep::Wait, "a is inside");
    }

    fn round(names: &str) -> Round {
        Round::new(set(names), None)
    }

    #[test]
    fn a_member_that_is_gone_does_not_count_although_its_node_was_created_again() {
        let mut present = present("ab");
        present.discount_gone(&set("ax"));
        assert_eq!(present.step("b", 2, None), NextStep::Wait, "b is alone");
    }

    #[test]
    fn the_last_of_the_members_that_are_enough_begins_the_round() {
        assert_eq!(present("a").step("a", 2, None), NextStep::Wait, "one is missing");
        assert_eq!(present("ab").step("a", 2, None), NextStep::Wait, "b begins it");
        assert_eq!(present("ab").step("b", 2, None), NextStep::Begin(set("ab")));
        assert_eq!(present("abc").step("c", 2, None), NextStep::Wait, "c is one too many");
        assert_eq!(present("a").step("a", 1, None), NextStep::Begin(set("a")));
        assert_eq!(present("a").step("b", 1, None), NextStep::Gone);
    }

    #[test]
    fn a_change_shows_which_members_are_there_or_that_they_are_unknown() {
        let change =
            |name: &str, kind| Change::new(format!("/both/{name}").parse().expect("a path"), kind);
        let (kinds, no_one) = ([Kind::Created, Kind::Updated], Present::default());
        for kind in kinds {
            // The create may be reported together with a later write.
            let came = no_one.clone().after(&change("member-a", kind)).expect("it is known");
            assert!(came.has("member-a"), "{kind:?}");
            let ready = came.after(&change(READY, kind)).expect("it is known");
            assert!(ready.is_ready() && ready.has("member-a"), "{kind:?}");
            let over = ready.after(&change(READY, Kind::Deleted)).expect("it is known");
            assert!(!over.is_ready() && over.has("member-a"), "{kind:?}");
            let left = over.after(&change("member-a", Kind::Deleted)).expect("it is known");
            assert!(!left.has("member-a"), "{kind:?}");
            // Only its owner shows whether another name is a member.
            assert!(left.after(&change("other", kind)).is_none(), "{kind:?}");
        }
        assert!(no_one.clone().after(&change("other", Kind::Deleted)).is_none());
        assert!(no_one.after(&change("member-a", Kind::Children)).is_none(), "anything changed");
    }

    #[test]
    fn a_round_is_for_its_members_and_the_next_one_waits_for_all_of_them() {
        let first = round("ab");
        assert_eq!(present("abc").step("a", 2, Some(&first)), NextStep::Enter(first.clone()));
        assert_eq!(present("acd").step("d", 2, Some(&first)), NextStep::Wait, "a is inside");
        assert_eq!(present("cd").step("d", 2, Some(&first)), NextStep::Begin(set("cd")));
        // A member of the round has entered although others have left.
        assert_eq!(present("a").step("a", 2, Some(&first)), NextStep::Enter(first.clone()));
    }

    #[test]
    fn a_member_of_another_library_counts_and_its_round_is_for_all() {
        assert_eq!(present("Xa").step("a", 2, None), NextStep::Begin(set("Xa")));
        let theirs = Round::default();
        assert_eq!(present("aX").step("a", 2, Some(&theirs)), NextStep::Enter(theirs.clone()));
        assert_eq!(theirs.others("a", present("aX").names()), set("X"));
    }

    #[test]
    fn a_written_round_is_read_and_other_bytes_are_of_another_library() {
        let read = |data: Bytes| {
            let mut node = Node::new(path!("/b/ready"));
            node.data = data;
            Round::of(&node)
        };
        let members = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        assert_eq!(read(Round::data(&members)).members, Some(members));
        for other in [&b""[..], b"127.0.0.1", b"synodical\na", b"\xff"] {
            assert!(read(Bytes::from_static(other)).members.is_none(), "{other:?}");
        }
    }
}
