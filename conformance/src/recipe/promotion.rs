//! Promotions: a change that lost too many races gets its turn, at no cost for other changes.

use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_recipes::lock::Mutex;
use synod_recipes::value::{Counter, Promotion, Update};
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::answer;
use crate::door::gate::Gate;
use crate::recipe::Waiting;
use crate::world::World;

cases![
    "L-CNT-7" breaks [NeverPromoted] => a_change_that_lost_too_often_waits_for_the_lock,
    "L-CNT-7" breaks [PromotedKeepsNobodyOut] => a_change_under_the_lock_keeps_the_others_out,
    "L-CNT-7 L-X-2" needs [Expiry] catches [ExpiryUntoldToWatchers] => a_change_under_the_lock_that_lost_its_session_lets_the_others_in,
    "L-CNT-7" breaks [DroppedTicketStays] => promoted_changes_are_made_in_the_order_of_their_requests,
    "L-CNT-1 L-CNT-3" breaks [LostAnswerIsLostRace] => a_promoted_change_whose_answer_is_lost_is_made_once,
    "L-CNT-1 L-CNT-3 L-CNT-7" breaks [LostAnswerIsLostRace] => a_change_in_doubt_does_not_stand_back,
    "L-CNT-6 L-CNT-7" breaks [LostRaceStarves] => contenders_that_are_promoted_all_come_to_their_end,
    "L-X-7" breaks [ReadsFirst] => a_change_that_may_be_promoted_is_one_call,
    "L-CNT-7 L-X-1" breaks [DroppedTicketStays] => a_change_that_is_given_up_leaves_the_line,
];

fn value(world: &World) -> Path {
    world.at("counter")
}

/// The directory of the lock.
fn lock(world: &World) -> Path {
    world.at("counter-promotion")
}

/// A counter whose changes are promoted after this number of tries. It has changed the number, so
/// its write id and the gate exist.
async fn promoted(world: &World, client: &Client, after: u32) -> Counter {
    let one = Counter::new(client, value(world)).promote(Promotion::after(after));
    for _ in 0..2 {
        answer(one.add(0).await);
    }
    one
}

fn increments(one: &Counter) -> Waiting<Update<i64>> {
    let one = one.clone();
    Waiting::new(async move { one.increment().await })
}

/// A client that promotes all its changes.
struct First {
    gate: Gate,
    client: Client,
    one: Counter,
}

/// A change that has the lock, and is delayed before it writes.
struct Held {
    gate: Gate,
    change: Waiting<Update<i64>>,
    client: Client,
}

impl First {
    async fn new(world: &World) -> Self {
        let gate = world.gate();
        let client = world.client_on(gate.clone(), world.options()).await;
        let one = promoted(world, &client, 0).await;
        world.stand(&client, &lock(world), 0).await;
        Self { gate, client, one }
    }

    async fn holds(self) -> Held {
        let Self { gate, client, one } = self;
        // The ticket is one commit, and the gate is closed by the next one.
        gate.hold_behind(Some((Verb::Commit, gate.count(Verb::Commit) + 1)));
        let change = increments(&one);
        gate.held(1).await;
        Held { gate, change, client }
    }
}

impl Held {
    async fn new(world: &World) -> Self {
        First::new(world).await.holds().await
    }

    fn goes_on(self) -> Waiting<Update<i64>> {
        self.gate.hold_behind(None);
        self.change
    }
}

async fn a_change_that_lost_too_often_waits_for_the_lock(world: World) {
    const TRIES: usize = 3;
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let anns = promoted(&world, &ann, 3).await;
    let bobs = Counter::new(&bob, value(&world));
    let held = answer(Mutex::new(&bob, lock(&world)).lock().await);
    let sent = gate.count(Verb::Commit);
    gate.hold_behind(Some((Verb::Commit, sent)));
    answer(bobs.add(10).await);
    let adding = increments(&anns);

    for lost in 1..=TRIES {
        world.in_time("a lost try", gate.held(lost)).await;
        // The value in the rejection is out of date when it arrives.
        answer(bobs.add(10).await);
        gate.hold_behind(Some((Verb::Commit, sent + lost)));
    }
    gate.hold_behind(None);

    world.stand(&bob, &lock(&world), 2).await;
    answer(held.release().await);
    let update = adding.gets(&world, "its addition").await;
    assert_eq!((update.before, update.after), (40, 41));
    assert_eq!((update.cost.tries, update.cost.promoted_tries), (4, 1));
    assert!(update.cost.promoted_time <= update.cost.time);
}

async fn a_change_under_the_lock_keeps_the_others_out(world: World) {
    let (first, bob) = (First::new(&world).await, world.client().await);
    // This counter made the last change, so it writes without a read.
    let bobs = promoted(&world, &bob, 5).await;
    let held = first.holds().await;

    let mut others = [increments(&bobs), increments(&promoted_later(&world).await)];
    for other in &mut others {
        other.waits_for(world.brief(), "a change while another one is under the lock").await;
    }

    let update = held.goes_on().gets(&world, "the promoted change").await;
    assert_eq!((update.before, update.after), (0, 1));
    assert_eq!((update.cost.tries, update.cost.promoted_tries), (1, 1));
    let mut sums = Vec::new();
    for other in others {
        let update = other.gets(&world, "a change that stood back").await;
        // The change yielded once, and may have lost a race with the other one.
        assert!(update.cost.tries <= 3 && update.cost.promoted_tries == 0, "{:?}", update.cost);
        sums.push(update.after);
    }
    sums.sort_unstable();
    assert_eq!(sums, [2, 3]);
    assert_eq!(answer(bobs.get().await), 3);
}

/// The counter of a client that has not changed it yet.
async fn promoted_later(world: &World) -> Counter {
    Counter::new(&world.client().await, value(world)).promote(Promotion::after(5))
}

async fn a_change_under_the_lock_that_lost_its_session_lets_the_others_in(world: World) {
    let bob = world.client().await;
    let bobs = promoted(&world, &bob, 5).await;
    let held = Held::new(&world).await;
    let mut other = increments(&bobs);
    other.waits_for(world.brief(), "a change while another one is under the lock").await;

    let session = answer(held.client.session().await);
    world.expire(session.info().id).await;
    // If the session is not known to be lost, the effect of a request may stay unknown.
    world.in_time("the loss", session.lost()).await;

    assert_eq!(other.gets(&world, "a change that stood back").await.after, 1);
    // The change continues in the next session.
    assert_eq!(held.goes_on().gets(&world, "the promoted change").await.after, 2);
}

async fn promoted_changes_are_made_in_the_order_of_their_requests(world: World) {
    let ann = world.client().await;
    promoted(&world, &ann, 0).await;
    world.stand(&ann, &lock(&world), 0).await;
    let held = answer(Mutex::new(&ann, lock(&world)).lock().await);
    let mut waiting = Vec::new();
    for number in 1..=4 {
        let client = world.client().await;
        let one = Counter::new(&client, value(&world)).promote(Promotion::after(0));
        waiting.push(increments(&one));
        world.stand(&ann, &lock(&world), number + 1).await;
    }

    answer(held.release().await);

    for (number, one) in (1..).zip(waiting) {
        assert_eq!(one.gets(&world, "its turn").await.after, number);
    }
    world.stand(&ann, &lock(&world), 0).await;
}

async fn a_promoted_change_whose_answer_is_lost_is_made_once(world: World) {
    for site in [Site::ReplyLost, Site::RequestLost, Site::AppliedLate, Site::Unsent] {
        let (client, plan) = world.scripted([]).await;
        let path = world.at(&format!("{site:?}"));
        let one = Counter::new(&client, path).promote(Promotion::after(0));
        answer(one.add(5).await);
        answer(one.add(5).await);

        // The first set closes the gate, and the second writes the number.
        for nth in [1, 2] {
            plan.cue(Cue::new(site).of(Verb::Set).nth(nth));
            let update = answer(world.in_time("an addition", one.increment()).await);
            assert_eq!(update.after, update.before + 1, "{site:?}");
            assert_eq!(plan.pending(), 0, "{site:?} did not fire");
        }

        assert_eq!(answer(one.get().await), 12, "{site:?}");
    }
}

async fn a_change_in_doubt_does_not_stand_back(world: World) {
    for site in [Site::ReplyLost, Site::RequestLost] {
        let (client, plan) = world.scripted([]).await;
        let first = First::new(&world).await;
        let one = promoted(&world, &client, 5).await;
        let before = answer(one.get().await);
        // The second request waits until another client has closed the gate.
        plan.cue(Cue::new(site).of(Verb::Set));
        plan.cue(Cue::new(Site::RequestSlow).of(Verb::Set).nth(2).lasting(world.brief()));
        let adding = increments(&one);
        world.eventually("the answer is lost", async || plan.pending() < 2).await;

        let held = first.holds().await;
        adding.gets(&world, "the change in doubt").await;
        held.goes_on().gets(&world, "the promoted change").await;

        assert_eq!(answer(one.get().await), before + 2, "{site:?}");
    }
}

async fn contenders_that_are_promoted_all_come_to_their_end(world: World) {
    const CONTENDERS: i64 = 4;
    const ROUNDS: i64 = 6;
    let mut adding = Vec::new();
    for number in 0..CONTENDERS {
        let client = world.hesitant().await;
        let after = u32::try_from(number).expect("few") % 3;
        let one = Counter::new(&client, value(&world)).promote(Promotion::after(after));
        adding.push(Waiting::new(async move {
            let mut promoted = 0;
            for _ in 0..ROUNDS {
                promoted += one.increment().await?.cost.promoted_tries;
            }
            Result::Ok(promoted)
        }));
    }
    let mut promoted = 0;
    for one in adding {
        promoted += one.gets(&world, "all of its additions").await;
    }
    let client = world.client().await;
    assert!(promoted > 0, "no change was promoted");
    let sum = answer(Counter::new(&client, value(&world)).get().await);
    assert_eq!(sum, CONTENDERS * ROUNDS);
    world.stand(&client, &lock(&world), 0).await;
}

async fn a_change_that_may_be_promoted_is_one_call(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let client = world.client_on(gate.clone(), world.options()).await;
    let counts = || [Verb::Commit, Verb::Read, Verb::Watch].map(|verb| gate.count(verb));
    let one = promoted(&world, &client, 5).await;

    let [commits, reads, _] = counts();
    for more in 1..10 {
        answer(one.increment().await);
        assert_eq!(counts(), [commits + more, reads, 0], "commits, reads, observes");
    }
    let bobs = Counter::new(&bob, value(&world));
    answer(bobs.add(100).await);
    assert_eq!(answer(one.increment().await).cost.tries, 2);
    assert_eq!(counts(), [commits + 11, reads, 0], "a lost race costs one more write, and no read");

    // Creates a ticket, writes the gate and the number, and removes the ticket in the background.
    let one = promoted(&world, &client, 0).await;
    world.stand(&bob, &lock(&world), 0).await;
    let [commits, reads, observes] = counts();
    answer(one.increment().await);
    let [late, reads, observes] = [(2, commits), (1, reads), (0, observes)].map(|(at, before)| {
        [gate.count(Verb::Watch), gate.count(Verb::Read), gate.count(Verb::Commit)][at] - before
    });
    assert!(late == 3 || late == 4, "{late} commits");
    assert_eq!((reads, observes), (0, 0));
}

async fn a_change_that_is_given_up_leaves_the_line(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let anns = promoted(&world, &ann, 0).await;
    world.stand(&bob, &lock(&world), 0).await;
    let held = answer(Mutex::new(&bob, lock(&world)).lock().await);
    let waiting = increments(&anns);
    world.stand(&bob, &lock(&world), 2).await;

    drop(waiting);

    world.stand(&bob, &lock(&world), 1).await;
    answer(held.release().await);
    assert_eq!(answer(anns.increment().await).after, 1, "what was given up is not made");
}
