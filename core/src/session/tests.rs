//! The promises of a session. The last test shows that each of them can be broken.

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::clock::{self, sleep, timeout};

use crate::error::{Effect, ErrorKind};
use crate::path::Path;
use crate::random::Random;
use crate::retry::{Backoff, Retry};
use crate::session::Session;
use crate::session::call_context::Tuning;
use crate::session::script::{Fault, Script, idle};
use crate::store::{
    Backend, Expect, Lifetime, OpResult, Outcome, Query, SessionOptions, Status, Txn,
};

const LIMIT: Duration = Duration::from_secs(5);
const MOMENT: Duration = Duration::from_millis(10);
pub(super) const LONG: Duration = Duration::from_secs(60);

pub(super) fn path(text: &str) -> Path {
    Path::new(text).expect("valid")
}

async fn tuned(script: &Script, timeout: Duration, retry: Retry) -> Session {
    let store = script.open(&SessionOptions::default()).await.expect("opens");
    Session::start(store, Arc::new(Tuning { timeout, retry, random: Random::seeded(7) }))
}

pub(super) async fn opened() -> (Script, Session) {
    let script = Script::default();
    let retry = Retry::Forever { backoff: Backoff::default().jitter(0.0) };
    let session = tuned(&script, LIMIT, retry).await;
    (script, session)
}

fn created(outcome: Outcome<OpResult>) -> OpResult {
    outcome.ok().expect("nothing is in the way")
}

pub(super) async fn draw(session: &Session) -> OpResult {
    let drawn = session.create_sequential(&path("/q/t-"), "", Lifetime::Session).await;
    created(drawn.expect("reachable in the end"))
}

#[tokio::test(start_paused = true)]
async fn a_create_whose_answer_was_lost_is_found_again() {
    let (script, session) = opened().await;
    script.commits([Fault::ReplyLost]);

    let done = draw(&session).await;

    assert_eq!(script.nodes(), [done.path.to_string()]);
    assert_eq!(script.count("create"), 1);
    assert_eq!(done.owner(), Some(session.info().id));
    assert!(done.sequence.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_ticket_proves_the_other_writes_of_its_transaction() {
    let (script, session) = opened().await;
    script.put(&path("/a"), None);
    let ticket = session.unique(&path("/q/t-")).expect("short");
    let txn = Txn::new().set(path("/a"), "b", Expect::Any).create_sequential(
        ticket,
        "",
        Lifetime::Session,
    );
    script.commits([Fault::ReplyLost]);

    let commit = session.commit(txn.clone()).await.expect("found").ok().expect("free");

    assert_eq!((script.count("set"), script.nodes().len()), (1, 2));
    assert_eq!((commit.results.len(), commit.results[1].owner()), (2, Some(session.info().id)));
}

#[tokio::test(start_paused = true)]
async fn a_create_that_is_not_found_is_repeated_under_the_same_path() {
    let (script, session) = opened().await;
    script.commits([Fault::RequestLost, Fault::RequestLost]);

    draw(&session).await;

    let log = script.log();
    let creates: Vec<_> = log.iter().filter(|line| line.starts_with("create")).collect();
    assert_eq!(creates.len(), 3);
    assert!(creates.iter().all(|create| *create == creates[0]), "{creates:?}");
    assert_eq!(script.nodes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_first_of_two_sendings_is_removed_however_late_it_comes() {
    let ttl = SessionOptions::default().ttl;
    // While no search succeeds; while an old search is in flight; once the store works again.
    for reads in [
        vec![Fault::None, Fault::None, Fault::SlowReply(ttl * 3 / 4), Fault::Refused],
        vec![Fault::None, Fault::None, Fault::Stale(ttl)],
        [vec![Fault::None; 2], vec![Fault::Refused; 12]].concat(),
    ] {
        let (script, session) = opened().await;
        script.commits([Fault::Late(ttl * 3 / 4)]);
        script.reads(reads.clone());

        let done = draw(&session).await;
        session.remove(&done).await.expect("reachable");
        sleep(LONG * 3).await;

        assert_eq!(script.count("create"), 2);
        assert_eq!(script.nodes().len(), 0, "{reads:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_of_two_sendings_is_removed_though_no_look_finds_it() {
    let (script, session) = opened().await;
    script.commits([Fault::RequestLost]);
    let ticket = session.unique(&path("/q/t-")).expect("short");
    let txn = Txn::new().create_sequential(ticket.clone(), "", Lifetime::Session);
    let commit = session.commit(txn).await.expect("reachable").ok().expect("free");
    session.remove(&commit.results[0]).await.expect("reachable");

    for held in [5, 50] {
        sleep(SessionOptions::default().ttl * held).await;
        script.put(&ticket, Some(session.info().id.get()));
        script.change(&ticket);
        sleep(LONG).await;
        assert_eq!(script.nodes().len(), 0, "held for {held} times the time to live");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_of_another_session_is_not_adopted() {
    let (script, session) = opened().await;
    let ticket = session.unique(&path("/q/t-")).expect("short");
    script.put(&path(&format!("{ticket}0000000000")), Some(99));
    script.commits([Fault::RequestLost]);

    let txn = Txn::new().create_sequential(ticket, "", Lifetime::Session);
    let commit = session.commit(txn).await.expect("reachable").ok().expect("free");

    assert_eq!(commit.results[0].owner(), Some(session.info().id));
}

#[tokio::test(start_paused = true)]
async fn the_own_node_is_looked_for_as_of_now() {
    let (script, session) = opened().await;
    script.hide_from_local_reads();
    script.commits([Fault::ReplyLost]);

    draw(&session).await;

    assert_eq!(script.nodes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_create_that_arrived_late_is_recognized_as_its_own() {
    let (script, session) = opened().await;
    script.commits([Fault::Late(MOMENT), Fault::Exists]);

    let done = draw(&session).await;

    assert_eq!(script.nodes(), [done.path.to_string()]);
}

#[tokio::test(start_paused = true)]
async fn a_set_that_may_have_happened_is_not_repeated() {
    let (script, session) = opened().await;
    script.put(&path("/a"), None);
    script.commits([Fault::ReplyLost]);

    let set = session.commit(Txn::new().set(path("/a"), "b", Expect::Any)).await;

    let error = set.expect_err("the effect is unknown");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::Unknown));
    assert_eq!(error.path(), Some(&path("/a")));
    assert_eq!(script.count("set"), 1);
}

#[tokio::test(start_paused = true)]
async fn what_certainly_did_not_happen_is_repeated() {
    let (script, session) = opened().await;
    script.put(&path("/a"), None);
    script.commits([Fault::Refused, Fault::Refused]);
    script.reads([Fault::Refused, Fault::Refused, Fault::Refused]);

    let set = session.commit(Txn::new().set(path("/a"), "b", Expect::Any)).await;
    let view = session.read(Query::node(path("/a"))).await.expect("reachable in the end");

    assert!(set.expect("reachable in the end").is_committed());
    assert_eq!(view.node().map(|node| &node.data[..]), Some(&b"b"[..]));
    assert_eq!((script.count("set"), script.count("read")), (3, 4));
}

#[tokio::test(start_paused = true)]
async fn a_policy_ends_the_repetitions() {
    let script = Script::default();
    let twice = Retry::times(NonZeroU32::new(2).expect("not zero"));
    let session = tuned(&script, LIMIT, twice).await;
    script.reads([Fault::Refused; 9]);
    script.commits([Fault::Refused; 9]);

    let read = session.read(Query::node(path("/a"))).await;
    let drawn = session.create_sequential(&path("/t-"), "", Lifetime::Session).await;

    assert_eq!(read.expect_err("refused").kind(), ErrorKind::Unreachable);
    assert_eq!(drawn.expect_err("refused").effect(), Effect::None);
    assert_eq!((script.count("read"), script.count("create")), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_worth_repeating_is_not_repeated() {
    let (script, session) = opened().await;
    script.reads([Fault::Denied]);
    script.commits([Fault::Denied]);

    let read = session.read(Query::node(path("/a"))).await;
    let drawn = session.create_sequential(&path("/t-"), "", Lifetime::Session).await;

    assert_eq!(read.expect_err("denied").kind(), ErrorKind::Denied);
    assert_eq!(drawn.expect_err("denied").kind(), ErrorKind::Denied);
    assert_eq!((script.count("read"), script.count("create")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_create_leaves_no_node() {
    for plain in [true, false] {
        for lifetime in [Lifetime::Session, Lifetime::Persistent] {
            let (script, session) = opened().await;
            script.commits([Fault::SlowReply(Duration::from_secs(1))]);
            let txn = if plain {
                Txn::new().create(path("/a"), "", lifetime)
            } else {
                Txn::new().create_sequential(path("/a-me-"), "", lifetime)
            };

            assert!(timeout(MOMENT, session.commit(txn)).await.is_err());
            assert_eq!(script.nodes().len(), 1);
            sleep(LONG).await;

            assert_eq!(script.nodes().len(), 0, "plain {plain}, {lifetime:?}");
            assert!(!session.is_lost());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_create_is_not_repeated() {
    let (script, session) = opened().await;
    script.commits([Fault::RequestLost]);
    let prefix = path("/q/t-");

    let draw = session.create_sequential(&prefix, "", Lifetime::Session);
    assert!(timeout(MOMENT, draw).await.is_err());
    sleep(LONG).await;

    assert_eq!((script.nodes().len(), script.count("create")), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_write_is_driven_to_its_end() {
    let (script, session) = opened().await;
    script.put(&path("/a"), None);
    script.commits([Fault::SlowRequest(Duration::from_secs(1))]);

    let set = session.commit(Txn::new().set(path("/a"), "b", Expect::Any));
    assert!(timeout(MOMENT, set).await.is_err());
    sleep(LONG).await;

    let view = session.read(Query::node(path("/a"))).await.expect("reachable");
    assert_eq!(view.node().map(|node| &node.data[..]), Some(&b"b"[..]));
}

/// Polls a future `polls` times and drops it.
async fn polled(polls: usize, call: impl Future) -> bool {
    let mut call = pin!(call);
    let mut left = polls;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        call.as_mut().poll(cx).map(|_| true)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_create_dropped_at_any_await_leaves_no_node() {
    let slow = Duration::from_millis(3);
    let tables = [
        vec![Fault::SlowReply(slow)],
        vec![Fault::SlowRequest(slow)],
        vec![Fault::ReplyLost],
        vec![Fault::Refused, Fault::ReplyLost],
        vec![Fault::RequestLost, Fault::SlowReply(slow)],
        vec![Fault::Late(Duration::from_secs(2)), Fault::SlowReply(slow)],
        vec![Fault::Late(slow), Fault::RequestLost, Fault::Exists],
    ];
    let mut drops = 0;
    for faults in tables {
        for polls in 1.. {
            let (script, session) = opened().await;
            script.commits(faults.clone());
            script.reads([Fault::SlowReply(slow), Fault::Refused, Fault::SlowReply(slow)]);
            let prefix = path("/q/t-");
            let call = session.create_sequential(&prefix, "", Lifetime::Persistent);
            if polled(polls, call).await {
                break;
            }
            drops += 1;
            sleep(LONG).await;
            assert_eq!(script.nodes().len(), 0, "{faults:?} dropped after {polls} polls");
        }
    }
    assert!(drops > 10, "the script never pauses: {drops}");
}

#[tokio::test(start_paused = true)]
async fn one_deadline_covers_all_repetitions() {
    let (script, session) = opened().await;
    script.reads([Fault::Refused; 200]);
    script.commits([Fault::Refused; 200]);

    let started = clock::now();
    let read = session.read(Query::node(path("/a"))).await.expect_err("refused");
    assert_eq!(clock::elapsed(started), LIMIT);
    assert_eq!(read.kind(), ErrorKind::Unreachable);
    assert!(read.to_string().contains("no answer within 5s"), "{read}");

    let started = clock::now();
    let txn = Txn::new().create(path("/a"), "", Lifetime::Session);
    let write = session.commit(txn).await.expect_err("refused");
    assert_eq!(clock::elapsed(started), LIMIT);
    assert_eq!((write.kind(), write.effect()), (ErrorKind::Unreachable, Effect::None));
}

#[tokio::test(start_paused = true)]
async fn a_call_in_a_suspended_session_reports_the_suspension() {
    let (script, session) = opened().await;
    script.reads([Fault::Refused; 400]);
    script.commits([Fault::Refused; 400]);
    let read = || async { session.read(Query::node(path("/a"))).await.expect_err("refused") };
    assert!(!read().await.to_string().contains("suspended"));

    script.set_status(1, Status::Suspended { until: clock::now() + 10 * LIMIT });
    let set = Txn::new().set(path("/a"), "x", Expect::Any);
    let write = session.commit(set).await.expect_err("refused");
    for error in [read().await, write] {
        let text = error.to_string();
        assert!(text.contains("no answer within 5s; the session is suspended"), "{text}");
        assert!(text.contains("are the servers running"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_not_answered_may_have_happened() {
    let (script, session) = opened().await;
    script.commits([Fault::SlowReply(LIMIT * 2), Fault::SlowReply(LIMIT * 2)]);

    let drawn = session.create_sequential(&path("/q/t-"), "", Lifetime::Persistent).await;
    let plain = session.commit(Txn::new().create(path("/a"), "", Lifetime::Persistent)).await;
    sleep(LONG).await;

    assert_eq!(drawn.expect_err("late").effect(), Effect::Unknown);
    assert_eq!(plain.expect_err("late").effect(), Effect::Unknown);
    // The caller can read the plain node by its name; the other node is removed.
    assert_eq!(script.nodes(), ["/a"]);
}

#[tokio::test(start_paused = true)]
async fn no_deadline_overflows() {
    let script = Script::default();
    let session = tuned(&script, Duration::MAX, Retry::until_elapsed(Duration::MAX)).await;
    script.reads([Fault::Refused]);
    script.commits([Fault::Refused]);

    assert!(session.read(Query::node(path("/a"))).await.is_ok());
    draw(&session).await;
    session.close().await.expect("reachable");
}

#[tokio::test(start_paused = true)]
async fn a_lost_session_stays_lost() {
    let (script, session) = opened().await;
    let status = session.status();
    let alive = *status.borrow();
    script.answer_lost_sessions();

    script.lose(1);
    assert!(session.is_lost());
    script.set_status(1, alive);

    assert!(session.is_lost() && !session.is_certain());
    assert!(status.borrow().is_lost());
    let read = session.read(Query::node(path("/a"))).await;
    let write = session.commit(Txn::new().create(path("/a"), "", Lifetime::Persistent)).await;
    assert_eq!(read.expect_err("lost").kind(), ErrorKind::SessionLost);
    let write = write.expect_err("lost");
    assert_eq!((write.kind(), write.effect()), (ErrorKind::SessionLost, Effect::None));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_the_loss_is_none() {
    let (script, session) = opened().await;
    script.answer_lost_sessions();
    script.reads([Fault::SlowReply(MOMENT)]);
    script.commits([Fault::SlowReply(MOMENT)]);

    // The session is lost at the instant at which the answers are due, just before they arrive.
    let lose = async {
        sleep(MOMENT).await;
        script.lose(1);
    };
    let txn = Txn::new().create(path("/a"), "", Lifetime::Persistent);
    let (read, write) = (session.read(Query::node(path("/a"))), session.commit(txn));
    let ((), read, write) = futures_util::future::join3(lose, read, write).await;

    assert_eq!(read.expect_err("lost").kind(), ErrorKind::SessionLost);
    let write = write.expect_err("lost");
    assert_eq!((write.kind(), write.effect()), (ErrorKind::SessionLost, Effect::Unknown));
}

#[tokio::test(start_paused = true)]
async fn certainty_ends_by_itself() {
    let (_script, session) = opened().await;
    assert!(session.is_certain());

    sleep(SessionOptions::default().ttl).await;

    assert!(!session.is_certain());
    assert!(!session.is_lost(), "no loss was reported");
}

#[tokio::test(start_paused = true)]
async fn a_pending_call_ends_with_its_session() {
    let (script, session) = opened().await;
    script.reads([Fault::Silence]);
    script.commits([Fault::Silence]);
    let started = clock::now();

    let lose = async {
        sleep(MOMENT).await;
        script.lose(1);
        session.lost().await
    };
    let (read, drawn, _why) = futures_util::future::join3(
        session.read(Query::node(path("/a"))),
        session.create_sequential(&path("/t-"), "", Lifetime::Session),
        lose,
    )
    .await;

    assert_eq!(clock::elapsed(started), MOMENT);
    assert_eq!(read.expect_err("lost").kind(), ErrorKind::SessionLost);
    assert_eq!(drawn.expect_err("lost").kind(), ErrorKind::SessionLost);
}

#[tokio::test(start_paused = true)]
async fn removing_takes_one_request_and_does_not_give_up() {
    let (script, session) = opened().await;
    let done = draw(&session).await;
    session.remove(&done).await.expect("reachable");
    assert_eq!((script.count("delete"), script.count("read")), (1, 0));

    let done = draw(&session).await;
    script.commits([Fault::ReplyLost, Fault::Refused, Fault::RequestLost]);
    session.remove(&done).await.expect("reachable in the end");
    assert_eq!(script.nodes().len(), 0);

    session.remove_in_background(&draw(&session).await);
    sleep(MOMENT).await;
    assert_eq!((script.nodes().len(), script.count("read")), (0, 0));

    let done = draw(&session).await;
    script.commits([Fault::Refused; 200]);
    let error = session.remove(&done).await.expect_err("unreachable");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::Unknown));
    assert_eq!(script.nodes().len(), 1);
    sleep(LONG * 60).await;
    assert_eq!(script.nodes().len(), 0, "the removal ended");
}

#[tokio::test(start_paused = true)]
async fn only_the_own_incarnation_is_discarded() {
    let (script, session) = opened().await;
    let created = session.commit(Txn::new().create(path("/a"), "", Lifetime::Session)).await;
    let done = created.expect("reachable").ok().expect("free").results.remove(0);
    script.take(&path("/a"));
    script.put(&path("/a"), Some(99));

    session.remove_incarnation_in_background(path("/a"), done.stat.expect("reported").created);
    session.remove(&done).await.expect("it is gone");
    sleep(LONG).await;
    assert_eq!(script.nodes(), ["/a"]);

    script.take(&path("/a"));
    let stat = script.put(&path("/a"), Some(1));
    script.reads([Fault::Refused, Fault::None, Fault::Refused]);
    script.commits([Fault::RequestLost, Fault::Refused]);
    session.remove_incarnation_in_background(path("/a"), stat.created);
    sleep(LONG).await;
    assert_eq!(script.nodes().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn closing_ends_everything() {
    let (script, session) = opened().await;
    draw(&session).await;
    script.reads([Fault::Silence]);
    let pending = session.read(Query::node(path("/a")));

    let (read, closed) = futures_util::future::join(pending, session.close()).await;

    closed.expect("reachable");
    assert_eq!(read.expect_err("closed").kind(), ErrorKind::SessionLost);
    assert_eq!((script.nodes().len(), script.count("close")), (0, 1));
    session.close().await.expect("no error");
    assert_eq!(script.count("close"), 1);
    assert!(session.read(Query::node(path("/a"))).await.is_err());
    idle().await;
}

#[tokio::test(start_paused = true)]
async fn closing_finishes_what_is_on_its_way() {
    let (script, session) = opened().await;
    script.commits([Fault::SlowReply(Duration::from_secs(1))]);
    let txn = Txn::new().create(path("/a"), "", Lifetime::Persistent);
    assert!(timeout(MOMENT, session.commit(txn)).await.is_err());

    session.close().await.expect("reachable");

    assert_eq!(script.nodes().len(), 0);
    idle().await;
}

#[tokio::test(start_paused = true)]
async fn the_last_clone_closes_in_the_background() {
    let (script, session) = opened().await;
    let clone = session.clone();
    draw(&session).await;
    drop(session);
    sleep(LONG).await;
    assert_eq!(script.nodes().len(), 1);

    drop(clone);
    sleep(MOMENT).await;

    assert_eq!((script.nodes().len(), script.count("close")), (0, 1));
    idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_session_leaves_no_task() {
    let (script, session) = opened().await;
    script.commits([Fault::SlowReply(Duration::from_secs(1))]);
    let txn = Txn::new().create(path("/a"), "", Lifetime::Persistent);
    assert!(timeout(MOMENT, session.commit(txn)).await.is_err());
    script.set_status(1, Status::Suspended { until: clock::now() });
    sleep(MOMENT).await;

    script.lose(1);
    sleep(LONG).await;

    idle().await;
    assert!(session.is_lost());
}

/// Asserts that every mistake of a session breaks the promise that it is planted against.
#[cfg(feature = "mutants")]
#[test]
fn every_mistake_breaks_a_promise() {
    use crate::mutant::{Mutant, with};

    let table: [(Mutant, fn()); 9] = [
        (Mutant::BlindRepeat, a_create_whose_answer_was_lost_is_found_again),
        (Mutant::ForeignAdopted, a_node_of_another_session_is_not_adopted),
        (Mutant::LooksWithoutSync, the_own_node_is_looked_for_as_of_now),
        (Mutant::AmbiguousRepeated, a_set_that_may_have_happened_is_not_repeated),
        (Mutant::DroppedCreateStays, a_dropped_create_leaves_no_node),
        (Mutant::DroppedWriteAborted, a_dropped_write_is_driven_to_its_end),
        (Mutant::DeadlinePerAttempt, one_deadline_covers_all_repetitions),
        (Mutant::LostTakenBack, a_lost_session_stays_lost),
        (Mutant::CertainUntilTold, certainty_ends_by_itself),
    ];
    for (mutant, promise) in table {
        let broken = std::panic::catch_unwind(|| with(mutant, promise)).is_err();
        assert!(broken, "nothing notices a session that {}", mutant.what());
    }
}
