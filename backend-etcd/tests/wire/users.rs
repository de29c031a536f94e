//! Names, passwords and tokens that expire.

use synod_core::error::ErrorKind;
use synod_core::random::Random;
use synod_core::store::{End, Event, Query, SessionEnd, Status, Store};
use tonic::Code;

use crate::peer::Peer;
use crate::peer::refusal::Refusal;
use crate::peer::script::{Act, Kind, Rule};
use crate::world::{
    TTL, create, done, eventually, exists, hears_of, is_live, next, open, path, session, set,
};

/// A cluster that requires a login, and a session of a known user.
async fn known(members: usize) -> (Peer, Box<dyn Store>) {
    let peer = Peer::new(members);
    peer.shared.state().users.require("ann", "secret");
    let options = peer.options().user("ann", "secret").plaintext_auth(true);
    let backend = peer.network().backend(options, Random::seeded(1)).expect("valid");
    let ann = open(&backend).await.expect("she is let in");
    (peer, ann)
}

#[tokio::test(start_paused = true)]
async fn a_stranger_is_denied() {
    let peer = Peer::new(1);
    peer.shared.state().users.require("ann", "secret");
    let options = peer.options().user("ann", "wrong").plaintext_auth(true);
    let backend = peer.network().backend(options, Random::seeded(1)).expect("valid");
    let error = open(&backend).await.expect_err("the password is wrong");
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(!format!("{error} {error:?}").contains("wrong,"), "{error}");

    let nobody = peer.backend(2);
    if let Ok(store) = open(&nobody).await {
        let error = store.commit(create("/n")).await.expect_err("the session has no user");
        assert_eq!(error.kind(), ErrorKind::Denied);
    }
}

#[tokio::test(start_paused = true)]
async fn a_user_is_let_in_where_no_user_is_required() {
    let peer = Peer::new(1);
    peer.shared.state().users.disable();
    let options = peer.options().user("ann", "secret").plaintext_auth(true);
    let backend = peer.network().backend(options, Random::seeded(1)).expect("valid");
    let ann = open(&backend).await.expect("she is let in");
    done(&*ann, create("/n")).await;
}

#[tokio::test(start_paused = true)]
async fn tokens_that_ran_out_are_replaced_without_an_error() {
    let (peer, ann) = known(2).await;
    done(&*ann, create("/n")).await;
    let (_view, mut watch) = ann.watch(Query::node(path("/n"))).await.expect("it is answered");
    for data in ["a", "b", "c"] {
        peer.shared.state().users.forget_tokens();
        done(&*ann, set("/n", data)).await;
        hears_of(&mut watch, "/n").await;
        assert!(exists(&*ann, "/n").await);
    }
    tokio::time::sleep(TTL * 2).await;
    assert!(is_live(&*ann));
}

#[tokio::test(start_paused = true)]
async fn a_watch_begins_also_with_a_token_that_ran_out() {
    let (peer, ann) = known(1).await;
    done(&*ann, create("/n")).await;
    peer.shared.state().users.forget_tokens();
    eventually("it is observed", async || {
        let Ok((_view, mut watch)) = ann.watch(Query::node(path("/n"))).await else {
            return false;
        };
        done(&*ann, set("/n", "y")).await;
        hears_of(&mut watch, "/n").await;
        true
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_session_outlives_a_change_of_the_users() {
    let (peer, ann) = known(2).await;
    done(&*ann, create("/n")).await;
    let (_view, mut watch) = ann.watch(Query::node(path("/n"))).await.expect("it is answered");
    for data in ["a", "b", "c"] {
        // Signed tokens contain the revision of the users at which they were issued.
        peer.shared.state().users.change();
        eventually("a write is answered", async || ann.commit(set("/n", data)).await.is_ok()).await;
        hears_of(&mut watch, "/n").await;
        assert!(exists(&*ann, "/n").await);
    }
    tokio::time::sleep(TTL * 2).await;
    assert!(is_live(&*ann));
}

#[tokio::test(start_paused = true)]
async fn a_session_outlives_the_end_of_authentication() {
    let (peer, ann) = known(2).await;
    done(&*ann, create("/n")).await;
    peer.shared.state().users.disable();
    // Every connection is new, and requests a token that no member issues.
    for member in 0..2 {
        peer.shared.set_member(member, |member| member.down = true);
    }
    tokio::time::sleep(TTL / 20).await;
    for member in 0..2 {
        peer.shared.set_member(member, |member| member.down = false);
    }
    eventually("a write is answered", async || ann.commit(set("/n", "y")).await.is_ok()).await;
    tokio::time::sleep(TTL * 2).await;
    assert!(is_live(&*ann));
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_user_ends_when_one_is_required() {
    for members in [1, 2] {
        let peer = Peer::new(members);
        let nobody = session(&peer).await;
        let observed = nobody.watch(Query::node(path("/n"))).await;
        let (_view, mut watch) = observed.expect("it is answered");
        peer.shared.restart(|state| state.users.require("ann", "secret")).await;
        match next(&mut watch).await {
            Some(Event::Ended(End::Failed(error))) => assert_eq!(error.kind(), ErrorKind::Denied),
            other => panic!("{other:?}"),
        }
        assert!(is_live(&*nobody), "keep-alives need no user");
    }
}

#[tokio::test(start_paused = true)]
async fn some_refusals_of_a_watch_end_it_not() {
    let refusals = [
        Refusal::etcd(Code::Unauthenticated, "invalid auth token"),
        Refusal::etcd(Code::InvalidArgument, "authentication failed, invalid user ID or password"),
    ];
    for (kind, refusal) in [Kind::Watch, Kind::Authenticate].into_iter().zip(refusals) {
        for members in [1, 2] {
            let (peer, ann) = known(members).await;
            done(&*ann, create("/n")).await;
            let observed = ann.watch(Query::node(path("/n"))).await;
            let (_view, mut watch) = observed.expect("it is answered");
            // One member may know less of the users than another, or be an intermediary.
            peer.script(Rule::on(kind, Act::Refuse(refusal.clone())).times(2));
            peer.shared.restart(|state| state.users.forget_tokens()).await;
            eventually("a write is answered", async || ann.commit(set("/n", "y")).await.is_ok())
                .await;
            hears_of(&mut watch, "/n").await;
            tokio::time::sleep(TTL * 2).await;
            assert!(is_live(&*ann), "{kind:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_login_ends_no_session_that_another_member_keeps_alive() {
    for bad in 0..2 {
        let (peer, ann) = known(2).await;
        let why = "authentication failed, invalid user ID or password";
        let refusal = Refusal::etcd(Code::InvalidArgument, why);
        peer.script(Rule::on(Kind::Authenticate, Act::Refuse(refusal)).at(bad).always());
        // So that a new token is needed.
        peer.shared.state().users.guards_leases = true;
        peer.shared.restart(|state| state.users.forget_tokens()).await;
        tokio::time::sleep(TTL * 3).await;
        assert!(is_live(&*ann), "{bad}: {:?}", ann.status().borrow());
    }
}

/// Since 3.5.30 requests about leases need a login.
#[tokio::test(start_paused = true)]
async fn guarded_leases_are_kept_alive_with_a_new_token_and_not_without_a_user() {
    let (peer, ann) = known(2).await;
    peer.shared.state().users.guards_leases = true;
    for _ in 0..3 {
        peer.shared.state().users.forget_tokens();
        tokio::time::sleep(TTL).await;
        peer.shared.state().users.change();
        tokio::time::sleep(TTL).await;
        assert!(is_live(&*ann), "{:?}", ann.status().borrow());
    }

    let peer = Peer::new(1);
    let nobody = session(&peer).await;
    peer.shared.state().users.require("ann", "secret");
    peer.shared.state().users.guards_leases = true;
    tokio::time::sleep(TTL / 2).await;
    assert!(!nobody.status().borrow().is_lost(), "it may be permitted again");
    eventually("the session is lost", async || nobody.status().borrow().is_lost()).await;
    assert_eq!(*nobody.status().borrow(), Status::Lost { reason: SessionEnd::Denied });
}
