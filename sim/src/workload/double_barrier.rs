//! Double barriers for two, at which three processes enter and leave, each with several instances
//! in one session.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::ops::Range;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cluster::Site;
use futures_util::future::{join, select};
use synod_core::clock;
use synod_core::error::{self, ErrorKind};
use synod_core::path::Path;
use synod_core::store::Kind;
use synod_recipes::barrier::{DoubleBarrier, Entered, OnLoss};

use crate::findings::Truth;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;

/// Three processes enter a double barrier for two, repeatedly, and leave. There is always one too
/// many. In between, the two instances of a process enter another barrier together, in the same
/// session.
pub(super) struct DoubleBarriers;

const PARTIES: u32 = 2;
const ROUNDS: u64 = 4;

const ENTERED: &str = "two entered together";
const ALONE: &str = "a member gave up because it was alone";
const BROKEN: &str = "a member gave up because another one did";
const WAITED: &str = "a member waited for another one to leave";
const PAIRED: &str = "two instances of one session entered together";

/// A call of a member that ended, with the numbers of commits when it was called and when it
/// returned.
#[derive(Clone, Debug)]
struct Returned {
    /// The path of the barrier.
    barrier: Path,
    /// The member of the call; for a failure, the member that withdrew.
    member: String,
    call: Call,
    called: usize,
    by: usize,
}

/// A kind of call, and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Entered,
    Left,
    /// The member did not enter, because another one withdrew.
    Failed,
}

/// All calls that ended. Clones share it.
#[derive(Clone, Debug, Default)]
struct Book(Arc<Mutex<Vec<Returned>>>);

impl Workload for DoubleBarriers {
    fn name(&self) -> &'static str {
        "double_barrier"
    }

    fn about(&self) -> &'static str {
        "three processes enter double barriers for two, and leave, round after round"
    }

    fn laws(&self) -> &'static [&'static str] {
        &["L-DB-1", "L-DB-2", "L-DB-3", "L-DB-4"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, ENTERED, ALONE, BROKEN, WAITED, PAIRED]
    }

    fn unreached(&self) -> Vec<Site> {
        vec![Site::SlowReader, Site::NearTheEnd, Site::BeatsCut, Site::WallClockSet]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let book = Book::default();
        let [written, left, failed] = [(); 3].map(|()| book.clone());
        // Strangers would remove members.
        sim.without_strangers()
            .processes(3, move |me| work(me, written.clone()))
            .must_end("L-DB-4")
            .check("L-DB-3", |truth| barriers(truth).values().try_for_each(Past::check_rounds))
            .check("L-DB-1", move |truth| book.check(Call::Entered, truth, Past::entered))
            .check("L-DB-2", move |truth| left.check(Call::Left, truth, Past::left))
            .check(GIVEN_UP, move |truth| failed.check(Call::Failed, truth, Past::failed))
    }
}

const GIVEN_UP: &str = "a member fails to enter only if another one went that had not entered";

async fn work(me: Process, book: Book) {
    let Ok(client) = me.client().await else { return };
    let barrier = |dir: &str| {
        let path = Path::new(dir).expect("it is one");
        let parties = NonZeroU32::new(PARTIES).expect("not zero");
        let barrier = DoubleBarrier::new(&client, path.clone(), parties);
        Member { me: me.clone(), barrier, path, book: book.clone() }
    };
    // Two instances of each: the state of one barrier must not affect the other.
    let [one, two] = [(); 2].map(|()| barrier("/both"));
    let own = format!("/both-of-{}", me.name());
    let [left, right] = [(); 2].map(|()| barrier(&own));
    for _ in 0..me.rounds(ROUNDS) {
        match me.pick(6) {
            0 => {
                let (left, right) = Box::pin(join(left.round(), right.round())).await;
                me.sometimes(PAIRED, left && right);
            }
            1 | 2 => drop(two.round().await),
            _ => drop(one.round().await),
        }
        me.rest(me.ttl() / 4).await;
    }
    // L-DB-4: this begins under faults, and ends although other members arrive, leave and crash. A
    // second member enters with it, because the other processes may have ended.
    let last = async {
        if let Ok(inside) = one.enters().await {
            drop(one.leaves(inside).await);
        }
    };
    let company = async {
        loop {
            two.round().await;
            clock::sleep(me.ttl() / 4).await;
        }
    };
    select(pin!(last), pin!(company)).await;
}

/// An instance of a barrier, as a process uses it.
struct Member {
    me: Process,
    barrier: DoubleBarrier,
    path: Path,
    book: Book,
}

impl Member {
    /// Enters, and leaves. Returns `true` if it entered.
    async fn round(&self) -> bool {
        let me = &self.me;
        let strict = me.pick(4) == 0;
        let on_loss = if strict { OnLoss::Fail } else { OnLoss::Wait };
        let barrier = self.barrier.clone().on_loss(on_loss);
        let called = me.committed();
        let entered = me.perhaps(clock::timeout(me.ttl() * 2, barrier.enter())).await;
        me.sometimes(ALONE, matches!(entered, Some(Err(_))));
        me.sometimes(BROKEN, strict && matches!(entered, Some(Ok(Err(_)))));
        if let Some(Ok(Err(error))) = &entered
            && error.kind() == ErrorKind::Refused
            && let Some(gone) = named_in(&error.to_string())
        {
            me.always("a member that waits for another one does not give up", strict);
            self.note(Call::Failed, gone, called);
        }
        let Some(Ok(Ok(inside))) = entered else { return false };
        self.record_entry(&inside, called);
        me.rest(me.ttl() / 2).await;
        if me.pick(8) > 0 {
            drop(me.perhaps(self.leaves(inside)).await);
        }
        true
    }

    async fn enters(&self) -> error::Result<Entered> {
        let called = self.me.committed();
        let inside = self.barrier.enter().await?;
        self.record_entry(&inside, called);
        Ok(inside)
    }

    async fn leaves(&self, inside: Entered) -> error::Result<()> {
        let (member, called, since) = (name(&inside), self.me.committed(), self.me.age());
        inside.leave().await?;
        self.me.sometimes(WAITED, self.me.age() > since + self.me.ttl() / 8);
        self.note(Call::Left, member, called);
        Ok(())
    }

    fn record_entry(&self, inside: &Entered, called: usize) {
        self.me.sometimes(ENTERED, true);
        self.note(Call::Entered, name(inside), called);
    }

    fn note(&self, call: Call, member: String, called: usize) {
        let (barrier, by) = (self.path.clone(), self.me.committed());
        let returned = Returned { barrier, member, call, called, by };
        self.book.0.lock().unwrap_or_else(PoisonError::into_inner).push(returned);
    }
}

impl Book {
    /// Checks all calls of a kind.
    fn check(
        &self,
        call: Call,
        truth: &Truth,
        check: fn(&Past, &Returned) -> Result<(), String>,
    ) -> Result<(), String> {
        let barriers = barriers(truth);
        let book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut calls = book.iter().filter(|one| one.call == call);
        calls.try_for_each(|one| match barriers.get(&one.barrier) {
            Some(past) => check(past, one),
            None => Err(format!("{one:?}, and nobody was ever there")),
        })
    }
}

/// The history of each barrier.
fn barriers(truth: &Truth) -> BTreeMap<Path, Past> {
    let mut barriers: BTreeMap<Path, Past> = BTreeMap::new();
    for (at, entry) in truth.log.iter().enumerate() {
        for change in &entry.changes {
            let Some(barrier) = change.path.parent() else { continue };
            // This is the state after the commit.
            barriers.entry(barrier).or_default().take(
                at + 1,
                change.path.name(),
                change.kind,
                || {
                    let node = change.node.as_ref()?;
                    std::str::from_utf8(&node.data).ok()
                },
            );
        }
    }
    barriers
}

/// The history of a barrier, by the numbers of commits.
#[derive(Debug, Default)]
struct Past {
    /// The times during which the node of each member existed: first as the member itself. Later, a
    /// delayed request may have created the node again. Clients that were not notified of the
    /// removal count such a node until its own client has removed it.
    there: BTreeMap<String, Vec<Range<usize>>>,
    /// The beginning of each round, and its members.
    rounds: Vec<(usize, BTreeSet<String>)>,
}

impl Past {
    fn take<'a>(
        &mut self,
        at: usize,
        name: &str,
        kind: Kind,
        data: impl FnOnce() -> Option<&'a str>,
    ) {
        match kind {
            Kind::Deleted => {
                let lives = self.there.get_mut(name).into_iter().flatten();
                lives.filter(|it| it.end == usize::MAX).for_each(|it| it.end = at);
            }
            _ if name == "ready" => {
                let members = data().unwrap_or_default().lines().skip(1).map(str::to_owned);
                self.rounds.push((at, members.collect()));
            }
            Kind::Created if name.starts_with("member-") => {
                self.there.entry(name.to_owned()).or_default().push(at..usize::MAX);
            }
            _ => {}
        }
    }

    /// L-DB-3: each round has the required number of members, which were present together before it
    /// began, when every member of the previous round had left.
    fn check_rounds(&self) -> Result<(), String> {
        let mut before: &BTreeSet<String> = &BTreeSet::new();
        for (began, members) in &self.rounds {
            let together = self.together(members.iter());
            let is_right = together.iter().any(|it| it.start <= *began);
            if members.len() != PARTIES as usize || !is_right {
                return Err(format!("the round at commit {began} is of {members:?}"));
            }
            if let Some(stays) = before.iter().find(|it| self.is_member_after(it, *began)) {
                return Err(format!("a round began at commit {began}, and {stays} was inside"));
            }
            before = members;
        }
        Ok(())
    }

    /// L-DB-1: at some time during the call all members of the round were present.
    fn entered(&self, call: &Returned) -> Result<(), String> {
        let Returned { member, called, by, .. } = call;
        let round = self.rounds.iter().find(|(_, members)| members.contains(member));
        let together = round.map(|(_, members)| self.together(members.iter())).unwrap_or_default();
        if together.iter().any(|it| it.start <= *by && it.end > *called) {
            return Ok(());
        }
        Err(format!("{member} entered from commit {called} to {by}, and was not joined"))
    }

    /// L-DB-2: all other members of its round have left or crashed.
    fn left(&self, call: &Returned) -> Result<(), String> {
        let Returned { member, by, .. } = call;
        let round = self.rounds.iter().find(|(_, members)| members.contains(member));
        let mut others = round.into_iter().flat_map(|(_, members)| members);
        match others.find(|it| self.is_member_after(it, *by)) {
            Some(stays) => Err(format!("{member} left by commit {by}, and {stays} did not")),
            None => Ok(()),
        }
    }

    /// The member left during the call without having entered. If its whole round was over before
    /// the call returned, a member that waits for the next round cannot know that: a store may
    /// merge the events of the begin and the end of a round.
    fn failed(&self, call: &Returned) -> Result<(), String> {
        let Returned { member, called, by, .. } = call;
        let lives = self.there.get(member).map(Vec::as_slice).unwrap_or_default();
        let went = |life: &Range<usize>| *called < life.end && life.end <= *by;
        if !lives.iter().any(went) {
            return Err(format!("{call:?}, and {member} did not go: {lives:?}"));
        }
        let round = self.rounds.iter().find(|(_, members)| members.contains(member));
        let Some((began, members)) = round else { return Ok(()) };
        let is_over = !members.iter().any(|member| self.is_member_after(member, *by));
        if lives.len() > 1 || *called < *began && is_over {
            return Ok(());
        }
        Err(format!("{call:?}, and {member} had entered at commit {began}"))
    }

    /// Returns `true` if the member had not left by then. A node that was created again is not a
    /// member.
    fn is_member_after(&self, member: &str, at: usize) -> bool {
        self.there.get(member).is_some_and(|lives| lives[0].end > at)
    }

    /// The times at which all these members were present.
    fn together<'a>(&self, members: impl Iterator<Item = &'a String>) -> Vec<Range<usize>> {
        let always = 0..usize::MAX;
        members.fold(vec![always], |together, member| {
            let lives = self.there.get(member).into_iter().flatten();
            let both = |a: &Range<usize>, b: &Range<usize>| a.start.max(b.start)..a.end.min(b.end);
            let all = lives.flat_map(|life| together.iter().map(move |it| both(it, life)));
            all.filter(|it| !it.is_empty()).collect()
        })
    }
}

fn name(inside: &Entered) -> String {
    inside.path().name().to_owned()
}

/// The member that an error names.
fn named_in(error: &str) -> Option<String> {
    let mut words = error.split(|it: char| !it.is_ascii_alphanumeric() && it != '-' && it != '_');
    words.find(|word| word.starts_with("member-")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges a failure of a call between two commits, which names the member `a`.
    fn may_fail(past: &Past, called: usize, by: usize) -> bool {
        let (barrier, member, call) = (Path::root(), "a".to_owned(), Call::Failed);
        past.failed(&Returned { barrier, member, call, called, by }).is_ok()
    }

    /// The history of two members, with the times during which the first existed, and the beginning
    /// of their round.
    fn past(a: &[Range<usize>], b: Range<usize>, began: Option<usize>) -> Past {
        let there = [("a".to_owned(), a.to_vec()), ("b".to_owned(), vec![b])];
        let members = ["a", "b"].map(str::to_owned).into();
        Past {
            there: there.into(),
            rounds: began.map(|began| (began, members)).into_iter().collect(),
        }
    }

    #[test]
    fn a_member_fails_only_if_another_one_gave_up_during_its_call() {
        let gave_up = past(std::slice::from_ref(&(3..7)), 4..9, None);
        assert!(may_fail(&gave_up, 2, 7) && may_fail(&gave_up, 6, 9));
        assert!(!may_fail(&gave_up, 7, 9), "it went before");
        assert!(!may_fail(&gave_up, 2, 6), "it was there until then");
        assert!(!may_fail(&Past::default(), 2, 6), "it was never there");
    }

    #[test]
    fn a_member_that_leaves_its_round_has_not_given_up() {
        let left = past(std::slice::from_ref(&(3..7)), 4..9, Some(5));
        assert!(!may_fail(&left, 6, 8), "its round had begun before the call");
        assert!(!may_fail(&left, 2, 8), "the other one is inside");
        assert!(may_fail(&left, 2, 9), "the reports of the whole round may be joined");
        assert!(
            may_fail(&past(&[3..7, 8..10], 4..12, Some(5)), 9, 11),
            "a late request made it again"
        );
    }

    #[test]
    fn an_error_names_the_member_that_gave_up() {
        let error =
            "entering a barrier: another member gave up before all were there: member-1a-0_2";
        assert_eq!(named_in(error).as_deref(), Some("member-1a-0_2"));
        assert_eq!(named_in("nobody is named"), None);
    }
}
