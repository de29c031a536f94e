use super::*;
use crate::check::record::tests::Script;
use crate::clients::deed::Part;
use crate::clients::entry::{Op, What};

const FINE: [&str; 0] = [];

/// A record of one crew, with a task whose id is 7.
struct Story(Script, u64);

use Kind::{Created, Deleted, Updated};

impl Story {
    fn new() -> Self {
        let mut script = Script::default();
        let path = "/c".to_owned();
        script.begin(1, Op::Serve { part: Part::Member, path, first: 0, count: 0, ttl: 1 });
        Self(script, 4)
    }

    /// The task waits, and there are two workers.
    fn submitted() -> Self {
        let both = Self::new().step(&[(Created, "workers/a")]).step(&[(Created, "workers/b")]);
        let stored = both.step(&[(Created, "tasks/7"), (Created, "todo/7")]);
        stored.says(Deed::Submitted { task: 7, effect: Effect::Done })
    }

    /// A worker has the task, and runs it.
    fn assigned() -> Self {
        let has = Self::submitted().step(&[(Deleted, "todo/7"), (Created, "assigned/a/7")]);
        has.says(Deed::Runs { task: 7, run: 70 })
    }

    /// The task has ended.
    fn ended() -> Self {
        Self::assigned().step(&[
            (Deleted, "assigned/a/7"),
            (Updated, "tasks/7"),
            (Created, "done/7"),
        ])
    }

    /// Writes these facts in one transaction.
    fn step(mut self, changes: &[(Kind, &str)]) -> Self {
        self.1 += 1;
        for (kind, path) in changes {
            self.0.fact(self.1, &format!("/c/{path}"), *kind, None, None);
        }
        self
    }

    fn says(mut self, deed: Deed) -> Self {
        self.0.say(1, None, What::Deed { deed });
        self
    }

    fn saw(self, run: Option<Value>) -> Self {
        self.says(Deed::Saw { task: 7, run })
    }

    /// The finished task is removed.
    fn removed(self) -> Self {
        self.step(&[(Deleted, "done/7"), (Deleted, "tasks/7")])
    }

    fn laws(self) -> Vec<&'static str> {
        check(&self.0.record()).iter().map(|breach| breach.law).collect()
    }
}

#[test]
fn a_task_with_one_result_that_was_removed_is_fine() {
    assert_eq!(Story::ended().saw(Some(70)).saw(Some(70)).removed().laws(), FINE);
    assert_eq!(Story::new().laws(), FINE);
}

#[test]
fn an_attempt_that_failed_and_a_worker_that_was_lost_are_followed_by_another() {
    let failed = [(Deleted, "assigned/a/7"), (Updated, "tasks/7"), (Created, "todo/7")];
    let again = Story::assigned().step(&failed);
    let again = again.step(&[(Deleted, "todo/7"), (Created, "assigned/b/7")]);
    let lost = again.step(&[(Deleted, "workers/b")]);
    let lost = lost.step(&[(Deleted, "assigned/b/7"), (Created, "todo/7")]);
    let other = lost.step(&[(Deleted, "todo/7"), (Created, "assigned/a/7")]);
    let ended = [(Deleted, "assigned/a/7"), (Updated, "tasks/7"), (Created, "done/7")];
    assert_eq!(other.step(&ended).saw(Some(70)).removed().laws(), FINE);
}

#[test]
fn a_task_that_was_submitted_ends() {
    let forgotten = Story::new().says(Deed::Submitted { task: 7, effect: Effect::Done });
    assert_eq!(forgotten.laws(), ["L-MW-1"]);
    let failed = Story::new().says(Deed::Submitted { task: 7, effect: Effect::None });
    assert_eq!(failed.laws(), FINE);
    assert_eq!(Story::submitted().laws(), ["L-MW-9", "L-MW-9", "L-MW-1"]);
}

#[test]
fn all_see_the_result_of_one_attempt() {
    let seen = |a, b| {
        let ran = Story::ended().says(Deed::Runs { task: 7, run: 71 });
        let ran = ran.says(Deed::Runs { task: 8, run: 80 });
        ran.saw(a).saw(b).removed().laws()
    };
    assert_eq!(seen(Some(71), Some(71)), FINE);
    assert_eq!(seen(Some(70), Some(71)), ["L-MW-1"]);
    assert_eq!(seen(Some(80), Some(80)), ["L-MW-7"], "it is one of another task");
    assert_eq!(seen(None, None), ["L-MW-7"]);
}

#[test]
fn a_result_is_of_the_worker_that_has_the_task() {
    let unguarded = Story::submitted().step(&[(Updated, "tasks/7"), (Created, "done/7")]);
    let unguarded = unguarded.step(&[(Deleted, "todo/7"), (Created, "assigned/a/7")]);
    let dropped = unguarded.step(&[(Deleted, "assigned/a/7")]).removed();
    assert_eq!(dropped.laws(), ["L-MW-2", "L-MW-2"]);
    let late = Story::ended().step(&[(Updated, "tasks/7")]);
    assert_eq!(late.removed().laws(), ["L-MW-2"]);
}

#[test]
fn a_task_ends_once() {
    let again = Story::ended().step(&[(Deleted, "done/7"), (Created, "todo/7")]);
    let again = again.step(&[(Deleted, "todo/7"), (Created, "assigned/b/7")]);
    let ended = [(Deleted, "assigned/b/7"), (Updated, "tasks/7"), (Created, "done/7")];
    assert_eq!(again.step(&ended).removed().laws(), ["L-MW-1"]);
}

#[test]
fn a_task_is_in_one_place_at_every_moment() {
    let two_calls = Story::submitted().step(&[(Deleted, "todo/7")]);
    let two_calls = two_calls.step(&[(Created, "assigned/a/7")]);
    let ended = [(Deleted, "assigned/a/7"), (Updated, "tasks/7"), (Created, "done/7")];
    assert_eq!(two_calls.step(&ended).removed().laws(), ["L-MW-4", "L-MW-4"]);
}

#[test]
fn a_living_worker_keeps_its_task() {
    let taken = Story::assigned().step(&[(Deleted, "assigned/a/7"), (Created, "todo/7")]);
    let taken = taken.step(&[(Deleted, "todo/7"), (Created, "assigned/b/7")]);
    let ended = [(Deleted, "assigned/b/7"), (Updated, "tasks/7"), (Created, "done/7")];
    assert_eq!(taken.step(&ended).removed().laws(), ["L-MW-3"]);
    let both = Story::assigned().step(&[(Created, "todo/7")]);
    let both = both.step(&[(Deleted, "todo/7"), (Created, "assigned/b/7")]);
    let both = both.step(&ended).step(&[(Deleted, "assigned/a/7")]);
    assert_eq!(both.removed().laws(), ["L-MW-3"]);
}

#[test]
fn nothing_is_left_of_a_finished_task() {
    assert_eq!(Story::ended().laws(), ["L-MW-9", "L-MW-9"], "its node, and that it is over");
    let late = Story::ended().removed().step(&[(Created, "assigned/b/7")]);
    assert_eq!(late.laws(), ["L-MW-4", "L-MW-9"]);
}
