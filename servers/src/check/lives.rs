//! Checks that sessions live as long as clients considered them certain, and leave no node:
//! L-SES-2, 3, 5, 6 and 7, L-OUT-6.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::record::{Breach, Called, Record};
use crate::clients::entry::{Fact, Kind, Op, Told};

/// Returns every session that was considered certain after its end, or that left or created a node
/// afterwards.
pub fn check(record: &Record) -> Vec<Breach> {
    let mut found = check_beliefs(record);
    found.extend(check_remains(record));
    found.extend(check_closed(record));
    found.extend(check_lost(record));
    found.extend(check_final(record));
    found
}

/// Returns the nodes that are deleted only with their session, and never had another owner.
fn ephemerals(record: &Record) -> BTreeMap<&str, u64> {
    let deleted = record.calls.iter().filter(|call| matches!(call.op, Op::Delete { .. }));
    let mut shared: BTreeSet<&str> = deleted.map(Called::path).collect();
    let mut alone = BTreeMap::new();
    for fact in record.facts.iter().filter(|fact| fact.kind == Kind::Created) {
        let path = fact.path.as_str();
        match fact.owner {
            Some(owner) if alone.insert(path, owner).is_none_or(|before| before == owner) => {}
            _ => drop(shared.insert(path)),
        }
    }
    alone.retain(|path, _| !shared.contains(path) && !record.is_of_a_recipe(path));
    alone
}

/// The time at which some client knew that the session was over, because a node of it was gone. The
/// session ended before.
fn known_over(record: &Record) -> BTreeMap<u64, u64> {
    let ephemerals = ephemerals(record);
    let mut over: BTreeMap<u64, u64> = BTreeMap::new();
    let mut add = |path: &str, t: u64| {
        if let Some(session) = ephemerals.get(path) {
            let first = over.entry(*session).or_insert(t);
            *first = t.min(*first);
        }
    };
    for (t, told) in record.told.values().flatten() {
        if let Told::Changed { path, kind: Kind::Deleted, .. } = told {
            add(path, *t);
        }
    }
    for read in record.calls.iter().filter(|call| matches!(call.op, Op::Read { .. })) {
        let created = record.calls.iter().any(|call| {
            let creates = matches!(call.op, Op::Create { ephemeral: true, .. });
            let before = call.answer().is_some() && call.returned < read.called;
            creates && before && call.path() == read.path()
        });
        if created && read.answer().is_some() && read.seen().is_empty() {
            add(read.path(), read.returned);
        }
    }
    over
}

fn check_beliefs(record: &Record) -> Vec<Breach> {
    let over = known_over(record);
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    for (_, session, _, certain) in &record.beliefs {
        let certain = certain.unwrap_or_default();
        let newest = last.entry(*session).or_default();
        *newest = certain.max(*newest);
    }
    let by_time = last.into_iter().filter(|(session, _)| !record.ended.contains(session));
    let late = by_time.filter_map(|(session, certain)| {
        let over = *over.get(&session)?;
        (certain > over).then(|| {
            let late = (certain - over) / 1_000;
            let what =
                format!("session {session:x} was over at {over}, and certain {late} us later");
            Breach::new("L-SES-2", what).at(over).of([session])
        })
    });
    late.collect()
}

/// Checks that all nodes of a session are deleted at one revision, and none is created later.
fn check_remains(record: &Record) -> Vec<Breach> {
    let ephemerals = ephemerals(record);
    let mut ends: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for fact in record.facts.iter().filter(|fact| fact.kind == Kind::Deleted) {
        if let (Some(owner), true) = (fact.owner, ephemerals.contains_key(fact.path.as_str())) {
            ends.entry(owner).or_default().insert(fact.revision);
        }
    }
    let mut found = Vec::new();
    for (session, revisions) in ends {
        if revisions.len() > 1 {
            let what = format!("the nodes of session {session:x} went at {revisions:?}");
            found.push(Breach::new("L-SES-5", what));
        }
        let end = revisions.first().copied().unwrap_or_default();
        let late = |fact: &&Fact| {
            fact.owner == Some(session) && fact.kind == Kind::Created && fact.revision > end
        };
        for fact in record.facts.iter().filter(late) {
            let what = format!("session {session:x} ended at {end}, and then came {fact:?}");
            found.push(Breach::new("L-SES-6", what));
        }
        for (path, _) in left(&record.facts, session) {
            let what = format!("session {session:x} ended at {end}, and left {path}");
            found.push(Breach::new("L-SES-5", what));
        }
    }
    found
}

/// Returns the nodes of a session at the end.
fn left(facts: &[Fact], session: u64) -> BTreeMap<&str, u64> {
    let mut left = BTreeMap::new();
    for fact in facts.iter().filter(|fact| fact.owner == Some(session)) {
        match fact.kind {
            Kind::Deleted => drop(left.remove(fact.path.as_str())),
            Kind::Created | Kind::Updated => drop(left.insert(fact.path.as_str(), fact.revision)),
        }
    }
    left
}

/// Checks that none of its nodes is read after a session was closed.
fn check_closed(record: &Record) -> Vec<Breach> {
    let mut found = Vec::new();
    let closed = record.calls.iter().filter(|call| call.op == Op::Close && call.answer().is_some());
    for close in closed {
        let later = record.calls.iter().filter(|call| {
            call.called > close.returned
                && matches!(call.op, Op::Read { local: false, .. } | Op::List { local: false, .. })
        });
        for seen in later.flat_map(Called::seen) {
            if seen.owner == Some(close.session) {
                let what = format!("{seen:?} was seen after {close}");
                found.push(Breach::new("L-SES-7", what));
            }
        }
        for (path, _) in left(&record.facts, close.session) {
            found.push(Breach::new("L-SES-7", format!("{path} is left after {close}")));
        }
    }
    found
}

/// Checks that no call of a session succeeds after it was reported lost.
fn check_lost(record: &Record) -> Vec<Breach> {
    let mut found = Vec::new();
    for (lost, session, _, _) in record.beliefs.iter().filter(|(_, _, status, _)| status == "lost")
    {
        let later = record
            .calls
            .iter()
            .filter(|call| call.session == *session && call.called > *lost && call.op != Op::Close);
        for call in later.filter(|call| call.answer().is_some()) {
            found.push(Breach::new("L-OUT-6", format!("lost at {lost}, and then {call}")));
        }
    }
    found
}

/// Checks that a session stays lost after it was reported lost.
fn check_final(record: &Record) -> Vec<Breach> {
    let mut lost = BTreeSet::new();
    let mut found = Vec::new();
    for (t, session, status, _) in &record.beliefs {
        if status == "lost" {
            lost.insert(session);
        } else if lost.contains(session) {
            let what = format!("session {session:x} was lost, and is {status} at {t}");
            found.push(Breach::new("L-SES-3", what));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::record::tests::Script;
    use crate::clients::entry::{Seen, What};

    fn create(path: &str) -> Op {
        Op::Create { path: path.into(), value: 1, ephemeral: true }
    }

    fn believe(script: &mut Script, status: &str, certain: u64) {
        let what = What::Belief { status: status.into(), certain: Some(certain) };
        script.say(7, None, what);
    }

    fn laws(script: &Script) -> Vec<&'static str> {
        check(&script.record()).iter().map(|breach| breach.law).collect()
    }

    /// Session 7 has a node, and session 8 learns by an event or a read that the node is gone, at
    /// the returned time.
    fn expired(by_event: bool) -> (Script, u64) {
        let mut script = Script::default();
        script.call(7, create("/e"), 5, vec![]);
        script.fact(5, "/e", Kind::Created, Some(1), Some(7));
        script.fact(6, "/e", Kind::Deleted, None, Some(7));
        let op = Op::Read { path: "/e".into(), local: false };
        let op = if by_event { Op::Observe { path: "/".into() } } else { op };
        let id = script.begin(8, op);
        script.ok(8, id, 0, vec![]);
        let gone = Told::Changed { path: "/e".into(), kind: Kind::Deleted, revision: Some(6) };
        let t = script.say(8, Some(id), What::Event { told: gone });
        (script, if by_event { t } else { t - 1 })
    }

    #[test]
    fn no_client_is_certain_of_a_session_that_is_over() {
        for by_event in [true, false] {
            let (mut script, gone) = expired(by_event);
            believe(&mut script, "suspended", gone);
            assert_eq!(laws(&script), Vec::<&str>::new());
            believe(&mut script, "suspended", gone + 1);
            assert_eq!(laws(&script), ["L-SES-2"]);
        }
    }

    #[test]
    fn nothing_follows_for_a_session_that_was_ended_before_its_time_or_shared_its_name() {
        let (mut script, gone) = expired(true);
        believe(&mut script, "live", gone + 1);
        assert_eq!(laws(&script), ["L-SES-2"]);
        script.fact(7, "/e", Kind::Created, Some(1), Some(9));
        assert_eq!(laws(&script), Vec::<&str>::new());

        let (mut script, gone) = expired(true);
        believe(&mut script, "live", gone + 1);
        let what = What::Nemesis {
            what: "expire".into(),
            outcome: crate::clients::entry::Installed::Installed,
        };
        script.say(7, None, what);
        assert_eq!(laws(&script), Vec::<&str>::new());
    }

    #[test]
    fn a_session_goes_at_once_and_leaves_nothing() {
        let (mut script, _) = expired(true);
        script.fact(7, "/f", Kind::Created, None, Some(7));
        assert_eq!(laws(&script), ["L-SES-6", "L-SES-5"]);
        script.fact(8, "/f", Kind::Deleted, None, Some(7));
        assert_eq!(laws(&script), ["L-SES-5", "L-SES-6"]);
    }

    #[test]
    fn a_closed_session_has_left_nothing() {
        let mut script = Script::default();
        script.fact(5, "/e", Kind::Created, Some(1), Some(7));
        script.call(7, Op::Close, 0, vec![]);
        assert_eq!(laws(&script), ["L-SES-7"]);
        script.fact(6, "/e", Kind::Deleted, None, Some(7));
        assert_eq!(laws(&script), Vec::<&str>::new());
        let seen = Seen { path: "/e".into(), owner: Some(7), ..Seen::default() };
        script.call(8, Op::List { path: "/".into(), local: false }, 0, vec![seen]);
        assert_eq!(laws(&script), ["L-SES-7"]);
    }

    #[test]
    fn a_lost_session_stays_lost() {
        let mut script = Script::default();
        believe(&mut script, "suspended", 1);
        believe(&mut script, "lost", 1);
        believe(&mut script, "lost", 1);
        assert_eq!(laws(&script), Vec::<&str>::new());
        believe(&mut script, "live", 1);
        assert_eq!(laws(&script), ["L-SES-3"]);
    }

    #[test]
    fn a_lost_session_answers_nothing() {
        let mut script = Script::default();
        let id = script.begin(7, Op::Read { path: "/n".into(), local: true });
        believe(&mut script, "lost", 1);
        script.ok(7, id, 0, vec![]);
        assert_eq!(laws(&script), Vec::<&str>::new(), "it was under way");
        script.call(7, Op::Read { path: "/n".into(), local: true }, 0, vec![]);
        assert_eq!(laws(&script), ["L-OUT-6"]);
    }
}
