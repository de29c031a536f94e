//! Compares the results of writes with the writes that the servers kept: L-OUT-1 to 3, L-SES-13 and
//! L-KV-8.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::record::{Breach, Called, End, Record};
use crate::clients::entry::{Fact, Kind, Op};
use synod_testkit::history::Value;

/// Returns every write whose outcome differs from its result.
pub fn check(record: &Record) -> Vec<Breach> {
    let mut kept: BTreeMap<Value, Vec<&Fact>> = BTreeMap::new();
    for fact in record.facts.iter().filter(|fact| fact.kind != Kind::Deleted) {
        kept.entry(fact.value.unwrap_or_default()).or_default().push(fact);
    }
    let writes = record.calls.iter().filter_map(|call| Some((call, call.value()?)));
    let mut found: Vec<_> = writes
        .filter_map(|(call, value)| judge(call, kept.get(&value).map_or(&[], Vec::as_slice)))
        .collect();
    found.extend(check_deletes(record));
    found.extend(check_undeleted(record));
    found
}

fn judge(call: &Called, kept: &[&Fact]) -> Option<Breach> {
    let breach = |law, what: &str| Some(Breach::new(law, format!("{what}: {call}, {kept:?}")));
    match (&call.end, kept) {
        (End::Done(answer), [fact]) => {
            if answer.revision.is_some_and(|revision| revision != fact.revision) {
                return breach("L-OUT-2", "it was applied at another revision than reported");
            }
            let elsewhere = match call.op {
                Op::Ticket { .. } => !fact.path.starts_with(call.path()),
                _ => fact.path != call.path(),
            };
            let ephemeral = match call.op {
                Op::Create { ephemeral, .. } | Op::Ticket { ephemeral, .. } => Some(ephemeral),
                _ => None,
            };
            let owner = |ephemeral: bool| ephemeral.then_some(call.session);
            if elsewhere {
                breach("L-OUT-2", "it was applied to another node")
            } else if ephemeral.is_some_and(|ephemeral| owner(ephemeral) != fact.owner) {
                breach("L-SES-13", "it went to another owner")
            } else {
                None
            }
        }
        (End::Done(_), []) => breach("L-OUT-2", "it was reported as applied, and was not"),
        (End::Done(_), _) => breach("L-OUT-2", "it was done more than once"),
        (End::Not, [_, ..]) => breach("L-OUT-1", "it was certain not to happen, and did"),
        (End::Not, []) | (End::Unknown, [] | [_]) => None,
        (End::Unknown, _) => breach("L-OUT-3", "it was applied more than once"),
    }
}

/// Checks that nodes that only calls delete are deleted as often as the results report.
fn check_deletes(record: &Record) -> Vec<Breach> {
    let mut paths: BTreeMap<&str, Vec<&Called>> = BTreeMap::new();
    for call in record.calls.iter().filter(|call| matches!(call.op, Op::Delete { .. })) {
        paths.entry(call.path()).or_default().push(call);
    }
    let check = |(path, calls): (&str, Vec<&Called>)| {
        let gone = |fact: &&Fact| fact.path == path && fact.kind == Kind::Deleted;
        let gone: Vec<_> = record.facts.iter().filter(gone).collect();
        if gone.iter().any(|fact| fact.owner.is_some()) {
            return None;
        }
        let done = calls.iter().filter(|call| call.answer().is_some()).count();
        let unknown = calls.iter().filter(|call| call.end == End::Unknown).count();
        let list = || calls.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  ");
        let count = gone.len();
        if count < done {
            Some(Breach::new("L-OUT-2", format!("{path} went {count} times: {}", list())))
        } else if count > done + unknown {
            Some(Breach::new("L-OUT-1", format!("{path} went {count} times: {}", list())))
        } else {
            None
        }
    };
    paths.into_iter().filter_map(check).collect()
}

/// Checks that a node that is deleted only by calls does not disappear without a call.
fn check_undeleted(record: &Record) -> Vec<Breach> {
    let deleted = record.calls.iter().filter(|call| matches!(call.op, Op::Delete { .. }));
    let deleted: BTreeSet<&str> = deleted.map(Called::path).collect();
    let undeleted = record.facts.iter().filter(|fact| {
        fact.kind == Kind::Deleted
            && fact.owner.is_none()
            && !deleted.contains(fact.path.as_str())
            && !record.is_of_a_recipe(&fact.path)
    });
    undeleted
        .map(|fact| Breach::new("L-KV-8", format!("{fact:?}, and no call deleted it")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::record::tests::Script;

    fn set(value: Value) -> Op {
        Op::Set { path: "/n".into(), value }
    }

    /// Returns the laws that are broken when `kept` writes were kept and the writer received this
    /// result.
    fn laws(report: impl Fn(&mut Script), kept: u64) -> Vec<&'static str> {
        let mut script = Script::default();
        report(&mut script);
        for revision in 5..5 + kept {
            script.fact(revision, "/n", Kind::Updated, Some(1), None);
        }
        check(&script.record()).iter().map(|breach| breach.law).collect()
    }

    #[test]
    fn a_write_is_kept_as_often_as_was_said() {
        let done = |script: &mut Script| script.call(7, set(1), 5, vec![]);
        let failed = |script: &mut Script| script.fails(7, set(1), true);
        let unknown = |script: &mut Script| script.fails(7, set(1), false);
        let open = |script: &mut Script| {
            script.begin(7, set(1));
        };
        let counts = [0, 1, 2];
        assert_eq!(counts.map(|kept| laws(done, kept)), [vec!["L-OUT-2"], vec![], vec!["L-OUT-2"]]);
        assert_eq!(
            counts.map(|kept| laws(failed, kept)),
            [vec![], vec!["L-OUT-1"], vec!["L-OUT-1"]]
        );
        assert_eq!(counts.map(|kept| laws(unknown, kept)), [vec![], vec![], vec!["L-OUT-3"]]);
        assert_eq!(counts.map(|kept| laws(open, kept)), [vec![], vec![], vec!["L-OUT-3"]]);
    }

    #[test]
    fn a_write_is_where_and_when_it_was_said_to_be() {
        assert_eq!(laws(|script| script.call(7, set(1), 6, vec![]), 1), ["L-OUT-2"]);
        let elsewhere = Op::Set { path: "/m".into(), value: 1 };
        assert_eq!(laws(|script| script.call(7, elsewhere.clone(), 5, vec![]), 1), ["L-OUT-2"]);
    }

    #[test]
    fn a_node_belongs_to_the_session_that_made_it() {
        let create = |ephemeral| Op::Create { path: "/n".into(), value: 1, ephemeral };
        let laws = |ephemeral: bool, owner: Option<u64>| {
            let mut script = Script::default();
            script.call(7, create(ephemeral), 5, vec![]);
            script.fact(5, "/n", Kind::Created, Some(1), owner);
            check(&script.record()).iter().map(|breach| breach.law).collect::<Vec<_>>()
        };
        assert_eq!((laws(true, Some(7)), laws(false, None)), (vec![], vec![]));
        for (ephemeral, owner) in [(true, Some(8)), (true, None), (false, Some(7))] {
            assert_eq!(laws(ephemeral, owner), ["L-SES-13"]);
        }
    }

    #[test]
    fn a_node_that_no_client_deletes_stays() {
        let mut script = Script::default();
        script.fact(5, "/n", Kind::Deleted, None, Some(7));
        assert_eq!(check(&script.record()), []);
        script.fact(5, "/n", Kind::Deleted, None, None);
        assert_eq!(check(&script.record()).len(), 1);
    }

    #[test]
    fn a_node_goes_as_often_as_was_said() {
        let delete = || Op::Delete { path: "/n".into() };
        let laws = |report: &dyn Fn(&mut Script), gone: u64| {
            let mut script = Script::default();
            report(&mut script);
            (0..gone).for_each(|n| script.fact(5 + n, "/n", Kind::Deleted, None, None));
            check(&script.record()).iter().map(|breach| breach.law).collect::<Vec<_>>()
        };
        let done = |script: &mut Script| script.call(7, delete(), 5, vec![]);
        assert_eq!(laws(&done, 1), Vec::<&str>::new());
        assert_eq!(laws(&done, 0), ["L-OUT-2"]);
        assert_eq!(laws(&|script| script.fails(7, delete(), true), 1), ["L-OUT-1"]);
        assert_eq!(laws(&|script| script.fails(7, delete(), false), 1), Vec::<&str>::new());
    }
}
