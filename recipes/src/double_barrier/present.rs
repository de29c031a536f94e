//! [`Present`]: the members that are there, and what follows for one that wants to enter.

use std::collections::{BTreeMap, BTreeSet};

use synod_core::path::Path;
use synod_core::store::{Change, Kind, Node, Revision, Sequence, View};

use crate::double_barrier::member::{GivenUp, is_our_name};
use crate::double_barrier::round::{READY, Round};

/// The members that are there.
#[derive(Clone, Debug, Default)]
pub(super) struct Present {
    /// With the places of those of this library in the order of arrival.
    members: BTreeMap<String, Option<Sequence>>,
    /// Members that do not count although they may be there: of this client, and given up.
    discounted: BTreeSet<String>,
    is_ready: bool,
    as_of: Revision,
}

/// What a member that wants to enter has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Its round has begun.
    Enter(Round),
    /// All of its round are there, and it is the last of them: it begins the round of these.
    Begin(BTreeSet<String>),
    /// Not all are there, or another one begins the round.
    Wait,
    /// Its node is gone.
    Gone,
}

impl Present {
    /// The members in a listing. Those of other libraries are known by what owns them.
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

    /// Does not count those that gave up at the barrier in this directory.
    pub(super) fn discount(&mut self, given_up: &GivenUp, dir: &Path) {
        self.discounted = given_up.among(dir, |name| self.members.contains_key(name), self.as_of);
    }

    /// Does not count what `me` was before, whose names begin with these.
    pub(super) fn discount_former(&mut self, me: &str, own: &[String]) {
        let former =
            |name: &String| name != me && own.iter().any(|start| name.starts_with(start.as_str()));
        self.discounted.extend(self.members.keys().filter(|name| former(name)).cloned());
    }

    /// Does not count those that were reported as gone: a late request has made the node of such a member again.
    pub(super) fn discount_gone(&mut self, gone: &BTreeSet<String>) {
        let is_gone = |name: &&String| gone.contains(*name);
        self.discounted.extend(self.members.keys().filter(is_gone).cloned());
    }

    /// Whether the names alone show which nodes are members.
    pub(super) fn is_known_by_names(view: &View) -> bool {
        let mut names = view.nodes.iter().map(|node| node.path.name());
        names.all(|name| name == READY || is_our_name(name))
    }

    /// Whether the node `ready` is there.
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

    /// Takes over that a member came. Its place is not known.
    pub(super) fn came(&mut self, name: &str) {
        self.members.entry(name.to_owned()).or_default();
    }

    /// Takes over that a member went. Returns whether it was there, and counted.
    pub(super) fn went(&mut self, name: &str) -> bool {
        self.members.remove(name).is_some() && !self.discounted.contains(name)
    }

    /// What is there after a change. `None` if that does not follow from the name.
    pub(super) fn after(mut self, change: &Change) -> Option<Self> {
        let name = change.path.name();
        match change.kind {
            Kind::Created | Kind::Updated if name == READY => self.is_ready = true,
            Kind::Deleted if name == READY => self.is_ready = false,
            // That a member came may be reported together with what it did then.
            Kind::Created | Kind::Updated if is_our_name(name) => self.came(name),
            Kind::Deleted if is_our_name(name) => drop(self.members.remove(name)),
            _ => return None,
        }
        Some(self)
    }

    /// With the place of a member.
    pub(super) fn placed(mut self, name: &str, place: Option<Sequence>) -> Self {
        self.members.insert(name.to_owned(), place);
        self
    }

    /// Whether these are all, and each counts.
    pub(super) fn count_all(&self) -> bool {
        self.discounted.is_empty()
    }

    /// Whether so many are there.
    pub(super) fn are(&self, parties: usize) -> bool {
        self.members.len() >= parties
    }

    /// What `me` has to do, while this is the last round that began.
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
        let counted = self.members.iter().filter(|(name, _)| !self.discounted.contains(*name));
        let mut waiting: Vec<_> = counted.map(|(name, place)| (*place, name)).collect();
        waiting.sort();
        waiting.truncate(parties);
        // Another library begins its rounds itself.
        let last_of_ours = waiting.iter().rfind(|(place, _)| place.is_some());
        if waiting.len() == parties && last_of_ours.is_some_and(|(_, name)| *name == me) {
            return NextStep::Begin(waiting.into_iter().map(|(_, name)| name.clone()).collect());
        }
        NextStep::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &str) -> BTreeSet<String> {
        names.chars().map(String::from).collect()
    }

    /// Members by one letter, in the order of arrival; those in capitals are of another library.
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
        assert_eq!(present.step("b", 2, None), NextStep::Wait, "it is alone");
        assert_eq!(present.step("b", 1, None), NextStep::Begin(set("b")));
        assert_eq!(present.step("b", 1, Some(&round("a"))), NextStep::Wait, "a is inside");
    }

    fn round(names: &str) -> Round {
        Round::new(set(names), None)
    }

    #[test]
    fn a_member_that_is_gone_does_not_count_although_its_node_was_made_again() {
        let mut present = present("ab");
        present.discount_gone(&set("ax"));
        assert_eq!(present.step("b", 2, None), NextStep::Wait, "it is alone");
    }

    #[test]
    fn the_last_of_those_that_are_enough_begins_the_round() {
        assert_eq!(present("a").step("a", 2, None), NextStep::Wait, "one is missing");
        assert_eq!(present("ab").step("a", 2, None), NextStep::Wait, "b does it");
        assert_eq!(present("ab").step("b", 2, None), NextStep::Begin(set("ab")));
        assert_eq!(present("abc").step("c", 2, None), NextStep::Wait, "it is one too many");
        assert_eq!(present("a").step("a", 1, None), NextStep::Begin(set("a")));
        assert_eq!(present("a").step("b", 1, None), NextStep::Gone);
    }

    #[test]
    fn each_change_says_what_is_there_after_it_or_that_this_is_not_known() {
        let change =
            |name: &str, kind| Change::new(format!("/both/{name}").parse().expect("a path"), kind);
        let (kinds, no_one) = ([Kind::Created, Kind::Updated], Present::default());
        for kind in kinds {
            // That it came may have joined with a write to it.
            let came = no_one.clone().after(&change("member-a", kind)).expect("it is known");
            assert!(came.has("member-a"), "{kind:?}");
            let ready = came.after(&change(READY, kind)).expect("it is known");
            assert!(ready.is_ready() && ready.has("member-a"), "{kind:?}");
            let over = ready.after(&change(READY, Kind::Deleted)).expect("it is known");
            assert!(!over.is_ready() && over.has("member-a"), "{kind:?}");
            let left = over.after(&change("member-a", Kind::Deleted)).expect("it is known");
            assert!(!left.has("member-a"), "{kind:?}");
            // Whether another name is a member, its owner shows.
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
}
