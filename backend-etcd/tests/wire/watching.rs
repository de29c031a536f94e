//! Watches under disturbance: no event is lost, even if the stream fails.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, join_all, select};
use h2::Reason;
use synod_core::error::ErrorKind;
use synod_core::store::{End, Event, Expect, Lifetime, Query, Status, Txn};
use tokio::time::timeout;
use tonic::Code;

use crate::peer::Peer;
use crate::peer::answer::Answer;
use crate::peer::message::WatchResponse;
use crate::peer::refusal::Refusal;
use crate::peer::script::{Act, Kind, Rule};
use crate::peer::shared::Shared;
use crate::world::{TTL, create, done, eventually, hears_of, next, path, session, set};

fn edit(change: impl Fn(WatchResponse) -> WatchResponse + Send + Sync + 'static) -> Act {
    Act::edit(move |answer| match answer {
        Answer::Watch(response) => Answer::Watch(change(response)),
        other => other,
    })
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_in_any_way_loses_no_event() {
    for act in [
        Act::Cut { applied: true },
        Act::Cut { applied: false },
        Act::Reset { applied: true, reason: Reason::INTERNAL_ERROR },
        Act::Reset { applied: false, reason: Reason::CANCEL },
        Act::End,
        Act::Twice,
        Act::GoAway,
        Act::Fragment,
        Act::Slow(Duration::from_secs(3)),
        Act::Refuse(Refusal::etcd(Code::Unavailable, "no leader")),
        Act::garble(),
    ] {
        let shown = format!("{act:?}");
        let peer = Peer::new(2);
        let (ann, bob) = (session(&peer).await, session(&peer).await);
        done(&*ann, create("/d/n")).await;
        let (_view, mut watch) =
            bob.watch(Query::subtree(path("/d"))).await.expect("it is answered");
        peer.script(Rule::on(Kind::Push, act));
        done(&*ann, set("/d/n", "y").create(path("/d/m"), "", Lifetime::Persistent)).await;
        done(&*ann, set("/d/n", "z")).await;
        done(&*ann, create("/d/last")).await;
        let mut heard = Vec::new();
        while heard.last().map(String::as_str) != Some("/d/last") {
            match next(&mut watch).await {
                Some(Event::Changed(change)) => heard.push(change.path.as_str().to_owned()),
                other => panic!("{shown}: {other:?}"),
            }
        }
        assert!(heard.iter().any(|path| path == "/d/m"), "{shown}: {heard:?}");
        assert_eq!(heard.iter().filter(|path| *path == "/d/m").count(), 1, "{shown}: {heard:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_observation_survives_that_its_watch_is_not_answered_at_once() {
    for act in [
        Act::Ignore,
        Act::Mute,
        Act::Cut { applied: true },
        Act::Reset { applied: true, reason: Reason::REFUSED_STREAM },
        Act::End,
        Act::Twice,
        Act::Slow(Duration::from_secs(1)),
    ] {
        for kind in [Kind::Watch, Kind::Create] {
            let shown = format!("{kind:?} {act:?}");
            let peer = Peer::new(2);
            let (ann, bob) = (session(&peer).await, session(&peer).await);
            peer.script(Rule::on(kind, act.clone()));
            let mut observed = bob.watch(Query::node(path("/n"))).await;
            if observed.is_err() {
                // A silent stream is given up, and the next one works.
                observed = bob.watch(Query::node(path("/n"))).await;
            }
            let (_view, mut watch) = observed.unwrap_or_else(|error| panic!("{shown}: {error}"));
            done(&*ann, create("/n")).await;
            hears_of(&mut watch, "/n").await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_whose_answer_was_lost_is_asked_for_again_although_its_stream_is_busy() {
    let peer = Peer::new(1);
    let (ann, bob) = (session(&peer).await, session(&peer).await);
    let (_view, _busy) = bob.watch(Query::node(path("/busy"))).await.expect("it is answered");
    done(&*ann, create("/busy")).await;
    peer.script(Rule::on(Kind::Create, Act::Ignore));
    let writing = async {
        loop {
            done(&*ann, set("/busy", "y")).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let observing = bob.watch(Query::node(path("/n")));
    match select(pin!(observing), pin!(writing)).await {
        Either::Left((observed, _)) => assert!(observed.is_ok(), "{observed:?}"),
        Either::Right(((), _)) => {}
    }
    assert_eq!(peer.shared.script().played, 1, "the act was not played");
}

#[tokio::test(start_paused = true)]
async fn a_change_between_the_read_and_the_watch_is_in_one_of_them() {
    // The watch begins late, and the read is answered before the change.
    for (kind, act) in [
        (Kind::Create, Act::Slow(Duration::from_millis(300))),
        (Kind::Watch, Act::Slow(Duration::from_millis(300))),
        (Kind::Range, Act::Slow(Duration::from_millis(300))),
        (Kind::Range, Act::Late(Duration::from_millis(300))),
        (Kind::Push, Act::Slow(Duration::from_millis(300))),
    ] {
        let shown = format!("{kind:?} {act:?}");
        let peer = Peer::new(1);
        let (ann, bob) = (session(&peer).await, session(&peer).await);
        peer.script(Rule::on(kind, act));
        let observing = bob.watch(Query::node(path("/n")));
        let writing = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            done(&*ann, create("/n")).await;
        };
        let (observed, ()) = tokio::join!(observing, writing);
        let (view, mut watch) = observed.expect("it is answered");
        if view.node().is_none() {
            hears_of(&mut watch, "/n").await;
        } else {
            done(&*ann, set("/n", "y")).await;
            let Some(Event::Changed(change)) = next(&mut watch).await else { panic!("{shown}") };
            assert!(change.revision > Some(view.revision), "{shown}: it was shown already");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_compaction_during_a_disconnection_is_a_resync() {
    let peer = Peer::new(1);
    let (ann, bob) = (session(&peer).await, session(&peer).await);
    done(&*ann, create("/n")).await;
    let (_view, mut watch) = bob.watch(Query::node(path("/n"))).await.expect("it is answered");
    peer.script(Rule::on(Kind::Push, Act::Cut { applied: false }));
    peer.script(Rule::on(Kind::Watch, Act::Slow(Duration::from_millis(200))));
    done(&*ann, set("/n", "y")).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    done(&*ann, create("/other")).await;
    let now = peer.shared.state().keys.revision;
    peer.shared.state().keys.compact(now);

    let event = next(&mut watch).await;
    assert!(matches!(event, Some(Event::Resync)), "{event:?}");
    done(&*ann, set("/n", "z")).await;
    hears_of(&mut watch, "/n").await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_says_nothing_when_it_is_asked_is_replaced() {
    let peer = Peer::new(2);
    let (ann, bob) = (session(&peer).await, session(&peer).await);
    let (_view, mut watch) = bob.watch(Query::node(path("/n"))).await.expect("it is answered");
    let opened = peer.met(Kind::Watch);
    // No further event arrives on this stream, without an error.
    peer.script(Rule::on(Kind::Push, Act::Ignore));
    peer.script(Rule::on(Kind::Progress, Act::Ignore));
    done(&*ann, create("/n")).await;
    hears_of(&mut watch, "/n").await;
    assert!(peer.met(Kind::Watch) > opened && peer.met(Kind::Progress) > 0);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_that_answers_stays() {
    let peer = Peer::new(2);
    let bob = session(&peer).await;
    let (_view, _watch) = bob.watch(Query::node(path("/n"))).await.expect("it is answered");
    tokio::time::sleep(TTL * 5).await;
    assert_eq!(peer.met(Kind::Watch), 1);
    assert!(peer.met(Kind::Progress) >= 5, "it was asked {} times", peer.met(Kind::Progress));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_began_while_the_server_wrote_is_asked_for_twice() {
    for writes in [false, true] {
        let peer = Peer::new(1);
        let (ann, bob) = (session(&peer).await, session(&peer).await);
        done(&*ann, create("/n")).await;
        peer.script(Rule::on(Kind::Range, Act::Late(Duration::from_secs(1))));
        let (observed, ()) = tokio::join!(bob.watch(Query::node(path("/n"))), async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            if writes {
                done(&*ann, set("/n", "y")).await;
            }
        });
        let (view, _watch) = observed.expect("it is answered");
        assert!(view.node().is_some());
        tokio::time::sleep(TTL).await;
        // Some servers lose what they write then: etcd's issue 15275 and related ones.
        assert_eq!(peer.met(Kind::Create) > 1, writes);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_not_permitted_ends_with_that() {
    let peer = Peer::new(1);
    let bob = session(&peer).await;
    peer.script(Rule::on(
        Kind::Create,
        edit(|response| WatchResponse {
            canceled: true,
            cancel_reason:
                "rpc error: code = PermissionDenied desc = etcdserver: permission denied".into(),
            ..response
        }),
    ));
    let error = bob.watch(Query::node(path("/n"))).await.expect_err("it is not permitted");
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(bob.watch(Query::node(path("/n"))).await.is_ok(), "the next one is");
}

#[tokio::test(start_paused = true)]
async fn dropped_watches_are_ended_at_the_server() {
    let peer = Peer::new(1);
    let bob = session(&peer).await;
    for _ in 0..10 {
        let (_view, watch) = bob.watch(Query::subtree(path("/d"))).await.expect("it is answered");
        assert!(Shared::count(&peer.shared.watches) > 0);
        drop(watch);
    }
    eventually("no watch is left", async || Shared::count(&peer.shared.watches) == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_with_its_session() {
    let peer = Peer::new(1);
    let bob = session(&peer).await;
    let (_view, mut watch) = bob.watch(Query::node(path("/n"))).await.expect("it is answered");
    let lease = crate::world::lease(bob.session().id);
    peer.shared.state().end(lease).expect("it lives");
    peer.shared.moved();
    loop {
        match next(&mut watch).await {
            Some(Event::Ended(End::SessionOver(_))) | None => break,
            Some(_) => {}
        }
    }
    assert!(matches!(*bob.status().borrow(), Status::Lost { .. }));
    eventually("no watch is left", async || Shared::count(&peer.shared.watches) == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_opened_seldom_where_it_breaks_and_at_once_where_it_lasted() {
    let peer = Peer::new(1);
    let bob = session(&peer).await;
    let (_view, mut watch) = bob.watch(Query::node(path("/n"))).await.expect("it is answered");
    let refusal = Refusal::etcd(Code::Unavailable, "no leader");
    peer.script(Rule::on(Kind::Watch, Act::Refuse(refusal)).always());
    peer.script(Rule::on(Kind::Push, Act::End));
    let before = peer.met(Kind::Watch);
    done(&*bob, create("/n")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    // About one a second, the first ones sooner, and none later than twice the pause.
    let times = peer.met(Kind::Watch) - before;
    assert!((30..=90).contains(&times), "it was opened {times} times in a minute");

    peer.shared.script().clear();
    hears_of(&mut watch, "/n").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    peer.script(Rule::on(Kind::Push, Act::End));
    let broken = tokio::time::Instant::now();
    done(&*bob, set("/n", "y")).await;
    hears_of(&mut watch, "/n").await;
    let took = broken.elapsed();
    assert!(took < Duration::from_millis(100), "it was opened again after {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_soon_waited_for_again_is_still_watched() {
    let peer = Peer::new(1);
    let (ann, bob) = (session(&peer).await, session(&peer).await);
    for _ in 0..3 {
        done(&*ann, create("/n")).await;
        let gone = Query::until_gone(path("/n"));
        let (_view, mut watch) = bob.watch(gone).await.expect("it is answered");
        done(&*ann, Txn::new().delete(path("/n"), Expect::Any)).await;
        assert!(matches!(next(&mut watch).await, Some(Event::Changed(_))));
        drop(watch);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(peer.met(Kind::Create), 1);
}

/// With more requests in flight a late answer could not be distinguished from a lost one.
#[tokio::test(start_paused = true)]
async fn five_hundred_requests_for_watches_are_in_flight_at_most() {
    const MAX: usize = 500;
    // The stream is open when the first is answered.
    for answered in [1, 100] {
        let peer = Peer::new(1);
        let ann = session(&peer).await;
        peer.script(Rule::on(Kind::Create, Act::Ignore).behind(answered).always());
        let observe = |number| ann.watch(Query::node(path(&format!("/n{number}"))));
        let observing = join_all((0..answered + MAX + 50).map(observe));
        let _none = timeout(TTL / 10, observing).await;
        assert_eq!(peer.met(Kind::Create), answered + MAX, "{answered} were answered");
    }
}
