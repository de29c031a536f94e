//! Checks the reports of holders: no two hold at the same time, tokens increase, and a former
//! holder writes nothing. L-MX-1, 3 and 5, and the corresponding laws of other recipes.

use std::collections::BTreeMap;

use crate::check::record::{Breach, Record};
use crate::clients::entry::{Fact, Kind};
use crate::clients::holding::Holding;

/// Returns every lock that had too many holders, holders out of order, or a write by a process that
/// did not hold it.
pub fn check(record: &Record) -> Vec<Breach> {
    let mut places: BTreeMap<&str, Vec<(usize, &Holding)>> = BTreeMap::new();
    for (process, holding) in &record.holdings {
        places.entry(&holding.path).or_default().push((*process, holding));
    }
    let mut found = Vec::new();
    for held in places.values() {
        found.extend(check_shares(record, held));
        found.extend(check_tokens(record, held));
    }
    for (room, path, data) in &record.stands {
        let writes =
            record.facts.iter().filter(|fact| fact.path == *data && fact.kind == Kind::Updated);
        let writes: Vec<&Fact> = writes.collect();
        let law = room.laws()[2];
        found.extend(check_writers(record, law, path, &writes));
        if room.writers_are_alone() {
            found.extend(check_order(law, &writes));
        }
    }
    found
}

/// Checks that the sum of the shares never exceeds the total. An answer is only known to be true at
/// some time between the question and the answer.
fn check_shares(record: &Record, held: &[(usize, &Holding)]) -> Vec<Breach> {
    let mut found = Vec::new();
    for (_, first) in held.iter().filter(|(_, holding)| holding.since <= holding.certain) {
        let t = first.since;
        let then: Vec<_> =
            held.iter().filter(|(_, holding)| holding.since <= t && t <= holding.certain).collect();
        let shares: u32 = then.iter().map(|(_, holding)| holding.share).sum();
        if shares > first.room.shares() {
            let what = format!("at {t} these believed to hold it at the same time: {then:?}");
            let owners = then.iter().filter_map(|(_, holding)| record.owner(holding));
            let law = first.room.laws()[0];
            found.push(Breach::new(law, what).at(t).of(owners));
        }
    }
    found
}

/// Checks that, of two holders that exclude each other, the later one has the larger token.
fn check_tokens(record: &Record, held: &[(usize, &Holding)]) -> Vec<Breach> {
    let mut found = Vec::new();
    for (_, early) in held {
        let later = held.iter().filter(|(_, late)| {
            late.asked > early.since && late.share + early.share > late.room.shares()
        });
        // The same token again is not a later holding: the report was interrupted.
        for (_, late) in later.filter(|(_, late)| late.token < early.token) {
            let what = format!("{late:?} came after {early:?}");
            let owners = [early, late].into_iter().filter_map(|holding| record.owner(holding));
            found.push(Breach::new(late.room.laws()[1], what).at(late.since).of(owners));
        }
    }
    found
}

/// Checks that a writer has a ticket in the wait queue, which exists at the time of the write.
fn check_writers(record: &Record, law: &'static str, line: &str, writes: &[&Fact]) -> Vec<Breach> {
    let in_line = |fact: &&Fact| fact.path.rsplit_once('/').is_some_and(|(dir, _)| dir == line);
    let mut drawn: BTreeMap<u64, &str> = BTreeMap::new();
    let mut gone: BTreeMap<&str, u64> = BTreeMap::new();
    for fact in record.facts.iter().filter(in_line) {
        match fact.kind {
            Kind::Created => drop(drawn.insert(fact.revision, &fact.path)),
            Kind::Deleted => drop(gone.insert(&fact.path, fact.revision)),
            Kind::Updated => {}
        }
    }
    let wrong = writes.iter().filter_map(|write| {
        let Some(ticket) = write.value.and_then(|token| drawn.get(&token)) else {
            return Some(format!("{write:?} has no ticket in {line}"));
        };
        let gone = gone.get(ticket).filter(|gone| **gone < write.revision)?;
        Some(format!("{write:?} is of {ticket}, which was gone at {gone}"))
    });
    wrong.map(|what| Breach::new(law, what)).collect()
}

/// Checks that, of exclusive holders, none writes after a later one has written.
fn check_order(law: &'static str, writes: &[&Fact]) -> Vec<Breach> {
    let pairs = writes.windows(2).filter(|pair| pair[0].value > pair[1].value);
    pairs.map(|pair| Breach::new(law, format!("{:?} comes after {:?}", pair[1], pair[0]))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::record::tests::Script;
    use crate::clients::entry::{Op, What};
    use crate::clients::holding::Room;

    /// Process 1 holds the lock with this token during the span.
    fn hold(script: &mut Script, room: Room, share: u32, token: u64, span: (u64, u64)) {
        let holding = Holding {
            room,
            path: "/line".to_owned(),
            share,
            token,
            asked: span.0 - 1,
            since: span.0,
            certain: span.1,
            end: None,
        };
        script.say(7, None, What::Holding { holding });
    }

    fn laws(script: &Script) -> Vec<&'static str> {
        check(&script.record()).iter().map(|breach| breach.law).collect()
    }

    #[test]
    fn an_exclusive_hold_overlaps_no_other_hold() {
        for room in Room::ALL {
            let all = room.shares();
            let mut script = Script::default();
            hold(&mut script, room, all, 1, (10, 20));
            hold(&mut script, room, all, 2, (30, 40));
            assert_eq!(laws(&script), Vec::<&str>::new());
            hold(&mut script, room, all, 3, (39, 50));
            assert_eq!(laws(&script), [room.laws()[0]]);
        }
    }

    #[test]
    fn a_hold_that_is_reported_again_is_the_same_for_longer() {
        let mut script = Script::default();
        hold(&mut script, Room::Mutex, 1, 1, (10, 20));
        hold(&mut script, Room::Mutex, 1, 1, (10, 30));
        assert_eq!(laws(&script), Vec::<&str>::new());
        hold(&mut script, Room::Mutex, 1, 2, (25, 26));
        assert_eq!(laws(&script), ["L-MX-1"]);
    }

    #[test]
    fn shares_are_counted() {
        let mut script = Script::default();
        hold(&mut script, Room::Semaphore, 1, 1, (10, 40));
        hold(&mut script, Room::Semaphore, 1, 2, (20, 30));
        hold(&mut script, Room::RwLock, 1, 3, (50, 60));
        hold(&mut script, Room::RwLock, 1, 4, (50, 60));
        assert_eq!(laws(&script), Vec::<&str>::new());
        hold(&mut script, Room::Semaphore, 1, 5, (25, 35));
        assert_eq!(laws(&script), ["L-SEM-1"]);
        hold(&mut script, Room::RwLock, 1_000, 6, (55, 58));
        assert_eq!(laws(&script), ["L-SEM-1", "L-RW-1"]);
    }

    #[test]
    fn a_holder_that_was_certain_once_was_so_at_an_unknown_time() {
        let mut script = Script::default();
        hold(&mut script, Room::Mutex, 1, 1, (10, 20));
        // Checked at 14, answered at 15, and not certain again.
        hold(&mut script, Room::Mutex, 1, 2, (15, 14));
        assert_eq!(laws(&script), Vec::<&str>::new());
    }

    #[test]
    fn tokens_rise_among_holders_that_exclude_each_other() {
        let mut script = Script::default();
        hold(&mut script, Room::Semaphore, 1, 5, (10, 20));
        hold(&mut script, Room::Semaphore, 1, 4, (30, 40));
        assert_eq!(laws(&script), Vec::<&str>::new());
        hold(&mut script, Room::Semaphore, 2, 3, (50, 60));
        assert_eq!(laws(&script), ["L-MX-3", "L-MX-3"]);
    }

    #[test]
    fn no_holder_writes_after_its_ticket_is_gone_or_the_next_holder_wrote() {
        let stand = |room| Op::Stand { room, path: "/l".into(), data: "/data".into(), ttl: 1 };
        let story = |room, writes: &[(u64, u64)]| {
            let mut script = Script::default();
            script.begin(7, stand(room));
            script.begin(8, stand(room));
            script.fact(5, "/l/a", Kind::Created, None, Some(7));
            script.fact(6, "/l/b", Kind::Created, None, Some(8));
            script.fact(20, "/l/a", Kind::Deleted, None, Some(7));
            for (revision, token) in writes {
                script.fact(*revision, "/data", Kind::Updated, Some(*token), None);
            }
            laws(&script)
        };
        assert_eq!(story(Room::Mutex, &[(10, 5), (30, 6)]), Vec::<&str>::new());
        assert_eq!(story(Room::Mutex, &[(30, 5)]), ["L-MX-5"]);
        assert_eq!(story(Room::Mutex, &[(30, 99)]), ["L-MX-5"]);
        assert_eq!(story(Room::Latch, &[(10, 6), (11, 5)]), ["L-EL-10"]);
        assert_eq!(story(Room::Semaphore, &[(10, 6), (11, 5)]), Vec::<&str>::new());
    }
}
