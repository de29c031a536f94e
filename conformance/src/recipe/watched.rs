//! The watched value: the last value that could be read, and its state.

use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};

use futures_util::StreamExt as _;
use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_core::store::Expect;
use synod_recipes::cache::{Watched, WatchedValue};
use synod_recipes::value::CopyState;

use crate::door::answer;
use crate::door::gate::Way;
use crate::world::World;

cases![
    "L-CA-7" catches [WatchMissesUpdate] => a_watched_value_is_the_last_one_in_the_end,
    "L-CA-7" catches [WatchMissesUpdate] => what_cannot_be_read_is_reported_and_leaves_the_last_value,
    "L-CA-7" catches [WatchMissesUpdate] => what_panics_when_it_is_read_is_reported_and_followed_on,
    "L-CA-7 L-SES-18" catches [WatchMissesUpdate] => a_value_may_look_at_the_next_one_as_it_is_dropped,
    "L-CA-7" catches [WatchMissesDelete] => a_value_that_is_removed_stays_until_there_is_another,
    "L-CA-7" breaks [CopyIsNeverStale] => a_watched_value_is_stale_while_the_store_is_out_of_reach,
    "L-WAT-14 L-X-5" needs [WatchCount] catches [DropLeavesWatch] => watched_values_that_were_dropped_leave_no_watch,
];

async fn open(world: &World, client: &Client) -> Watched<u64> {
    answer(world.in_time("a watched value", Watched::open(client, world.at("value"))).await)
}

impl World {
    /// Waits until a watched value has this value and this state.
    async fn watches(
        &self,
        watched: &Watched<u64>,
        value: Option<u64>,
        is: impl Fn(&CopyState) -> bool,
    ) {
        let is_it = async || {
            let last = watched.get();
            last.value.as_deref() == value.as_ref() && is(&last.state)
        };
        self.eventually(&format!("{value:?} is shown"), is_it).await;
    }
}

fn current(state: &CopyState) -> bool {
    matches!(state, CopyState::Current)
}

async fn a_watched_value_is_the_last_one_in_the_end(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let watched = open(&world, &ann).await;
    assert!(watched.get().value.is_none(), "there is none yet");
    let (mut receiver, mut changes) = (watched.receiver(), pin!(watched.changes()));
    for number in 1..=10_u64 {
        answer(bob.put_value(&world.at("value"), &number).await);
    }
    world.watches(&watched, Some(10), current).await;
    let is_last = |last: &WatchedValue<u64>| last.value.as_deref() == Some(&10);
    assert!(world.in_time("the last", receiver.wait_for(is_last)).await.is_ok());
    let mut before = None;
    loop {
        let next = world.in_time("a change", changes.next()).await.expect("it is open");
        assert!(next.value >= before, "it went back from {before:?} to {:?}", next.value);
        before.clone_from(&next.value);
        if is_last(&next) {
            break;
        }
    }
    drop(watched);
    while world.in_time("the end of the value", changes.next()).await.is_some() {}
    assert!(receiver.changed().await.is_err() && is_last(&receiver.borrow()));
}

async fn what_cannot_be_read_is_reported_and_leaves_the_last_value(world: World) {
    let (client, at) = (world.client().await, world.at("value"));
    answer(client.put(&at, "rubbish").await);
    let watched = open(&world, &client).await;
    let corrupt = |state: &CopyState| match state {
        CopyState::Unreadable(why) => why.kind() == ErrorKind::Corrupt,
        _ => false,
    };
    world.watches(&watched, None, corrupt).await;
    for number in 1..=3_u64 {
        answer(client.put_value(&at, &number).await);
        world.watches(&watched, Some(number), current).await;
        for bytes in ["", "{", "-1"] {
            answer(client.put(&at, bytes).await);
            world.watches(&watched, Some(number), corrupt).await;
        }
    }
    let words = Watched::open_with(&client, &at, |bytes| String::from_utf8(bytes.to_vec())).await;
    assert_eq!(answer(words).get().value, Some(Arc::new("-1".to_owned())));
}

async fn what_panics_when_it_is_read_is_reported_and_followed_on(world: World) {
    let (client, at) = (world.client().await, world.at("value"));
    answer(client.put(&at, "13").await);
    let watched = Watched::open_with(&client, &at, |bytes| match bytes {
        // The panic has no message, because it would be taken for the message of the case.
        b"13" => resume_unwind(Box::new("of the parser")),
        bytes => String::from_utf8_lossy(bytes).parse::<u64>(),
    });
    let watched = answer(world.in_time("a watched value", watched).await);
    let corrupt = |state: &CopyState| match state {
        CopyState::Unreadable(why) => why.kind() == ErrorKind::Corrupt,
        _ => false,
    };
    world.watches(&watched, None, corrupt).await;
    for number in 1..=3_u64 {
        answer(client.put_value(&at, &number).await);
        world.watches(&watched, Some(number), current).await;
        answer(client.put(&at, "13").await);
        world.watches(&watched, Some(number), corrupt).await;
    }
}

/// A value whose drop reads the value that has replaced it.
struct Looks(u8, Weak<OnceLock<Watched<Self>>>);

impl Drop for Looks {
    fn drop(&mut self) {
        if let Some(watched) = self.1.upgrade() {
            let next = watched.get().and_then(|watched| watched.get().value);
            assert!(next.is_some_and(|next| next.0 > self.0));
        }
    }
}

async fn a_value_may_look_at_the_next_one_as_it_is_dropped(world: World) {
    let (client, at) = (world.client().await, world.at("value"));
    let place = Arc::new(OnceLock::new());
    let weak = Arc::downgrade(&place);
    answer(client.put(&at, vec![1]).await);
    let watched = Watched::open_with(&client, &at, move |bytes| {
        Ok::<_, std::convert::Infallible>(Looks(bytes[0], weak.clone()))
    });
    let watched = answer(world.in_time("a watched value", watched).await);
    assert!(place.set(watched.clone()).is_ok(), "it is the first");
    for number in 2..=5 {
        answer(client.put(&at, vec![number]).await);
        let is_shown = async || watched.get().value.is_some_and(|value| value.0 == number);
        world.eventually("the next one is shown", is_shown).await;
    }
}

async fn a_value_that_is_removed_stays_until_there_is_another(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let watched = open(&world, &ann).await;
    let removed = |state: &CopyState| matches!(state, CopyState::Removed);
    world.watches(&watched, None, removed).await;
    for number in 1..=3_u64 {
        answer(bob.put_value(&world.at("value"), &number).await);
        world.watches(&watched, Some(number), current).await;
        answer(answer(bob.delete(&world.at("value"), Expect::Any).await).required());
        world.watches(&watched, Some(number), removed).await;
    }
}

async fn a_watched_value_is_stale_while_the_store_is_out_of_reach(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    gate.may_lose();
    let ann = world.client_on(gate.clone(), world.options()).await;
    answer(bob.put_value(&world.at("value"), &0_u64).await);
    let watched = open(&world, &ann).await;
    let mut receiver = watched.receiver();
    for number in 1..=3_u64 {
        world.watches(&watched, Some(number - 1), current).await;
        gate.set(Way::Shut);
        gate.lose_events(true);
        gate.lose();
        assert!(matches!(watched.get().state, CopyState::Stale), "its session is lost");
        answer(bob.put_value(&world.at("value"), &number).await);
        let stale = receiver.wait_for(|last| matches!(last.state, CopyState::Stale));
        assert!(world.in_time("the state", stale).await.is_ok());
        assert_eq!(watched.get().value.as_deref(), Some(&(number - 1)), "the last one stays");
        gate.lose_events(false);
        gate.set(Way::Open);
        world.watches(&watched, Some(number), current).await;
    }
}

async fn watched_values_that_were_dropped_leave_no_watch(world: World) {
    let client = world.client().await;
    world.leaves_no_watch(async || open(&world, &client).await).await;
}
