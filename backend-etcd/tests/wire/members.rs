//! Members that differ: one is down, lags, has no leader or no vote.

use std::time::Duration;

use synod_core::error::{Effect, ErrorKind};
use synod_core::store::{Event, Query};
use tokio::time::{Instant, sleep};

use crate::peer::Peer;
use crate::peer::script::{Act, Kind, Rule};
use crate::peer::shared::Member;
use crate::world::{
    TTL, create, done, eventually, exists, hears_of, is_live, next, open, path, session, set,
};

#[tokio::test(start_paused = true)]
async fn any_one_member_may_be_as_it_likes() {
    let states: [fn(&mut Member); 3] = [
        |member| member.down = true,
        |member| member.leaderless = true,
        |member| member.learner = true,
    ];
    for (number, state) in states.into_iter().enumerate() {
        for first in 0..3 {
            let peer = Peer::new(3);
            let (ann, bob) = (session(&peer).await, session(&peer).await);
            done(&*ann, create("/n")).await;
            let observed = bob.watch(Query::node(path("/n"))).await;
            let (_view, mut watch) = observed.expect("it is answered");

            peer.shared.set_member(first, state);

            // The first write may have failed when the member changed.
            eventually("a write is answered", async || ann.commit(set("/n", "y")).await.is_ok())
                .await;
            hears_of(&mut watch, "/n").await;
            assert!(exists(&*ann, "/n").await);
            let _new = open(&peer.backend(9)).await.expect("a session is opened");
            sleep(TTL * 3).await;
            assert!(is_live(&*ann) && is_live(&*bob), "state {number} of member {first}");
            done(&*ann, set("/n", "z")).await;
            hears_of(&mut watch, "/n").await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn all_members_may_be_down_for_a_while() {
    let peer = Peer::new(3);
    let ann = session(&peer).await;
    done(&*ann, create("/n")).await;
    let (_view, mut watch) = ann.watch(Query::node(path("/n"))).await.expect("it is answered");
    for member in 0..3 {
        peer.shared.set_member(member, |member| member.down = true);
    }

    // The first call may fail when the connection breaks.
    let _either = ann.commit(set("/n", "y")).await.is_ok();
    let error = ann.commit(set("/n", "y")).await.expect_err("no member answers");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::None), "{error}");
    let error = ann.read(Query::node(path("/n"))).await.expect_err("no member answers");
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    let told = error.to_string();
    for member in ["m0:2379", "m1:2379", "m2:2379"] {
        assert!(told.contains(member), "{told}");
    }

    sleep(Duration::from_secs(4)).await;
    for member in 0..3 {
        peer.shared.set_member(member, |member| member.down = false);
    }
    eventually("the session is live again", async || is_live(&*ann)).await;
    done(&*ann, set("/n", "z")).await;
    hears_of(&mut watch, "/n").await;
}

#[tokio::test(start_paused = true)]
async fn what_a_session_reads_locally_never_goes_back() {
    let peer = Peer::new(2);
    let ann = session(&peer).await;
    done(&*ann, create("/n")).await;
    let now = peer.shared.state().keys.revision;
    for member in 0..2 {
        done(&*ann, set("/n", "y")).await;
        peer.shared.set_member(member, |member| member.behind = Some(now));
        let local = ann.read(Query::node(path("/n")).local()).await.expect("it is answered");
        assert_eq!(&local.node().expect("it is there").data[..], b"y", "member {member} lags");
        peer.shared.set_member(member, |member| member.behind = None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_without_a_leader_is_good_enough_for_a_local_read() {
    let peer = Peer::new(1);
    let ann = session(&peer).await;
    done(&*ann, create("/n")).await;
    peer.shared.set_member(0, |member| member.leaderless = true);
    let local = ann.read(Query::node(path("/n")).local()).await.expect("it is answered");
    assert!(local.node().is_some());
    let error = ann.read(Query::node(path("/n"))).await.expect_err("it cannot agree");
    assert_eq!(error.kind(), ErrorKind::Unreachable);
}

#[tokio::test(start_paused = true)]
async fn a_watch_on_a_lagging_member_misses_nothing_when_it_moves() {
    let peer = Peer::new(2);
    let (ann, bob) = (session(&peer).await, session(&peer).await);
    done(&*ann, create("/n")).await;
    let (_view, mut watch) = bob.watch(Query::node(path("/n"))).await.expect("it is answered");
    let now = peer.shared.state().keys.revision;
    for member in 0..2 {
        peer.shared.set_member(member, |member| member.behind = Some(now));
    }
    // The change is not reported for a while.
    let writing = ann.commit(set("/n", "y"));
    let healing = async {
        sleep(Duration::from_millis(200)).await;
        for member in 0..2 {
            peer.shared.set_member(member, |member| member.behind = None);
        }
    };
    let (outcome, ()) = tokio::join!(writing, healing);
    assert!(outcome.is_ok(), "{outcome:?}");
    loop {
        match next(&mut watch).await {
            Some(Event::Changed(change)) if change.revision.is_some_and(|at| at.get() > 2) => break,
            Some(Event::Changed(_) | Event::Resync) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_leaves_a_member_that_answers_and_stays_behind() {
    for lagging in 0..2 {
        let peer = Peer::new(2);
        let (ann, bob) = (session(&peer).await, session(&peer).await);
        done(&*ann, create("/n")).await;
        let (_view, mut watch) = bob.watch(Query::node(path("/n"))).await.expect("it is answered");
        let now = peer.shared.state().keys.revision;
        // As a member whose disk stalls.
        peer.shared.set_member(lagging, |member| member.behind = Some(now));

        // The first write may have been sent to this member.
        eventually("a write is answered", async || ann.commit(set("/n", "y")).await.is_ok()).await;
        let began = Instant::now();
        hears_of(&mut watch, "/n").await;
        assert!(began.elapsed() <= TTL * 2, "after {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_stays_at_a_member_that_is_behind_for_a_moment() {
    let peer = Peer::new(2);
    let (ann, bob) = (session(&peer).await, session(&peer).await);
    done(&*ann, create("/n")).await;
    let (_view, mut watch) = bob.watch(Query::node(path("/n"))).await.expect("it is answered");
    let opened = peer.met(Kind::Watch);
    for _ in 0..20 {
        let now = peer.shared.state().keys.revision;
        for member in 0..2 {
            peer.shared.set_member(member, |member| member.behind = Some(now));
        }
        let writing = ann.commit(set("/n", "y"));
        let reaching = async {
            sleep(TTL / 12).await;
            for member in 0..2 {
                peer.shared.set_member(member, |member| member.behind = None);
            }
        };
        assert!(tokio::join!(writing, reaching).0.is_ok());
        hears_of(&mut watch, "/n").await;
        sleep(TTL / 5).await;
    }
    assert_eq!(peer.met(Kind::Watch), opened);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_says_nothing_is_passed_over_within_the_time_to_live() {
    let peer = Peer::new(3);
    let ann = session(&peer).await;
    done(&*ann, create("/n")).await;
    for kind in [Kind::Range, Kind::Txn, Kind::KeepAlive] {
        peer.script(Rule::on(kind, Act::Ignore).at(0).always());
    }
    let began = Instant::now();
    assert!(exists(&*ann, "/n").await);
    assert!(began.elapsed() < TTL, "another was asked only after {:?}", began.elapsed());
    sleep(TTL * 2).await;
    assert!(is_live(&*ann));
}
