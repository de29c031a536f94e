//! Members of a double barrier that time out, enter again, or leave while others read: the cases in
//! which they count, and the cases in which others fail.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::store::{Event, Expect, Kind, Lifetime, Query};
use synod_recipes::barrier::{DoubleBarrier, Entered, OnLoss};
use synod_recipes::within;
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::{answer, done};
use crate::harness::Link;
use crate::recipe::{Waiting, many};
use crate::world::World;

cases![
    "L-DB-6 L-X-1" breaks [GivenUpMemberStays] => a_member_that_gave_up_does_not_count_after_a_look_at_another_barrier,
    "L-DB-6 L-X-1" breaks [GivenUpMemberStays] => a_member_that_is_given_up_during_its_create_does_not_count,
    "L-DB-6" needs [Links] breaks [GivenUpMemberStays] => a_member_that_gave_up_in_an_earlier_session_does_not_count,
    "L-DB-1" breaks [EntersOnAnyEvent] => a_round_begins_with_members_that_are_still_there,
    "L-DB-4" breaks [EntersOnAnyEvent] => the_end_of_a_round_fails_no_member_that_comes_meanwhile,
    "L-DB-4 L-DB-6" breaks [GivenUpMemberStays] => a_member_is_not_failed_by_the_call_that_it_gave_up,
    "L-DB-1 L-DB-6" breaks [EntersOnAnyEvent] => a_member_that_is_gone_does_not_count_when_its_node_comes_again,
];

fn barrier(world: &World, client: &Client) -> DoubleBarrier {
    DoubleBarrier::new(client, world.at("both"), many(2))
}

fn entering(barrier: DoubleBarrier) -> Waiting<Entered> {
    Waiting::new(async move { barrier.enter().await })
}

impl World {
    /// Waits until this number of members is at the barrier, inside or not.
    async fn until_there(&self, client: &Client, count: usize) {
        let query = || Query::children(self.at("both")).starting_with("member-").names_only();
        let there = async || answer(client.read(query()).await).nodes.len() == count;
        self.eventually(&format!("{count} members are there"), there).await;
    }

    /// Lets all of these leave.
    async fn they_leave(&self, inside: Vec<Entered>) {
        let leaving: Vec<_> = inside.into_iter().map(|one| Waiting::new(one.leave())).collect();
        for one in leaving {
            one.gets(self, "all leave").await;
        }
    }

    /// Changes the barrier by a node that is not a member.
    async fn another_comes_and_goes(&self, client: &Client) {
        let other = self.at("both/other");
        done(client.create(&other, "", Lifetime::Persistent).await);
        answer(answer(client.delete(&other, Expect::Any).await).required());
    }
}

async fn a_member_that_gave_up_does_not_count_after_a_look_at_another_barrier(world: World) {
    let ((ann, plan), bob) = (world.scripted([]).await, world.client().await);
    let both = barrier(&world, &ann);
    // The node of the call that is dropped stays for a while.
    plan.cue(Cue::new(Site::RequestHeld).of(Verb::Delete).under(world.at("both")));
    assert!(answer(within(world.brief(), both.enter()).await).is_none(), "it is alone");
    let other = DoubleBarrier::new(&ann, world.at("other"), many(1));
    let inside = answer(world.in_time("a party of one", other.enter()).await);
    answer(world.in_time("its end", inside.leave()).await);

    let mut again = entering(both);

    world.until_there(&bob, 2).await;
    again.waits_for(world.brief(), "it is alone with what it was before").await;
    assert_eq!(plan.pending(), 0, "the node was removed at once");
    let second = entering(barrier(&world, &bob));
    let inside = vec![again.gets(&world, "both are there").await, second.gets(&world, "it").await];
    world.they_leave(inside).await;
    world.left_alone(&bob, &world.at("both")).await;
}

async fn a_member_that_is_given_up_during_its_create_does_not_count(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let (ann, plan) = world.scripted_on(gate.clone(), world.options(), []).await;
    for on_loss in [OnLoss::Wait, OnLoss::Fail] {
        let both = barrier(&world, &ann).on_loss(on_loss);
        // The node of the call that is dropped stays for a while.
        let late = world.brief() * 3;
        let slow = Cue::new(Site::RequestSlow).of(Verb::Delete).lasting(late);
        plan.cue(slow.under(world.at("both")));
        // The call is dropped when its node exists but its name is not known yet.
        gate.hold_behind(Some((Verb::Commit, gate.count(Verb::Commit))));
        let given_up = entering(both.clone());
        world.until_there(&bob, 1).await;
        drop(given_up);
        gate.hold_behind(None);

        let mut again = entering(both);

        world.until_there(&bob, 2).await;
        again.waits_for(world.brief(), "it is alone with what it was before").await;
        // Nor does it notice that its former node is removed.
        world.until_there(&bob, 1).await;
        assert_eq!(plan.pending(), 0, "the node was removed at once");
        again.waits_for(world.brief(), "nobody else gave up").await;
        let second = entering(barrier(&world, &bob));
        let inside =
            vec![again.gets(&world, "both are there").await, second.gets(&world, "it").await];
        world.they_leave(inside).await;
        world.left_alone(&bob, &world.at("both")).await;
    }
}

async fn a_member_that_gave_up_in_an_earlier_session_does_not_count(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let session = answer(ann.session().await);
    let both = barrier(&world, &ann);
    let given_up = entering(both.clone());
    world.until_there(&bob, 1).await;
    // The client cannot remove its node, which the server keeps longer than the client keeps its
    // session.
    world.link(session.info().id, Link::Cut).await;
    drop(given_up);
    world.in_time("the loss", session.lost()).await;

    let mut again = entering(both);

    again.waits_for(world.brief(), "it is alone").await;
    world.until_there(&bob, 1).await;
    again.waits_for(world.brief(), "it is alone").await;
    let second = entering(barrier(&world, &bob));
    let inside = vec![again.gets(&world, "both are there").await, second.gets(&world, "it").await];
    world.they_leave(inside).await;
}

async fn a_round_begins_with_members_that_are_still_there(world: World) {
    let (gate, ann) = (world.gate(), world.client().await);
    let bob = world.client_on(gate.clone(), world.options()).await;
    let first = entering(barrier(&world, &ann));
    world.until_there(&ann, 1).await;
    // The answer with the existing members arrives late.
    gate.hold_behind([(Verb::Commit, gate.count(Verb::Commit))]);
    let mut second = entering(barrier(&world, &bob));
    world.until_there(&ann, 2).await;
    drop(first);
    world.until_there(&ann, 1).await;

    gate.hold_behind(None);

    world.another_comes_and_goes(&ann).await;
    second.waits_for(world.brief(), "the other one has gone").await;
    let first = entering(barrier(&world, &ann));
    let inside = vec![first.gets(&world, "both are there").await, second.gets(&world, "it").await];
    world.they_leave(inside).await;
}

async fn the_end_of_a_round_fails_no_member_that_comes_meanwhile(world: World) {
    let ((ann, plan), bob) = (world.scripted([]).await, world.client().await);
    let late = world.profile.ttl / 4;
    for _ in 0..2 {
        let two = [(); 2].map(|()| entering(barrier(&world, &bob)));
        let mut inside = Vec::new();
        for one in two {
            inside.push(one.gets(&world, "both are there").await);
        }
        // The member sees that a round has begun, and queries its number when that round is over.
        let ready = world.at("both/ready");
        plan.cue(Cue::new(Site::RequestSlow).of(Verb::Read).under(ready).lasting(late));
        let mut strict = entering(barrier(&world, &ann).on_loss(OnLoss::Fail));
        world.until_there(&bob, 3).await;
        world.they_leave(inside).await;
        world.another_comes_and_goes(&bob).await;

        strict.waits_for(late * 2, "nobody gave up").await;

        let next = entering(barrier(&world, &bob));
        let inside =
            vec![strict.gets(&world, "the next round").await, next.gets(&world, "it").await];
        world.they_leave(inside).await;
        assert_eq!(plan.pending(), 0, "it did not ask");
    }
}

async fn a_member_is_not_failed_by_the_call_that_it_gave_up(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let (ann, plan) = world.scripted_on(gate.clone(), world.options(), []).await;
    let both = barrier(&world, &ann).on_loss(OnLoss::Fail);
    let (brief, late) = (world.brief(), Duration::from_millis(20));
    for _ in 0..3 {
        let slow = Cue::new(Site::RequestSlow).of(Verb::Delete).lasting(late);
        plan.cue(slow.under(world.at("both")));
        let created = gate.answers(Verb::Commit) + 1;
        {
            // The member knows its node when it gives up.
            let given_up = async {
                gate.answered(Verb::Commit, created).await;
                world.until_there(&bob, 1).await;
            };
            let (entering, given_up) = (pin!(both.enter()), pin!(given_up));
            let either = select(entering, given_up).await;
            assert!(matches!(either, Either::Right(_)), "it is alone");
        }
        let alone = within(brief, both.enter()).await;
        assert!(answer(alone).is_none(), "it is alone with what it was before");
        assert_eq!(plan.pending(), 0, "the node was removed at once");
        world.until_there(&bob, 0).await;
    }
}

async fn a_member_that_is_gone_does_not_count_when_its_node_comes_again(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let three = |client| DoubleBarrier::new(client, world.at("both"), many(3));
    let [late, raw] = ["both/member-late", "both/member-raw"].map(|name| world.at(name));
    done(bob.create(&late, "", Lifetime::Session).await);
    let mut waiting = entering(three(&ann));
    world.until_there(&bob, 2).await;
    waiting.waits_for(world.brief(), "one is missing").await;
    // It reads again after the member has left.
    let looks = gate.count(Verb::Read);
    let session = answer(ann.session().await);
    let (_view, mut watch) = answer(session.watch(Query::children(world.at("both")).hints()).await);
    answer(answer(bob.delete(&late, Expect::Any).await).required());
    world.another_comes_and_goes(&bob).await;
    world.in_time("a look", gate.answered(Verb::Read, looks + 1)).await;
    match world.in_time("the first event", watch.next()).await {
        Some(Event::Changed(it)) if it.kind == Kind::Deleted && it.path == late => {}
        // A client that is not notified which member has left counts the node.
        _ => return,
    }

    // A delayed request of that member creates its node again.
    done(bob.create(&late, "", Lifetime::Session).await);
    done(bob.create(&raw, "", Lifetime::Session).await);
    world.another_comes_and_goes(&bob).await;

    waiting.waits_for(world.brief(), "they are two").await;
    for path in [late, raw] {
        answer(answer(bob.delete(&path, Expect::Any).await).required());
    }
    let others = [(); 2].map(|()| entering(three(&bob)));
    let mut inside = vec![waiting.gets(&world, "all are there").await];
    for one in others {
        inside.push(one.gets(&world, "all are there").await);
    }
    world.they_leave(inside).await;
}
