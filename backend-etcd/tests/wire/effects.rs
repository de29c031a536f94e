//! The proof in an answer that a write was applied, or not.

use std::time::Duration;

use h2::Reason;
use synod_core::error::{Effect, ErrorKind};
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime, Outcome, Query, RejectReason, Txn};
use tonic::Code;

use crate::peer::Peer;
use crate::peer::answer::Answer;
use crate::peer::refusal::Refusal;
use crate::peer::script::{Act, Kind, Rule};
use crate::world::{TTL, create, done, exists, kept, key, path, session, set};

/// Plays an act on the next transaction of one client, which creates a node; returns the result of
/// the commit.
async fn after(act: Act) -> (Peer, synod_core::error::Result<Outcome>) {
    let peer = Peer::new(1);
    let ann = session(&peer).await;
    peer.script(Rule::on(Kind::Txn, act));
    let outcome = ann.commit(create("/n")).await;
    assert_eq!(peer.shared.script().played, 1, "the act was not played");
    (peer, outcome)
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_applied_and_lost_its_answer_has_an_unknown_effect() {
    for act in [
        Act::Mute,
        Act::Cut { applied: true },
        Act::Reset { applied: true, reason: Reason::INTERNAL_ERROR },
        Act::Reset { applied: true, reason: Reason::CANCEL },
        Act::Reset { applied: true, reason: Reason::NO_ERROR },
        Act::NoStatus { message: false },
        Act::garble(),
        Act::ApplyAndRefuse(Refusal::etcd(Code::Unavailable, "request timed out")),
        Act::ApplyAndRefuse(Refusal::etcd(Code::Unavailable, "leader changed")),
        Act::ApplyAndRefuse(Refusal::new(Code::Unknown, "anything")),
        Act::ApplyAndRefuse(Refusal::new(Code::Cancelled, "context canceled")),
        Act::ApplyAndRefuse(Refusal::new(Code::DataLoss, "anything")),
    ] {
        let shown = format!("{act:?}");
        let (peer, outcome) = after(act).await;
        assert!(kept(&peer, "/n").is_some(), "{shown}: it was applied");
        let error = outcome.expect_err("no answer says that it was done");
        assert_eq!(error.effect(), Effect::Unknown, "{shown}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_applied_after_its_caller_gave_up_had_an_unknown_effect() {
    let (peer, outcome) = after(Act::Late(TTL * 3)).await;
    assert!(kept(&peer, "/n").is_none(), "it is still on its way");
    let error = outcome.expect_err("no member answered");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::Unknown));
    tokio::time::sleep(TTL * 3).await;
    assert!(kept(&peer, "/n").is_some(), "it is applied in the end");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_certainly_refused_did_not_happen() {
    for refusal in [
        Refusal::etcd(Code::Unavailable, "no leader"),
        Refusal::etcd(Code::ResourceExhausted, "too many requests"),
        Refusal::etcd(Code::PermissionDenied, "permission denied"),
        Refusal::etcd(Code::InvalidArgument, "request is too large"),
    ] {
        let peer = Peer::new(1);
        let ann = session(&peer).await;
        peer.script(Rule::on(Kind::Txn, Act::Refuse(refusal.clone())).always());
        let error = ann.commit(create("/n")).await.expect_err("it is refused");
        assert_eq!(error.effect(), Effect::None, "{refusal:?}: {error}");
        assert_eq!(error.path(), Some(&path("/n")), "{refusal:?}: {error}");
        assert!(kept(&peer, "/n").is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_in_doubt_is_not_sent_again_and_one_that_is_not_is() {
    let peer = Peer::new(3);
    let ann = session(&peer).await;
    let doubtful = Act::Refuse(Refusal::etcd(Code::Unavailable, "request timed out"));
    peer.script(Rule::on(Kind::Txn, doubtful));
    let error = ann.commit(create("/a")).await.expect_err("it may have been done");
    assert_eq!((error.effect(), peer.met(Kind::Txn)), (Effect::Unknown, 1));

    let certain = Act::Refuse(Refusal::etcd(Code::Unavailable, "no leader"));
    peer.script(Rule::on(Kind::Txn, certain));
    done(&*ann, create("/a")).await;
    assert_eq!(peer.met(Kind::Txn), 3, "another member was asked");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_said_twice_counts_once() {
    let (peer, outcome) = after(Act::Twice).await;
    // Either result is correct.
    match outcome {
        Ok(outcome) => assert!(matches!(outcome, Outcome::Committed(_))),
        Err(error) => assert_eq!(error.effect(), Effect::Unknown, "{error}"),
    }
    assert!(kept(&peer, "/n").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_takes_no_more_is_replaced_without_an_error() {
    let peer = Peer::new(1);
    let ann = session(&peer).await;
    peer.script(Rule::on(Kind::Txn, Act::GoAway));
    done(&*ann, create("/a")).await;
    done(&*ann, create("/b")).await;
    assert!(exists(&*ann, "/a").await && exists(&*ann, "/b").await);
}

#[tokio::test(start_paused = true)]
async fn answers_that_overtake_each_other_reach_their_own_callers() {
    let peer = Peer::new(1);
    let ann = session(&peer).await;
    peer.script(Rule::on(Kind::Txn, Act::Slow(Duration::from_secs(2))));
    let (slow, quick) = tokio::join!(ann.commit(create("/slow")), async {
        let outcome = ann.commit(create("/quick")).await;
        (outcome, tokio::time::Instant::now())
    });
    let (quick, then) = quick;
    assert!(then < tokio::time::Instant::now(), "the second was answered first");
    for (outcome, at) in [(slow, "/slow"), (quick, "/quick")] {
        let commit = outcome.expect("it is answered").required().expect("it is free");
        assert_eq!(commit.results[0].path, path(at));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_its_header_or_its_parts_makes_no_panic() {
    for kind in [Kind::Txn, Kind::Range, Kind::Put, Kind::Delete] {
        for act in [Act::edit(Answer::without_header), Act::edit(empty), Act::garble()] {
            let peer = Peer::new(1);
            let ann = session(&peer).await;
            done(&*ann, create("/n")).await;
            peer.script(Rule::on(kind, act).times(2));
            // The results do not matter, only that the calls end.
            let _any = ann.commit(create("/q/a").look(Query::children(path("/q")))).await.is_ok();
            let _any = ann.commit(set("/n", "y")).await.is_ok();
            let _any = ann.commit(create("/q/b").set(path("/n"), "z", Expect::Any)).await.is_ok();
            let ticket = Txn::new().create_sequential(path("/q/t-"), "", Lifetime::Session);
            let _any = ann.commit(ticket).await.is_ok();
            let _any = ann.read(Query::children(path("/q"))).await.is_ok();
            let _any = ann.watch(Query::subtree(path("/q"))).await.is_ok();
            let _any = ann.commit(Txn::new().delete(path("/q/t-"), Expect::Any)).await.is_ok();
            peer.shared.script().clear();
            assert!(exists(&*ann, "/n").await, "{kind:?}: it goes on");
        }
    }
}

fn empty(answer: Answer) -> Answer {
    let _lost = answer;
    Answer::Garbage(bytes::Bytes::new())
}

#[tokio::test(start_paused = true)]
async fn an_answer_larger_than_anything_is_no_answer() {
    let peer = Peer::new(1);
    let ann = session(&peer).await;
    done(&*ann, create("/d/n")).await;
    // A length that no message has, before bytes that never arrive.
    peer.script(Rule::on(Kind::Range, Act::garble()));
    let error = ann.read(Query::node(path("/d/n"))).await;
    assert!(error.is_err() || peer.met(Kind::Range) > 1, "garbage was taken for an answer");
    assert!(exists(&*ann, "/d/n").await);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_etcd_applied_before_it_found_no_space_has_an_unknown_effect() {
    let full = Refusal::etcd(Code::ResourceExhausted, "mvcc: database space exceeded");
    let (peer, outcome) = after(Act::ApplyAndRefuse(full)).await;

    assert!(kept(&peer, "/n").is_some(), "it was applied");
    let error = outcome.expect_err("it was refused");
    assert_eq!(error.effect(), Effect::Unknown, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_a_proxy_resets_for_calm_has_an_unknown_effect() {
    let reset = Act::Reset { applied: true, reason: Reason::ENHANCE_YOUR_CALM };
    let (peer, outcome) = after(reset).await;

    assert!(kept(&peer, "/n").is_some(), "it was applied");
    let error = outcome.expect_err("it was not answered");
    assert_eq!(error.effect(), Effect::Unknown, "{error}");
}

/// Writes nodes that are together larger than the largest answer that is received.
fn fill(peer: &Peer, names: &[Path]) {
    let mut state = peer.shared.state();
    let mut batch = state.keys.write();
    for name in names {
        batch.put(&key(name), vec![b'x'; 1_700_000].into(), 0);
    }
    batch.commit();
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_replaces_much_by_little_is_answered() {
    let names: Vec<Path> = (0..40).map(|number| path(&format!("/{number:02}"))).collect();
    let peer = Peer::new(1);
    let ann = session(&peer).await;
    fill(&peer, &names);
    let sets = names.iter().fold(Txn::new(), |txn, name| txn.set(name, "small", Expect::Any));
    let commit = ann.commit(sets).await.expect("it is answered").ok().expect("all are there");
    assert!(commit.results.iter().all(|done| done.stat.is_some()));
}

/// Nothing can be below the ticket of a session, so that it is deleted without a look at what is.
#[tokio::test(start_paused = true)]
async fn a_ticket_is_deleted_by_one_request_and_no_other_node_with_something_below_it() {
    for (lifetime, plain) in [(Lifetime::Session, 1), (Lifetime::Persistent, 0)] {
        let peer = Peer::new(1);
        let ann = session(&peer).await;
        let drawn = Txn::new().create_sequential(path("/d/t-"), "", lifetime);
        let drawn = ann.commit(drawn).await.expect("it is answered").required().expect("so");
        let ticket = &drawn.results[0].path;
        let below = path(&format!("{ticket}/below"));
        if lifetime == Lifetime::Persistent {
            done(&*ann, Txn::new().create(below, "", Lifetime::Persistent)).await;
        }
        let deleted = ann.commit(Txn::new().delete(ticket, Expect::Any)).await;
        let refused = deleted.expect("it is answered").rejected().map(|no| no.reason);
        assert_eq!(refused, (plain == 0).then_some(RejectReason::HasChildren));
        assert_eq!(peer.met(Kind::Delete), plain);
    }
}
