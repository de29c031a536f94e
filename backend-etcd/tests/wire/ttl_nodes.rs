//! Several nodes with a time to live in one call: their leases have one limit of time together, and
//! end with a call that creates nothing.

use std::time::Duration;

use synod_core::error::Effect;
use synod_core::store::{Backend as _, Expect, Lifetime, SessionOptions, Store, Txn};
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use crate::peer::Peer;
use crate::peer::refusal::Refusal;
use crate::peer::script::{Act, Kind, Rule};
use crate::world::{TTL, done, kept, path};

/// The number of nodes in one call.
const NODES: usize = 5;
/// The delay of each answer about a lease: twice the delay is less than the limit of a call, and
/// more than two of them in succession are not.
const LATE: Duration = Duration::from_secs(3);
/// The limit of a call. Sessions live longer, so that their heartbeats may be late too.
const LIMIT: Duration = Duration::from_secs(7);

async fn session(peer: &Peer) -> Box<dyn Store> {
    let options = peer.options().timeout(LIMIT);
    let backend = peer.network().backend(options, synod_core::random::Random::seeded(7));
    let opened = backend.expect("the members are named well");
    opened.open(&SessionOptions::new(TTL * 6)).await.expect("it is opened")
}

fn creates() -> Txn {
    let create = |txn: Txn, number: usize| {
        txn.create(path(&format!("/{number}")), "x", Lifetime::Ttl(TTL * 6))
    };
    (0..NODES).fold(Txn::new(), create)
}

fn sets() -> Txn {
    let set = |txn: Txn, number: usize| txn.set(path(&format!("/{number}")), "y", Expect::Any);
    (0..NODES).fold(Txn::new(), set)
}

fn are_there(peer: &Peer) -> bool {
    (0..NODES).all(|number| kept(peer, &format!("/{number}")).is_some())
}

#[tokio::test(start_paused = true)]
async fn nodes_with_a_time_to_live_are_created_within_one_limit() {
    let peer = Peer::new(1);
    let ann = session(&peer).await;
    let (granted, renewed) = (peer.met(Kind::Grant), peer.met(Kind::KeepAlive));
    for kind in [Kind::Grant, Kind::KeepAlive] {
        peer.script(Rule::on(kind, Act::Slow(LATE)).always());
    }

    let began = Instant::now();
    done(&*ann, creates()).await;

    assert!(began.elapsed() <= LIMIT, "it took {:?}", began.elapsed());
    assert!(are_there(&peer));
    assert_eq!(peer.met(Kind::Grant) - granted, NODES, "each node has a lease");
    let renewed = peer.met(Kind::KeepAlive) - renewed;
    assert!(renewed >= NODES, "{renewed} leases had their time from the creation of the nodes on");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_created_at_once_needs_no_more_time_for_its_lease() {
    let peer = Peer::new(1);
    let ann = session(&peer).await;
    // Its own first heartbeat.
    sleep(Duration::from_millis(100)).await;
    let renewed = peer.met(Kind::KeepAlive);
    done(&*ann, creates()).await;
    assert_eq!(peer.met(Kind::KeepAlive), renewed);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_one_member_does_not_grant_is_asked_of_the_next() {
    let peer = Peer::new(2);
    let ann = session(&peer).await;
    peer.script(Rule::on(Kind::Grant, Act::Ignore));
    done(&*ann, creates()).await;
    assert!(are_there(&peer));
    assert_eq!(peer.shared.script().played, 1, "the act was not played");
}

#[tokio::test(start_paused = true)]
async fn nodes_with_a_time_to_live_are_written_within_one_limit() {
    let peer = Peer::new(1);
    let ann = session(&peer).await;
    done(&*ann, creates()).await;
    let renewed = peer.met(Kind::KeepAlive);
    peer.script(Rule::on(Kind::KeepAlive, Act::Slow(LATE * 2)).always());

    let began = Instant::now();
    done(&*ann, sets()).await;

    assert!(began.elapsed() <= LIMIT, "it took {:?}", began.elapsed());
    let renewed = peer.met(Kind::KeepAlive) - renewed;
    assert!(renewed >= NODES, "{renewed} leases were renewed");
}

#[tokio::test(start_paused = true)]
async fn leases_that_are_not_renewed_end_the_call_at_its_limit() {
    for act in [Act::Ignore, Act::Mute] {
        let peer = Peer::new(1);
        let ann = session(&peer).await;
        done(&*ann, creates()).await;
        peer.script(Rule::on(Kind::KeepAlive, act.clone()).always());

        let began = Instant::now();
        let set = timeout(LIMIT * 10, ann.commit(sets())).await.expect("every call ends");

        let error = set.expect_err("the nodes may not have their new time");
        assert_eq!(error.effect(), Effect::Unknown, "{act:?}: {error}");
        let took = began.elapsed();
        assert!(took <= LIMIT + Duration::from_secs(1), "{act:?}: it took {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn leases_of_nodes_are_ended_only_if_the_nodes_were_certainly_not_created() {
    let refusal = || Refusal::etcd(Code::ResourceExhausted, "too many requests");
    for (act, effect, ended) in [
        (Act::Mute, Effect::Unknown, 0),
        // There is time left to end them.
        (Act::Cut { applied: true }, Effect::Unknown, 0),
        (Act::Refuse(refusal()), Effect::None, NODES),
    ] {
        let peer = Peer::new(1);
        let ann = session(&peer).await;
        peer.script(Rule::on(Kind::Txn, act.clone()).always());

        let created = timeout(LIMIT * 10, ann.commit(creates())).await.expect("every call ends");

        let error = created.expect_err("it is not answered with success");
        assert_eq!(error.effect(), effect, "{act:?}: {error}");
        assert_eq!(are_there(&peer), ended == 0, "{act:?}");
        assert_eq!(peer.met(Kind::Revoke), ended, "{act:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn leases_of_nodes_that_are_rejected_are_ended() {
    let peer = Peer::new(1);
    let ann = session(&peer).await;
    done(&*ann, creates()).await;

    let again = ann.commit(creates()).await.expect("it is answered");

    assert!(again.rejected().is_some());
    assert_eq!(peer.met(Kind::Revoke), NODES);
    assert!(are_there(&peer), "the leases of the first nodes live");
}
