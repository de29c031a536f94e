//! Watches and connections survive silence and lost connections.

use std::time::Duration;

use synod_core::error::ErrorKind;
use synod_core::store::{Event, Query};
use tokio::time::sleep;

use crate::peer::Peer;
use crate::peer::script::{Act, Kind, Rule};
use crate::peer::shared::Shared;
use crate::world::{
    TTL, create, done, eventually, exists, is_live, next, open, path, session, set,
};

/// One member, which reports this version.
fn member(version: Option<&'static str>) -> Peer {
    let peer = Peer::new(1);
    peer.shared.set_member(0, |member| member.version = version);
    peer
}

/// The event of a watch of a quiet node, when its stream breaks long after its last event, and etcd
/// has compacted all but the last revision.
async fn heard_after_a_break(version: Option<&'static str>) -> Event {
    let peer = member(version);
    let (ann, bob) = (session(&peer).await, session(&peer).await);
    done(&*ann, create("/n")).await;
    done(&*ann, create("/other")).await;
    let (_view, mut watch) = bob.watch(Query::node(path("/n"))).await.expect("it is answered");
    for _ in 0..10 {
        done(&*ann, set("/other", "y")).await;
    }
    sleep(TTL * 2).await;
    assert!(peer.met(Kind::Progress) > 0, "the member was asked how far it is");
    let now = peer.shared.state().keys.revision;
    peer.shared.state().keys.compact(now);

    peer.shared.set_member(0, |member| member.down = true);
    sleep(Duration::from_millis(100)).await;
    peer.shared.set_member(0, |member| member.down = false);
    eventually("the watch is there again", async || Shared::count(&peer.shared.watches) > 0).await;

    eventually("a write is answered", async || ann.commit(set("/n", "z")).await.is_ok()).await;
    next(&mut watch).await.expect("the watch goes on")
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_a_quiet_node_goes_on_where_the_member_said_that_it_is() {
    for version in ["3.4.25", "3.5.16", "3.6.0"] {
        let event = heard_after_a_break(Some(version)).await;
        assert!(matches!(event, Event::Changed(_)), "{version}: {event:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_says_too_early_how_far_it_is_is_not_believed() {
    for version in [None, Some("3.4.23"), Some("3.5.7"), Some("none")] {
        let event = heard_after_a_break(version).await;
        assert!(matches!(event, Event::Resync), "{version:?}: {event:?}");
    }
}

/// Returns the number of watch streams that were opened while the first was silent for this time.
async fn streams(version: Option<&'static str>, silent: Duration) -> usize {
    let peer = member(version);
    let bob = session(&peer).await;
    let (_view, _watch) = bob.watch(Query::node(path("/n"))).await.expect("it is answered");
    peer.script(Rule::on(Kind::Progress, Act::Ignore).always());
    sleep(silent).await;
    assert!(is_live(&*bob));
    peer.met(Kind::Watch)
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_of_a_member_that_may_be_silent_is_kept_for_a_while() {
    assert_eq!(streams(Some("3.5.16"), TTL * 2).await, 1, "a watch may have to catch up");
    assert!(streams(Some("3.5.16"), TTL * 6).await > 1, "not for ever");
    assert!(streams(Some("3.4.23"), TTL * 2).await > 1, "an older member always answers");
}

#[tokio::test(start_paused = true)]
async fn a_proxy_is_refused_and_a_member_next_to_it_is_used() {
    let peer = Peer::new(1);
    peer.shared.set_member(0, |member| member.proxy = true);
    let error = open(&peer.backend(1)).await.expect_err("it keeps leases alive by itself");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("gRPC proxy"), "{error}");

    for proxy in 0..2 {
        let peer = Peer::new(2);
        peer.shared.set_member(proxy, |member| member.proxy = true);
        let ann = session(&peer).await;
        done(&*ann, create("/n")).await;
        sleep(TTL * 3).await;
        assert!(is_live(&*ann));
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_cluster_is_given_no_more_connections() {
    let peer = Peer::new(3);
    let ann = session(&peer).await;
    done(&*ann, create("/n")).await;
    for kind in [Kind::Range, Kind::KeepAlive] {
        peer.script(Rule::on(kind, Act::Slow(Duration::from_millis(900))).always());
    }
    for _ in 0..40 {
        assert!(exists(&*ann, "/n").await);
    }
    assert!(is_live(&*ann));
    // Each heartbeat is a keep-alive and a read.
    let reads = peer.met(Kind::Range) - peer.met(Kind::KeepAlive);
    assert!(reads <= 44, "{reads} reads were sent for 40");
    assert!(Shared::count(&peer.shared.connections) <= 3, "one for each member");
}

#[tokio::test(start_paused = true)]
async fn many_watches_come_back_although_their_answers_take_longer_than_one_may() {
    const MANY: usize = 800;
    let peer = member(Some("3.5.16"));
    let (ann, bob) = (session(&peer).await, session(&peer).await);
    let mut watches = Vec::new();
    for number in 0..MANY {
        let observed = bob.watch(Query::node(path(&format!("/n{number}")))).await;
        watches.push(observed.expect("it is answered").1);
    }
    // All of them together take eight seconds; a stream is silent for less than seven.
    peer.script(Rule::on(Kind::Create, Act::Slow(Duration::from_millis(10))).always());
    peer.shared.restart(|_| {}).await;
    sleep(TTL * 2).await;
    assert_eq!(Shared::count(&peer.shared.watches), MANY, "each is there, and once");
    assert!(is_live(&*bob));
    let last = format!("/n{}", MANY - 1);
    done(&*ann, create(&last)).await;
    let told = next(watches.last_mut().expect("many")).await;
    assert!(matches!(told, Some(Event::Changed(_))), "{told:?}");
}
