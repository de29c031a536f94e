//! Service discovery: an instance is listed while it is registered, and unreadable or unreachable
//! instances do not affect the others.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::select;
use synod_core::client::Client;
use synod_core::error::{Effect, ErrorKind};
use synod_core::store::{Expect, Lifetime};
use synod_recipes::cache::CacheState;
use synod_recipes::discovery::{
    Discovery, Endpoints, Instance, InstanceKind, Provider, Registration, Service, Strategy,
};
use synod_testkit::fault::{Cue, Site, Verb};
use tokio::time::{Instant, sleep};

use crate::door::gate::Way;
use crate::door::{answer, failure};
use crate::world::World;

cases![
    "L-SD-1 L-PE-2" catches [WatchMissesChildUpdate] => a_service_shows_what_its_instances_have_registered,
    "L-SD-1" breaks [NewerByVersion] => an_instance_that_was_registered_anew_is_the_new_one,
    "L-SD-2" breaks [BadInstanceEndsAll] => an_instance_that_cannot_be_read_is_reported_and_leaves_the_others,
    "L-SD-3" breaks [CopyIsNeverStale] => the_last_view_stays_while_the_store_is_out_of_reach,
    "L-SD-4" breaks [DownIsChosen] => a_provider_chooses_each_in_turn_and_none_that_is_down,
    "L-SD-4 L-GM-1" catches [EventDropped] => a_provider_goes_on_with_those_that_are_left,
    "L-SD-5 L-PE-1 L-X-8" needs [Expiry] breaks [MadeAgainAtOnce] => instances_that_come_back_are_spread_over_time,
    "L-PE-3" breaks [SetWhileAwayForgotten] => what_an_instance_said_last_is_registered_again,
    "L-PE-2 L-PE-5" catches [CreateOverwrites] => a_second_instance_of_an_id_is_refused_or_takes_over,
    "L-SD-6" catches [WatchMissesChildUpdate] => a_published_instance_stays_until_it_is_withdrawn,
    "L-SD-6 L-OUT-3" catches [CloseKeepsEphemerals] => a_published_instance_is_stored_although_an_answer_is_lost,
    "L-OUT-5 L-OUT-6" breaks [StateNeverEnds] => a_service_ends_with_its_client,
    "L-WAT-14 L-X-5" needs [WatchCount] catches [DropLeavesWatch] => services_that_were_dropped_leave_no_watch,
];

fn discovery(world: &World, client: &Client) -> Discovery<u64> {
    Discovery::new(client, world.at("services"))
}

fn instance(id: &str, payload: u64) -> Instance<u64> {
    Instance::new("web", "10.0.0.7").id(id).port(4711).payload(payload)
}

async fn registered(world: &World, client: &Client, id: &str, payload: u64) -> Registration {
    let discovery = discovery(world, client);
    let registering = discovery.register(instance(id, payload));
    answer(world.in_time("registering", registering).await)
}

async fn open(world: &World, client: &Client) -> Service<u64> {
    answer(world.in_time("a service", discovery(world, client).open("web")).await)
}

/// The ids and payloads.
fn shown(endpoints: &Endpoints<u64>) -> Vec<(&str, u64)> {
    let shown = endpoints.iter().map(|it| (&*it.instance.id, it.instance.payload.unwrap_or(0)));
    shown.collect()
}

impl World {
    /// Waits until a service has these instances, and all changes of them are reported.
    async fn serves(&self, service: &Service<u64>, expected: &[(&str, u64)]) {
        let is_so = async || {
            let view = service.view();
            shown(&view.endpoints) == expected && view.state.is_live()
        };
        self.eventually(&format!("the instances are {expected:?}"), is_so).await;
    }
}

async fn a_service_shows_what_its_instances_have_registered(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let of_bob = discovery(&world, &bob);
    assert_eq!(answer(of_bob.services().await), [""; 0]);
    let service = open(&world, &bob).await;
    assert!(service.view().endpoints.is_empty() && service.view().state.is_live());
    let first = registered(&world, &ann, "b", 1).await;
    let unnamed = Instance::new("mail/in", "10.0.0.8").payload(7);
    let other = answer(world.in_time("another", discovery(&world, &ann).register(unnamed)).await);
    assert!(first.is_registered() && other.id().len() == 32);
    world.serves(&service, &[("b", 1)]).await;
    let second = registered(&world, &ann, "a", 2).await;
    world.serves(&service, &[("a", 2), ("b", 1)]).await;
    for number in 3..6 {
        answer(world.in_time("an update", first.update(instance("", number))).await);
        world.serves(&service, &[("a", 2), ("b", number)]).await;
    }

    let all = answer(of_bob.instances("web").await);

    assert_eq!(shown(&all), [("a", 2), ("b", 5)]);
    let stored = all.get("b").expect("it is there");
    assert_eq!(stored.path, *first.path());
    assert_eq!(stored.stat.owner, Some(answer(ann.session().await).info().id));
    assert!(stored.instance.registered > 0 && stored.instance.port == Some(4711));
    let mail = answer(of_bob.instances("mail/in").await);
    assert_eq!(mail.iter().map(|it| &*it.instance.id).collect::<Vec<_>>(), [other.id()]);
    assert_eq!(answer(of_bob.services().await), ["mail/in", "web"]);
    let elsewhere = Instance::new("mail", "10.0.0.7").payload(1);
    for wrong in [elsewhere, instance("c", 1)] {
        assert_eq!(failure(first.update(wrong).await, "another one").kind(), ErrorKind::Invalid);
    }
    for registration in [first, second, other] {
        answer(world.in_time("unregistering", registration.unregister()).await);
    }
    world.serves(&service, &[]).await;
    assert!(answer(of_bob.instances("web").await).is_empty());
}

async fn an_instance_that_was_registered_anew_is_the_new_one(world: World) {
    let (gate, ann) = (world.gate(), world.client().await);
    gate.may_lose();
    let bob = world.client_on(gate.clone(), world.options()).await;
    let service = open(&world, &bob).await;
    let mut registration = registered(&world, &ann, "a", 0).await;
    for round in 1..4 {
        // The new one has a smaller version than this.
        for number in 0..3 {
            answer(registration.update(instance("a", round * 10 + number)).await);
        }
        world.serves(&service, &[("a", round * 10 + 2)]).await;
        let before = service.view();
        gate.set(Way::Shut);
        gate.lose_events(true);
        gate.lose();
        answer(world.in_time("unregistering", registration.unregister()).await);
        registration = registered(&world, &ann, "a", round).await;
        gate.lose_events(false);
        gate.set(Way::Open);

        world.serves(&service, &[("a", round)]).await;

        let created = |of: &Endpoints<u64>| of.get("a").map(|it| it.stat.created);
        assert!(created(&service.view().endpoints) > created(&before.endpoints));
    }
}

async fn an_instance_that_cannot_be_read_is_reported_and_leaves_the_others(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let _first = registered(&world, &ann, "good", 1).await;
    let service = open(&world, &bob).await;
    let bad = world.at("services/web/bad");
    let large = format!("\"{}", "x".repeat(500_000));
    let deep = "[".repeat(10_000);
    let shape = r#"{"name":"web","id":"bad","payload":"text"}"#;
    for bytes in ["", "{", "canary", shape, &large, &deep] {
        answer(ann.put(&bad, bytes.to_owned()).await);
        let is_reported = async || {
            let view = service.view();
            shown(&view.endpoints) == [("good", 1)] && view.endpoints.unreadable().len() == 1
        };
        world.eventually("it is reported, and the other is there", is_reported).await;
        for all in
            [&*service.view().endpoints, &answer(discovery(&world, &bob).instances("web").await)]
        {
            let why = &all.unreadable()[0];
            assert_eq!((why.kind(), why.path()), (ErrorKind::Corrupt, Some(&bad)));
            assert!(!format!("{why} {why:?}").contains("canary"), "{why}");
            assert_eq!(shown(all), [("good", 1)]);
        }
    }
    // Unknown fields are ignored.
    let later = r#"{"name":"web","id":"later","payload":2,"weight":{"of":[1]}}"#;
    answer(ann.put(&bad, later).await);
    world.serves(&service, &[("later", 2), ("good", 1)]).await;
    assert!(service.view().endpoints.unreadable().is_empty());
}

async fn the_last_view_stays_while_the_store_is_out_of_reach(world: World) {
    let (gate, ann) = (world.gate(), world.client().await);
    gate.may_lose();
    let bob = world.client_on(gate.clone(), world.options()).await;
    let registration = registered(&world, &ann, "a", 0).await;
    let service = open(&world, &bob).await;
    let provider = Provider::new(&service, Strategy::Random);
    let mut changes = pin!(service.changes());
    for number in 1..4 {
        world.serves(&service, &[("a", number - 1)]).await;
        gate.set(Way::Shut);
        gate.lose_events(true);
        gate.lose();

        assert!(matches!(service.view().state, CacheState::Stale(_)), "its session is lost");
        answer(registration.update(instance("a", number)).await);
        loop {
            let view = world.in_time("a change", changes.next()).await.expect("it is open");
            assert_eq!(view.endpoints.len(), 1, "an outage removes no instance");
            let is_last = shown(&view.endpoints) == [("a", number - 1)];
            if is_last && matches!(view.state, CacheState::Stale(_)) {
                break;
            }
        }
        let chosen = provider.choose().expect("it stays");
        assert_eq!(chosen.instance.payload, Some(number - 1));
        gate.lose_events(false);
        gate.set(Way::Open);
    }
    world.serves(&service, &[("a", 3)]).await;
}

/// Returns the choices of a provider, in order.
fn chosen(provider: &Provider<u64>, times: usize) -> Vec<String> {
    let chosen = (0..times).filter_map(|_| provider.choose());
    chosen.map(|it| it.instance.id.clone()).collect()
}

async fn a_provider_chooses_each_in_turn_and_none_that_is_down(world: World) {
    const LONG: Duration = Duration::from_secs(3600);
    let (ann, bob) = (world.client().await, world.client().await);
    let mut all = Vec::new();
    for (id, payload) in [("a", 1), ("b", 2), ("c", 3)] {
        all.push(registered(&world, &ann, id, payload).await);
    }
    let service = open(&world, &bob).await;
    let by_turns = Provider::new(&service, Strategy::RoundRobin).down_for(LONG, NonZeroU32::MIN);
    assert_eq!(chosen(&by_turns, 4), ["a", "b", "c", "a"]);

    let second = by_turns.choose().expect("there are three");
    by_turns.failed(&second);

    assert_eq!(chosen(&by_turns.clone(), 4), ["c", "a", "c", "a"], "b is down");
    // It is also down after it updates its data, and after another instance is registered in its
    // place.
    answer(all[1].update(instance("b", 20)).await);
    world.serves(&service, &[("a", 1), ("b", 20), ("c", 3)]).await;
    assert_eq!(chosen(&by_turns, 2), ["c", "a"]);
    // After several failures, and for a while.
    let brief = Provider::new(&service, Strategy::Sticky).down_for(world.brief(), TWICE);
    let first = brief.choose().expect("there are three");
    assert!(chosen(&brief, 20).iter().all(|id| *id == first.instance.id), "it stays");
    brief.failed(&first);
    assert!(brief.choose().is_some_and(|it| it.path == first.path), "once is not enough");
    let again = async || brief.all().len() == 3;
    brief.failed(&first);
    world.eventually("it is no longer down", again).await;
    // An instance that is not enabled, and an instance that does not pass the filter.
    let mut disabled = instance("a", 1);
    disabled.enabled = false;
    answer(all[0].update(disabled).await);
    let is_known =
        async || service.view().endpoints.get("a").is_some_and(|it| !it.instance.enabled);
    world.eventually("it is disabled", is_known).await;
    let few = Provider::new(&service, Strategy::weighted(|it| it.id.len().try_into().unwrap_or(0)));
    let few =
        few.filtered(|it| it.instance.payload != Some(20)).filtered(|it| it.instance.id != "d");
    assert_eq!(chosen(&few, 3), ["c"; 3]);
    few.failed(&few.choose().expect("it is there"));
    assert!(few.choose().is_none(), "the last one is down");
}

const TWICE: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

async fn a_provider_goes_on_with_those_that_are_left(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let first = registered(&world, &ann, "a", 1).await;
    let second = registered(&world, &ann, "b", 2).await;
    let service = open(&world, &bob).await;
    // A persistent node of another program is an instance, too.
    let fixed = r#"{"name":"web","id":"c","payload":3,"serviceType":"STATIC"}"#;
    let path = world.at("services/web/c");
    answer(answer(ann.create(&path, fixed, Lifetime::Persistent).await).required());
    world.serves(&service, &[("a", 1), ("b", 2), ("c", 3)]).await;
    let [turns, any, sticky] = [Strategy::RoundRobin, Strategy::Random, Strategy::Sticky]
        .map(|it| Provider::new(&service, it));
    let all = BTreeSet::from(["a", "b", "c"].map(str::to_owned));
    assert_eq!(BTreeSet::from_iter(chosen(&turns, 3)), all);
    let stuck = sticky.choose().expect("there are three");

    answer(world.in_time("unregistering", second.unregister()).await);
    world.serves(&service, &[("a", 1), ("c", 3)]).await;

    let left = BTreeSet::from(["a", "c"].map(str::to_owned));
    assert_eq!(BTreeSet::from_iter(chosen(&turns, 2)), left);
    assert!(chosen(&any, 20).iter().all(|id| left.contains(id)));
    let now = sticky.choose().expect("there are two");
    assert!(now.path == stuck.path || stuck.instance.id == "b", "it stays while it is there");
    answer(world.in_time("unregistering", first.unregister()).await);
    answer(answer(ann.delete(&path, Expect::Any).await).required());
    world.serves(&service, &[]).await;
    assert!(turns.choose().is_none() && any.choose().is_none() && sticky.choose().is_none());
}

async fn instances_that_come_back_are_spread_over_time(world: World) {
    const MANY: usize = 32;
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let mut all = Vec::new();
    for number in 0..MANY {
        all.push(registered(&world, &ann, &format!("{number:02}"), 1).await);
    }
    let service = open(&world, &bob).await;
    assert_eq!(service.view().endpoints.len(), MANY);
    let expiry = async || {
        let newest = service.view().endpoints.iter().map(|it| it.stat.created).max();
        let before = gate.count(Verb::Commit);
        let session = answer(ann.session().await);

        world.expire(session.info().id).await;

        // The times at which the first and the last request were sent: the times of the answers
        // depend on the server.
        let (first, last) = (Cell::new(None), Cell::new(before));
        let spread = Cell::new(Duration::ZERO);
        let sending = async {
            loop {
                let sent = gate.count(Verb::Commit);
                if sent > last.replace(sent) {
                    let began = first.get().unwrap_or_else(Instant::now);
                    first.set(Some(began));
                    spread.set(began.elapsed());
                }
                sleep(Duration::from_millis(1)).await;
            }
        };
        let returning = async {
            let mut changes = pin!(service.changes());
            loop {
                let view = world.in_time("a change", changes.next()).await.expect("it is open");
                let back = view.endpoints.iter().filter(|it| Some(it.stat.created) > newest);
                if back.count() == MANY {
                    return;
                }
            }
        };
        select(pin!(sending), pin!(returning)).await;
        let requests = gate.count(Verb::Commit) - before;
        assert!(requests <= 3 * MANY, "{requests} requests");
        // So many random delays are never this close together.
        let spread = spread.get();
        if spread > SPREAD { Ok(()) } else { Err(format!("all within {spread:?}")) }
    };
    world.unless_stalled(SPREAD / 2, expiry).await;
    world.eventually("all know", async || all.iter().all(Registration::is_registered)).await;
}

/// Less than the time over which the repeated creates of many instances are spread.
const SPREAD: Duration = Duration::from_millis(80);

async fn what_an_instance_said_last_is_registered_again(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    gate.may_lose();
    let ann = world.client_on(gate.clone(), world.options()).await;
    let registration = registered(&world, &ann, "a", 1).await;
    let service = open(&world, &bob).await;
    answer(registration.update(instance("a", 2)).await);
    let session = answer(ann.session().await);
    gate.set(Way::Shut);
    gate.lose();
    world.in_time("the loss", session.lost()).await;
    world.eventually("it knows of the loss", async || !registration.is_registered()).await;

    drop(tokio::time::timeout(world.brief(), registration.update(instance("a", 3))).await);
    gate.set(Way::Open);

    world.serves(&service, &[("a", 3)]).await;
    world.eventually("it knows", async || registration.is_registered()).await;
    answer(world.in_time("unregistering", registration.unregister()).await);
    world.serves(&service, &[]).await;
}

async fn a_second_instance_of_an_id_is_refused_or_takes_over(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let first = registered(&world, &ann, "a", 1).await;
    let service = open(&world, &bob).await;
    for client in [&ann, &bob] {
        let other = discovery(&world, client);
        let refused = world.in_time("the refusal", other.register(instance("a", 2))).await;
        assert_eq!(failure(refused, "an id that is taken").kind(), ErrorKind::Refused);
        world.serves(&service, &[("a", 1)]).await;
    }

    let second = discovery(&world, &bob).take_over().register(instance("a", 2)).await;

    let second = answer(second);
    world.serves(&service, &[("a", 2)]).await;
    world.eventually("the first one knows", async || !first.is_registered()).await;
    answer(world.in_time("unregistering the second", second.unregister()).await);
    world.serves(&service, &[("a", 1)]).await;
    answer(world.in_time("unregistering", first.unregister()).await);
    for wrong in [instance(&"x".repeat(300), 1), Instance::new("", "10.0.0.7")] {
        let refused = discovery(&world, &bob).register(wrong).await;
        assert_eq!(failure(refused, "no name").kind(), ErrorKind::Invalid);
    }
}

async fn a_published_instance_stays_until_it_is_withdrawn(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let (of_ann, of_bob) = (discovery(&world, &ann), discovery(&world, &bob));
    let service = open(&world, &bob).await;
    let registration = registered(&world, &ann, "alive", 1).await;
    assert_eq!(answer(of_ann.publish(instance("db", 2)).await), "db");
    world.serves(&service, &[("alive", 1), ("db", 2)]).await;

    // An instance of a live program cannot be changed by others.
    for refused in [
        failure(of_bob.publish(instance("alive", 7)).await, "another's instance"),
        failure(of_bob.withdraw("web", "alive").await, "another's instance"),
    ] {
        assert_eq!((refused.kind(), refused.effect()), (ErrorKind::Refused, Effect::None));
    }
    let taken = failure(of_bob.register(instance("db", 7)).await, "a published instance");
    assert_eq!(taken.kind(), ErrorKind::Refused);

    drop(registration);
    answer(ann.close().await);
    world.serves(&service, &[("db", 2)]).await;
    let shown = service.view().endpoints;
    let kinds: Vec<_> = shown.iter().map(|it| it.instance.kind()).collect();
    assert_eq!(kinds, [InstanceKind::Permanent]);
    let random = answer(of_bob.publish(Instance::new("web", "10.0.0.8")).await);
    assert!(!random.is_empty() && random != "db");
    assert!(answer(of_bob.withdraw("web", &random).await));
    answer(of_bob.publish(instance("db", 3)).await);
    world.serves(&service, &[("db", 3)]).await;

    assert!(answer(of_bob.withdraw("web", "db").await));
    assert!(!answer(of_bob.withdraw("web", "db").await), "it is gone");
    world.serves(&service, &[]).await;
}

async fn a_published_instance_is_stored_although_an_answer_is_lost(world: World) {
    let ((client, plan), other) = (world.scripted([]).await, world.client().await);
    let (own, others) = (discovery(&world, &client), discovery(&world, &other));
    for site in [Site::ReplyLost, Site::RequestLost] {
        for verb in [Verb::Create, Verb::Set] {
            plan.cue(Cue::new(site).of(verb));
            answer(world.in_time("it is stored", own.publish(instance("db", 1))).await);
            assert_eq!(plan.pending(), 0, "{site:?} did not fire");
            assert_eq!(shown(&answer(others.instances("web").await)), [("db", 1)]);
        }
        plan.cue(Cue::new(site).of(Verb::Delete));
        assert!(answer(world.in_time("it is removed", own.withdraw("web", "db")).await));
        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
        assert!(answer(others.instances("web").await).is_empty());
    }
    // A program that ends leaves no instance that it has registered.
    drop(registered(&world, &client, "alive", 1).await);
    answer(client.close().await);
    assert!(answer(others.instances("web").await).is_empty());
}

async fn a_service_ends_with_its_client(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let _registration = registered(&world, &ann, "a", 1).await;
    let service = open(&world, &bob).await;
    let mut changes = pin!(service.changes());
    let first = world.in_time("a change", changes.next()).await.expect("it is open");
    assert!(first.state.is_live());

    answer(world.in_time("the end of a client", bob.close()).await);

    while let Some(view) = world.in_time("the end of the changes", changes.next()).await {
        assert_eq!(shown(&view.endpoints), [("a", 1)], "the last view stays");
    }
    assert!(!service.view().state.is_live());
    let late = world.in_time("an open", discovery(&world, &bob).open("web")).await;
    assert_eq!(failure(late, "the client is closed").kind(), ErrorKind::SessionLost);
}

async fn services_that_were_dropped_leave_no_watch(world: World) {
    let client = world.client().await;
    world.leaves_no_watch(async || open(&world, &client).await).await;
}
