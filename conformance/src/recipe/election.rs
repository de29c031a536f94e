//! Elections with values: proclaimed, observed, handed to another candidate.

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::BoxStream;
use synod_core::client::Client;
use synod_core::error::{ErrorKind, Result};
use synod_core::store::{Expect, Lifetime};
use synod_recipes::election::{Election, Leader};
use synod_recipes::lock::Contender;
use synod_testkit::cancel::stop_at;
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::gate::Way;
use crate::door::{answer, failure};
use crate::recipe::{Waiting, line};
use crate::world::World;

cases![
    "L-EL-9 L-EL-1" breaks [TokenIsSequence] => an_observer_is_notified_of_every_leader_in_order,
    "L-EL-9 L-WAT-7" needs [Expiry] catches [WatchHasNoEnd] => an_observer_continues_in_its_next_session,
    "L-EL-9 L-EL-5" breaks [OutageEndsIt] => an_observer_outlasts_an_outage_that_is_longer_than_a_call_may_take,
    "L-EL-10" breaks [ProclaimsUnguarded] => a_leader_that_lost_the_lead_proclaims_nothing,
    "L-X-7 L-MX-14" breaks [DataWakes] => a_proclamation_wakes_no_waiter,
    "L-EL-12 L-EL-5" breaks [HeirByHope] => the_heir_leads_next_and_the_others_after_it,
    "L-EL-1" breaks [SortsByName] => a_candidate_of_another_kind_is_not_sent_back,
    "L-EL-1 L-OUT-3" breaks [AmbiguousRepeated] => resigning_to_an_heir_is_done_though_the_answer_is_lost,
    "L-EL-8" breaks [VanishedIsError] => candidates_are_listed_although_some_leave_meanwhile,
    "L-EL-6 L-X-1" breaks [DroppedTicketStays] => a_hand_over_dropped_at_any_await_leaves_nothing,
];

fn election(world: &World, client: &Client) -> Election {
    Election::new(client, world.at("elect"))
}

/// A candidate that waits, and has become the last of `count`.
async fn campaigning(
    world: &World,
    client: &Client,
    value: &'static str,
    count: usize,
) -> Waiting<Leader> {
    let election = election(world, client);
    let waiting = Waiting::new(async move { election.campaign(value).await });
    world.stand(client, &world.at("elect"), count).await;
    waiting
}

impl World {
    /// The next value that an observer reads.
    async fn hears(&self, told: &mut BoxStream<'static, Result<Contender>>) -> (u64, String) {
        let next = self.in_time("the next value", told.next()).await.expect("it goes on");
        let next = answer(next);
        (next.token.revision().get(), String::from_utf8_lossy(&next.label).into_owned())
    }

    /// Reads until an observer gets this value.
    async fn hears_at_last(
        &self,
        told: &mut BoxStream<'static, Result<Contender>>,
        value: &str,
    ) -> u64 {
        let mut last = 0;
        loop {
            let (term, said) = self.hears(told).await;
            assert!(term >= last, "{said} is of an earlier term");
            last = term;
            if said == value {
                return term;
            }
        }
    }
}

fn term(leader: &Leader) -> u64 {
    leader.token().revision().get()
}

async fn an_observer_is_notified_of_every_leader_in_order(world: World) {
    let [ann, bob, eve] = [world.client().await, world.client().await, world.client().await];
    let mut told = election(&world, &eve).observe().boxed();
    let early = futures_util::FutureExt::now_or_never(told.next());
    assert!(early.is_none(), "there is no leader");

    let leader = answer(election(&world, &ann).campaign("ann").await);
    assert_eq!(world.hears(&mut told).await, (term(&leader), "ann".to_owned()));
    let next = campaigning(&world, &bob, "bob", 2).await;
    for value in ["ann 2", "ann 3", "ann 4"] {
        answer(leader.proclaim(value).await);
        assert_eq!(world.hears_at_last(&mut told, value).await, term(&leader));
    }
    let first = term(&leader);
    answer(leader.resign().await);
    let leader = next.gets(&world, "the lead").await;
    let second = world.hears_at_last(&mut told, "bob").await;
    assert!(second > first && second == term(&leader));

    // Without a leader nothing is observed; the observation continues with the next leader.
    answer(leader.resign().await);
    let leader = answer(election(&world, &ann).campaign("ann again").await);
    assert_eq!(world.hears_at_last(&mut told, "ann again").await, term(&leader));
    answer(eve.close().await);
    let end = world.in_time("the end", told.next()).await.expect("it says why");
    assert_eq!(
        failure(end, "observing with a client that is closed").kind(),
        ErrorKind::SessionLost
    );
    assert!(world.in_time("the end", told.next()).await.is_none());
}

async fn an_observer_continues_in_its_next_session(world: World) {
    let (ann, eve) = (world.client().await, world.client().await);
    let leader = answer(election(&world, &ann).campaign("one").await);
    let mut told = election(&world, &eve).observe().boxed();
    assert_eq!(world.hears(&mut told).await.1, "one");

    world.expire(answer(eve.session().await).info().id).await;
    answer(leader.proclaim("two").await);

    assert_eq!(world.hears_at_last(&mut told, "two").await, term(&leader));
}

async fn an_observer_outlasts_an_outage_that_is_longer_than_a_call_may_take(world: World) {
    let (ann, gate, limit) = (world.client().await, world.gate(), world.brief());
    let bob = world.client_on(gate.clone(), world.options().timeout(limit)).await;
    let first = answer(election(&world, &ann).campaign("first").await);
    let mut told = election(&world, &bob).observe().boxed();
    assert_eq!(world.hears(&mut told).await.1, "first");
    gate.set(Way::Shut);

    let change = async {
        answer(first.resign().await);
        let second = answer(election(&world, &ann).campaign("second").await);
        tokio::time::sleep(limit * 3).await;
        gate.set(Way::Open);
        second
    };
    let (heard, _second) = futures_util::future::join(world.hears(&mut told), change).await;

    assert_eq!(heard.1, "second");
}

async fn a_leader_that_lost_the_lead_proclaims_nothing(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let leader = answer(election(&world, &ann).campaign("ann").await);
    let next = campaigning(&world, &bob, "bob", 2).await;
    assert!(answer(bob.delete(leader.path(), Expect::Any).await).is_committed());
    let _next = next.gets(&world, "the lead").await;

    let late = leader.proclaim("ann still").await;

    assert_eq!(failure(late, "a proclamation without the lead").kind(), ErrorKind::SessionLost);
    let now = answer(election(&world, &ann).leader().await).expect("bob leads");
    assert_eq!(now.label, "bob");
}

async fn a_proclamation_wakes_no_waiter(world: World) {
    let (ann, gate) = (world.client().await, world.gate());
    let bob = world.client_on(gate.clone(), world.options()).await;
    let leader = answer(election(&world, &ann).campaign("0").await);
    let mut next = campaigning(&world, &bob, "bob", 2).await;
    world.in_time("bob's watches", gate.answered(Verb::Watch, 2)).await;
    let before = [gate.count(Verb::Read), gate.count(Verb::Watch)];

    for value in ["1", "2", "3"] {
        answer(leader.proclaim(value).await);
        next.waits_for(world.brief() / 4, "ann leads").await;
    }

    let standing = line(&ann, &world.at("elect")).await;
    assert_eq!(standing[0].label, "3");
    assert_eq!(standing[0].holds, Some(true));
    assert!(gate.count(Verb::Read) <= before[0] + 1, "a look at the line, for this case");
    assert_eq!(gate.count(Verb::Watch), before[1]);
    answer(leader.resign().await);
    let _leader = next.gets(&world, "the lead").await;
}

async fn the_heir_leads_next_and_the_others_after_it(world: World) {
    let ann = world.client().await;
    let leader = answer(election(&world, &ann).campaign("ann").await);
    let mut all = Vec::new();
    for (place, name) in ["bob", "cat", "dan", "eve"].into_iter().enumerate() {
        let client = world.client().await;
        all.push(campaigning(&world, &client, name, place + 2).await);
    }
    let candidates = answer(election(&world, &ann).candidates().await);
    let names: Vec<_> = candidates.iter().map(|one| String::from_utf8_lossy(&one.label)).collect();
    assert_eq!(names, ["ann", "bob", "cat", "dan", "eve"]);
    let first = leader.token();

    // The lead cannot be handed to a client that is not a candidate.
    let stays = leader.resign_to(&world.at("elect/nobody")).await;
    let leader = answer(stays).expect("there is no such candidate");
    assert!(leader.is_held());
    let gone = answer(world.in_time("resigning", leader.resign_to(&candidates[3].path)).await);

    assert!(gone.is_none());
    let (others, mut rest) = (all.split_off(3), all);
    let dan = rest.pop().expect("three").gets(&world, "the lead, as the heir").await;
    assert!(dan.token() > first && others.len() == 1);
    assert_eq!(dan.token(), candidates[3].token, "the ticket is the old one");
    world.stand(&ann, &world.at("elect"), 4).await;
    for one in &mut rest {
        one.waits_for(world.brief() / 4, "dan leads").await;
    }
    let leader = answer(election(&world, &ann).leader().await).expect("dan leads");
    assert_eq!(leader.label, "dan");
    answer(dan.resign().await);
    // The order of the moved candidates is not specified.
    let all = others.into_iter().chain(rest).map(async |one| {
        let leader = one.gets(&world, "the lead, in the end").await;
        assert!(leader.is_held());
        drop(leader);
    });
    join_all(all).await;
}

async fn a_candidate_of_another_kind_is_not_sent_back(world: World) {
    let (ann, strange) = (world.client().await, world.bob().await);
    let leader = answer(election(&world, &ann).campaign("ann").await);
    // One of these is a ticket if the store appends digits, the other if it does not.
    for name in ["0123456789abcdef0123456789abcdef__lock__".to_owned(), strange.id().to_string()] {
        strange.draw(&world.at(&format!("elect/{name}")), Lifetime::Session).await;
    }
    let bob = world.client().await;
    let mut heir = campaigning(&world, &bob, "bob", 3).await;
    let candidates = answer(election(&world, &ann).candidates().await);
    assert_eq!(candidates[1].owner, Some(strange.id()));

    let refused = leader.resign_to(&candidates[2].path).await;

    assert_eq!(failure(refused, "resigning past a stranger").kind(), ErrorKind::Refused);
    world.stand(&ann, &world.at("elect"), 2).await;
    assert_eq!(line(&ann, &world.at("elect")).await[0].owner, Some(strange.id()));
    heir.waits_for(world.brief(), "another candidate is the first").await;
}

async fn resigning_to_an_heir_is_done_though_the_answer_is_lost(world: World) {
    for site in [Site::ReplyLost, Site::RequestLost] {
        let (ann, plan) = world.scripted([]).await;
        let leader = answer(election(&world, &ann).campaign("ann").await);
        let (bob, cat) = (world.client().await, world.client().await);
        let other = campaigning(&world, &bob, "bob", 2).await;
        let heir = campaigning(&world, &cat, "cat", 3).await;
        let candidates = answer(election(&world, &ann).candidates().await);
        plan.cue(Cue::new(site).of(Verb::Delete));

        let gone = world.in_time("resigning", leader.resign_to(&candidates[2].path)).await;

        assert!(answer(gone).is_none(), "{site:?}");
        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
        let leader = heir.gets(&world, "the lead, as the heir").await;
        assert_eq!(leader.token(), candidates[2].token);
        drop((leader, other));
        world.left_alone(&ann, &world.at("elect")).await;
    }
}

async fn candidates_are_listed_although_some_leave_meanwhile(world: World) {
    let (ann, gate) = (world.client().await, world.gate());
    let eve = world.client_on(gate.clone(), world.options()).await;
    let leader = answer(election(&world, &ann).campaign("ann").await);
    gate.set(Way::Holding);
    let asking = election(&world, &eve);
    let told = Waiting::new(async move { asking.candidates().await });
    world.in_time("the look at the line", gate.held(1)).await;

    answer(leader.resign().await);
    gate.set(Way::Open);

    let told = told.gets(&world, "the candidates").await;
    let labels: Vec<_> = told.into_iter().map(|one| one.label).collect();
    assert_eq!(labels, ["ann"], "as it was when it was asked");
}

async fn a_hand_over_dropped_at_any_await_leaves_nothing(world: World) {
    let (ann, bob) = (world.hesitant().await, world.client().await);
    // At the end another candidate leads, or none.
    for waits in 1.. {
        let leader = answer(election(&world, &ann).campaign("ann").await);
        let other = campaigning(&world, &bob, "bob", 2).await;
        let heir = campaigning(&world, &bob, "cat", 3).await;
        let candidates = answer(election(&world, &bob).candidates().await);
        let ended = stop_at(waits, leader.resign_to(&candidates[2].path)).await;
        let first = futures_util::future::select(other.told, heir.told);
        let (led, rest) = world.in_time("the lead", first).await.factor_first();
        let led = answer(led.expect("the waiter does not panic"));
        assert!(led.is_held());
        drop((led, rest));
        world.left_alone(&bob, &world.at("elect")).await;
        if let Some(gone) = ended {
            assert!(answer(gone).is_none());
            assert!(waits > 3, "dropped {waits} times only");
            break;
        }
    }
}
