//! Checks that the events of watches explain the writes that the servers kept: L-WAT-3, 4, 6, 7, 8
//! and 12.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::record::{Breach, Called, Record};
use crate::clients::entry::{Fact, Kind, Op, Told};

/// Returns every watch that reported a wrong event, or whose reader does not reach the final state.
///
/// The last change must be long enough ago for its event to arrive.
pub fn check(record: &Record) -> Vec<Breach> {
    let none = Vec::new();
    let watches = record
        .calls
        .iter()
        .filter(|call| matches!(call.op, Op::Observe { .. }) && call.answer().is_some());
    let mut found = Vec::new();
    for watch in watches {
        let told = record.told.get(&watch.id).unwrap_or(&none);
        found.extend(check_facts(record, told));
        found.extend(check_order(told));
        found.extend(check_end(record, watch, told));
    }
    found
}

/// Each reported change happened.
fn check_facts(record: &Record, told: &[(u64, Told)]) -> Vec<Breach> {
    let facts: BTreeSet<(&str, u64, bool)> = (record.facts.iter())
        .map(|fact| (fact.path.as_str(), fact.revision, fact.kind == Kind::Deleted))
        .collect();
    let wrong = told.iter().filter(|(_, told)| match told {
        Told::Changed { path, kind, revision: Some(revision) } => {
            !facts.contains(&(path, *revision, *kind == Kind::Deleted))
        }
        _ => false,
    });
    wrong.map(|(_, told)| Breach::new("L-WAT-8", format!("{told:?} did not happen"))).collect()
}

/// Between two resyncs, the events of a path are in order, each once.
fn check_order(told: &[(u64, Told)]) -> Vec<Breach> {
    let mut last: BTreeMap<&str, (u64, Kind)> = BTreeMap::new();
    let mut found = Vec::new();
    for (_, event) in told {
        match event {
            Told::Changed { path, kind, revision: Some(revision) } => {
                if let Some(before) = last.insert(path, (*revision, *kind)) {
                    if before == (*revision, *kind) {
                        found.push(Breach::new("L-WAT-4", format!("{event:?} was reported twice")));
                    } else if before.0 > *revision {
                        let what = format!("{event:?} was reported after {before:?}");
                        found.push(Breach::new("L-WAT-3", what));
                    }
                }
            }
            Told::Resync | Told::View { .. } => last.clear(),
            Told::Changed { .. } | Told::Ended | Told::Failed => {}
        }
    }
    found
}

/// A reader that starts from the view and follows the events reaches the final state.
fn check_end(record: &Record, watch: &Called, told: &[(u64, Told)]) -> Vec<Breach> {
    if told.iter().any(|(_, told)| *told == Told::Failed) {
        return Vec::new();
    }
    if let Some((at, _)) = told.iter().find(|(_, told)| *told == Told::Ended) {
        if was_let_go(record, watch, *at) {
            return Vec::new();
        }
        let what = format!("{watch} ended at {at} although its session went on");
        return vec![Breach::new("L-WAT-12", what).at(*at)];
    }
    let view = |nodes: &[crate::clients::entry::Seen]| -> BTreeMap<String, Option<u64>> {
        nodes.iter().map(|node| (node.path.clone(), Some(node.modified))).collect()
    };
    let mut copy = view(watch.seen());
    for (_, told) in told {
        match told {
            Told::Changed { path, kind: Kind::Deleted, .. } => drop(copy.remove(path)),
            Told::Changed { path, revision, .. } => drop(copy.insert(path.clone(), *revision)),
            Told::View { nodes } => copy = view(nodes),
            Told::Resync | Told::Ended | Told::Failed => {}
        }
    }
    let there = there(&record.facts, watch.path());
    let mut found = Vec::new();
    for path in there.keys().filter(|path| !copy.contains_key(**path)) {
        found.push(Breach::new("L-WAT-6", format!("{path} is there, and {watch} knows not of it")));
    }
    for (path, known) in &copy {
        match (there.get(path.as_str()), known) {
            (None, _) => {
                found.push(Breach::new(
                    "L-WAT-6",
                    format!("{path} is gone, which was not reported to {watch}"),
                ));
            }
            (Some(last), Some(known)) if known < last => {
                let what = format!("{path} was written at {last}, and {watch} knows of {known}");
                found.push(Breach::new("L-WAT-6", what));
            }
            _ => {}
        }
    }
    found
}

/// Returns `true` if the session of a watch was lost, closed or replaced, which ends the watch.
fn was_let_go(record: &Record, watch: &Called, at: u64) -> bool {
    let lost = record
        .beliefs
        .iter()
        .any(|(_, session, status, _)| *session == watch.session && status == "lost");
    let given_up = record.calls.iter().any(|call| {
        let replaces = call.process == watch.process && matches!(call.op, Op::Open { .. });
        let closes = call.session == watch.session && call.op == Op::Close;
        (replaces || closes) && (watch.called..=at).contains(&call.called)
    });
    lost || given_up
}

/// Returns the final children of a node, each with its last revision.
pub(crate) fn there<'a>(facts: &'a [Fact], parent: &str) -> BTreeMap<&'a str, u64> {
    let mut there = BTreeMap::new();
    for fact in facts {
        if fact.path.rsplit_once('/').is_none_or(|(above, _)| above != parent) {
            continue;
        }
        match fact.kind {
            Kind::Deleted => drop(there.remove(fact.path.as_str())),
            Kind::Created | Kind::Updated => drop(there.insert(fact.path.as_str(), fact.revision)),
        }
    }
    there
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::record::tests::{Script, seen};
    use crate::clients::entry::What;

    fn changed(kind: Kind, revision: u64) -> Told {
        Told::Changed { path: "/d/n".into(), kind, revision: Some(revision) }
    }

    /// Returns the laws that are broken when a node was created at 5, written at 6 and deleted at
    /// 7, and a watch whose view was empty reported these events.
    fn laws(told: &[Told]) -> Vec<&'static str> {
        let mut script = Script::default();
        let id = script.begin(7, Op::Observe { path: "/d".into() });
        script.ok(7, id, 0, vec![]);
        script.fact(5, "/d/n", Kind::Created, Some(1), None);
        script.fact(6, "/d/n", Kind::Updated, Some(2), None);
        script.fact(7, "/d/n", Kind::Deleted, None, None);
        script.fact(8, "/d/m", Kind::Created, Some(3), None);
        for told in told {
            script.say(7, Some(id), What::Event { told: told.clone() });
        }
        let last = Told::Changed { path: "/d/m".into(), kind: Kind::Created, revision: Some(8) };
        script.say(7, Some(id), What::Event { told: last });
        check(&script.record()).iter().map(|breach| breach.law).collect()
    }

    #[test]
    fn events_explain_what_is_there() {
        let (created, updated, deleted) =
            (changed(Kind::Created, 5), changed(Kind::Updated, 6), changed(Kind::Deleted, 7));
        let all = [created.clone(), updated.clone(), deleted.clone()];
        assert_eq!(laws(&all), Vec::<&str>::new());
        assert_eq!(laws(std::slice::from_ref(&deleted)), Vec::<&str>::new(), "events may join");
        assert_eq!(laws(&[created.clone(), updated.clone()]), ["L-WAT-6"]);
        assert_eq!(laws(&[updated.clone(), created.clone(), deleted.clone()]), ["L-WAT-3"]);
        assert_eq!(laws(&[created.clone(), created.clone(), deleted.clone()]), ["L-WAT-4"]);
        assert_eq!(laws(&[changed(Kind::Created, 4), deleted]), ["L-WAT-8"]);
        let view = |nodes| Told::View { nodes };
        assert_eq!(laws(&[created.clone(), Told::Resync, view(vec![])]), Vec::<&str>::new());
        assert_eq!(laws(&[created, Told::Resync, view(vec![seen("/d/n", 1, 5)])]), ["L-WAT-6"]);
    }

    #[test]
    fn an_event_that_is_never_delivered_is_missed() {
        let mut script = Script::default();
        let id = script.begin(7, Op::Observe { path: "/d".into() });
        script.ok(7, id, 0, vec![seen("/d/n", 1, 5)]);
        script.fact(5, "/d/n", Kind::Created, Some(1), None);
        assert_eq!(check(&script.record()), []);
        script.fact(6, "/d/n", Kind::Updated, Some(2), None);
        assert_eq!(check(&script.record()).len(), 1);
        script.say(7, Some(id), What::Event { told: Told::Ended });
        let laws: Vec<_> = check(&script.record()).iter().map(|breach| breach.law).collect();
        assert_eq!(laws, ["L-WAT-12"], "its session continues");
        script.say(7, None, What::Belief { status: "lost".to_owned(), certain: None });
        assert_eq!(check(&script.record()), [], "a watch that ended with its session owes nothing");
    }
}
