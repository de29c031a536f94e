//! The end of leadership: sessions that are lost or suspended, and tickets that another client
//! removes.

use synod_core::store::{Expect, Lifetime, Query};
use synod_recipes::election::Candidacy;
use tokio::time::timeout;

use crate::door::answer;
use crate::harness::Link;
use crate::recipe::leader_latch::joined;
use crate::recipe::line;
use crate::world::{MILLISECOND, World};

cases![
    "L-EL-2" breaks [CertainUntilTold] => a_candidate_without_news_of_its_session_does_not_lead,
    "L-EL-1 L-EL-2 L-EL-3" needs [Links] catches [ExpiryUntoldToWatchers] => a_leader_that_is_cut_off_stops_before_another_leads,
    "L-EL-1 L-SES-10" needs [Expiry] breaks [OldTicketTrusted] => the_ticket_of_a_lost_session_gives_no_lead,
    "L-EL-5 L-EL-2" breaks [RemovalUnnoticed] => an_election_that_was_swept_away_has_a_leader_again,
    "L-EL-10 L-MX-5" breaks [TxnUnguarded] => a_former_leader_writes_nothing_in_the_name_of_the_lead,
];

async fn a_candidate_without_news_of_its_session_does_not_lead(world: World) {
    let gate = world.gate();
    gate.starve();
    let client = world.client_on(gate, world.options()).await;
    let candidacy = joined(&world, &client, "ann").await;

    let doubtful = async || !candidacy.is_leader();
    world.eventually_after(world.profile.ttl, "she does not say that she leads", doubtful).await;

    assert!(candidacy.leadership().is_none());
    assert!(!answer(client.session().await).is_lost(), "no loss was reported");
}

async fn a_leader_that_is_cut_off_stops_before_another_leads(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let first = joined(&world, &ann, "ann").await;
    let old = answer(world.in_time("the lead", first.leading()).await);
    let second = joined(&world, &bob, "bob").await;
    let session = answer(ann.session().await);

    world.link(session.info().id, Link::Cut).await;

    // The case checks continuously whether the candidate reports that it leads.
    let both = async {
        loop {
            let leads = timeout(MILLISECOND, second.leading()).await.is_ok();
            let believes = old.is_held();
            assert!(!(leads && believes), "two believe that they lead");
            if leads {
                break;
            }
        }
    };
    let passed = timeout(world.profile.ttl * 4 + world.profile.patience, both).await;
    assert!(passed.is_ok(), "the lead of the session that was cut off was not passed on");
    world.in_time("the report of the loss, although she sent no request", old.lost()).await;
    // In its next session ann's client is a candidate after bob.
    world.stand(&bob, &world.at("latch"), 2).await;
    assert!(second.is_leader() && !first.is_leader());
}

async fn the_ticket_of_a_lost_session_gives_no_lead(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    gate.may_lose();
    let ann = world.client_on(gate.clone(), world.options()).await;
    let first = joined(&world, &ann, "ann").await;
    let old = answer(world.in_time("the lead", first.leading()).await);
    let second = joined(&world, &bob, "bob").await;
    let session = answer(ann.session().await).info().id;

    // Ann's client considers its session lost; the server does not, and keeps the ticket.
    gate.lose();
    assert!(!old.is_held() && !first.is_leader());
    let again = async || {
        assert!(!first.is_leader(), "she leads by the ticket of her old session");
        let all = line(&bob, &world.at("latch")).await;
        let places: Vec<_> = all.iter().map(|one| one.label.as_ref()).collect();
        places == [&b"ann"[..], b"bob", b"ann"] || places == [&b"bob"[..], b"ann"]
    };
    world.eventually("she stands again, as the last", again).await;

    world.expire(session).await;
    let next = answer(world.in_time("the lead", second.leading()).await);
    assert!(!first.is_leader() && next.token() > old.token());
    assert!(second.is_leader());
}

async fn an_election_that_was_swept_away_has_a_leader_again(world: World) {
    let eve = world.client().await;
    let (ann, bob) = (world.client().await, world.client().await);
    let all = [joined(&world, &ann, "ann").await, joined(&world, &bob, "bob").await];
    for _ in 0..3 {
        let before = answer(eve.read(Query::children(world.at("latch"))).await).nodes;
        let last = before.iter().filter_map(|node| node.stat).map(|stat| stat.created).max();
        for node in before {
            let _gone = answer(eve.delete(&node.path, Expect::Any).await);
        }

        let leads = async || {
            let standing = line(&eve, &world.at("latch")).await;
            let anew = standing.iter().all(|one| Some(one.token.revision()) > last);
            let believed = all.iter().filter_map(Candidacy::leadership);
            let believed: Vec<_> = believed.map(|lead| lead.token()).collect();
            anew && standing.len() == 2 && believed == [standing[0].token]
        };
        world.eventually("both stand, and the first of them leads", leads).await;
    }
}

async fn a_former_leader_writes_nothing_in_the_name_of_the_lead(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let data = world.at("data");
    assert!(answer(ann.create(&data, "0", Lifetime::Persistent).await).is_committed());
    let first = joined(&world, &ann, "ann").await;
    let old = answer(world.in_time("the lead", first.leading()).await);
    let (good, late) = (
        old.txn().set(data.clone(), "1", Expect::Any),
        old.txn().set(data.clone(), "2", Expect::Any),
    );
    assert!(answer(ann.commit(good).await).is_committed(), "she leads");

    answer(first.close().await);

    assert!(!old.is_held(), "she left");
    let second = joined(&world, &bob, "bob").await;
    assert!(answer(world.in_time("the lead", second.leading()).await).token() > old.token());
    assert!(answer(ann.commit(late).await).rejected().is_some(), "bob leads");
    assert_eq!(answer(bob.get(&data).await).expect("created").data, "1");
}
