//! The group: members are listed while they are members, and join and leave in turn.

use std::collections::BTreeMap;
use std::pin::Pin;

use futures_util::{Stream, StreamExt as _};
use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_core::store::{Expect, Lifetime, Revision};
use synod_recipes::presence::{Group, GroupChange, Membership};

use crate::door::gate::Way;
use crate::door::{answer, failure};
use crate::world::World;

cases![
    "L-GM-1 L-PE-2" catches [OwnerUntold] => members_are_listed_by_name_with_their_data,
    "L-GM-1 L-GM-2" needs [Expiry] breaks [KeptRemovalUnnoticed] => a_member_whose_node_goes_is_a_member_again,
    "L-GM-3 L-GM-1" catches [WatchMissesChildUpdate] => every_change_is_reported_and_joins_and_leaves_take_turns,
    "L-GM-3 L-WAT-7" needs [Expiry] catches [ExpiryUntoldToWatchers] => a_member_that_dies_is_reported_as_left,
    "L-GM-1 L-X-5" needs [Expiry] breaks [ResyncSwallowed] => a_reader_whose_session_is_lost_misses_nothing,
];

type Changes = Pin<Box<dyn Stream<Item = GroupChange> + Send>>;

fn group(world: &World, client: &Client) -> Group {
    Group::new(client, world.at("group"))
}

async fn joined(world: &World, client: &Client, name: &str) -> Membership {
    answer(world.in_time("joining", group(world, client).join_as(name, "first")).await)
}

async fn names(world: &World, client: &Client) -> Vec<String> {
    let members = answer(group(world, client).members().await);
    members.into_iter().map(|member| member.name).collect()
}

impl World {
    async fn until_members(&self, client: &Client, expected: &[&str]) {
        let listed = async || names(self, client).await == expected;
        self.eventually(&format!("the members are {expected:?}"), listed).await;
    }
}

async fn members_are_listed_by_name_with_their_data(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    assert_eq!(answer(group(&world, &ann).members().await), []);
    let odd = joined(&world, &ann, "a/b %").await;
    let first = joined(&world, &ann, "host-7").await;
    let unnamed = answer(group(&world, &bob).join("unnamed").await);
    // A node that is not ephemeral is not a member.
    let place = world.at("group/place");
    answer(answer(bob.create(&place, "", Lifetime::Persistent).await).required());
    assert!(first.is_member() && odd.name() == "a/b %");
    answer(first.set("second").await);

    let members = answer(group(&world, &bob).members().await);

    let listed: BTreeMap<_, _> =
        members.iter().map(|it| (it.name.clone(), String::from_utf8_lossy(&it.data))).collect();
    let all = [("a/b %", "first"), ("host-7", "second"), (&*unnamed.name(), "unnamed")];
    assert_eq!(listed, all.map(|(name, data)| (name.to_owned(), data.into())).into());
    let session = answer(ann.session().await).info().id;
    assert_eq!(members.iter().filter(|it| it.session == session).count(), 2);
    let second = world.in_time("a second one", group(&world, &bob).join_as("host-7", "")).await;
    assert_eq!(failure(second, "a name that is taken").kind(), ErrorKind::Refused);
    for membership in [odd, first, unnamed] {
        answer(world.in_time("leaving", membership.leave()).await);
    }
    assert_eq!(answer(group(&world, &bob).members().await), []);
}

async fn a_member_whose_node_goes_is_a_member_again(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let member = joined(&world, &ann, "ann").await;
    answer(answer(bob.delete(&world.at("group/ann"), Expect::Any).await).required());
    world.until_members(&bob, &["ann"]).await;
    world.eventually("she knows", async || member.is_member()).await;

    let session = answer(ann.session().await);
    gate.set(Way::Shut);
    world.expire(session.info().id).await;
    world.in_time("the loss", session.lost()).await;
    // While the store is unreachable, it is not a member.
    assert!(!member.is_member());
    assert_eq!(names(&world, &bob).await, [""; 0]);

    gate.set(Way::Open);

    world.until_members(&bob, &["ann"]).await;
    world.eventually("she knows", async || member.is_member()).await;
    answer(world.in_time("leaving", member.leave()).await);
    assert_eq!(names(&world, &bob).await, [""; 0]);
}

/// Reads changes until the expected one. Joins and leaves alternate, each with the revision of its
/// incarnation.
async fn reads_until(
    world: &World,
    changes: &mut Changes,
    there: &mut BTreeMap<String, Revision>,
    what: &str,
    is_it: impl Fn(&GroupChange) -> bool,
) {
    loop {
        let change = world.in_time(what, changes.next()).await.expect("the client is open");
        match &change {
            GroupChange::Joined(it) => {
                assert_eq!(there.insert(it.name.clone(), it.since), None, "{it:?} joined twice");
            }
            GroupChange::Left(it) => {
                assert_eq!(there.remove(&it.name), Some(it.since), "{it:?} left, and was none");
            }
            GroupChange::Changed(it) => assert_eq!(there.get(&it.name), Some(&it.since)),
            other => panic!("{other:?}"),
        }
        if is_it(&change) {
            return;
        }
    }
}

async fn every_change_is_reported_and_joins_and_leaves_take_turns(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let first = joined(&world, &ann, "first").await;
    let mut changes: Changes = Box::pin(group(&world, &bob).changes());
    let mut there = BTreeMap::new();
    let joins = |name: &'static str| move |it: &GroupChange| matches!(it, GroupChange::Joined(it) if it.name == name);
    let leaves = |name: &'static str| move |it: &GroupChange| matches!(it, GroupChange::Left(it) if it.name == name);
    reads_until(&world, &mut changes, &mut there, "who is there", joins("first")).await;
    for _ in 0..3 {
        let second = joined(&world, &ann, "second").await;
        reads_until(&world, &mut changes, &mut there, "a join", joins("second")).await;
        answer(second.set("new").await);
        let is_new = |it: &GroupChange| matches!(it, GroupChange::Changed(it) if it.data == "new");
        reads_until(&world, &mut changes, &mut there, "other data", is_new).await;
        answer(world.in_time("leaving", second.leave()).await);
        reads_until(&world, &mut changes, &mut there, "a leave", leaves("second")).await;
    }
    answer(world.in_time("leaving", first.leave()).await);
    reads_until(&world, &mut changes, &mut there, "a leave", leaves("first")).await;
    assert!(there.is_empty());

    answer(world.in_time("the end of a client", bob.close()).await);
    assert!(world.in_time("the end of the changes", changes.next()).await.is_none());
}

async fn a_member_that_dies_is_reported_as_left(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let _member = joined(&world, &ann, "ann").await;
    let mut changes: Changes = Box::pin(group(&world, &bob).changes());
    let mut there = BTreeMap::new();
    let joins = |it: &GroupChange| matches!(it, GroupChange::Joined(_));
    reads_until(&world, &mut changes, &mut there, "who is there", joins).await;
    let session = answer(ann.session().await).info().id;
    gate.die_after(0);

    world.expire(session).await;

    let leaves = |it: &GroupChange| matches!(it, GroupChange::Left(it) if it.name == "ann");
    reads_until(&world, &mut changes, &mut there, "her leave", leaves).await;
    assert!(there.is_empty());
}

async fn a_reader_whose_session_is_lost_misses_nothing(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let mut changes: Changes = Box::pin(group(&world, &bob).changes());
    let mut there = BTreeMap::new();
    for name in ["one", "two"] {
        let member = joined(&world, &ann, name).await;
        let joins = |it: &GroupChange| matches!(it, GroupChange::Joined(it) if it.name == name);
        reads_until(&world, &mut changes, &mut there, "a join", joins).await;

        let session = answer(bob.session().await);
        world.expire(session.info().id).await;
        world.in_time("the loss", session.lost()).await;
        answer(world.in_time("leaving", member.leave()).await);

        let leaves = |it: &GroupChange| matches!(it, GroupChange::Left(it) if it.name == name);
        reads_until(&world, &mut changes, &mut there, "a leave", leaves).await;
    }
}
