//! Checks counters, transactions, partitions and double barriers: no addition is lost or doubled,
//! no transfer is partial, no two processes hold an item, no item is taken from a member without a
//! request, and a party is inside only when all are present. L-CNT-1, L-STM-1, L-STM-3, L-SP-1,
//! L-SP-3 and L-DB-1.

use std::collections::BTreeMap;

use crate::check::record::{Breach, Called, Record};
use crate::clients::deed::{Deed, Effect, Part};
use crate::clients::entry::{Fact, Op};
use crate::clients::family_post::UNITS;
use synod_testkit::history::Value;

/// Returns every wrong count, and every time at which too many processes held an item or too few
/// were inside.
pub fn check(record: &Record) -> Vec<Breach> {
    let mut found = Vec::new();
    for (part, path) in &record.families {
        match part {
            Part::Adder => {
                found.extend(check_count(record, path));
                found.extend(check_moves(record, path));
            }
            Part::Party => found.extend(check_rounds(record, path)),
            _ => {}
        }
    }
    found.extend(check_shares(record));
    found
}

/// The numbers of started, completed and certainly failed actions.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    begun: u64,
    done: u64,
    /// Certainly without an effect.
    undone: u64,
}

impl Tally {
    fn of(record: &Record, begins: &Deed, end: fn(&Deed) -> Option<Effect>) -> Self {
        let mut tally = Self::default();
        for (_, _, deed) in &record.deeds {
            tally.begun += u64::from(deed == begins);
            match end(deed) {
                Some(Effect::Done) => tally.done += 1,
                Some(Effect::None) => tally.undone += 1,
                Some(Effect::Unknown) | None => {}
            }
        }
        tally
    }

    fn allows(self, number: Value) -> bool {
        (self.done..=self.begun - self.undone).contains(&number)
    }
}

fn check_count(record: &Record, path: &str) -> Option<Breach> {
    let added = |deed: &Deed| match deed {
        Deed::Added { effect } => Some(*effect),
        _ => None,
    };
    let tally = Tally::of(record, &Deed::Adds, added);
    let number = last_of(record, &format!("{path}/count")).unwrap_or_default();
    (!tally.allows(number))
        .then(|| Breach::new("L-CNT-1", format!("{path}/count is {number} after {tally:?}")))
}

/// Checks that the sum is the same after each commit, and that the moved units are the reported
/// ones.
fn check_moves(record: &Record, path: &str) -> Vec<Breach> {
    let moved = |deed: &Deed| match deed {
        Deed::Moved { effect } => Some(*effect),
        _ => None,
    };
    let tally = Tally::of(record, &Deed::Moves, moved);
    let [from, to] = [format!("{path}/from"), format!("{path}/to")];
    let of_both: Vec<&Fact> =
        record.facts.iter().filter(|fact| fact.path == from || fact.path == to).collect();
    let mut found = Vec::new();
    for together in of_both.chunk_by(|a, b| a.revision == b.revision) {
        let sum: Value = together.iter().filter_map(|fact| fact.value).sum();
        if together.len() != 2 || sum != UNITS {
            found.push(Breach::new("L-STM-1", format!("not {UNITS} in all: {together:?}")));
        }
    }
    let number = last_of(record, &to).unwrap_or_default();
    if !tally.allows(number) {
        found.push(Breach::new("L-STM-3", format!("{number} were moved after {tally:?}")));
    }
    found
}

/// Returns the final number in a node.
fn last_of(record: &Record, path: &str) -> Option<Value> {
    record.facts.iter().rev().find(|fact| fact.path == path)?.value
}

/// The last time at which a process held an item, by the item, the process and the beginning.
type Shares = BTreeMap<(Value, usize, u64), u64>;

/// Checks that no two processes hold one item at the same time.
fn check_shares(record: &Record) -> Vec<Breach> {
    let mut held = Shares::new();
    for (_, process, deed) in &record.deeds {
        if let Deed::Shares { item, since, certain } = *deed {
            held.insert((item, *process, since), certain);
        }
    }
    let mut found = check_exclusion(&held);
    found.extend(check_requests(record, &held));
    found
}

/// A process that closed its client at the end received a release request, or a notice of the loss,
/// for each item that another process held after it. A killed process reports nothing more.
fn check_requests(record: &Record, held: &Shares) -> Vec<Breach> {
    let closed = |process: usize| {
        let is_close = |call: &&Called| call.process == process && call.op == Op::Close;
        record.calls.iter().filter(is_close).find(|call| call.answer().is_some())
    };
    let mut found = Vec::new();
    for ((item, process, since), certain) in held {
        let Some(close) = closed(*process) else { continue };
        let later = |is_own: bool| {
            let begins = held.keys().filter(move |(of, by, from)| {
                of == item && (by == process) == is_own && from > certain
            });
            begins.map(|(_, _, from)| *from).min()
        };
        let again = later(true).unwrap_or(close.called);
        let Some(passed_on) = later(false).filter(|from| *from < again) else { continue };
        let is_notice = |deed: &Deed| match deed {
            Deed::Releases { item: of } | Deed::Loses { item: of } => of == item,
            _ => false,
        };
        let mut reports = record.deeds.iter().filter(|(_, by, _)| by == process);
        if !reports.any(|(t, _, deed)| (*since..=again).contains(t) && is_notice(deed)) {
            let what =
                format!("{process} was not asked for {item}, which another had at {passed_on}");
            found.push(Breach::new("L-SP-3", what).at(passed_on));
        }
    }
    found
}

/// Checks that no two processes hold one item at the same time.
fn check_exclusion(held: &Shares) -> Vec<Breach> {
    let mut found = Vec::new();
    for ((item, process, since), certain) in held {
        let mut others = held.iter().filter(|((of, by, from), to)| {
            (of, by) != (item, process) && of == item && from <= since && since <= *to
        });
        if let Some(((_, other, _), _)) = others.find(|_| since <= certain) {
            let what = format!("{other} and {process} held item {item} at {since}");
            found.push(Breach::new("L-SP-1", what).at(*since));
        }
    }
    found
}

/// Checks that a process is inside only if, at some time while it entered, as many processes as a
/// round has were entering or inside. A process that was killed there counts without an end, so
/// only certain breaches are found.
fn check_rounds(record: &Record, path: &str) -> Vec<Breach> {
    let parties = record.parties.get(path).copied().unwrap_or_default();
    let (mut there, mut entries) = (Vec::new(), Vec::new());
    let mut open: BTreeMap<usize, u64> = BTreeMap::new();
    for (t, process, deed) in &record.deeds {
        match deed {
            Deed::Enters => {
                open.entry(*process).or_insert(*t);
            }
            Deed::Entered => entries.push((*process, open.get(process).copied(), *t)),
            Deed::Leaves => there.extend(open.remove(process).map(|from| (from, *t))),
            _ => {}
        }
    }
    there.extend(open.into_values().map(|from| (from, u64::MAX)));
    let count_at = |t: u64| there.iter().filter(|(from, to)| *from <= t && t <= *to).count() as u64;
    let begins: Vec<u64> = there.iter().map(|(from, _)| *from).collect();
    let mut found = Vec::new();
    for (process, from, to) in entries {
        let from = from.unwrap_or(to);
        let mut moments = begins.iter().copied().filter(|t| (from..=to).contains(t));
        if !moments.any(|t| count_at(t) >= parties) {
            let what = format!("{process} was inside at {to}, and never {parties} were there");
            found.push(Breach::new("L-DB-1", what).at(to));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::record::tests::Script;
    use crate::clients::entry::Kind;

    fn record(part: Part, count: u64, deeds: &[(u64, usize, Deed)]) -> Record {
        let mut record = Record { deeds: deeds.to_vec(), ..Record::default() };
        record.families.insert((part, "/f".to_owned()));
        record.parties.insert("/f".to_owned(), count);
        record
    }

    fn writes(record: &mut Record, revision: u64, name: &str, value: Value) {
        let path = format!("/f/{name}");
        record.facts.push(Fact {
            revision,
            path,
            kind: Kind::Updated,
            value: Some(value),
            owner: None,
        });
    }

    fn laws(record: &Record) -> Vec<&'static str> {
        check(record).iter().map(|breach| breach.law).collect()
    }

    #[test]
    fn a_count_is_between_what_was_done_and_what_may_have_been() {
        let added = |effect| Deed::Added { effect };
        let deeds = [
            (1, 1, Deed::Adds),
            (2, 1, added(Effect::Done)),
            (3, 1, Deed::Adds),
            (4, 1, added(Effect::Unknown)),
            (5, 1, Deed::Adds),
            (6, 1, added(Effect::None)),
            // The answer arrives after the end.
            (7, 2, Deed::Adds),
        ];
        let found = |number| {
            let mut record = record(Part::Adder, 0, &deeds);
            writes(&mut record, 1, "count", number);
            laws(&record)
        };
        assert_eq!(found(0), ["L-CNT-1"]);
        assert_eq!([found(1), found(2), found(3)], [(); 3].map(|()| Vec::<&str>::new()));
        assert_eq!(found(4), ["L-CNT-1"]);
    }

    #[test]
    fn a_unit_is_moved_as_a_whole_and_once() {
        let deeds = [(1, 1, Deed::Moves), (2, 1, Deed::Moved { effect: Effect::Done })];
        let mut record = record(Part::Adder, 0, &deeds);
        assert_eq!(laws(&record), ["L-STM-3"]);
        writes(&mut record, 1, "from", UNITS - 1);
        writes(&mut record, 1, "to", 1);
        assert_eq!(laws(&record), Vec::<&str>::new());
        writes(&mut record, 2, "to", 2);
        assert_eq!(laws(&record), ["L-STM-1", "L-STM-3"]);
    }

    #[test]
    fn an_item_is_held_by_one() {
        let shares = |since, certain| Deed::Shares { item: 7, since, certain };
        let mut deeds = vec![(9, 1, shares(1, 5)), (9, 1, shares(1, 8)), (9, 2, shares(9, 12))];
        assert_eq!(laws(&record(Part::Sharer, 0, &deeds)), Vec::<&str>::new());
        deeds.push((9, 3, shares(8, 8)));
        assert_eq!(laws(&record(Part::Sharer, 0, &deeds)), ["L-SP-1"]);
    }

    #[test]
    fn an_item_is_asked_for_before_another_member_has_it() {
        let shares = |since, certain| Deed::Shares { item: 7, since, certain };
        let mut script = Script::default();
        script.call(70, Op::Close, 0, vec![]);
        let process = script.record().calls[0].process;
        let found = |closes: bool, notice: Option<Deed>| {
            let mut deeds = vec![(1, process, shares(1, 5)), (9, 99, shares(9, 12))];
            deeds.extend(notice.map(|deed| (6, process, deed)));
            let mut record = record(Part::Sharer, 0, &deeds);
            if closes {
                record.calls = script.record().calls;
                record.calls[0].called = 20;
            }
            laws(&record)
        };
        assert_eq!(found(true, None), ["L-SP-3"]);
        assert_eq!(found(true, Some(Deed::Releases { item: 8 })), ["L-SP-3"]);
        assert_eq!(found(true, Some(Deed::Releases { item: 7 })), Vec::<&str>::new());
        assert_eq!(found(true, Some(Deed::Loses { item: 7 })), Vec::<&str>::new());
        assert_eq!(found(false, None), Vec::<&str>::new(), "it was killed");
    }

    #[test]
    fn a_party_is_inside_when_all_are_there() {
        let mut deeds = vec![
            (1, 1, Deed::Enters),
            (2, 2, Deed::Enters),
            (3, 1, Deed::Entered),
            (4, 1, Deed::Leaves),
            (5, 2, Deed::Entered),
            (6, 2, Deed::Leaves),
        ];
        assert_eq!(laws(&record(Part::Party, 2, &deeds)), Vec::<&str>::new());
        deeds.extend([(7, 1, Deed::Enters), (8, 1, Deed::Entered)]);
        assert_eq!(laws(&record(Part::Party, 2, &deeds)), ["L-DB-1"]);
    }
}
