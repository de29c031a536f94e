//! The leader latch: candidates lead in turn; and its cost in requests.

use std::pin::pin;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use synod_core::client::{Client, ConnectionState};
use synod_core::error::ErrorKind;
use synod_core::store::Expect;
use synod_recipes::Token;
use synod_recipes::election::{Candidacy, LeaderLatch, LeadershipChange};
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::{answer, failure};
use crate::harness::Link;
use crate::recipe::{Waiting, line};
use crate::world::World;

cases![
    "L-EL-1 L-X-7" breaks [LookIgnored] => a_candidate_of_an_empty_election_leads_after_one_call,
    "L-EL-5 L-X-7" breaks [WatchesAgain] => a_waiting_candidate_gets_the_lead_for_one_call,
    "L-EL-1 L-EL-5" breaks [PredecessorGoneIsTurn] => the_lead_goes_to_the_next_though_one_between_left,
    "L-EL-8 L-EL-1" breaks [SortsByName] => candidates_are_listed_in_order_the_leader_first,
    "L-EL-4" breaks [LossUntoldToLatch] => terms_are_reported_gained_and_lost_in_turn,
    "L-EL-6" breaks [CloseForgetsDraw] => a_candidate_that_leaves_during_its_draw_leaves_no_ticket,
    "L-EL-6 L-X-1" breaks [CloseForgetsDraw] => leaving_at_any_moment_leaves_nothing,
    "L-EL-5 L-OUT-7" breaks [RefusalSwallowed] => a_failure_is_reported_and_the_candidate_campaigns_again,
    "L-EL-11 L-EL-3" needs [Links] breaks [ReconnectResets] => a_candidate_that_reconnects_keeps_its_place,
];

pub(super) fn latch(world: &World, client: &Client) -> LeaderLatch {
    LeaderLatch::new(client, world.at("latch"))
}

pub(super) async fn joined(world: &World, client: &Client, label: &'static str) -> Candidacy {
    let latch = latch(world, client).label(label);
    answer(world.in_time("joining", latch.join()).await)
}

impl World {
    /// Waits until the candidate leads.
    pub(super) async fn leads(&self, candidacy: &Candidacy, what: &str) -> Token {
        answer(self.in_time(what, candidacy.leading()).await).token()
    }
}

async fn a_candidate_of_an_empty_election_leads_after_one_call(world: World) {
    let gate = world.gate();
    let client = world.client_on(gate.clone(), world.options()).await;

    let candidacy = joined(&world, &client, "ann").await;

    assert_eq!([gate.count(Verb::Commit), gate.count(Verb::Read)], [1, 0], "commits, reads");
    assert!(candidacy.is_leader());
    world.in_time("the watch on itself", gate.called(Verb::Watch, 1)).await;
    answer(candidacy.close().await);
    let counts = [Verb::Commit, Verb::Read, Verb::Watch].map(|verb| gate.count(verb));
    assert_eq!(counts, [2, 0, 1], "commits, reads, observes");
}

async fn a_waiting_candidate_gets_the_lead_for_one_call(world: World) {
    let (gate, ann) = (world.gate(), world.client().await);
    let bob = world.client_on(gate.clone(), world.options()).await;
    let first = joined(&world, &ann, "ann").await;
    let second = joined(&world, &bob, "bob").await;
    world.in_time("bob's watches", gate.answered(Verb::Watch, 2)).await;
    let counts = || [Verb::Commit, Verb::Read, Verb::Watch].map(|verb| gate.count(verb));
    assert_eq!(counts(), [1, 0, 2], "commits, reads, observes");
    assert!(first.is_leader() && !second.is_leader());

    answer(first.close().await);
    let lead = world.leads(&second, "the lead of the candidate that left").await;

    // Bob has time for further requests before the calls are counted.
    world.stand(&ann, &world.at("latch"), 1).await;
    assert_eq!(second.leadership().map(|lead| lead.token()), Some(lead));
    assert_eq!(counts(), [1, 1, 2], "commits, reads, observes");
}

async fn the_lead_goes_to_the_next_though_one_between_left(world: World) {
    let [ann, bob, cat] = [world.client().await, world.client().await, world.client().await];
    let first = joined(&world, &ann, "ann").await;
    let second = joined(&world, &bob, "bob").await;
    let third = joined(&world, &cat, "cat").await;
    let led = world.leads(&first, "the lead of the first").await;
    let mut waits = {
        let mut state = pin!(third.changes());
        let gained = state.next();
        assert!(futures_util::FutureExt::now_or_never(gained).is_none(), "ann leads");
        Waiting::new(async move { third.leading().await.map(|_lead| third) })
    };

    answer(second.close().await);
    world.stand(&ann, &world.at("latch"), 2).await;
    waits.waits_for(world.brief(), "ann leads").await;
    assert!(first.is_leader());
    answer(first.close().await);

    let third = waits.gets(&world, "the lead, when it is free").await;
    assert!(world.leads(&third, "the lead").await > led);
}

async fn candidates_are_listed_in_order_the_leader_first(world: World) {
    let client = world.client().await;
    let names = ["ann", "bob", "cat", "dan", "eve"];
    let mut all = Vec::new();
    assert_eq!(answer(latch(&world, &client).leader().await), None);
    for name in names {
        all.push(joined(&world, &client, name).await);
    }

    let told = answer(latch(&world, &client).candidates().await);

    let labels: Vec<_> = told.iter().map(|one| String::from_utf8_lossy(&one.label)).collect();
    assert_eq!(labels, names);
    assert!(told.is_sorted_by_key(|one| one.token));
    let leader = answer(latch(&world, &client).leader().await).expect("five stand");
    assert_eq!((leader.label.as_ref(), leader.holds), (&b"ann"[..], Some(true)));
    assert_eq!(all[0].leadership().map(|lead| lead.token()), Some(leader.token));
    assert!(join_all(all.into_iter().map(Candidacy::close)).await.into_iter().all(|it| it.is_ok()));
    world.left_alone(&client, &world.at("latch")).await;
}

async fn terms_are_reported_gained_and_lost_in_turn(world: World) {
    const TERMS: usize = 4;
    let (ann, bob) = (world.client().await, world.client().await);
    let candidacy = joined(&world, &ann, "ann").await;
    let mut changes = Box::pin(candidacy.changes());
    let told = Waiting::new(async move {
        let mut told = Vec::new();
        while let Some(change) = changes.next().await {
            told.push(match change {
                LeadershipChange::Gained(lead) => (true, lead.token()),
                LeadershipChange::Lost(token) => (false, token),
                other => panic!("{other:?}"),
            });
        }
        Ok(told)
    });
    for _ in 0..TERMS {
        let lead = answer(world.in_time("the lead", candidacy.leading()).await);
        // Each term is over before the next begins, so that every one is reported.
        tokio::task::yield_now().await;
        assert!(answer(bob.delete(lead.path(), Expect::Any).await).is_committed());
        world.in_time("the loss", lead.lost()).await;
    }
    let _last = world.leads(&candidacy, "the lead").await;
    answer(candidacy.close().await);

    let told = told.gets(&world, "the end of the changes").await;
    let expected: Vec<bool> = (0..told.len()).map(|index| index % 2 == 0).collect();
    assert_eq!(told.iter().map(|(gained, _)| *gained).collect::<Vec<_>>(), expected);
    assert_eq!(told.len() % 2, 0, "a term was gained after leaving");
    assert!(told.chunks(2).all(|term| term[0].1 == term[1].1) && told.len() >= 2);
    assert!(told.is_sorted_by_key(|(_, token)| *token));
}

async fn a_candidate_that_leaves_during_its_draw_leaves_no_ticket(world: World) {
    let (bob, (ann, plan)) = (world.client().await, world.scripted([]).await);
    let candidacy = joined(&world, &ann, "ann").await;
    let first = world.leads(&candidacy, "the lead").await;
    plan.cue(Cue::new(Site::ReplySlow).of(Verb::Create));

    let removed = bob.delete(&line(&bob, &world.at("latch")).await[0].path, Expect::Any).await;
    assert!(answer(removed).is_committed());
    let drawn = async || line(&bob, &world.at("latch")).await.iter().any(|one| one.token > first);
    world.eventually("she stands again", drawn).await;
    answer(world.in_time("leaving", candidacy.close()).await);

    world.left_alone(&bob, &world.at("latch")).await;
}

async fn leaving_at_any_moment_leaves_nothing(world: World) {
    let (ann, bob) = (world.hesitant().await, world.client().await);
    for pauses in 0..12 {
        let other = if pauses % 2 == 0 { None } else { Some(joined(&world, &bob, "bob").await) };
        let candidacy = joined(&world, &ann, "ann").await;
        if let Some(first) = line(&bob, &world.at("latch")).await.first() {
            // The candidate creates a new ticket, or becomes the leader.
            let _gone = answer(bob.delete(&first.path, Expect::Any).await);
        }
        for _ in 0..pauses {
            tokio::task::yield_now().await;
        }

        let _lost = world.in_time("leaving", candidacy.close()).await.is_err();

        drop(other);
        world.left_alone(&bob, &world.at("latch")).await;
    }
}

async fn a_failure_is_reported_and_the_candidate_campaigns_again(world: World) {
    let (client, plan) = world.scripted([Cue::new(Site::Denied).of(Verb::Create)]).await;
    let refused = world.in_time("the refusal", latch(&world, &client).join()).await;
    assert_eq!(failure(refused, "joining what is denied").kind(), ErrorKind::Denied);
    let candidacy = joined(&world, &client, "ann").await;
    let first = world.leads(&candidacy, "the lead").await;
    let mut changes = pin!(candidacy.changes());

    // The same later, while for some time no listener exists.
    plan.cue(Cue::new(Site::Denied).of(Verb::Create));
    let (path, bob) = (line(&client, &world.at("latch")).await, world.client().await);
    assert!(answer(bob.delete(&path[0].path, Expect::Any).await).is_committed());

    let mut failures = 0;
    loop {
        let change = world.in_time("what happens", changes.next()).await;
        match change.expect("she stands on") {
            LeadershipChange::Gained(lead) if lead.token() > first => break,
            LeadershipChange::Failed(error) => {
                assert_eq!(error.kind(), ErrorKind::Denied);
                failures += 1;
            }
            _ => {}
        }
    }
    assert_eq!((failures, plan.pending()), (1, 0));
    assert!(candidacy.is_leader());
}

async fn a_candidate_that_reconnects_keeps_its_place(world: World) {
    const TRIES: usize = 5;
    for _ in 0..TRIES {
        let clients = [world.client().await, world.client().await];
        let all =
            [joined(&world, &clients[0], "ann").await, joined(&world, &clients[1], "bob").await];
        let before = line(&clients[0], &world.at("latch")).await;
        let mut sessions = Vec::new();
        for client in &clients {
            sessions.push(answer(client.session().await));
        }
        for (link, state) in
            [(Link::Cut, ConnectionState::Suspended), (Link::Open, ConnectionState::Reconnected)]
        {
            for session in &sessions {
                world.link(session.info().id, link).await;
            }
            for client in &clients {
                let mut now = client.state();
                let reached = now.wait_for(|now| *now == state || *now == ConnectionState::Lost);
                let usual = world.profile.ttl;
                let reached = tokio::time::timeout(usual + world.profile.patience, reached).await;
                assert!(reached.is_ok_and(|it| it.is_ok()), "{state:?} is not reported");
            }
        }
        let known = world.client().await;
        // All their changes have been reported by now.
        assert!(answer(known.get(&world.at("mark")).await).is_none());
        if sessions.iter().any(synod_core::session::Session::is_lost) {
            // The case took too long: a candidate whose session is lost may lose its place.
            drop((all, clients));
            world.left_alone(&known, &world.at("latch")).await;
            continue;
        }

        // Requests that they were about to send have been sent by now.
        let mut calm = Waiting::new(std::future::pending::<synod_core::error::Result<()>>());
        calm.waits_for(world.brief(), "nothing").await;
        assert_eq!(line(&known, &world.at("latch")).await, before, "they keep their places");
        assert!(all[0].is_leader() && !all[1].is_leader());
        return;
    }
    panic!("no link was cut for a short while in {TRIES} tries");
}
