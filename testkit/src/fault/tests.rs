use synod_core::clock;
use synod_core::error::Effect;
use synod_core::store::{Expect, Lifetime, SessionEnd};
use tokio::time::advance;

use super::*;
use crate::cancel::stop_at;
use crate::fake::{Fake, FakeBackend, TTL, path};

const ANN: Actor = Actor::new(1);
const BOB: Actor = Actor::new(2);

fn scripted(cue: Cue) -> (Arc<Fake>, Plan, Faulty) {
    let (fake, plan) = (Fake::new(), Plan::scripted([cue]));
    let store = Faulty::new(fake.clone(), plan.clone(), ANN);
    (fake, plan, store)
}

fn create() -> Txn {
    Txn::new().create(path("/d/a"), "", Lifetime::Session)
}

fn delete() -> Txn {
    Txn::new().check(path("/c"), Expect::Any).delete(path("/d/a"), Expect::Any)
}

async fn outcome_of(result: impl Future<Output = Result<Outcome>>) -> Option<(ErrorKind, Effect)> {
    result.await.err().map(|error| (error.kind(), error.effect()))
}

#[tokio::test(start_paused = true)]
async fn every_site_acts_and_reports_as_the_table_says() {
    use ErrorKind::{Backend, Denied, Unreachable};
    let table = [
        (Site::Denied, 0, Some((Denied, Effect::None)), 0),
        (Site::Broken, 0, Some((Backend, Effect::None)), 0),
        (Site::Unsent, 0, Some((Unreachable, Effect::None)), 0),
        (Site::RequestLost, 0, Some((Unreachable, Effect::Unknown)), 0),
        (Site::ReplyLost, 1, Some((Unreachable, Effect::Unknown)), 0),
        (Site::AppliedLate, 0, Some((Unreachable, Effect::Unknown)), 0),
        (Site::RequestHeld, 0, Some((Unreachable, Effect::Unknown)), 10),
        (Site::ReplyHeld, 1, Some((Unreachable, Effect::Unknown)), 10),
        (Site::RequestSlow, 1, None, 1),
        (Site::ReplySlow, 1, None, 1),
    ];
    for (site, happened, answer, seconds) in table {
        let (fake, plan, store) = scripted(Cue::new(site));
        let start = clock::now();

        assert_eq!(outcome_of(store.commit(create())).await, answer, "{site:?}");

        assert_eq!(clock::elapsed(start).as_secs(), seconds, "{site:?}");
        assert_eq!(fake.calls().txns.len(), happened, "{site:?}");
        let fired = plan.fired();
        assert_eq!(fired.len(), 1, "{site:?}");
        assert_eq!(fired[0].spot, Spot { site, actor: ANN, n: 1 });
        assert_eq!((fired[0].verb, &fired[0].path), (Verb::Create, &Some(path("/d/a"))));
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_fails_has_no_effect_to_be_unsure_of() {
    for site in [Site::RequestLost, Site::ReplyLost, Site::RequestHeld, Site::ReplyHeld] {
        let (fake, _plan, store) = scripted(Cue::new(site));
        let error = store.read(Query::node(path("/a"))).await.expect_err("planned");
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::None));
        assert_eq!(error.path(), Some(&path("/a")));

        let replied = matches!(site, Site::ReplyLost | Site::ReplyHeld);
        assert_eq!(fake.calls().queries.len(), usize::from(replied), "{site:?}");
    }
}

#[tokio::test]
async fn a_watch_whose_reply_is_lost_is_given_up() {
    let (fake, _plan, store) = scripted(Cue::new(Site::ReplyLost).of(Verb::Watch));
    assert!(store.watch(Query::node(path("/a"))).await.is_err());
    assert!(fake.feed().is_over());

    let (_view, mut watch) = store.watch(Query::node(path("/a"))).await.expect("once only");
    fake.feed().resync();
    assert!(watch.try_next().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_late_write_happens_after_its_call_returned() {
    let lateness = Duration::from_secs(3);
    let (fake, plan, store) = scripted(Cue::new(Site::AppliedLate).lasting(lateness));
    // A read is not a write, so this waits for the commit.
    store.read(Query::node(path("/a"))).await.expect("answered");

    assert!(store.commit(create()).await.is_err_and(|error| error.has_unknown_effect()));
    sleep(Duration::from_millis(2_999)).await;
    assert_eq!(fake.calls().txns.len(), 0);
    sleep(Duration::from_millis(2)).await;

    assert_eq!(fake.calls().txns, [create()]);
    assert_eq!(plan.fired()[0].lasting, Some(lateness));
}

#[tokio::test(start_paused = true)]
async fn a_late_write_happens_before_a_later_latest_read_is_answered() {
    let at = || Query::node(path("/d/a"));
    let looking = |txn: Txn| txn.look(at());
    for later in [Verb::Read, Verb::Watch, Verb::Commit] {
        let (fake, _plan, store) = scripted(Cue::new(Site::AppliedLate));
        assert!(
            store.commit(looking(create())).await.is_err_and(|error| error.has_unknown_effect())
        );
        store.read(at().local()).await.expect("answered");
        let _done = store.commit(delete()).await.expect("answered");
        assert_eq!(fake.calls().txns, [delete()], "what may lag waits for nothing");

        match later {
            Verb::Read => drop(store.read(at()).await.expect("answered")),
            Verb::Watch => drop(store.watch(at()).await.expect("answered")),
            _ => drop(store.commit(looking(delete())).await.expect("answered")),
        }

        assert_eq!(fake.calls().txns[1], looking(create()), "{later:?}");
        sleep(TTL).await;
        let creates = fake.calls().txns.into_iter().filter(|txn| *txn == looking(create()));
        assert_eq!(creates.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_is_dropped_leaves_the_late_write_to_the_next() {
    let (fake, _plan, store) = scripted(Cue::new(Site::AppliedLate));
    let slow = crate::hesitant::Hesitant::new(fake.clone()).pausing(TTL / 10);
    let store = Faulty { store: Arc::new(slow), ..store };
    assert!(store.commit(create()).await.is_err());

    let dropped = stop_at(1, store.read(Query::node(path("/a")))).await;
    assert!(dropped.is_none());
    store.read(Query::node(path("/a"))).await.expect("answered");

    assert_eq!(fake.calls().txns, [create()]);
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_happens_though_its_caller_is_gone() {
    let (fake, _plan, store) = scripted(Cue::new(Site::RequestSlow));

    assert!(stop_at(1, store.commit(create())).await.is_none());
    assert_eq!(fake.calls().txns.len(), 0);
    sleep(Duration::from_secs(2)).await;

    assert_eq!(fake.calls().txns.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_running() {
    for site in [Site::RequestHeld, Site::ReplyHeld, Site::AppliedLate] {
        let (_fake, _plan, store) = scripted(Cue::new(site));
        assert!(store.commit(create()).await.is_err());
        sleep(TTL).await;
        let sent = store.sent.lock().unwrap();
        assert!(sent.iter().all(Task::is_finished), "{site:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_held_call_ends_when_the_session_does() {
    let (fake, _plan, store) = scripted(Cue::new(Site::RequestHeld));
    let (error, ()) = futures_util::future::join(store.commit(create()), async {
        advance(Duration::from_secs(1)).await;
        fake.lose(SessionEnd::Expired);
    })
    .await;
    let error = error.expect_err("lost");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::SessionLost, Effect::Unknown));
}

#[tokio::test(start_paused = true)]
async fn a_delay_never_outlasts_the_time_to_live() {
    let slow = |verb| Cue::new(Site::ReplySlow).of(verb).lasting(TTL * 3);
    let plan = Plan::scripted([Verb::Open, Verb::Commit, Verb::Close].map(slow));
    let backend = FaultyBackend::new(FakeBackend, plan.clone(), ANN);
    let start = clock::now();

    let error = backend.open(&SessionOptions::new(TTL)).await.expect_err("slow");
    assert_eq!((error.kind(), clock::elapsed(start)), (ErrorKind::Unreachable, TTL));
    let store = backend.open(&SessionOptions::new(TTL)).await.expect("nothing planned");
    let late = outcome_of(store.commit(create())).await;
    assert_eq!(late, Some((ErrorKind::Unreachable, Effect::Unknown)));
    assert_eq!(clock::elapsed(start), TTL * 2);
    let error = store.close().await.expect_err("slow");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::Unknown));
    assert_eq!(clock::elapsed(start), TTL * 3);
    assert_eq!(plan.pending(), 0);
}

#[tokio::test]
async fn what_is_invalid_is_refused_before_anything_goes_wrong() {
    let (_fake, plan, store) = scripted(Cue::new(Site::ReplyLost));
    let error = store.commit(Txn::new()).await.expect_err("empty");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let error = store.read(Query::node(path("/a")).oldest(1)).await.expect_err("no children");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(plan.pending(), 1);
}

#[tokio::test(start_paused = true)]
async fn opening_and_closing_go_wrong_too() {
    let options = SessionOptions::new(TTL);
    let cues = [Site::ReplyLost, Site::RequestHeld].map(|site| Cue::new(site).of(Verb::Open));
    let [lost, held] = cues;
    let plan = Plan::scripted([lost, held.nth(2), Cue::new(Site::ReplyLost).of(Verb::Close)]);
    let backend = FaultyBackend::new(FakeBackend, plan.clone(), ANN);

    for seconds in [0, TTL.as_secs()] {
        let start = clock::now();
        let error = backend.open(&options).await.expect_err("planned");
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        assert_eq!(clock::elapsed(start).as_secs(), seconds);
    }
    let store = backend.open(&options).await.expect("nothing planned");
    assert!(store.close().await.is_err_and(|error| error.has_unknown_effect()));
    assert!(store.status().borrow().is_lost());
    assert_eq!(store.session().ttl, TTL);
    assert_eq!(plan.pending(), 0);
}

#[tokio::test]
async fn a_cue_waits_for_the_call_it_describes() {
    let fired_at = async |plan: Plan, calls: &[(Actor, Txn)]| {
        let fake = Fake::new();
        let mut fired = Vec::new();
        for (index, (actor, txn)) in calls.iter().enumerate() {
            let store = Faulty::new(fake.clone(), plan.clone(), *actor);
            if store.commit(txn.clone()).await.is_err() {
                fired.push(index);
            }
        }
        fired
    };
    let calls = [(ANN, create()), (ANN, delete()), (BOB, delete()), (ANN, create())];
    let lost = || Cue::new(Site::ReplyLost);
    let table = [
        (lost(), vec![0]),
        (lost().of(Verb::Commit).nth(3), vec![2]),
        (lost().of(Verb::Delete), vec![1]),
        (lost().of(Verb::Create).nth(2), vec![3]),
        (lost().by(BOB), vec![2]),
        (lost().under(path("/c")), vec![1]),
        (lost().under(path("/d")).nth(4), vec![3]),
        (lost().under(path("/d/a/b")), vec![]),
        (lost().of(Verb::Read), vec![]),
    ];
    for (cue, expected) in table {
        let text = format!("{cue:?}");
        assert_eq!(fired_at(Plan::scripted([cue]), &calls).await, expected, "{text}");
    }
}

fn storm() -> Faults {
    Site::FATES.into_iter().fold(Faults::none(), |faults, site| faults.with(site, 60))
}

/// Lets two actors call alternately, and returns the faults that fired.
async fn stormy(choice: Choice) -> Vec<Fired> {
    let plan = Plan::new(storm().with(Site::RequestSlow, 100), choice);
    let stores = [ANN, BOB].map(|actor| Faulty::new(Fake::new(), plan.clone(), actor));
    for round in 0..100 {
        for store in &stores {
            let _answer = store.commit(create()).await.is_ok();
            if round % 3 == 0 {
                let _answer = store.read(Query::node(path("/a"))).await.is_ok();
            }
        }
    }
    plan.fired()
}

#[tokio::test(start_paused = true)]
async fn a_fault_that_is_switched_off_leaves_all_others_where_they_were() {
    let all = stormy(Choice::seeded(7)).await;
    assert!(all.len() > 80, "only {} faults fired", all.len());
    assert_eq!(stormy(Choice::seeded(7)).await, all);
    assert_ne!(stormy(Choice::seeded(8)).await, all);

    for off in [0, 10, all.len() / 2] {
        let spot = all[off].spot;
        let mut rest = all.clone();
        rest.remove(off);
        assert_eq!(stormy(Choice::seeded(7).without([spot])).await, rest);
    }
}

#[test]
fn a_swarm_switches_some_off_and_scales_the_rest() {
    let off = |faults: &Faults| faults.rates.values().filter(|rate| **rate == 0).count();
    let swarms: Vec<Faults> = (0..500).map(|seed| storm().swarm(seed)).collect();
    let share = swarms.iter().map(off).sum::<usize>() * 100 / (500 * Site::FATES.len());
    assert!((35..45).contains(&share), "{share} % are off");
    assert!(swarms.iter().flat_map(|faults| faults.rates.values()).all(|rate| *rate <= 120));
    assert_eq!(storm().swarm(7), storm().swarm(7));
}

#[test]
fn faults_and_spots_are_read_from_what_was_written() {
    let spot = Spot { site: Site::ReplyLost, actor: ANN, n: 3 };
    let written = serde_json::to_string(&(storm(), spot)).expect("written");
    assert!(written.ends_with(r#"{"site":"reply_lost","actor":1,"n":3}]"#), "{written}");
    assert_eq!(serde_json::from_str::<(Faults, Spot)>(&written).expect("read"), (storm(), spot));
    assert_eq!(serde_json::from_str::<Faults>("{}").expect("read"), Faults::none());
    assert!(serde_json::from_str::<Faults>(r#"{"rate": 1}"#).is_err());
}
