use synod_core::store::{Stat, Version};

use super::*;
use crate::line::ticket_name::permits_suffix;

fn node(name: &str, sequence: u64) -> Node {
    let path = Path::new(&format!("/d/{name}")).expect("valid");
    Node::new(path).with_sequence(Some(Sequence::new(sequence)))
}

/// A ticket with a name to which the store has appended digits.
fn ticket(stem: &str, sequence: u64) -> Node {
    node(&format!("{stem}{sequence:010}"), sequence)
}

fn owned(name: &str, sequence: u64, owner: u64) -> Node {
    let (at, owner) = (Revision::new(sequence), SessionId::new(owner));
    node(name, sequence).with_stat(Stat::new(at, at, Version::new(0), Some(owner)))
}

fn queue(nodes: impl IntoIterator<Item = Node>) -> Tickets {
    Tickets::of(&View::new(Revision::ZERO, nodes.into_iter().collect()))
}

/// The next steps of the tickets of a queue: each waiter with the sequence of its predecessor.
fn turns(nodes: &[Node], capacity: Capacity) -> Vec<String> {
    let queue = queue(nodes.iter().cloned());
    let shown = |one: &Entry| match turn(&queue, &one.path, capacity) {
        Turn::Now => "now".to_owned(),
        Turn::After(path) => {
            let ahead = queue.entries.iter().find(|other| other.path == path);
            ahead.map_or("nobody".into(), |ahead| format!("after {}", ahead.order))
        }
        Turn::Next => "next".to_owned(),
        Turn::Gone => "gone".to_owned(),
    };
    queue.entries.iter().map(shown).collect()
}

#[test]
fn a_ticket_is_recognized_by_the_end_of_its_name() {
    let uuid = "_c_01234567-89ab-cdef-0123-456789012345-";
    let table = [
        (ticket(&format!("{uuid}lock-"), 7), Some(Claim::Alone)),
        (node(&format!("{uuid}lock-"), 7_000), Some(Claim::Alone)),
        (ticket("lock-", 7), Some(Claim::Alone)),
        (ticket(&format!("{uuid}latch-"), 7), Some(Claim::Alone)),
        (ticket("0123456789abcdef0123456789abcdef__lock__", 7), Some(Claim::Alone)),
        (ticket("0123456789abcdef0123456789abcdef__rlock__", 7), Some(Claim::Shared)),
        (ticket(&format!("{uuid}__READ__"), 7), Some(Claim::Shared)),
        (ticket(&format!("{uuid}__WRIT__"), 7), Some(Claim::Alone)),
        (ticket(&format!("{uuid}lease-"), 7), Some(Claim::Permits(1))),
        (ticket(&format!("{uuid}x3-lease-"), 7), Some(Claim::Permits(3))),
        (ticket(&format!("{uuid}x3of5-lease-"), 7), Some(Claim::Permits(3))),
        (ticket("_c_01234567-89ab-cdef-0123-x67890123456-lease-", 7), Some(Claim::Permits(1))),
        (owned("694d8e3a", 7, 0x694d_8e3a), Some(Claim::Alone)),
        (owned("694d8e3b", 7, 0x694d_8e3a), None),
        (node("lock-", 7), None),
        (node("x", 7), None),
        (node("lock-abc", 7), None),
        (node("lock--2147483648", 7), None),
        (ticket("block-", 7), None),
        (ticket("__WRIT__-", 7), None),
        (ticket("__READ____WRIT__03", 7), None),
        (ticket("__READ__0000000003", 7), None),
        (ticket("lock-__READ__x", 7), None),
        (node("lock-0000000008", 7), None),
        (Node::new(Path::new("/d/lock-").expect("valid")), None),
    ];
    for (node, claim) in table {
        assert_eq!(Entry::of(&node).map(|one| one.claim), claim, "{}", node.path);
    }
}

#[test]
fn a_ticket_for_permits_states_how_many_there_are() {
    let all = |mark: &str| {
        let one = Entry::of(&ticket(&format!("_c_a-{mark}"), 7)).expect("it is a ticket");
        (one.claim, one.all)
    };
    for (permits, capacity) in
        [(1, Capacity::Permits(1)), (3, Capacity::Permits(5)), (7, Capacity::Posted)]
    {
        let known = if let Capacity::Permits(all) = capacity { Some(all) } else { None };
        assert_eq!(all(&permits_suffix(permits, capacity)), (Claim::Permits(permits), known));
    }
    assert_eq!(all("lease-"), (Claim::Permits(1), None));
    assert_eq!(all("x3ofmany-lease-"), (Claim::Permits(3), None));
}

#[test]
fn the_order_is_that_of_sequences_whatever_the_names() {
    let nodes =
        [ticket("_c_b-lock-", 9), ticket("_c_a-lock-", 10), ticket("_c_c-lock-", 100_000_000_000)];
    assert_eq!(turns(&nodes, Capacity::One), ["now", "after 9", "after 10"]);
    let mut backwards = nodes.clone();
    backwards.reverse();
    assert_eq!(turns(&backwards, Capacity::One), ["now", "after 9", "after 10"]);
}

#[test]
fn a_ticket_that_is_not_in_the_line_is_not_the_first() {
    let (line, missing) = (queue([]), Path::new("/d/lock-0000000001").expect("valid"));
    assert_eq!(turn(&line, &missing, Capacity::One), Turn::Gone);
    assert_eq!(turn(&queue([ticket("lock-", 2)]), &missing, Capacity::One), Turn::Gone);
}

#[test]
fn what_is_no_ticket_neither_waits_nor_is_waited_for() {
    let nodes = [ticket("x-", 1), ticket("lock-", 2), node("_c_a-lock-", 3), ticket("lock-", 4)];
    // The third ticket has a name from a store that appends no digits.
    assert_eq!(turns(&nodes, Capacity::One), ["now", "after 2", "after 3"]);
}

#[test]
fn readers_wait_for_the_nearest_writer_and_writers_for_their_predecessor() {
    let line = ["READ", "READ", "WRIT", "READ", "READ", "WRIT", "READ"];
    let nodes: Vec<_> =
        (1..).zip(line).map(|(n, mode)| ticket(&format!("__{mode}__"), n)).collect();
    let expected = ["now", "now", "after 2", "after 3", "after 3", "after 5", "after 6"];
    assert_eq!(turns(&nodes, Capacity::One), expected);
    assert_eq!(turns(&nodes[3..5], Capacity::One), ["now", "now"]);
}

#[test]
fn a_writer_that_downgraded_keeps_its_place() {
    // Curator downgrades with a reader's ticket that has the digits of the writer's.
    let nodes =
        [ticket("_c_b-__WRIT__", 2), ticket("_c_c-__READ__", 3), ticket("_c_a-__READ__", 1)];
    assert_eq!(turns(&nodes, Capacity::One), ["now", "after 1", "after 2"]);
    // Synod downgrades with a write to the ticket.
    let nodes = [ticket("__WRIT__", 1), ticket("__READ__", 2), ticket("__WRIT__", 3)];
    let given_up = [nodes[0].path.clone()];
    let shared = queue(nodes.clone()).sharing(&given_up);
    assert_eq!(turn(&shared, &nodes[1].path, Capacity::One), Turn::Now);
    assert_eq!(turn(&shared, &nodes[2].path, Capacity::One), Turn::After(nodes[1].path.clone()));
}

#[test]
fn permits_are_given_in_order_all_or_none() {
    let line = |weights: &[u32]| -> Vec<Node> {
        (1..).zip(weights).map(|(n, m)| ticket(&format!("_c_a-x{m}-lease-"), n)).collect()
    };
    let of = Capacity::Permits;
    assert_eq!(turns(&line(&[1, 1, 1, 1, 1]), of(2)), ["now", "now", "next", "after 3", "after 4"]);
    // The second ticket does not fit, and no later ticket overtakes it.
    assert_eq!(turns(&line(&[2, 2, 1]), of(3)), ["now", "next", "after 2"]);
    assert_eq!(turns(&line(&[2, 1, 1]), of(3)), ["now", "now", "next"]);
    assert_eq!(turns(&line(&[4, 1]), of(3)), ["next", "after 1"]);
    assert_eq!(turns(&line(&[u32::MAX, u32::MAX, 1]), of(u32::MAX)), ["now", "next", "after 2"]);
    assert_eq!(turns(&line(&[1]), of(0)), ["next"]);
}

#[test]
fn where_limits_differ_each_ticket_keeps_to_the_smallest_before_it() {
    let line = |tickets: &[(u32, u32)]| -> Vec<Node> {
        let mark = |(permits, all)| permits_suffix(permits, Capacity::Permits(all));
        (1..).zip(tickets).map(|(n, it)| ticket(&format!("_c_a-{}", mark(*it)), n)).collect()
    };
    // The next step of each ticket, as its owner decides it.
    let turns = |tickets: &[(u32, u32)]| -> Vec<String> {
        let nodes = line(tickets);
        let own = |at: usize| turns(&nodes, Capacity::Permits(tickets[at].1)).swap_remove(at);
        (0..tickets.len()).map(own).collect()
    };
    assert_eq!(turns(&[(1, 1), (1, 2)]), ["now", "next"]);
    assert_eq!(turns(&[(1, 2), (1, 1), (1, 2)]), ["now", "next", "next"]);
    assert_eq!(turns(&[(1, 3), (1, 3), (1, 2), (1, 3)]), ["now", "now", "next", "next"]);
    assert_eq!(turns(&[(2, 2), (3, 5)]), ["now", "next"]);
    assert_eq!(turns(&[(1, 5), (2, 5), (1, 4), (1, 5)]), ["now", "now", "now", "next"]);
    // A limit of other libraries that is not a number, or is zero, is ignored.
    let strange = [ticket("_c_a-x1of0-lease-", 1), ticket("_c_a-x1ofmany-lease-", 2)];
    let queue = queue(strange);
    assert_eq!(queue.turn_behind(Claim::Permits(1), Capacity::Permits(3)), Turn::Now);
    assert_eq!(queue.turn_behind(Claim::Permits(1), Capacity::Permits(2)), Turn::Next);
}

#[test]
fn the_number_of_permits_may_be_posted_next_to_the_tickets() {
    let tickets = [ticket("lease-", 1), ticket("lease-", 2), ticket("lease-", 3)];
    let posted = |name: &str| {
        let limit = Node::new(Path::new(&format!("/d/{name}")).expect("valid"));
        turns(&[&tickets[..], &[limit]].concat(), Capacity::Posted)
    };
    assert_eq!(posted("limit-2"), ["now", "now", "next"]);
    assert_eq!(posted("limit-1"), ["now", "next", "after 2"]);
    assert_eq!(posted("limit-x"), ["next", "after 1", "after 2"]);
    assert_eq!(posted("x"), ["next", "after 1", "after 2"]);
}
