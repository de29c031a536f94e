//! [`recognise`]: the recipe to which a directory belongs, as the names in it show. Pure.

use std::collections::BTreeSet;

use synod_core::store::Node;
use synod_recipes::layout::{barrier, crew, group, partition, queue, schedule};
use synod_recipes::lock::is_ticket;
use synod_recipes::queue::is_item;

/// A recipe that is recognised by names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sign {
    /// Contenders for a lock, for permits or for the lead.
    Contenders,
    /// A [`Queue`](synod_recipes::queue::Queue).
    Queue,
    /// A [`Crew`](synod_recipes::crew::Crew).
    Crew,
    /// A [`Schedule`](synod_recipes::schedule::Schedule).
    Schedule,
    /// A [`Partition`](synod_recipes::partition::Partition).
    Partition,
    /// A [`CountDown`](synod_recipes::barrier::CountDown).
    CountDown,
    /// A [`DoubleBarrier`](synod_recipes::barrier::DoubleBarrier).
    DoubleBarrier,
    /// A [`Group`](synod_recipes::presence::Group), or a party of kazoo.
    Group,
    /// A queue of another library.
    OtherQueue(OtherQueue),
}

/// A queue of another library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OtherQueue {
    /// kazoo's `Queue`.
    Kazoo,
    /// kazoo's `LockingQueue`.
    KazooLocking,
    /// Curator's `SimpleDistributedQueue`.
    CuratorSimple,
    /// Curator's `DistributedQueue`, or one with priorities or delays.
    Curator,
}

/// The certainty with which a recipe is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "there is no third")]
pub enum Certainty {
    /// The names belong to this recipe alone.
    Certain,
    /// Other programs may use the same names.
    Likely,
}

/// The result of [`recognise`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recognised {
    /// The recipe of the directory.
    As(Sign, Certainty),
    /// The recipe of the directory, if the names in its child of this name show
    /// [items](has_items).
    IfItemsIn(&'static str, Sign),
    /// The names show no recipe.
    Nothing,
}

/// Names of nodes in a directory, by their last segments.
struct Names<'a>(BTreeSet<&'a str>);

impl Names<'_> {
    fn count(&self, of: &[&str]) -> usize {
        of.iter().filter(|name| self.0.contains(*name)).count()
    }

    fn all(&self, holds: impl Fn(&str) -> bool) -> bool {
        !self.0.is_empty() && self.0.iter().all(|name| holds(name))
    }

    fn any(&self, holds: impl Fn(&str) -> bool) -> bool {
        self.0.iter().any(|name| holds(name))
    }

    fn are_among(&self, some: &[&str]) -> bool {
        self.all(|name| some.contains(&name))
    }
}

/// Recognises a recipe by the nodes in its directory, which may be of names only.
pub fn recognise(children: &[Node]) -> Recognised {
    use Certainty::{Certain, Likely};
    use Recognised::As;
    let names = Names(children.iter().map(|child| child.path.name()).collect());
    // The nodes of a crew and of a queue may have any neighbours: these come first.
    if let Some(recognised) = crew_of(&names).or_else(|| queue_of(&names)) {
        return recognised;
    }
    let mut tickets = children.iter().filter(|child| is_ticket(child)).peekable();
    if tickets.peek().is_some() {
        // A bare session id is the name of a lock, of an election, and of what else a program of
        // etcd keeps under its lease.
        let is_bare = |node: &Node| node.path.name().bytes().all(|it| it.is_ascii_hexdigit());
        let certainty = if tickets.all(is_bare) { Likely } else { Certain };
        return As(Sign::Contenders, certainty);
    }
    if names.are_among(&[schedule::STATE, schedule::LEADER]) && names.0.contains(schedule::STATE) {
        // The record is read: it is a schedule if the record is one.
        return As(Sign::Schedule, Likely);
    }
    if names.are_among(&[partition::MEMBERS, partition::CLAIMS]) {
        let certainty = if names.0.len() == 2 { Certain } else { Likely };
        return As(Sign::Partition, certainty);
    }
    if names.any(|name| name.ends_with(group::UNNAMED)) {
        return As(Sign::Group, Certain);
    }
    if names.are_among(&["entries", "taken"]) && names.0.contains("entries") {
        return Recognised::IfItemsIn("entries", Sign::OtherQueue(OtherQueue::KazooLocking));
    }
    let numbered = |prefix: &str| {
        names.all(|name| {
            let rest = name.strip_prefix(prefix);
            rest.is_some_and(|rest| rest.len() >= 10 && rest.bytes().all(|it| it.is_ascii_digit()))
        })
    };
    if numbered("qn-") {
        return As(Sign::OtherQueue(OtherQueue::CuratorSimple), Certain);
    }
    if names.all(|name| name.starts_with("queue-")) && names.any(ends_in_digits) {
        return As(Sign::OtherQueue(OtherQueue::Curator), Likely);
    }
    if has_items(children) {
        return As(Sign::OtherQueue(OtherQueue::Kazoo), Likely);
    }
    let is_member = |name: &str| name.starts_with(barrier::MEMBER);
    if names.all(|name| is_member(name) || name == barrier::READY) && names.any(is_member) {
        let certainty = if names.0.contains(barrier::READY) { Certain } else { Likely };
        return As(Sign::DoubleBarrier, certainty);
    }
    if names.all(|name| name.starts_with(barrier::PARTY)) {
        return As(Sign::CountDown, Likely);
    }
    Recognised::Nothing
}

fn crew_of(names: &Names<'_>) -> Option<Recognised> {
    let certainty = match names.count(&crew::ALL) {
        0 | 1 => return None,
        2 if !names.are_among(&crew::ALL) => return None,
        2 => Certainty::Likely,
        _ => Certainty::Certain,
    };
    Some(Recognised::As(Sign::Crew, certainty))
}

fn queue_of(names: &Names<'_>) -> Option<Recognised> {
    let certainty = match names.count(&queue::ALL) {
        0 => return None,
        1 => {
            let one = [queue::ITEMS, queue::DEAD].into_iter().find(|it| names.0.contains(it))?;
            return Some(Recognised::IfItemsIn(one, Sign::Queue));
        }
        2 if !names.0.contains(queue::ITEMS) => Certainty::Likely,
        _ => Certainty::Certain,
    };
    Some(Recognised::As(Sign::Queue, certainty))
}

/// Returns `true` if all these nodes have the names of items of a queue, and there is one.
pub fn has_items(children: &[Node]) -> bool {
    !children.is_empty() && children.iter().all(is_item)
}

fn ends_in_digits(name: &str) -> bool {
    name.len() >= 10 && name.bytes().rev().take(10).all(|it| it.is_ascii_digit())
}

impl OtherQueue {
    /// The name of its library and of its class.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kazoo => "kazoo's Queue",
            Self::KazooLocking => "kazoo's LockingQueue",
            Self::CuratorSimple => "Curator's SimpleDistributedQueue",
            Self::Curator => "Curator's DistributedQueue",
        }
    }

    /// The directory of its items, relative to its own; `None` if they are in its own.
    pub fn items(self) -> Option<&'static str> {
        (self == Self::KazooLocking).then_some("entries")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use synod_core::path::Path;
    use synod_core::store::Sequence;

    use super::*;

    fn nodes(names: &[&str]) -> Vec<Node> {
        let node = |name: &&str| {
            let digits = name.len() > 10 && ends_in_digits(name);
            let sequence = digits.then(|| name[name.len() - 10..].parse().expect("digits"));
            Node::new(Path::root().join(name).expect("a name"))
                .with_sequence(sequence.map(Sequence::new))
        };
        names.iter().map(node).collect()
    }

    fn sign(names: &[&str]) -> Recognised {
        recognise(&nodes(names))
    }

    #[test]
    fn each_recipe_is_recognised_by_its_names() {
        use Certainty::{Certain, Likely};
        use Recognised::{As, IfItemsIn, Nothing};
        let unnamed = "0123456789abcdef0123456789abcdef__party__";
        let expected: &[(&[&str], Recognised)] = &[
            (&[], Nothing),
            (&["a", "b"], Nothing),
            (&["x-lock-0000000007"], As(Sign::Contenders, Certain)),
            (&["block-0000000007"], Nothing),
            (&["items", "marks"], As(Sign::Queue, Certain)),
            (&["items"], IfItemsIn("items", Sign::Queue)),
            (&["dead"], IfItemsIn("dead", Sign::Queue)),
            (&["items", "other"], IfItemsIn("items", Sign::Queue)),
            (&["ids", "slots"], As(Sign::Queue, Likely)),
            (&["switch", "tasks", "todo"], As(Sign::Crew, Certain)),
            (&["tasks", "todo"], As(Sign::Crew, Likely)),
            (&["tasks", "mine", "done"], Nothing),
            (&["leader", "state"], As(Sign::Schedule, Likely)),
            (&["leader"], Nothing),
            (&["claims", "members"], As(Sign::Partition, Certain)),
            (&["members"], As(Sign::Partition, Likely)),
            (&["members", "admins"], Nothing),
            (&[unnamed, "bob"], As(Sign::Group, Certain)),
            (
                &["entries", "taken"],
                IfItemsIn("entries", Sign::OtherQueue(OtherQueue::KazooLocking)),
            ),
            (&["entry-100-0000000001"], As(Sign::OtherQueue(OtherQueue::Kazoo), Likely)),
            (&["qn-0000000001"], As(Sign::OtherQueue(OtherQueue::CuratorSimple), Certain)),
            (&["qn-1"], Nothing),
            (&["queue-0000000001"], As(Sign::OtherQueue(OtherQueue::Curator), Likely)),
            (&["queue-mine"], Nothing),
            (&["member-0a", "ready"], As(Sign::DoubleBarrier, Certain)),
            (&["ready"], Nothing),
            (&["party-a", "party-b"], As(Sign::CountDown, Likely)),
        ];
        for (names, recognised) in expected {
            assert_eq!(sign(names), *recognised, "{names:?}");
        }
    }

    proptest! {
        #[test]
        fn names_of_nothing_are_never_certain(
            names in prop::collection::btree_set("[a-z0-9é_]{1,12}", 0..6),
        ) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let is_certain = matches!(sign(&names), Recognised::As(_, Certainty::Certain));
            prop_assert!(!is_certain, "{names:?}");
        }
    }
}
