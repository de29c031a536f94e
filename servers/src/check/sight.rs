//! Checks that views do not go back: never for a session (L-KV-3, L-KV-4), and for latest reads
//! never for any client (L-KV-2).

use std::collections::BTreeMap;

use crate::check::record::{Breach, Called, End, Record};
use crate::clients::entry::{Kind, Op, Told};

/// The time since which a session knew that a node was written or deleted at a revision.
struct Known {
    since: u64,
    session: u64,
    revision: u64,
    from: String,
}

/// Returns every read that showed an older state than one known before the call. Writes of recipes
/// are not checked: no call explains when recipes delete their nodes.
pub fn check(record: &Record) -> Vec<Breach> {
    let known = known(record);
    let gone = ends(record);
    let reads = record.calls.iter().filter(|call| {
        matches!(call.op, Op::Read { .. } | Op::List { .. })
            && call.answer().is_some()
            && !record.is_of_a_recipe(call.path())
    });
    reads.flat_map(|read| judge(read, &known, &gone)).collect()
}

fn judge(
    read: &Called,
    known: &BTreeMap<String, Vec<Known>>,
    gone: &BTreeMap<&str, Vec<Gone>>,
) -> Vec<Breach> {
    let covers = |path: &str| match read.op {
        Op::Read { .. } => path == read.path(),
        _ => path.rsplit_once('/').is_some_and(|(parent, _)| parent == read.path()),
    };
    let local = matches!(read.op, Op::Read { local: true, .. } | Op::List { local: true, .. });
    let mut found = Vec::new();
    for (path, known) in known.iter().filter(|(path, _)| covers(path)) {
        let before = known
            .iter()
            .filter(|known| known.since < read.called && (!local || known.session == read.session));
        let Some(newest) = before.max_by_key(|known| known.revision) else { continue };
        let shown = read.seen().iter().find(|seen| seen.path == *path);
        let stale = match shown {
            Some(seen) => seen.modified < newest.revision,
            None => !gone.get(path.as_str()).is_some_and(|ends| {
                let explains =
                    |gone: &Gone| gone.revision >= newest.revision && gone.earliest < read.returned;
                ends.iter().any(explains)
            }),
        };
        if stale {
            let law = if local { "L-KV-3" } else { "L-KV-2" };
            let what = format!(
                "{read} shows {path} as {shown:?}, and revision {} was known by {}",
                newest.revision, newest.from
            );
            found.push(Breach::new(law, what));
        }
    }
    found
}

/// The known writes of each node, since when and in which session.
fn known(record: &Record) -> BTreeMap<String, Vec<Known>> {
    let mut known: BTreeMap<String, Vec<Known>> = BTreeMap::new();
    let mut add = |path: &str, revision: u64, since, session, from: String| {
        if revision > 0 {
            let fact = Known { since, session, revision, from };
            known.entry(path.to_owned()).or_default().push(fact);
        }
    };
    for call in &record.calls {
        for seen in call.seen() {
            add(&seen.path, seen.modified, call.returned, call.session, call.to_string());
        }
        let alone = matches!(call.op, Op::Set { .. } | Op::Cas { .. } | Op::Delete { .. });
        let revision = call.answer().and_then(|answer| answer.revision);
        if let (true, Some(revision)) = (alone, revision) {
            add(call.path(), revision, call.returned, call.session, call.to_string());
        }
    }
    let sessions: BTreeMap<u64, u64> =
        record.calls.iter().map(|call| (call.id, call.session)).collect();
    for (id, events) in &record.told {
        let session = sessions.get(id).copied().unwrap_or_default();
        for (t, told) in events {
            if let Told::Changed { path, revision: Some(revision), .. } = told {
                add(path, *revision, *t, session, format!("{told:?} at {t}"));
            }
        }
    }
    known
}

/// The deletion of a node.
struct Gone {
    revision: u64,
    /// The earliest possible time.
    earliest: u64,
}

/// The deletions of each node.
///
/// Returns the earliest times of deletions. A call that was answered with the revision of a
/// deletion caused it, and not before the call began. If the answer has no revision, or the effect
/// of the call is unknown, the call may have caused any deletion. A session did not end before the
/// begin of its last call that created an ephemeral node. Other writes may be applied after their
/// session ended.
fn ends(record: &Record) -> BTreeMap<&str, Vec<Gone>> {
    let mut deletes: BTreeMap<&str, Vec<&Called>> = BTreeMap::new();
    for call in record.calls.iter().filter(|call| matches!(call.op, Op::Delete { .. })) {
        deletes.entry(call.path()).or_default().push(call);
    }
    let mut lived: BTreeMap<u64, u64> = BTreeMap::new();
    let needs_session = |op: &Op| {
        matches!(op, Op::Create { ephemeral: true, .. } | Op::Ticket { ephemeral: true, .. })
    };
    let proofs =
        record.calls.iter().filter(|call| needs_session(&call.op) && call.answer().is_some());
    for call in proofs {
        let last = lived.entry(call.session).or_default();
        *last = call.called.max(*last);
    }
    let mut gone: BTreeMap<&str, Vec<Gone>> = BTreeMap::new();
    for fact in record.facts.iter().filter(|fact| fact.kind == Kind::Deleted) {
        let ends = gone.entry(&fact.path).or_default();
        let calls = deletes.get(fact.path.as_str()).into_iter().flatten();
        let by_call =
            calls.filter(|call| may_have_deleted(call, fact.revision)).map(|call| call.called);
        // If neither a call nor a session explains the deletion, another check reports that; here
        // it does not justify a read.
        let by_session = fact.owner.map(|owner| lived.get(&owner).copied().unwrap_or_default());
        let earliest = by_call.chain(by_session).min().unwrap_or(u64::MAX);
        ends.push(Gone { revision: fact.revision, earliest });
    }
    gone
}

/// Returns `true` if the call may have deleted a node at a revision.
fn may_have_deleted(call: &Called, revision: u64) -> bool {
    match &call.end {
        End::Done(answer) => answer.revision.is_none_or(|made| made == revision),
        End::Not => false,
        End::Unknown => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::record::tests::{Script, seen};
    use crate::clients::entry::What;

    fn read(local: bool) -> Op {
        Op::Read { path: "/n".into(), local }
    }

    fn laws(script: &Script) -> Vec<&'static str> {
        check(&script.record()).iter().map(|breach| breach.law).collect()
    }

    #[test]
    fn a_session_is_shown_nothing_older_than_its_writes_its_reads_and_its_events() {
        let old = || vec![seen("/n", 1, 5)];
        let mut fresh = Script::default();
        fresh.call(7, Op::Set { path: "/n".into(), value: 2 }, 6, vec![]);
        fresh.call(8, read(true), 0, old());
        assert_eq!(laws(&fresh), Vec::<&str>::new(), "another session may lag");
        fresh.call(7, read(true), 0, old());
        assert_eq!(laws(&fresh), ["L-KV-3"]);

        let mut again = Script::default();
        again.call(7, read(true), 0, vec![seen("/n", 2, 6)]);
        again.call(7, read(true), 0, old());
        assert_eq!(laws(&again), ["L-KV-3"]);

        let mut told = Script::default();
        let id = told.begin(7, Op::Observe { path: "/".into() });
        let change = Told::Changed { path: "/n".into(), kind: Kind::Updated, revision: Some(6) };
        told.say(7, Some(id), What::Event { told: change });
        told.call(7, read(true), 0, old());
        assert_eq!(laws(&told), ["L-KV-3"]);
    }

    #[test]
    fn a_latest_read_is_not_older_than_any_earlier_answer() {
        let mut script = Script::default();
        script.call(7, Op::Set { path: "/n".into(), value: 2 }, 6, vec![]);
        script.call(8, read(false), 0, vec![seen("/n", 1, 5)]);
        assert_eq!(laws(&script), ["L-KV-2"]);
    }

    #[test]
    fn what_is_not_shown_is_gone() {
        let list = || Op::List { path: "/d".into(), local: true };
        let mut script = Script::default();
        script.call(7, Op::Set { path: "/d/n".into(), value: 2 }, 6, vec![]);
        script.call(7, Op::Delete { path: "/d/n".into() }, 7, vec![]);
        script.fact(7, "/d/n", Kind::Deleted, None, None);
        script.call(7, list(), 0, vec![]);
        assert_eq!(laws(&script), Vec::<&str>::new());

        let mut never = Script::default();
        never.call(7, Op::Set { path: "/d/n".into(), value: 2 }, 6, vec![]);
        never.call(7, list(), 0, vec![]);
        assert_eq!(laws(&never), ["L-KV-3"]);
    }

    #[test]
    fn a_deletion_that_comes_later_explains_nothing() {
        let mut script = Script::default();
        script.call(7, Op::Set { path: "/n".into(), value: 2 }, 6, vec![]);
        script.call(7, read(false), 0, vec![]);
        script.call(7, Op::Delete { path: "/n".into() }, 7, vec![]);
        script.fact(7, "/n", Kind::Deleted, None, None);
        assert_eq!(laws(&script), ["L-KV-2"]);
    }

    #[test]
    fn a_call_deletes_what_a_session_made_again() {
        let own = || Op::Create { path: "/n".into(), value: 2, ephemeral: true };
        let mut script = Script::default();
        script.call(7, own(), 6, vec![]);
        script.fact(7, "/n", Kind::Deleted, None, Some(7));
        script.call(8, own(), 8, vec![]);
        script.call(8, Op::Delete { path: "/n".into() }, 9, vec![]);
        script.fact(9, "/n", Kind::Deleted, None, Some(8));
        script.call(9, read(false), 0, vec![]);
        script.call(8, Op::Create { path: "/m".into(), value: 2, ephemeral: true }, 10, vec![]);
        assert_eq!(laws(&script), Vec::<&str>::new());
    }

    #[test]
    fn a_session_that_writes_later_explains_nothing() {
        let own = |path: &str| Op::Create { path: path.into(), value: 2, ephemeral: true };
        let story = |writes_later: bool| {
            let mut script = Script::default();
            script.call(7, own("/n"), 6, vec![]);
            script.call(8, read(false), 0, vec![seen("/n", 2, 6)]);
            script.call(8, read(false), 0, vec![]);
            if writes_later {
                script.call(7, own("/m"), 7, vec![]);
            }
            script.fact(8, "/n", Kind::Deleted, None, Some(7));
            laws(&script)
        };
        assert_eq!(story(false), Vec::<&str>::new());
        assert_eq!(story(true), ["L-KV-2"]);
    }
}
