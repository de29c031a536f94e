//! A double barrier for two, at which three processes enter and leave; each has another one for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::ops::Range;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::select;
use synod_core::clock;
use synod_core::error::{self, ErrorKind};
use synod_core::path::Path;
use synod_core::store::Kind;
use synod_mem::cluster::{By, Site};
use synod_recipes::{DoubleBarrier, Inside, OnLoss};

use crate::findings::Truth;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;

/// Three processes enter a double barrier for two, again and again, and leave. One of them is always too many. In between each enters
/// one of its own in the same session.
pub(super) struct DoubleBarriers;

const PARTIES: u32 = 2;
const ROUNDS: u64 = 4;

const ENTERED: &str = "two entered together";
const ALONE: &str = "a member gave up because it was alone";
const BROKEN: &str = "a member gave up because another one did";
const WAITED: &str = "a member waited for another one to leave";

/// What a call of a member returned, with the numbers of commits when it was called and when it returned.
#[derive(Clone, Debug)]
struct Returned {
    member: String,
    leave: bool,
    called: usize,
    by: usize,
}

/// A call that failed because another member gave up, and its process.
#[derive(Clone, Debug)]
struct Failed {
    process: u64,
    called: usize,
    by: usize,
}

/// What all calls returned. Clones share it.
#[derive(Clone, Debug, Default)]
struct Book(Arc<Mutex<Vec<Returned>>>, Arc<Mutex<Vec<Failed>>>);

impl Workload for DoubleBarriers {
    fn name(&self) -> &'static str {
        "double_barrier"
    }

    fn about(&self) -> &'static str {
        "three processes enter a double barrier for two, and leave, round after round"
    }

    fn laws(&self) -> &'static [&'static str] {
        &["L-DB-1", "L-DB-2", "L-DB-3", "L-DB-4"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, ENTERED, ALONE, BROKEN, WAITED]
    }

    fn unreached(&self) -> Vec<Site> {
        vec![Site::SlowReader, Site::NearTheEnd, Site::BeatsCut, Site::WallClockSet]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let book = Book::default();
        let (written, left, failed) = (book.clone(), book.clone(), book.clone());
        // Strangers would remove members.
        sim.without_strangers()
            .processes(3, move |me| work(me, written.clone()))
            .must_end("L-DB-4")
            .check("L-DB-3", |truth| Past::of(truth).check_rounds())
            .check("L-DB-1", move |truth| book.check(false, &Past::of(truth), Past::entered))
            .check("L-DB-2", move |truth| left.check(true, &Past::of(truth), Past::left))
            .check("L-DB-4", move |truth| failed.check_failures(&Past::of(truth)))
    }
}

async fn work(me: Process, book: Book) {
    let Ok(client) = me.client().await else { return };
    let parties = NonZeroU32::new(PARTIES).expect("not zero");
    let barrier = DoubleBarrier::new(&client, dir(), parties);
    let alone = format!("/alone-{}", me.name());
    let alone = Path::new(&alone).expect("it is one");
    let alone = DoubleBarrier::new(&client, alone, NonZeroU32::MIN);
    let member = Member { me, barrier, alone, book };
    for _ in 0..member.me.rounds(ROUNDS) {
        if member.me.pick(3) == 0 {
            member.is_elsewhere().await;
        }
        member.round(true).await;
        member.me.rest(member.me.ttl() / 4).await;
    }
    // L-DB-4: this begins under faults, and ends although others come, go and die. A second member keeps it company,
    // since the other processes may have come to their end.
    let last = async {
        if let Ok(inside) = member.enters().await {
            drop(member.leaves(inside).await);
        }
    };
    let company = async {
        loop {
            member.round(false).await;
            clock::sleep(member.me.ttl() / 4).await;
        }
    };
    select(pin!(last), pin!(company)).await;
}

struct Member {
    me: Process,
    barrier: DoubleBarrier,
    /// A barrier of this process alone.
    alone: DoubleBarrier,
    book: Book,
}

impl Member {
    /// Enters and leaves another barrier: what is there says nothing of this one.
    async fn is_elsewhere(&self) {
        let me = &self.me;
        let entered = me.perhaps(clock::timeout(me.ttl(), self.alone.enter())).await;
        if let Some(Ok(Ok(inside))) = entered {
            drop(me.perhaps(inside.leave()).await);
        }
    }

    /// Enters, and leaves. If it is the only member of its process, its failure is judged.
    async fn round(&self, is_only: bool) {
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
            && is_only
        {
            let (process, by) = (me.number(), me.committed());
            self.book.add_failure(Failed { process, called, by });
        }
        let Some(Ok(Ok(inside))) = entered else { return };
        self.note(&inside, called);
        me.rest(me.ttl() / 2).await;
        if me.pick(8) > 0 {
            drop(me.perhaps(self.leaves(inside)).await);
        }
    }

    async fn enters(&self) -> error::Result<Inside> {
        let called = self.me.committed();
        let inside = self.barrier.enter().await?;
        self.note(&inside, called);
        Ok(inside)
    }

    async fn leaves(&self, inside: Inside) -> error::Result<()> {
        let (member, called, since) = (name(&inside), self.me.committed(), self.me.age());
        inside.leave().await?;
        self.me.sometimes(WAITED, self.me.age() > since + self.me.ttl() / 8);
        self.book.add(Returned { member, leave: true, called, by: self.me.committed() });
        Ok(())
    }

    fn note(&self, inside: &Inside, called: usize) {
        self.me.sometimes(ENTERED, true);
        let (member, by) = (name(inside), self.me.committed());
        self.book.add(Returned { member, leave: false, called, by });
    }
}

impl Book {
    fn add(&self, returned: Returned) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(returned);
    }

    fn add_failure(&self, failed: Failed) {
        self.1.lock().unwrap_or_else(PoisonError::into_inner).push(failed);
    }

    /// Checks all that failed because another member gave up.
    fn check_failures(&self, past: &Past) -> Result<(), String> {
        let failures = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        failures.iter().try_for_each(|failed| past.failed(failed))
    }

    /// Checks all that entered, or all that left.
    fn check(
        &self,
        leave: bool,
        past: &Past,
        check: fn(&Past, &Returned) -> Result<(), String>,
    ) -> Result<(), String> {
        let book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        book.iter().filter(|one| one.leave == leave).try_for_each(|one| check(past, one))
    }
}

/// What happened at the barrier, by the numbers of commits.
#[derive(Debug, Default)]
struct Past {
    /// When the node of each member was there: at first the member itself. Later a late request had made the node again. Clients that did
    /// not see the member go count such a node, until its own client has removed it.
    there: BTreeMap<String, Vec<Range<usize>>>,
    /// When each round began, and its members.
    rounds: Vec<(usize, BTreeSet<String>)>,
    /// The commits by which members went that gave up or died, and their authors.
    given_up: Vec<(usize, By)>,
}

impl Past {
    fn of(truth: &Truth) -> Self {
        let mut past = Self::default();
        let dir = dir();
        for (at, entry) in truth.log.iter().enumerate() {
            let changes = entry.changes.iter();
            for change in changes.filter(|change| change.path.parent_str() == Some(dir.as_str())) {
                let name = change.path.name();
                if change.kind == Kind::Deleted && past.has_given_up(name) {
                    past.given_up.push((at + 1, entry.by));
                }
                // It is so after the commit.
                past.take(at + 1, name, change.kind, || {
                    let node = change.node.as_ref()?;
                    std::str::from_utf8(&node.data).ok()
                });
            }
        }
        past
    }

    /// True if a member that goes had not entered, or is a node that was made again, which not all know.
    fn has_given_up(&self, name: &str) -> bool {
        let is_again = self.there.get(name).is_some_and(|lives| lives.len() > 1);
        is_again || !self.rounds.iter().any(|(_, members)| members.contains(name))
    }

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

    /// L-DB-3: each round is of as many as make one, which were there together before it began, when no member of the round
    /// before was there any more.
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

    /// L-DB-1: there was a moment during the call when so many were there.
    fn entered(&self, call: &Returned) -> Result<(), String> {
        let Returned { member, called, by, .. } = call;
        let round = self.rounds.iter().find(|(_, members)| members.contains(member));
        let together = round.map(|(_, members)| self.together(members.iter())).unwrap_or_default();
        if together.iter().any(|it| it.start <= *by && it.end > *called) {
            return Ok(());
        }
        Err(format!("{member} entered from commit {called} to {by}, and was not joined"))
    }

    /// L-DB-4: during the call another member went that had not entered, and that its own process did not remove.
    fn failed(&self, call: &Failed) -> Result<(), String> {
        let during = |at: usize| call.called < at && at <= call.by;
        let mut others = self.given_up.iter().filter(|(_, by)| *by != By::Process(call.process));
        let has_cause = others.any(|(at, _)| during(*at));
        has_cause.then_some(()).ok_or_else(|| format!("{call:?}, and nobody gave up"))
    }

    /// L-DB-2: all that were inside with it have left, or died.
    fn left(&self, call: &Returned) -> Result<(), String> {
        let Returned { member, by, .. } = call;
        let round = self.rounds.iter().find(|(_, members)| members.contains(member));
        let mut others = round.into_iter().flat_map(|(_, members)| members);
        match others.find(|it| self.is_member_after(it, *by)) {
            Some(stays) => Err(format!("{member} left by commit {by}, and {stays} did not")),
            None => Ok(()),
        }
    }

    /// Whether the member had not left by then. A node that was made again is no member.
    fn is_member_after(&self, member: &str, at: usize) -> bool {
        self.there.get(member).is_some_and(|lives| lives[0].end > at)
    }

    /// When all of these were there at once.
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

fn name(inside: &Inside) -> String {
    inside.path().name().to_owned()
}

fn dir() -> Path {
    Path::new("/both").expect("it is one")
}
