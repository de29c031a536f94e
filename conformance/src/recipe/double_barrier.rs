//! The double barrier: its members enter together and leave together, round after round.

use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_core::store::{Expect, Lifetime, Query};
use synod_recipes::barrier::{DoubleBarrier, Entered, OnLoss};
use synod_recipes::within;
use synod_testkit::fault::{Cue, Site, Verb};
use tokio::time::sleep;

use crate::door::{answer, done, failure};
use crate::harness::Link;
use crate::recipe::{Waiting, many};
use crate::world::World;

cases![
    "L-DB-1 L-DB-5" breaks [EntersOnAnyEvent] => no_member_enters_before_all_are_there,
    "L-DB-2" breaks [LeavesAlone] => no_member_leaves_before_all_leave,
    "L-DB-3 L-DB-5" breaks [ReadyIsForAll] => a_round_is_for_those_that_were_there_when_it_began,
    "L-DB-3" needs [Expiry] breaks [ReadyIsForAll] => a_round_whose_members_all_died_is_over,
    "L-DB-1 L-DB-3" breaks [LeavesAlone] => a_member_that_learns_of_its_round_late_enters_it,
    "L-DB-4" needs [Expiry] catches [ExpiryUntoldToWatchers] => a_member_that_dies_inside_is_not_waited_for,
    "L-DB-4" needs [Expiry] catches [ExpiryUntoldToWatchers] => a_member_that_dies_waiting_does_as_it_was_said,
    "L-DB-6 L-X-1" breaks [GivenUpMemberStays] => a_member_that_gave_up_does_not_count,
    "L-DB-1 L-SEQ-9" breaks [BlindRepeat] => a_lost_answer_makes_no_second_member,
    "L-DB-4" breaks [EntersOnAnyEvent] => a_member_whose_node_is_removed_comes_again,
    "L-DB-4 L-WAT-10" breaks [EntersOnAnyEvent] => a_member_whose_node_is_removed_at_once_comes_again,
    "L-DB-7 L-DB-6" breaks [GivenUpMemberStays] => a_member_that_requires_the_same_parties_is_refused_another,
    "L-DB-1" needs [Links] breaks [EntersOnAnyEvent] => a_member_does_not_enter_with_itself,
];

fn barrier(world: &World, client: &Client, parties: u32) -> DoubleBarrier {
    DoubleBarrier::new(client, world.at("both"), many(parties))
}

/// A member that enters in a separate task.
fn enters(world: &World, client: &Client, parties: u32) -> Waiting<Entered> {
    entering(barrier(world, client, parties))
}

fn entering(barrier: DoubleBarrier) -> Waiting<Entered> {
    Waiting::new(async move { barrier.enter().await })
}

/// A member that leaves in a separate task.
fn leaves(inside: Entered) -> Waiting<()> {
    Waiting::new(inside.leave())
}

impl World {
    /// Returns this number of members, which have entered together.
    async fn all_inside(&self, client: &Client, parties: u32) -> Vec<Entered> {
        let waiting: Vec<_> = (0..parties).map(|_| enters(self, client, parties)).collect();
        let mut inside = Vec::new();
        for one in waiting {
            inside.push(one.gets(self, "all are there").await);
        }
        inside
    }

    async fn all_leave(&self, inside: Vec<Entered>) {
        let leaving: Vec<_> = inside.into_iter().map(leaves).collect();
        for one in leaving {
            one.gets(self, "all leave").await;
        }
    }

    /// Waits until this number of members is at the barrier, inside or not.
    async fn members(&self, client: &Client, count: usize) {
        let there = async || names(self, client).await.len() == count;
        self.eventually(&format!("{count} members are there"), there).await;
    }
}

async fn names(world: &World, client: &Client) -> Vec<String> {
    let query = Query::children(world.at("both")).starting_with("member-").names_only();
    let view = answer(client.read(query).await);
    view.nodes.iter().map(|node| node.path.name().to_owned()).collect()
}

async fn no_member_enters_before_all_are_there(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let alone = answer(world.in_time("a party of one", barrier(&world, &ann, 1).enter()).await);
    answer(world.in_time("a party of one", alone.leave()).await);
    let mut two = [enters(&world, &ann, 3), enters(&world, &bob, 3)];
    world.members(&ann, 2).await;
    another_comes_and_goes(&world, &ann).await;
    for one in &mut two {
        one.waits_for(world.brief(), "one is missing").await;
    }

    let third = enters(&world, &bob, 3).gets(&world, "the third").await;

    let mut inside = vec![third];
    for one in two {
        inside.push(one.gets(&world, "all are there").await);
    }
    assert!(inside.iter().all(Entered::is_inside));
    assert_eq!(inside.len(), 3);
    world.all_leave(inside).await;
    world.left_alone(&ann, &world.at("both")).await;
}

async fn a_member_that_requires_the_same_parties_is_refused_another(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let strict = |client: &Client, parties| barrier(&world, client, parties).require_same_parties();
    let session = answer(ann.session().await).info().id;
    let first = entering(strict(&ann, 2));
    world.members(&bob, 1).await;
    for other in [1, 3, u32::MAX] {
        let refused = world.in_time("a refusal", strict(&bob, other).enter()).await;
        let refused = failure(refused, "another number of parties");
        assert_eq!(refused.kind(), ErrorKind::Refused);
        let text = refused.to_string();
        let words = [format!("with {other} "), "with 2".to_owned(), session.to_string()];
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        world.members(&bob, 1).await;
    }
    // The members that agree enter, and a later member of another number does not disturb them.
    let second = answer(world.in_time("two of two", strict(&bob, 2).enter()).await);
    let first = first.gets(&world, "two of two").await;
    let refused = world.in_time("a refusal", strict(&bob, 1).enter()).await;
    assert_eq!(failure(refused, "others are inside").kind(), ErrorKind::Refused);
    let later = enters(&world, &bob, 1);
    world.members(&ann, 3).await;
    world.all_leave(vec![first, second]).await;
    let later = later.gets(&world, "a party of one").await;
    world.all_leave(vec![later]).await;
    // A member that gave up is not compared.
    let waiting = strict(&ann, 2);
    assert!(answer(within(world.brief(), waiting.enter()).await).is_none(), "it is alone");
    world.members(&bob, 0).await;
    let alone = answer(world.in_time("a party of one", strict(&bob, 1).enter()).await);
    world.all_leave(vec![alone]).await;
    world.left_alone(&ann, &world.at("both")).await;
}

/// Changes the barrier by a node that is not a member.
async fn another_comes_and_goes(world: &World, client: &Client) {
    let other = world.at("both/other");
    done(client.create(&other, "", Lifetime::Persistent).await);
    answer(answer(client.delete(&other, Expect::Any).await).required());
}

async fn no_member_leaves_before_all_leave(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    for _ in 0..3 {
        let (one, two) = (enters(&world, &ann, 2), enters(&world, &bob, 2));
        let (one, two) = (one.gets(&world, "ann").await, two.gets(&world, "bob").await);
        let mut leaving = leaves(one);
        leaving.waits_for(world.brief(), "bob is inside").await;

        answer(world.in_time("bob leaves", two.leave()).await);

        leaving.gets(&world, "all have left").await;
    }
    // A member that is dropped has left.
    let mut inside = world.all_inside(&ann, 2).await;
    let leaving = leaves(inside.remove(0));
    drop(inside);
    leaving.gets(&world, "the other was dropped").await;
    // Nodes that it may have left do not outlive the next round.
    let inside = world.all_inside(&ann, 2).await;
    world.all_leave(inside).await;
    world.left_alone(&ann, &world.at("both")).await;
}

async fn a_round_is_for_those_that_were_there_when_it_began(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let inside = world.all_inside(&ann, 2).await;
    let mut third = enters(&world, &bob, 2);
    third.waits_for(world.brief(), "the round is full").await;
    let mut fourth = enters(&world, &bob, 2);
    fourth.waits_for(world.brief(), "a round at a time").await;

    world.all_leave(inside).await;

    let next = vec![third.gets(&world, "the next round").await, fourth.gets(&world, "it").await];
    let mut late = enters(&world, &ann, 2);
    late.waits_for(world.brief(), "that round is full, too").await;
    world.all_leave(next).await;
    late.waits_for(world.brief(), "it is alone").await;
    drop(late);
    world.left_alone(&ann, &world.at("both")).await;
}

async fn a_round_whose_members_all_died_is_over(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let _inside = world.all_inside(&ann, 2).await;
    gate.die_after(0);
    world.expire(answer(ann.session().await).info().id).await;
    world.members(&bob, 0).await;

    let mut alone = enters(&world, &bob, 2);
    alone.waits_for(world.brief(), "it is alone").await;

    let second = enters(&world, &bob, 2).gets(&world, "the next round").await;
    world.all_leave(vec![second, alone.gets(&world, "it").await]).await;
    world.left_alone(&bob, &world.at("both")).await;
}

async fn a_member_that_learns_of_its_round_late_enters_it(world: World) {
    let (gate, ann) = (world.gate(), world.client().await);
    let bob = world.client_on(gate.clone(), world.options()).await;
    let slow = enters(&world, &bob, 3);
    world.members(&ann, 1).await;
    // From now on the member gets no answers.
    gate.hold_behind(Some((Verb::Read, gate.count(Verb::Read))));
    let two = [enters(&world, &ann, 3), enters(&world, &ann, 3)];
    let mut leaving = Vec::new();
    for one in two {
        leaving.push(leaves(one.gets(&world, "all are there").await));
    }
    for one in &mut leaving {
        one.waits_for(world.brief(), "one is inside, and does not know it").await;
    }

    gate.hold_behind(None);

    let inside = slow.gets(&world, "its round began").await;
    answer(world.in_time("the last one leaves", inside.leave()).await);
    for one in leaving {
        one.gets(&world, "all have left").await;
    }
}

async fn a_member_that_dies_inside_is_not_waited_for(world: World) {
    let (gate, ann) = (world.gate(), world.client().await);
    let bob = world.client_on(gate.clone(), world.options()).await;
    let (one, two) = (enters(&world, &ann, 2), enters(&world, &bob, 2));
    let (one, dying) = (one.gets(&world, "ann").await, two.gets(&world, "bob").await);
    let mut leaving = leaves(one);
    leaving.waits_for(world.brief(), "bob is inside").await;
    gate.die_after(0);

    world.expire(answer(bob.session().await).info().id).await;

    leaving.gets(&world, "the other one died").await;
    gate.revive();
    world.in_time("the loss", dying.lost()).await;
    assert!(!dying.is_inside());
    let late = world.in_time("a late leave", dying.leave()).await;
    assert_eq!(failure(late, "its session is lost").kind(), ErrorKind::SessionLost);
}

async fn a_member_that_dies_waiting_does_as_it_was_said(world: World) {
    let (gate, ann) = (world.gate(), world.client().await);
    let bob = world.client_on(gate.clone(), world.options()).await;
    let mut patient = enters(&world, &ann, 4);
    let strict = entering(barrier(&world, &ann, 4).on_loss(OnLoss::Fail));
    world.members(&ann, 2).await;
    let _dying = enters(&world, &bob, 4);
    world.members(&ann, 3).await;
    sleep(world.brief()).await;
    gate.die_after(0);

    world.expire(answer(bob.session().await).info().id).await;

    let told = world.in_time("one gave up", strict.told).await.expect("it does not panic");
    assert_eq!(failure(told, "one gave up").kind(), ErrorKind::Refused);
    patient.waits_for(world.brief(), "it was told to wait for others").await;
    let others = [(); 3].map(|()| enters(&world, &ann, 4));
    let mut inside = vec![patient.gets(&world, "others came").await];
    for one in others {
        inside.push(one.gets(&world, "all are there").await);
    }
    world.all_leave(inside).await;
}

async fn a_member_that_gave_up_does_not_count(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let both = barrier(&world, &ann, 2);
    for _ in 0..2 {
        assert!(answer(within(world.brief(), both.enter()).await).is_none(), "it is alone");
    }
    // Another client may see its node until it is removed.
    world.members(&bob, 0).await;
    let mut other = enters(&world, &bob, 2);
    other.waits_for(world.brief(), "it is alone").await;

    let inside = answer(world.in_time("both are there", both.enter()).await);

    let inside = vec![inside, other.gets(&world, "both are there").await];
    world.all_leave(inside).await;
    world.left_alone(&ann, &world.at("both")).await;
}

async fn a_lost_answer_makes_no_second_member(world: World) {
    let (ann, plan) = world.scripted([]).await;
    let bob = world.client().await;
    for site in [Site::ReplyLost, Site::RequestLost, Site::AppliedLate] {
        plan.cue(Cue::new(site).of(Verb::Commit));
        let mut one = enters(&world, &ann, 2);
        world.members(&bob, 1).await;
        one.waits_for(world.brief(), &format!("{site:?}: it is alone")).await;
        assert_eq!(plan.pending(), 0, "{site:?} did not fire");

        // Nor does a lost answer to a call that begins a round, or leaves.
        plan.cue(Cue::new(site).of(Verb::Commit).nth(2));
        let two = enters(&world, &ann, 2).gets(&world, "both are there").await;
        let one = one.gets(&world, "both are there").await;
        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
        plan.cue(Cue::new(site).of(Verb::Commit));
        world.all_leave(vec![one, two]).await;
        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
        assert_eq!(names(&world, &bob).await, [""; 0], "{site:?}");
    }
}

async fn a_member_whose_node_is_removed_comes_again(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let one = enters(&world, &ann, 2);
    world.members(&bob, 1).await;
    let first = names(&world, &bob).await;
    let node = world.at("both").join(&first[0]).expect("valid");
    answer(answer(bob.delete(&node, Expect::Any).await).required());
    world.members(&bob, 1).await;
    let came_again = async || names(&world, &bob).await.first().is_some_and(|it| *it != first[0]);
    world.eventually("it comes again", came_again).await;

    let two = enters(&world, &bob, 2).gets(&world, "both are there").await;

    world.all_leave(vec![one.gets(&world, "both are there").await, two]).await;
    sleep(world.brief()).await;
    assert_eq!(names(&world, &bob).await, [""; 0]);
}

async fn a_member_whose_node_is_removed_at_once_comes_again(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let both = barrier(&world, &ann, 2);
    let (one, two) = (entering(both.clone()), enters(&world, &bob, 2));
    let inside = vec![one.gets(&world, "both are there").await, two.gets(&world, "it").await];
    world.all_leave(inside).await;

    // The watch of the previous round continues, and the member waits until it reports this node.
    gate.hold_behind(Some((Verb::Commit, gate.count(Verb::Commit))));
    let mut again = entering(both);
    world.members(&bob, 1).await;
    let node = world.at("both").join(&names(&world, &bob).await[0]).expect("valid");
    answer(answer(bob.delete(&node, Expect::Any).await).required());
    gate.join_changes_of(&node);
    gate.hold_behind(None);

    world.members(&bob, 1).await;
    another_comes_and_goes(&world, &bob).await;
    again.waits_for(world.brief(), "it is alone").await;
    let two = enters(&world, &bob, 2);
    let inside = vec![again.gets(&world, "both are there").await, two.gets(&world, "it").await];
    world.all_leave(inside).await;
}

async fn a_member_does_not_enter_with_itself(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let session = answer(ann.session().await);
    let mut alone = enters(&world, &ann, 2);
    world.members(&bob, 1).await;

    // The client considers its session lost earlier than the server, so its node still exists when
    // it enters again.
    world.link(session.info().id, Link::Cut).await;
    world.in_time("the loss", session.lost()).await;

    alone.waits_for(world.brief(), "it is alone").await;
    world.members(&bob, 1).await;
    let bobs = enters(&world, &bob, 2);
    let inside = vec![alone.gets(&world, "they are two").await, bobs.gets(&world, "it").await];
    world.all_leave(inside).await;
}
