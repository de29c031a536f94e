//! A defect of some server versions that breaks laws, and the proof that it caused a breach:
//! [`Defect`].

use std::collections::BTreeSet;

use crate::check::record::{Breach, Called, Record};
use crate::clients::entry::{Kind, Op};

/// A defect of a server. A scenario names the defects that it may show; no other scenario is
/// excused.
#[derive(Debug)]
#[non_exhaustive]
pub struct Defect {
    /// The wrong behaviour of the server.
    pub what: &'static str,
    /// The laws that it breaks.
    laws: &'static [&'static str],
    /// Returns `true` for a version with the defect.
    affected: fn(&[u32]) -> bool,
    /// Returns `true` if the record proves that this breach is caused by the defect.
    proved: fn(&Record, &Breach) -> bool,
}

/// etcd, server issue 15247: the leases that expired by the clock of a paused leader are revoked
/// when it resumes, although the next leader renewed them in the meantime. It sends the requests
/// as a follower to the next leader, which applies them.
///
/// Some versions confirm their leadership with a quorum before they revoke a lease. All later
/// versions skip that if their clock has ticked within three heartbeats (pull requests 18428, 18439
/// and 18440), and the clock ticks as soon as the process resumes: a few milliseconds before it
/// learns of the next leader.
pub const REVOKES_OF_A_DEPOSED_LEADER: Defect = Defect {
    what: "a deposed etcd leader revokes leases that its successor renewed",
    laws: &["L-SES-2", "L-MX-1", "L-MX-3", "L-RW-1", "L-RW-8", "L-SEM-1", "L-EL-1", "L-Q-6"],
    affected: revokes_without_a_quorum,
    proved: is_of_a_lease_that_was_revoked_too_early,
};

fn revokes_without_a_quorum(version: &[u32]) -> bool {
    !matches!(version, [3, 4, 31..=33, ..] | [3, 5, 13..=15, ..])
}

impl Defect {
    /// Returns `true` if servers of this version have the defect.
    pub fn affects(&self, version: &[u32]) -> bool {
        (self.affected)(version)
    }

    /// Returns `true` if the defect explains this breach on servers of this version.
    pub fn excuses(&self, version: &[u32], record: &Record, breach: &Breach) -> bool {
        self.affects(version) && self.laws.contains(&breach.law) && (self.proved)(record, breach)
    }
}

/// Returns `true` if, before a paused server was resumed, the servers reported for a lease of one
/// of the breach's sessions that it would live beyond the breach, but the record shows that it
/// ended earlier, and that no client ended it.
fn is_of_a_lease_that_was_revoked_too_early(record: &Record, breach: &Breach) -> bool {
    let Some(at) = breach.at else { return false };
    let mut reports = record.leases.iter().filter(|(_, session, _)| {
        breach.sessions.contains(session) && !ended_by_a_client(record, *session, at)
    });
    reports.any(|(reported, session, until)| {
        let revoked = revoked_by(record, *session);
        follows_a_resume(record, *reported, at)
            && at < *until
            && revoked.is_some_and(|revoked| revoked < *until)
    })
}

/// Returns `true` if a paused server was resumed between these two times.
fn follows_a_resume(record: &Record, reported: u64, at: u64) -> bool {
    record.resumed.iter().any(|resumed| (reported..=at).contains(resumed))
}

fn ended_by_a_client(record: &Record, session: u64, at: u64) -> bool {
    let closes = |call: &Called| call.op == Op::Close && call.session == session;
    record.ended.contains(&session)
        || record.calls.iter().any(|call| closes(call) && call.called <= at)
}

/// Returns the time by which the lease of this session was certainly revoked: its last nodes were
/// deleted together, one of them without a request to delete it, and a later revision was known at
/// that time.
fn revoked_by(record: &Record, session: u64) -> Option<u64> {
    let own = || record.facts.iter().filter(|fact| fact.owner == Some(session));
    let revoked = own().map(|fact| fact.revision).max()?;
    let gone = own().filter(|fact| fact.kind == Kind::Deleted);
    let gone: BTreeSet<_> = gone.map(|fact| fact.path.as_str()).collect();
    let deleted = record.calls.iter().filter(|call| matches!(call.op, Op::Delete { .. }));
    let deleted: BTreeSet<_> = deleted.map(Called::path).collect();
    let mut last = own().filter(|fact| fact.revision == revoked);
    let is_revoked = own().all(|fact| gone.contains(fact.path.as_str()))
        && last.clone().all(|fact| fact.kind == Kind::Deleted)
        && last.any(|fact| !deleted.contains(fact.path.as_str()));
    is_revoked.then(|| known_by(record, revoked)).flatten()
}

/// Returns the time by which a client knew this revision or a later one.
fn known_by(record: &Record, revision: u64) -> Option<u64> {
    let of_calls = record
        .calls
        .iter()
        .filter_map(|call| (call.answer()?.revision? >= revision).then_some(call.returned));
    let of_holdings = record
        .holdings
        .iter()
        .filter_map(|(_, holding)| (holding.token >= revision).then_some(holding.since));
    of_calls.chain(of_holdings).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::record::tests::Script;
    use crate::clients::entry::{Installed, What};
    use crate::clients::holding::{Holding, Room};

    const OLD: &[u32] = &[3, 4, 23];
    const SESSION: u64 = 7;
    const OTHER: u64 = 8;

    /// The difference from a record that shows the defect.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum But {
        Nothing,
        OnlyAHoldingShowsTheEnd,
        NoServerIsResumed,
        TheReportIsLater,
        NoLeaseIsReported,
        TheReportIsOfAnotherSession,
        TheReportedTimeIsOver,
        ItIsRevokedAfterTheReportedTime,
        ItIsStillThere,
        ItCreatesOneMoreNode,
        ItCreatesItsNodeAgain,
        ItLeavesANode,
        AClientDeletesTheNode,
        ItIsClosed,
        ItIsExpiredFromOutside,
    }

    fn nemesis(what: &str) -> What {
        What::Nemesis { what: what.to_owned(), outcome: Installed::Installed }
    }

    fn held(token: u64) -> Holding {
        let path = "/line".to_owned();
        let (room, share) = (Room::Mutex, 1);
        Holding { room, path, share, token, asked: 2, since: 2, certain: 2, end: None }
    }

    /// A lease that is reported to live until 100 is revoked after a server was resumed.
    fn record(but: But) -> (Record, Breach) {
        let mut script = Script::default();
        // Earlier revisions, which do not show that the lease ended.
        script.call(OTHER, Op::Set { path: "/n".into(), value: 4 }, 3, vec![]);
        script.say(OTHER, None, What::Holding { holding: held(4) });
        script.fact(5, "/e", Kind::Created, Some(1), Some(SESSION));
        let session = if but == But::TheReportIsOfAnotherSession { OTHER } else { SESSION };
        let until = if but == But::TheReportedTimeIsOver { 5 } else { 100 };
        let report = |script: &mut Script| script.say(session, None, What::Lease { until });
        if !matches!(but, But::NoLeaseIsReported | But::TheReportIsLater) {
            report(&mut script);
        }
        if but != But::NoServerIsResumed {
            script.say(0, None, nemesis("resume server 1"));
        }
        if but == But::TheReportIsLater {
            report(&mut script);
        }
        match but {
            But::AClientDeletesTheNode => {
                script.call(OTHER, Op::Delete { path: "/e".into() }, 6, vec![]);
            }
            But::ItIsClosed => script.call(SESSION, Op::Close, 0, vec![]),
            But::ItIsExpiredFromOutside => drop(script.say(SESSION, None, nemesis("expire"))),
            But::ItCreatesOneMoreNode => {
                script.fact(7, "/f", Kind::Created, Some(2), Some(SESSION));
            }
            But::ItCreatesItsNodeAgain => {
                script.fact(7, "/e", Kind::Created, Some(2), Some(SESSION));
            }
            But::ItLeavesANode => script.fact(4, "/f", Kind::Created, Some(2), Some(SESSION)),
            _ => {}
        }
        if but != But::ItIsStillThere {
            script.fact(6, "/e", Kind::Deleted, None, Some(SESSION));
        }
        if but == But::ItIsRevokedAfterTheReportedTime {
            while script.say(0, None, nemesis("nothing")) < 100 {}
        }
        if but == But::OnlyAHoldingShowsTheEnd {
            script.say(OTHER, None, What::Holding { holding: held(8) });
        } else {
            script.call(OTHER, Op::Set { path: "/n".into(), value: 3 }, 8, vec![]);
        }
        let at = script.say(0, None, nemesis("nothing")).min(99);
        (script.record(), Breach::new("L-SES-2", "it was over").at(at).of([SESSION]))
    }

    fn excuses(version: &[u32], (record, breach): &(Record, Breach)) -> bool {
        REVOKES_OF_A_DEPOSED_LEADER.excuses(version, record, breach)
    }

    #[test]
    fn a_lease_that_ends_before_the_time_that_servers_reported_was_revoked() {
        assert!(excuses(OLD, &record(But::Nothing)));
        assert!(excuses(OLD, &record(But::OnlyAHoldingShowsTheEnd)));
    }

    #[test]
    fn versions_without_the_defect_are_not_excused() {
        for (version, affected) in [
            ([3, 4, 30], true),
            ([3, 4, 31], false),
            ([3, 4, 33], false),
            ([3, 4, 34], true),
            ([3, 5, 0], true),
            ([3, 5, 12], true),
            ([3, 5, 13], false),
            ([3, 5, 15], false),
            ([3, 5, 16], true),
            ([3, 5, 30], true),
            ([3, 6, 1], true),
        ] {
            assert_eq!(excuses(&version, &record(But::Nothing)), affected, "{version:?}");
        }
    }

    #[test]
    fn another_law_another_session_or_an_unknown_time_is_not_excused() {
        let (record, breach) = record(But::Nothing);
        let others = [
            Breach { law: "L-KV-1", ..breach.clone() },
            Breach { sessions: vec![OTHER], ..breach.clone() },
            Breach { sessions: vec![], ..breach.clone() },
            Breach { at: None, ..breach.clone() },
            // Longer than the reported life.
            Breach { at: Some(100), ..breach.clone() },
            // Before any server was resumed.
            Breach { at: Some(1), ..breach },
        ];
        for other in others {
            assert!(!excuses(OLD, &(record.clone(), other.clone())), "{other:?}");
        }
    }

    #[test]
    fn without_the_proof_of_a_revoke_nothing_is_excused() {
        assert!(!excuses(OLD, &record(But::NoLeaseIsReported)));
        assert!(!excuses(OLD, &record(But::TheReportIsOfAnotherSession)));
        assert!(!excuses(OLD, &record(But::TheReportedTimeIsOver)));
        assert!(!excuses(OLD, &record(But::ItIsRevokedAfterTheReportedTime)));
        assert!(!excuses(OLD, &record(But::ItIsStillThere)));
        assert!(!excuses(OLD, &record(But::ItCreatesOneMoreNode)));
        assert!(!excuses(OLD, &record(But::ItCreatesItsNodeAgain)));
        assert!(!excuses(OLD, &record(But::ItLeavesANode)));
    }

    #[test]
    fn what_a_client_ended_is_not_excused() {
        assert!(!excuses(OLD, &record(But::AClientDeletesTheNode)));
        assert!(!excuses(OLD, &record(But::ItIsClosed)));
        assert!(!excuses(OLD, &record(But::ItIsExpiredFromOutside)));
    }

    #[test]
    fn only_what_follows_a_resume_is_excused() {
        assert!(!excuses(OLD, &record(But::NoServerIsResumed)));
        assert!(!excuses(OLD, &record(But::TheReportIsLater)));
        let (record, _) = record(But::Nothing);
        let resumed = record.resumed[0];
        assert!(follows_a_resume(&record, resumed - 1, resumed));
        assert!(!follows_a_resume(&record, resumed - 2, resumed - 1));
        assert!(!follows_a_resume(&record, resumed + 1, resumed + 2));
    }
}
