//! Sessions that end without the knowledge of their clients.

use std::time::Duration;

use synod_conformance::harness::Link;
use synod_servers::check::record::Breach;
use synod_servers::clients::client::End;
use synod_servers::clients::entry::{Installed, Op, now};
use tokio::time::sleep;

use crate::scene::{Actor, Scene, TTL, at, eventually};

/// Every call on a session that is over fails with that reason.
async fn reports_that_it_is_over(ann: &Actor) {
    eventually("it knows", async || ann.believes().as_deref() == Some("lost")).await;
    let read = |local| Op::Read { path: at("d/n"), local };
    for op in
        [ann.create("d/late"), ann.ephemeral("d/late"), ann.set("d/n"), read(true), read(false)]
    {
        match ann.call(op.clone()).await {
            End::Fail(why) => assert!(why.starts_with("SessionLost"), "{op:?}: {why}"),
            other => panic!("{op:?}: {other:?}"),
        }
    }
    sleep(TTL).await;
    assert_eq!(ann.believes().as_deref(), Some("lost"), "it stays so");
}

/// Two nodes of one session, which another client observes.
async fn watched(scene: &mut Scene) -> [std::sync::Arc<Actor>; 2] {
    let (ann, bob) = (scene.client().await, scene.client().await);
    bob.done(bob.create("d/n")).await;
    bob.done(Op::Observe { path: at("d") }).await;
    for name in ["d/e", "d/f"] {
        ann.done(ann.ephemeral(name)).await;
        // The node keeps its owner ann, whichever client writes it.
        bob.done(bob.set(name)).await;
    }
    [ann, bob]
}

pub(crate) async fn held_link(scene: &mut Scene) {
    for link in [Link::Cut, Link::Deaf] {
        let (ann, bob) = (scene.client().await, scene.client().await);
        let own = format!("d/{link:?}");
        bob.done(Op::Observe { path: at("d") }).await;
        ann.done(ann.ephemeral(&own)).await;

        ann.pipe.set(link);
        scene
            .book
            .nemesis(format!("{link:?} client {}", ann.client.number()), Installed::Installed);
        if link == Link::Deaf {
            // Its heartbeats arrive at the server, but no answer arrives at the client.
            eventually("it gives up", async || ann.believes().as_deref() == Some("lost")).await;
        }
        bob.sees_gone(&own).await;
        ann.pipe.set(Link::Open);

        reports_that_it_is_over(&ann).await;
        // After giving up, the client can open a new session.
        ann.open(TTL).await;
        ann.done(ann.ephemeral(&format!("{own} again"))).await;
    }
}

pub(crate) async fn stopped(scene: &mut Scene) {
    let [ann, bob] = watched(scene).await;

    ann.client.stop().expect("it runs");
    // A request that it receives while it is stopped is executed when it continues.
    let late = ann.client.call(ann.ephemeral("d/g"));
    bob.sees_gone("d/e").await;
    bob.sees_gone("d/f").await;
    ann.client.go_on().expect("it stands still");

    assert!(!matches!(late.await, End::Ok(_)), "its session was over");
    reports_that_it_is_over(&ann).await;
}

pub(crate) async fn killed(scene: &mut Scene) {
    let [ann, bob] = watched(scene).await;
    // While the client is writing.
    let writes: Vec<_> = (0..20).map(|_| ann.client.call(ann.ticket("d", true))).collect();

    ann.client.kill().expect("it runs");

    drop(writes);
    bob.sees_gone("d/e").await;
    bob.sees_gone("d/f").await;
    eventually(
        "its tickets are gone",
        async || matches!(bob.list("d", false).await, End::Ok(answer) if answer.nodes.len() == 1),
    )
    .await;
}

/// A leader is paused for longer than the session's TTL, and resumed. The next leader keeps the
/// session alive, so it must continue. Servers that have the defect may end it nevertheless, which
/// is excused: they are tested until they do, for some rounds.
pub(crate) async fn old_leader(scene: &mut Scene) {
    /// The maximum number of tries with an affected cluster: whether the old leader revokes before
    /// it steps down is a race inside of it.
    const OCCASIONS: usize = 12;

    let [ann, bob] = watched(scene).await;
    let is_affected = scene.has_defect();
    let mut renewals = 0;
    for round in 0..if is_affected { OCCASIONS } else { 2 } {
        let session = ann.session().expect("it was opened");
        let leader = scene.leader().await;
        scene.pause(leader);
        // By the clock of the paused leader the session expires.
        sleep(TTL * 2).await;
        let renewed = ann.believes().as_deref() == Some("live");
        scene.resume(leader).await;
        // The revisions of these writes show how soon a lease was revoked.
        for write in 0..10 {
            bob.insists(|| bob.create(&format!("d/n{round}-{write}"))).await;
            sleep(TTL / 30).await;
        }
        let at = now();
        ann.insists(|| ann.ephemeral(&format!("d/e{round}"))).await;
        if renewed && ann.session() != Some(session) {
            let what = format!("session {session:x} ended, though it was renewed");
            scene.breach(Breach::new("L-SES-2", what).at(at).of([session]));
        }
        renewals += usize::from(renewed);
        if is_affected && scene.defects_shown().await > 0 {
            return;
        }
    }
    assert!(renewals > 0, "no session was renewed by the next leader, so this proves nothing");
}

pub(crate) async fn expired(scene: &mut Scene) {
    let [ann, bob] = watched(scene).await;
    let session = ann.session().expect("it was opened");
    assert_eq!(ann.believes().as_deref(), Some("live"));

    scene.expire(session).await;

    bob.sees_gone("d/e").await;
    reports_that_it_is_over(&ann).await;
    // No late event may arrive.
    sleep(Duration::from_millis(500)).await;
}
