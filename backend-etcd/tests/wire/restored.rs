//! A store that is restored from a backup under its clients.

use std::time::Duration;

use synod_core::error::ErrorKind;
use synod_core::store::{End, Event, Query, SessionEnd, Status, Store};
use tokio::time::sleep;

use crate::peer::Peer;
use crate::peer::answer::Answer;
use crate::peer::message::RangeResponse;
use crate::peer::script::{Act, Kind, Rule};
use crate::peer::state::State;
use crate::world::{
    TTL, create, done, eventually, exists, hears_of, is_live, next, path, session, set,
};

/// The way in which a backup is restored.
#[derive(Clone, Copy, Debug)]
enum Restored {
    /// With the id of the cluster, and the revision of the backup.
    SameCluster,
    /// Under another id, and with a revision beyond any that was seen (`--bump-revision`).
    HigherRevision,
}

/// A session that has seen many revisions after the backup.
async fn backed_up() -> (Peer, Box<dyn Store>, State) {
    let peer = Peer::new(1);
    peer.shared.set_member(0, |member| member.version = Some("3.5.16"));
    let ann = session(&peer).await;
    done(&*ann, create("/n")).await;
    let backup = peer.shared.state().clone();
    for _ in 0..20 {
        done(&*ann, set("/n", "y")).await;
    }
    (peer, ann, backup)
}

async fn restore(peer: &Peer, backup: State, how: Restored) {
    let restoring = |state: &mut State| {
        let revision = state.keys.revision;
        *state = backup;
        // The backup has the lease, which a new leader gives all of its time again.
        state.leases.renew_all();
        if let Restored::HigherRevision = how {
            state.cluster += 1;
            state.keys.revision = revision + 1_000_000;
        }
    };
    peer.shared.restart(restoring).await;
}

fn is_expired(store: &dyn Store) -> bool {
    *store.status().borrow() == Status::Lost { reason: SessionEnd::Expired }
}

#[tokio::test(start_paused = true)]
async fn a_call_on_a_restored_store_ends_the_session() {
    for how in [Restored::SameCluster, Restored::HigherRevision] {
        for write in [false, true] {
            let (peer, ann, backup) = backed_up().await;
            restore(&peer, backup, how).await;
            eventually("a call finds it out", async || {
                let called = if write {
                    ann.commit(set("/n", "z")).await.map(drop)
                } else {
                    ann.read(Query::node(path("/n"))).await.map(drop)
                };
                let error = called.expect_err("the session is of another history");
                error.kind() == ErrorKind::SessionLost
            })
            .await;
            assert!(is_expired(&*ann), "{how:?}: {:?}", ann.status().borrow());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_restored_store_ends_the_session_also_without_a_call() {
    for how in [Restored::SameCluster, Restored::HigherRevision] {
        let (peer, ann, backup) = backed_up().await;
        restore(&peer, backup, how).await;
        sleep(TTL).await;
        assert!(is_expired(&*ann), "{how:?}: {:?}", ann.status().borrow());
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_a_restored_store_ends_with_its_session_before_a_heartbeat() {
    let (peer, ann, backup) = backed_up().await;
    let (_view, mut watch) = ann.watch(Query::node(path("/n"))).await.expect("it is answered");
    peer.script(Rule::on(Kind::KeepAlive, Act::Ignore).always());
    restore(&peer, backup, Restored::SameCluster).await;
    sleep(TTL / 4).await;
    assert!(is_expired(&*ann), "{:?}", ann.status().borrow());
    assert!(matches!(
        next(&mut watch).await,
        Some(Event::Ended(End::SessionOver(SessionEnd::Expired)))
    ));
}

#[tokio::test(start_paused = true)]
async fn one_latest_read_from_the_past_is_repeated() {
    let (peer, ann, _backup) = backed_up().await;
    // Members before 3.4.42 that were paused may answer so.
    let past = Act::edit(|answer| match answer {
        Answer::Range(range) => {
            let header = range.header.clone().map(|mut header| {
                header.revision = 2;
                header
            });
            Answer::Range(RangeResponse { header, kvs: Vec::new(), ..range })
        }
        other => other,
    });
    peer.script(Rule::on(Kind::Range, past));
    assert!(exists(&*ann, "/n").await);
    assert!(is_live(&*ann));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_moves_to_a_member_that_lags_ends_no_session() {
    let peer = Peer::new(2);
    for member in 0..2 {
        peer.shared.set_member(member, |member| member.version = Some("3.5.16"));
    }
    let (ann, bob) = (session(&peer).await, session(&peer).await);
    done(&*ann, create("/n")).await;
    let (_view, mut watch) = bob.watch(Query::node(path("/n"))).await.expect("it is answered");
    let lagging = peer.shared.state().keys.revision;
    for _ in 0..5 {
        done(&*ann, set("/n", "y")).await;
        hears_of(&mut watch, "/n").await;
    }
    peer.shared.restart(|_| {}).await;
    for member in 0..2 {
        peer.shared.set_member(member, |member| member.behind = Some(lagging));
    }
    sleep(Duration::from_secs(2)).await;
    for member in 0..2 {
        peer.shared.set_member(member, |member| member.behind = None);
    }
    eventually("a write is answered", async || ann.commit(set("/n", "z")).await.is_ok()).await;
    hears_of(&mut watch, "/n").await;
    assert!(is_live(&*bob));
}
