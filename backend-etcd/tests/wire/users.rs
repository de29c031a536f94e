//! Names, passwords and tokens that expire.

use synod_core::error::ErrorKind;
use synod_core::store::{Query, Store};

use synod_core::chance::Chance;

use crate::peer::Peer;
use crate::world::{TTL, create, done, eventually, exists, hears_of, is_live, open, path, set};

/// A cluster that requires a login, and a session of a known user.
async fn known(members: usize) -> (Peer, Box<dyn Store>) {
    let peer = Peer::new(members);
    peer.shared.state().users.require("ann", "secret");
    let options = peer.options().user("ann", "secret").plaintext_auth(true);
    let backend = peer.network().backend(options, Chance::seeded(1)).expect("valid");
    let ann = open(&backend).await.expect("she is let in");
    (peer, ann)
}

#[tokio::test(start_paused = true)]
async fn a_stranger_is_denied() {
    let peer = Peer::new(1);
    peer.shared.state().users.require("ann", "secret");
    let options = peer.options().user("ann", "wrong").plaintext_auth(true);
    let backend = peer.network().backend(options, Chance::seeded(1)).expect("valid");
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
    let backend = peer.network().backend(options, Chance::seeded(1)).expect("valid");
    let ann = open(&backend).await.expect("she is let in");
    done(&*ann, create("/n")).await;
}

#[tokio::test(start_paused = true)]
async fn tokens_that_ran_out_are_replaced_without_an_error() {
    let (peer, ann) = known(2).await;
    done(&*ann, create("/n")).await;
    let (_view, mut watch) = ann.observe(Query::node(path("/n"))).await.expect("it is answered");
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
        let Ok((_view, mut watch)) = ann.observe(Query::node(path("/n"))).await else {
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
    let (_view, mut watch) = ann.observe(Query::node(path("/n"))).await.expect("it is answered");
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
