//! The crew: the choice of the worker for a task, and the expiry of tasks.

use std::convert::Infallible;
use std::future::pending;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::held::Held as _;
use synod_core::store::{Expect, Lifetime, Txn};
use synod_recipes::crew::{
    Assignment, AttemptEnd, Crew, CrewPolicy, CrewTask, CrewWorker, NewTask, TaskEnd, TaskStatus,
};
use synod_testkit::fault::Verb;
use tokio::time::{Instant, sleep};

use crate::door::answer;
use crate::door::gate::Gate;
use crate::recipe::Waiting;
use crate::recipe::crew_members::{
    Slow, at_once, below, by, crew, leads, reads_no_more, reads_only, shown, works, works_as,
};
use crate::world::World;

cases![
    "L-MW-15 L-MW-10" breaks [CrewPolicyIgnored] => a_task_goes_to_the_worker_that_the_policy_chooses,
    "L-MW-16" breaks [DeadlineEndsWithTheWait] => a_task_that_is_late_expires_wherever_it_is,
    "L-MW-16 L-MW-7 L-X-2" needs [Expiry] breaks [WakeIsLift] => a_task_expires_whichever_call_its_master_ends_at,
    "L-MW-23 L-MW-11" catches [EventDropped] => an_attempt_that_takes_too_long_has_failed,
    "L-MW-5 L-MW-16" breaks [ExpiresWithoutLead] => a_master_that_was_replaced_lets_nothing_expire,
    "L-MW-16 L-MW-2" breaks [ResultUnguarded] => no_result_is_accepted_after_a_task_has_expired,
];

/// The crew whose master has this policy, with a worker for eight tasks on the red rack, and one
/// for two on the blue one. All tasks wait when it begins to lead.
async fn led_by(
    world: &World,
    client: &Client,
    name: &str,
    policy: CrewPolicy,
    tasks: Vec<NewTask>,
) -> (Crew, Vec<CrewTask>, Vec<Waiting<Infallible>>) {
    let crew = Crew::new(client, world.at(&format!("crew/{name}"))).policy(policy);
    let workers = [(8, "red"), (2, "blue")].map(|(capacity, rack)| {
        let capacity = NonZeroU32::new(capacity).expect("not zero");
        let worker = CrewWorker::new().capacity(capacity).property("rack", rack);
        let crew = crew.clone();
        Waiting::new(async move {
            crew.work(worker, |_task| pending::<Result<Bytes, Infallible>>()).await
        })
    });
    let are_there = async || answer(crew.snapshot().await).workers.len() == 2;
    world.eventually("both workers are there", are_there).await;
    let mut submitted = Vec::new();
    for (place, task) in tasks.into_iter().enumerate() {
        submitted.push(answer(crew.submit(&place.to_string(), task).await));
    }
    let leading = crew.clone();
    let master = Waiting::new(async move { leading.lead().await });
    (crew, submitted, workers.into_iter().chain([master]).collect())
}

/// The racks of the workers that have these tasks, once the last one has a worker. The master
/// decides in their order.
async fn racks(world: &World, crew: &Crew, tasks: &[CrewTask]) -> Vec<Option<String>> {
    let last = tasks.last().expect("there are some");
    let is_assigned = async || answer(last.status().await) == Some(TaskStatus::Assigned);
    world.eventually("the last one is assigned", is_assigned).await;
    let shown = answer(crew.snapshot().await);
    let rack_of = |task: &CrewTask| {
        let shown_task = shown.tasks.iter().find(|it| it.id == task.id()).expect("it is shown");
        let name = shown_task.worker.as_ref()?;
        let worker = shown.workers.iter().find(|it| it.name == *name).expect("it is there");
        worker.offers.properties().get("rack").cloned()
    };
    tasks.iter().map(rack_of).collect()
}

fn some(racks: &[&str]) -> Vec<Option<String>> {
    racks.iter().map(|rack| Some((*rack).to_owned())).collect()
}

async fn a_task_goes_to_the_worker_that_the_policy_chooses(world: World) {
    let ann = world.client().await;
    let plain = |count| vec![NewTask::new(""); count];
    let blue = || NewTask::new("").prefers("rack", "blue");

    let (crew, tasks, _running) =
        led_by(&world, &ann, "load", CrewPolicy::LeastLoaded, plain(4)).await;
    let found = racks(&world, &crew, &tasks).await;
    assert_eq!(found.iter().flatten().filter(|rack| *rack == "red").count(), 3, "{found:?}");

    let (crew, tasks, _running) =
        led_by(&world, &ann, "round", CrewPolicy::RoundRobin, plain(4)).await;
    let found = racks(&world, &crew, &tasks).await;
    assert_eq!(found[..2], found[2..], "in turn");
    assert_ne!(found[0], found[1], "in turn");

    // The third task finds no room at the rack that it prefers.
    let policy = CrewPolicy::property("rack");
    let tasks = vec![blue(), blue(), blue(), NewTask::new("")];
    let (crew, tasks, _running) = led_by(&world, &ann, "property", policy, tasks).await;
    assert_eq!(racks(&world, &crew, &tasks).await, some(&["blue", "blue", "red", "red"]));

    // The choice of a function is used only if that worker can have the task.
    let policy = CrewPolicy::chosen(|task, able| match task.priority {
        -2 => Some(usize::MAX),
        -1 => None,
        _ if !task.needs.is_empty() => Some(0),
        _ => able
            .iter()
            .position(|it| it.offers.properties().get("rack").is_some_and(|it| it == "blue")),
    });
    let needy = NewTask::new("").needs("rack", "red");
    let tasks = vec![
        NewTask::new("").priority(-2),
        NewTask::new("").priority(-1),
        NewTask::new(""),
        NewTask::new(""),
        NewTask::new(""),
        needy,
    ];
    let (crew, tasks, _running) = led_by(&world, &ann, "chosen", policy, tasks).await;
    let mut expected = vec![None, None];
    expected.extend(some(&["blue", "blue"]));
    expected.extend([None, Some("red".to_owned())]);
    assert_eq!(racks(&world, &crew, &tasks).await, expected);
}

/// A task that a worker has begun before its deadline.
async fn begun(world: &World, client: &Client, slow: &Slow) -> CrewTask {
    let before = slow.begun();
    loop {
        let id = format!("begun-{}", client.random().id());
        let task = NewTask::new("data").deadline(world.brief() * 4);
        let task = world.submits(client, &id, task).await;
        let is_over = async || matches!(answer(task.status().await), Some(TaskStatus::Over(_)));
        let is_begun = async || slow.begun() > before || is_over().await;
        world.eventually("it is begun or is over", is_begun).await;
        // On a slow machine it was late before that.
        if slow.begun() > before {
            return task;
        }
    }
}

async fn a_task_that_is_late_expires_wherever_it_is(world: World) {
    let (ann, slow) = (world.client().await, Slow::default());
    // No client leads until the task is late; then there is a worker.
    let late = world.submits(&ann, "late", NewTask::new("").deadline(Duration::ZERO)).await;
    let _working = slow.works(&world, &ann, CrewWorker::new());
    let is_there = async || answer(crew(&world, &ann).snapshot().await).workers.len() == 1;
    world.eventually("the worker is there", is_there).await;
    let master = leads(&world, &ann);
    world.ends(&late, TaskEnd::Expired).await;
    assert_eq!(slow.begun(), 0, "it was late");

    // It waits for a worker that does not exist.
    let task = NewTask::new("").needs("disk", "big").deadline(world.brief());
    let waits = world.submits(&ann, "waits", task).await;
    world.ends(&waits, TaskEnd::Expired).await;

    // A worker has the task, and drops its work.
    let has = begun(&world, &ann, &slow).await;
    world.ends(&has, TaskEnd::Expired).await;
    world.eventually("its work is dropped", async || slow.over() == slow.begun()).await;

    // Another client leads when the task is late.
    let has = begun(&world, &ann, &slow).await;
    drop(master);
    let bob = world.client().await;
    let _next = leads(&world, &bob);
    world.ends(&has, TaskEnd::Expired).await;
    assert_eq!(answer(has.cancel().await), Some(TaskEnd::Expired));
    world.eventually("its work is dropped", async || slow.over() == slow.begun()).await;
}

async fn a_task_expires_whichever_call_its_master_ends_at(world: World) {
    let bob = world.client().await;
    let late = || NewTask::new("data").deadline(Duration::ZERO);
    world.each_master_ends(&bob, late, TaskEnd::Expired).await;
}

/// A task that is about to expire: its master has begun to expire it, and the answer to its first
/// read is held back. The master has led only for a short time, so it does not watch its ticket
/// yet.
async fn about_to_expire(world: &World, client: &Client, master: &Gate) -> CrewTask {
    loop {
        let id = client.random().id();
        let task = NewTask::new("data").needs("disk", "none").deadline(world.brief());
        let task = world.submits(client, &id, task).await;
        // Once the master has assigned a later one it knows this one.
        let later = world.submits(client, &format!("later-{id}"), "data").await;
        world.ends(&later, by("data by bob")).await;
        let reads = master.count(Verb::Read);
        master.hold_behind(Some((Verb::Read, reads)));
        let begins = {
            let (read, ended) = (pin!(master.called(Verb::Read, reads + 1)), pin!(task.wait()));
            matches!(world.in_time("its end", select(read, ended)).await, Either::Left(_))
        };
        if begins && answer(task.status().await) == Some(TaskStatus::Waiting) {
            return task;
        }
        // On a slow machine it was late before that.
        master.hold_behind(None);
    }
}

async fn a_master_that_was_replaced_lets_nothing_expire(world: World) {
    let (bob, gate) = (world.client().await, world.gate());
    let ann = world.client_on(gate.clone(), world.options()).await;
    let _master = leads(&world, &ann);
    let _worker = works(&world, &bob, "bob");
    let late = loop {
        let late = about_to_expire(&world, &bob, &gate).await;
        let tickets = below(&bob, &world.at("crew/master")).await;

        let open = Txn::new().check(world.at(&format!("crew/done/{}", late.id())), Expect::Absent);
        let replaced = bob.commit(open.delete(tickets[0].path.clone(), Expect::Any)).await;
        gate.hold_behind(None);
        // The end may have been in flight before its master was held back.
        if answer(replaced).is_committed() {
            break late;
        }
    };

    world.ends(&late, TaskEnd::Expired).await;
    let tickets = below(&bob, &world.at("crew/master")).await;
    let lead = tickets.first().expect("it has expired while no client led").stat;
    let over = answer(bob.get(&world.at(&format!("crew/done/{}", late.id()))).await);
    let over = over.expect("it is over").stat.expect("it is a node").created;
    assert!(over > lead.expect("it is a ticket").created, "by one that does not lead");
}

async fn no_result_is_accepted_after_a_task_has_expired(world: World) {
    let (ann, slow) = (world.client().await, Slow::default());
    let _master = leads(&world, &ann);
    let (gate, unaware) = reads_only(&world, &slow).await;
    let task = begun(&world, &ann, &slow).await;
    reads_no_more(&gate);

    world.ends(&task, TaskEnd::Expired).await;
    slow.let_go();

    // The result of its worker is sent now.
    world.eventually("its worker is done", async || slow.over() == slow.begun()).await;
    sleep(world.brief()).await;
    world.ends(&task, TaskEnd::Expired).await;
    gate.hold_behind(None);
    drop(unaware);

    // A task that ended at its deadline does not change again.
    let _worker = works(&world, &ann, "ann");
    let hour = Duration::from_secs(60 * 60);
    let task = world.submits(&ann, "in time", NewTask::new("data").deadline(hour)).await;
    world.ends(&task, by("data by ann")).await;
}

/// Work whose first attempt at a task waits for longer than any limit; later attempts do not wait.
/// It counts its existing futures.
#[derive(Clone, Default)]
struct FirstIsSlow {
    running: Arc<()>,
    seen: Arc<Mutex<Vec<(Assignment, Instant)>>>,
}

impl FirstIsSlow {
    async fn run(self, task: Assignment) -> Result<Bytes, String> {
        let _running = self.running;
        self.seen.lock().expect("nobody panics").push((task.clone(), Instant::now()));
        if task.failed == 0 {
            pending::<()>().await;
        }
        Ok(task.data)
    }

    /// The number of futures of attempts.
    fn running(&self) -> usize {
        // This value, and the worker.
        Arc::strong_count(&self.running) - 2
    }
}

async fn an_attempt_that_takes_too_long_has_failed(world: World) {
    const LATE: &str = "the attempt took longer than its limit of";
    let (ann, work, limit) = (world.client().await, FirstIsSlow::default(), world.brief());
    let _master = leads(&world, &ann);
    let new = || NewTask::new("data").attempt_timeout(limit);
    let once = world.submits(&ann, "once", new()).await;
    let twice = world.submits(&ann, "twice", at_once(new().retries(1))).await;
    // The time before an attempt does not count.
    sleep(limit * 2).await;

    let worker = work.clone();
    let _worker = works_as(&world, &ann, CrewWorker::new(), move |task| worker.clone().run(task));

    let end = answer(world.in_time("the end of a task", once.wait()).await);
    let Some(TaskEnd::Failed(why)) = end else { panic!("{}", shown(end.as_ref())) };
    assert!(why.starts_with(LATE), "{why}");
    world.ends(&twice, by("data")).await;
    assert_eq!(work.running(), 0, "the futures are dropped");
    let history = answer(twice.history().await).expect("it is there");
    let ends: Vec<_> = history.attempts.iter().map(|attempt| attempt.end.clone()).collect();
    let [Some(AttemptEnd::Failed(why)), Some(AttemptEnd::Done)] = &ends[..] else {
        panic!("{ends:?}")
    };
    assert!(why.starts_with(LATE), "{why}");
    let seen = work.seen.lock().expect("nobody panics").clone();
    let [(first, begun), (_, next), _] = &seen[..] else { panic!("{}", seen.len()) };
    assert!(*next - *begun >= limit, "it had its time");
    // A timed out attempt has no further effect.
    assert!(!first.is_held());
    let late = first.txn().create(world.at("late"), "", Lifetime::Persistent);
    assert!(!answer(ann.commit(late).await).is_committed());

    // Only work that waits is limited, even by a limit of zero.
    let nothing = at_once(NewTask::new("data").attempt_timeout(Duration::ZERO).retries(1));
    let task = world.submits(&ann, "zero", nothing).await;
    world.ends(&task, by("data")).await;
    assert_eq!(answer(task.history().await).expect("it is there").attempts.len(), 2);
}
