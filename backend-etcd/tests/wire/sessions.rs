//! Sessions under disturbance: they are opened, kept alive and ended.

use std::time::Duration;

use h2::Reason;
use synod_core::error::{Effect, ErrorKind};
use synod_core::store::{Backend as _, Lifetime, SessionEnd, SessionOptions, Status, Store, Txn};
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use crate::peer::Peer;
use crate::peer::answer::Answer;
use crate::peer::message::LeaseResponse;
use crate::peer::refusal::Refusal;
use crate::peer::script::{Act, Kind, Rule};
use crate::peer::shared::Shared;
use crate::world::{TTL, done, eventually, is_live, kept, lease, open, path, session};

fn edit(change: impl Fn(LeaseResponse) -> LeaseResponse + Send + Sync + 'static) -> Act {
    Act::edit(move |answer| match answer {
        Answer::Lease(response) => Answer::Lease(change(response)),
        other => other,
    })
}

fn until(store: &dyn Store) -> Option<Instant> {
    store.status().borrow().until()
}

#[tokio::test(start_paused = true)]
async fn a_session_lives_as_long_as_the_server_granted() {
    for (longer, shortest) in [(0, 1), (20, 1), (0, 60)] {
        let peer = Peer::new(1);
        peer.shared.state().leases.longer = longer;
        peer.shared.state().leases.shortest = shortest;
        let ann = session(&peer).await;
        let granted = 10_i64.max(shortest) + longer;
        assert_eq!(ann.session().ttl.as_secs(), u64::try_from(granted).expect("positive"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_is_requested_for_a_second_to_a_day() {
    const DAY: Duration = Duration::from_secs(86_400);
    let second = Duration::from_secs(1);
    for (wanted, requested) in [(second / 1_000, second), (DAY * 7, DAY)] {
        let peer = Peer::new(1);
        let opened = peer.backend(0).open(&SessionOptions::new(wanted)).await;
        assert_eq!(opened.expect("it is opened").session().ttl, requested);
    }
}

#[tokio::test(start_paused = true)]
async fn the_life_of_a_session_is_counted_from_the_sending_of_what_was_answered() {
    let peer = Peer::new(1);
    let began = Instant::now();
    peer.script(Rule::on(Kind::Grant, Act::Slow(Duration::from_secs(3))));
    let ann = session(&peer).await;
    assert!(until(&*ann).expect("it lives") <= began + TTL, "the grant");

    // Each answer is delayed by two seconds.
    let late = Act::Slow(Duration::from_secs(2));
    peer.script(Rule::on(Kind::KeepAlive, late).always());
    for _ in 0..20 {
        sleep(Duration::from_secs(1)).await;
        let ends = peer.shared.state().leases.first().expect("it lives").1;
        assert!(until(&*ann).expect("it lives") <= ends, "beyond the lease");
    }
}

#[tokio::test(start_paused = true)]
async fn no_session_believes_longer_than_its_lease_lives_on_a_fast_clock() {
    // The server's clock is 1 % fast, and the client's 1 % slow.
    for act in [Act::Ignore, Act::Mute, Act::Cut { applied: false }, Act::Late(TTL * 3 / 4)] {
        let peer = Peer::new(2);
        peer.shared.state().leases.rate = 981;
        let ann = session(&peer).await;
        let status = ann.status();
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        *peer.shared.ended.lock().expect("not poisoned") = Some(Box::new(move |_| {
            let _told = tell.send(status.borrow().is_certain()).is_ok();
        }));
        sleep(TTL * 2).await;
        assert!(is_live(&*ann), "{act:?}");
        peer.script(Rule::on(Kind::KeepAlive, act.clone()).always());
        eventually("the session is lost", async || ann.status().borrow().is_lost()).await;
        if let Ok(certain) = told.try_recv() {
            assert!(!certain, "{act:?}: the lease ended while the session was certain of it");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_gone_ends_the_session_at_once() {
    let answers: [fn() -> Act; 3] = [
        || edit(|answer| LeaseResponse { ttl: 0, ..answer }),
        || edit(|answer| LeaseResponse { ttl: -1, ..answer }),
        || Act::Refuse(Refusal::etcd(Code::NotFound, "requested lease not found")),
    ];
    for answer in answers {
        let peer = Peer::new(1);
        let ann = session(&peer).await;
        peer.script(Rule::on(Kind::KeepAlive, answer()));
        let began = Instant::now();
        eventually("the session is lost", async || ann.status().borrow().is_lost()).await;
        assert!(began.elapsed() < TTL / 2, "it was noticed only after {:?}", began.elapsed());
        let lost = Status::Lost { reason: SessionEnd::Expired };
        assert_eq!(*ann.status().borrow(), lost);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_finds_no_lease_ends_the_session_before_any_heartbeat() {
    let peer = Peer::new(1);
    let ann = session(&peer).await;
    let gone = Refusal::etcd(Code::NotFound, "requested lease not found");
    peer.script(Rule::on(Kind::Txn, Act::Refuse(gone)));
    let node = Txn::new().create(path("/e"), "", Lifetime::Session);
    let error = ann.commit(node).await.expect_err("its lease is gone");
    assert_eq!(error.kind(), ErrorKind::SessionLost);
    assert_eq!(*ann.status().borrow(), Status::Lost { reason: SessionEnd::Expired });
    assert!(peer.met(Kind::KeepAlive) <= 1, "more than the heartbeat of the beginning");
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_without_an_answer_for_one_interval_costs_no_connection() {
    let peer = Peer::new(1);
    // Answers take so long that one may be expected for longer than an interval.
    peer.script(Rule::on(Kind::KeepAlive, Act::Slow(TTL * 3 / 20)).times(10));
    peer.script(Rule::on(Kind::KeepAlive, Act::Mute));
    let ann = session(&peer).await;
    sleep(TTL * 6).await;
    assert!(is_live(&*ann));
    assert_eq!(peer.shared.script().played, 11, "not each act was played");
    assert_eq!(Shared::count(&peer.shared.dialled), 1, "a new connection was used");
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_whose_two_answers_are_slow_suspends_nothing_and_costs_no_connection() {
    // Each answer comes in an interval, both together do not.
    for slow in [TTL / 6, TTL / 5] {
        let peer = Peer::new(1);
        let ann = session(&peer).await;
        for kind in [Kind::KeepAlive, Kind::Range] {
            peer.script(Rule::on(kind, Act::Slow(slow)).always());
        }
        let mut status = ann.status();
        status.mark_unchanged();
        let suspended = status.wait_for(|status| !matches!(status, Status::Live { .. }));
        let suspended = timeout(TTL * 6, suspended).await.is_ok();
        assert!(!suspended, "each answer took {slow:?}");
        assert_eq!(Shared::count(&peer.shared.dialled), 1, "a new connection was used");
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_answers_keep_alives_alone_is_left_for_another_connection() {
    let peer = Peer::new(1);
    let ann = session(&peer).await;
    sleep(TTL).await;
    // As a leader whose disk stalls.
    peer.script(Rule::on(Kind::Range, Act::Ignore).always());
    let dialled = async || Shared::count(&peer.shared.dialled) > 1;
    eventually("a new connection is used", dialled).await;
    assert!(!ann.status().borrow().is_lost(), "it came too late");
    peer.shared.script().clear();
    eventually("the session is live again", async || is_live(&*ann)).await;
}

#[tokio::test(start_paused = true)]
async fn no_session_is_suspended_by_one_silent_member_of_two() {
    for silent in [0, 1] {
        let peer = Peer::new(2);
        let ann = session(&peer).await;
        // Its answers may take three times as long as they did, which is nearly an interval.
        let slow = Rule::on(Kind::KeepAlive, Act::Slow(TTL / 10));
        peer.script(slow.clone().at(1 - silent).always());
        peer.script(slow.at(silent).times(10));
        peer.script(Rule::on(Kind::KeepAlive, Act::Ignore).at(silent).always());
        let mut status = ann.status();
        let watching = async {
            loop {
                status.changed().await.expect("it is reported");
                assert!(is_live(&*ann), "{silent}: {:?}", ann.status().borrow());
            }
        };
        let watched: Result<(), _> = timeout(TTL * 10, watching).await;
        assert!(watched.is_err(), "it ends never");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_is_suspended_before_it_is_lost_also_if_its_last_answer_was_late() {
    let peer = Peer::new(1);
    // Less than an interval of the time to live is left when this answer comes.
    peer.script(Rule::on(Kind::KeepAlive, Act::Slow(TTL * 5 / 6)));
    peer.script(Rule::on(Kind::KeepAlive, Act::Ignore).always());
    let ann = session(&peer).await;
    let mut status = ann.status();
    let mut told = vec!["live"];
    while *told.last().expect("one is there") != "lost" {
        status.changed().await.expect("it is reported");
        told.push(match *status.borrow_and_update() {
            Status::Live { .. } => "live",
            Status::Lost { .. } => "lost",
            Status::Suspended { .. } => "suspended",
        });
    }
    assert_eq!(told, ["live", "suspended", "live", "suspended", "lost"]);
}

#[tokio::test(start_paused = true)]
async fn one_heartbeat_that_fails_ends_no_session() {
    for act in [
        Act::Ignore,
        Act::Mute,
        Act::Cut { applied: false },
        Act::Cut { applied: true },
        Act::Reset { applied: true, reason: Reason::CANCEL },
        Act::GoAway,
        Act::Twice,
        Act::NoStatus { message: true },
        Act::NoStatus { message: false },
        Act::garble(),
        Act::edit(Answer::without_header),
        Act::Slow(TTL / 3),
        Act::Late(TTL / 3),
        Act::Refuse(Refusal::etcd(Code::Unavailable, "no leader")),
        Act::Refuse(Refusal::etcd(Code::Unavailable, "request timed out")),
        Act::Refuse(Refusal::new(Code::Unknown, "anything")),
        Act::Refuse(Refusal::etcd(Code::Unauthenticated, "invalid auth token")),
        Act::Refuse(Refusal::etcd(Code::PermissionDenied, "permission denied")),
        Act::Refuse(Refusal::etcd(Code::InvalidArgument, "user name is empty")),
    ] {
        for members in [1, 2] {
            let peer = Peer::new(members);
            let ann = session(&peer).await;
            let node = Txn::new().create(path("/e"), "", Lifetime::Session);
            done(&*ann, node).await;
            peer.script(Rule::on(Kind::KeepAlive, act.clone()));
            sleep(TTL * 3).await;
            assert!(is_live(&*ann), "{act:?}: {:?}", ann.status().borrow());
            assert!(kept(&peer, "/e").is_some(), "{act:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_is_opened_although_the_first_answers_get_lost() {
    for act in [
        Act::Ignore,
        Act::Mute,
        Act::Cut { applied: true },
        Act::Cut { applied: false },
        Act::Refuse(Refusal::etcd(Code::Unavailable, "no leader")),
        Act::Twice,
        Act::GoAway,
    ] {
        let peer = Peer::new(3);
        peer.script(Rule::on(Kind::Grant, act.clone()));
        let opened = open(&peer.backend(7)).await;
        let ann = opened.unwrap_or_else(|error| panic!("{act:?}: {error}"));
        let id = lease(ann.session().id);
        assert!(peer.shared.state().leases.is_alive(id), "{act:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_of_no_time_makes_no_live_session() {
    for ttl in [0, -5, i64::MIN] {
        let peer = Peer::new(1);
        peer.script(Rule::on(Kind::Grant, edit(move |answer| LeaseResponse { ttl, ..answer })));
        if let Ok(ann) = open(&peer.backend(7)).await {
            assert!(!ann.status().borrow().is_certain(), "a lease of no time lives");
            eventually("the session is lost", async || ann.status().borrow().is_lost()).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_may_not_be_kept_alive_is_lost_for_that() {
    let peer = Peer::new(1);
    let ann = session(&peer).await;
    let refusal = Refusal::etcd(Code::PermissionDenied, "permission denied");
    peer.script(Rule::on(Kind::KeepAlive, Act::Refuse(refusal)).always());
    sleep(TTL / 2).await;
    assert!(
        matches!(*ann.status().borrow(), Status::Suspended { .. }),
        "it may be permitted again"
    );
    eventually("the session is lost", async || ann.status().borrow().is_lost()).await;
    assert_eq!(*ann.status().borrow(), Status::Lost { reason: SessionEnd::Denied });
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_denied_and_then_not_answered_has_expired() {
    let peer = Peer::new(1);
    let ann = session(&peer).await;
    let refusal = Refusal::etcd(Code::PermissionDenied, "permission denied");
    peer.script(Rule::on(Kind::KeepAlive, Act::Refuse(refusal)));
    peer.script(Rule::on(Kind::KeepAlive, Act::Cut { applied: false }).always());
    eventually("the session is lost", async || ann.status().borrow().is_lost()).await;
    assert_eq!(*ann.status().borrow(), Status::Lost { reason: SessionEnd::Expired });
}

#[tokio::test(start_paused = true)]
async fn a_member_that_refuses_ends_no_session_that_another_keeps_alive() {
    let refusal = Refusal::etcd(Code::PermissionDenied, "permission denied");
    for bad in 0..2 {
        let peer = Peer::new(2);
        let ann = session(&peer).await;
        peer.script(Rule::on(Kind::KeepAlive, Act::Refuse(refusal.clone())).at(bad).always());
        sleep(TTL * 5).await;
        assert!(is_live(&*ann), "{:?}", ann.status().borrow());
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_closed_has_released_everything_or_says_so() {
    for act in [
        Act::Ignore,
        Act::Mute,
        Act::Cut { applied: false },
        Act::Cut { applied: true },
        Act::Reset { applied: false, reason: Reason::CANCEL },
        Act::Refuse(Refusal::etcd(Code::Unavailable, "request timed out")),
        Act::ApplyAndRefuse(Refusal::etcd(Code::Unavailable, "request timed out")),
        Act::Late(Duration::from_secs(1)),
    ] {
        for times in [1, 100] {
            let shown = format!("{act:?} {times} times");
            let peer = Peer::new(2);
            let ann = session(&peer).await;
            done(&*ann, Txn::new().create(path("/e"), "", Lifetime::Session)).await;
            peer.script(Rule::on(Kind::Revoke, act.clone()).times(times));
            for _again in 0..2 {
                match ann.close().await {
                    Ok(()) => assert!(kept(&peer, "/e").is_none(), "{shown}: it is there"),
                    Err(error) => {
                        assert_eq!(error.effect(), Effect::Unknown, "{shown}: {error}");
                    }
                }
            }
            assert!(ann.status().borrow().is_lost());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_gave_itself_up_is_closed_only_when_its_lease_is_gone() {
    let peer = Peer::new(1);
    let ann = session(&peer).await;
    done(&*ann, Txn::new().create(path("/e"), "", Lifetime::Session)).await;
    // The server keeps the session for longer than the client can know.
    peer.script(Rule::on(Kind::KeepAlive, Act::Mute).always());
    peer.script(Rule::on(Kind::Revoke, Act::Ignore).always());
    eventually("the session is lost", async || ann.status().borrow().is_lost()).await;
    match ann.close().await {
        Ok(()) => assert!(kept(&peer, "/e").is_none(), "its node is there"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_gave_itself_up_ends_its_lease() {
    let peer = Peer::new(1);
    let ann = session(&peer).await;
    done(&*ann, Txn::new().create(path("/e"), "", Lifetime::Session)).await;
    // The server renews the lease, and the client does not know.
    peer.script(Rule::on(Kind::KeepAlive, Act::Mute).always());
    peer.script(Rule::on(Kind::Revoke, Act::Late(Duration::from_secs(1))));
    eventually("the session is lost", async || ann.status().borrow().is_lost()).await;
    let (_, ends) = peer.shared.state().leases.first().expect("the lease lives");
    assert!(kept(&peer, "/e").is_some(), "its node is there");

    eventually("its node is gone", async || kept(&peer, "/e").is_none()).await;

    assert!(Instant::now() < ends, "the node was there until the lease expired");
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_lease_is_gone_is_closed() {
    let peer = Peer::new(1);
    let ann = session(&peer).await;
    peer.shared.state().end(lease(ann.session().id)).expect("it lives");

    ann.close().await.expect("nothing is left of it");
}

#[tokio::test(start_paused = true)]
async fn closing_a_lost_session_ends_its_lease() {
    let peer = Peer::new(1);
    let ann = session(&peer).await;
    done(&*ann, Txn::new().create(path("/e"), "", Lifetime::Session)).await;
    // The server renews the lease, and the client does not know. Nor does its first attempt succeed
    // to end the lease.
    peer.script(Rule::on(Kind::KeepAlive, Act::Mute).always());
    let lost = Refusal::etcd(Code::Unavailable, "request timed out");
    peer.script(Rule::on(Kind::Revoke, Act::Refuse(lost)).times(2));
    eventually("the session is lost", async || ann.status().borrow().is_lost()).await;
    eventually("it was tried twice", async || peer.met(Kind::Revoke) == 2).await;
    let (_, ends) = peer.shared.state().leases.first().expect("the lease lives");
    assert!(kept(&peer, "/e").is_some(), "its node is there");

    ann.close().await.expect("the lease is ended");

    assert!(kept(&peer, "/e").is_none(), "its node is there");
    assert_eq!(peer.met(Kind::Revoke), 3, "the close ended the lease");
    assert!(Instant::now() < ends, "the node was there until the lease expired");
}
