//! Checks that tickets are in one order, and each exists once: L-SEQ-1 to 3, L-SEQ-8.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::record::{Breach, Called, Record};
use crate::clients::entry::{Kind, Op};

/// Returns every ticket that exists twice, or is out of order.
///
/// The directories must have existed all the time: in a new one sequences may start again.
pub fn check(record: &Record) -> Vec<Breach> {
    let mut found = check_order(record);
    for call in record.calls.iter().filter(|call| matches!(call.op, Op::Ticket { .. })) {
        let made = record
            .facts
            .iter()
            .filter(|fact| fact.kind == Kind::Created && fact.path.starts_with(call.path()));
        let made: Vec<_> = made.map(|fact| &fact.path).collect();
        if made.len() > 1 {
            found.push(Breach::new("L-SEQ-8", format!("{made:?} are of one ticket: {call}")));
        }
        if let [seen, ..] = call.seen()
            && !made.contains(&&seen.path)
        {
            found.push(Breach::new(
                "L-SEQ-8",
                format!("{call}, and the created nodes are {made:?}"),
            ));
        }
    }
    found
}

/// Checks that the order of sequences is the order of creation, as L-SEQ-3 requires: after a
/// sequence was seen, no lower one is created.
fn check_order(record: &Record) -> Vec<Breach> {
    let mut directories: BTreeMap<&str, BTreeSet<(u64, u64, &str)>> = BTreeMap::new();
    // Other nodes may have names that end in digits.
    let drawn = record.calls.iter().filter(|call| matches!(call.op, Op::Ticket { .. }));
    let drawn: Vec<&str> = drawn.map(Called::path).collect();
    let is_drawn = |path: &str| drawn.iter().any(|prefix| path.starts_with(prefix));
    for seen in record.calls.iter().flat_map(Called::seen) {
        if !is_drawn(&seen.path) {
            continue;
        }
        if let (Some(sequence), true) = (seen.sequence, seen.created > 0)
            && let Some((parent, _)) = seen.path.rsplit_once('/')
        {
            let directory = directories.entry(parent).or_default();
            directory.insert((seen.created, sequence, &seen.path));
        }
    }
    let mut found = Vec::new();
    for tickets in directories.values() {
        let tickets: Vec<_> = tickets.iter().collect();
        for pair in tickets.windows(2) {
            let [(_, first, _), (_, second, _)] = pair else { continue };
            if first >= second {
                found.push(Breach::new("L-SEQ-2", format!("{pair:?} are out of order")));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::record::tests::Script;
    use crate::clients::entry::Seen;

    fn ticket(script: &mut Script, id: &str, sequence: u64, created: u64) {
        let path = format!("/d/{id}{sequence}");
        let op = Op::Ticket { path: format!("/d/{id}"), value: created, ephemeral: true };
        let seen = Seen { path, created, sequence: Some(sequence), ..Seen::default() };
        script.fact(created, &seen.path, Kind::Created, Some(created), None);
        script.call(7, op, created, vec![seen]);
    }

    fn laws(script: &Script) -> Vec<&'static str> {
        check(&script.record()).iter().map(|breach| breach.law).collect()
    }

    #[test]
    fn tickets_are_in_the_order_of_their_creation() {
        let mut script = Script::default();
        ticket(&mut script, "a-", 1, 5);
        ticket(&mut script, "b-", 3, 6);
        assert_eq!(laws(&script), Vec::<&str>::new());
        ticket(&mut script, "c-", 2, 7);
        assert_eq!(laws(&script), ["L-SEQ-2"]);
        let mut script = Script::default();
        ticket(&mut script, "a-", 1, 5);
        ticket(&mut script, "b-", 1, 6);
        assert_eq!(laws(&script), ["L-SEQ-2"]);
    }

    #[test]
    fn a_ticket_exists_once_and_is_the_one_that_was_returned() {
        let mut script = Script::default();
        ticket(&mut script, "a-", 1, 5);
        script.fact(6, "/d/a-2", Kind::Created, Some(5), None);
        assert_eq!(laws(&script), ["L-SEQ-8"]);

        let mut script = Script::default();
        let op = Op::Ticket { path: "/d/a-".into(), value: 1, ephemeral: true };
        let seen = Seen { path: "/d/a-1".into(), ..Seen::default() };
        script.call(7, op, 5, vec![seen]);
        assert_eq!(laws(&script), ["L-SEQ-8"]);
    }
}
