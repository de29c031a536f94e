//! Workers that are stopped: they finish the tasks that they have, and get no others.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use synod_core::client::Client;
use synod_recipes::crew::{Assignment, Crew, CrewWorker, NewTask, TaskStatus};
use synod_testkit::fault::Verb;
use tokio::sync::{Notify, watch};

use crate::door::answer;
use crate::door::gate::Way;
use crate::recipe::Waiting;
use crate::recipe::crew_members::{below, by, crew, leads, no_worker_is_there, works};
use crate::world::World;

cases![
    "L-MW-20 L-MW-12" breaks [DrainIgnored] => a_worker_that_is_stopped_finishes_its_tasks_and_gets_no_other,
    "L-MW-20 L-MW-3" needs [Expiry] breaks [AttemptsForgotten] => a_worker_that_is_stopped_during_an_outage_ends_with_its_session,
    "L-MW-20 L-MW-1" breaks [DrainIgnored] => no_attempt_is_lost_among_workers_that_stop,
    "L-MW-24 L-MW-20" breaks [LeadKeptAfterWork] => a_member_that_is_stopped_leads_until_its_tasks_are_done,
    "L-MW-24 L-MW-3" needs [Expiry] breaks [AttemptsForgotten] => a_member_that_is_stopped_during_an_outage_ends_with_its_session,
    "L-MW-12 L-MW-14" breaks [DrainIgnored] => workers_are_drained_by_their_label,
];

/// A worker whose attempts wait until they are released, and that can be stopped.
#[derive(Clone, Default)]
struct Stopped {
    begun: Arc<AtomicUsize>,
    free: Arc<watch::Sender<bool>>,
    stop: Arc<Notify>,
}

impl Stopped {
    fn begun(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }

    fn works(&self, crew: Crew, worker: CrewWorker) -> Waiting<()> {
        let (it, stop) = (self.clone(), self.stop.clone());
        let run = move |_task: Assignment| it.clone().attempt();
        Waiting::new(async move { crew.work_until(worker, stop.notified(), run).await })
    }

    /// Works, and is a candidate for the master.
    fn runs(&self, crew: Crew, worker: CrewWorker) -> Waiting<()> {
        let (it, stop) = (self.clone(), self.stop.clone());
        let run = move |_task: Assignment| it.clone().attempt();
        Waiting::new(async move { crew.run_until(worker, stop.notified(), run).await })
    }

    async fn attempt(self) -> Result<Bytes, String> {
        let mut free = self.free.subscribe();
        self.begun.fetch_add(1, Ordering::Relaxed);
        let _free = free.wait_for(|free| *free).await.is_ok();
        Ok(Bytes::from_static(b"slow"))
    }
}

fn two() -> CrewWorker {
    CrewWorker::new().capacity(2.try_into().expect("not zero"))
}

async fn is_drained(crew: &Crew) -> bool {
    let workers = answer(crew.snapshot().await).workers;
    !workers.is_empty() && workers.iter().all(|worker| worker.drained)
}

async fn a_worker_that_is_stopped_finishes_its_tasks_and_gets_no_other(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let _master = leads(&world, &bob);
    let stopped = Stopped::default();
    let mut working = stopped.works(crew(&world, &ann), two());
    let first = world.submits(&bob, "first", "data").await;
    let second = world.submits(&bob, "second", "data").await;
    world.eventually("both are begun", async || stopped.begun() == 2).await;

    stopped.stop.notify_one();

    let crew_of_bob = crew(&world, &bob);
    world.eventually("it is drained", async || is_drained(&crew_of_bob).await).await;
    let third = world.submits(&bob, "third", "data").await;
    working.waits_for(world.brief(), "it has two tasks").await;
    assert_eq!(answer(third.status().await), Some(TaskStatus::Waiting));
    stopped.free.send_replace(true);
    working.gets(&world, "the end of its tasks").await;
    assert!(below(&bob, &world.at("crew/workers")).await.is_empty(), "it has left");
    for task in [&first, &second] {
        world.ends(task, by("slow")).await;
    }
    let _other = works(&world, &bob, "bob");
    world.ends(&third, by("data by bob")).await;
    assert_eq!(stopped.begun(), 2, "it got no other");

    // Without a task, and before its beginning.
    let gate = world.gate();
    let client = world.client_on(gate.clone(), world.options()).await;
    let idle = Stopped::default();
    let working = idle.works(crew(&world, &client), CrewWorker::new().labelled("idle"));
    let is_there = async || {
        let workers = answer(crew_of_bob.snapshot().await).workers;
        workers.iter().any(|worker| worker.offers.label() == Some("idle"))
    };
    world.eventually("it is registered", is_there).await;
    idle.stop.notify_one();
    working.gets(&world, "its end").await;
    let before = gate.count(Verb::Create);
    let run = |task: Assignment| ready(Ok::<_, String>(task.data.clone()));
    let of_client = crew(&world, &client);
    let ends = of_client.work_until(CrewWorker::new(), ready(()), run);
    answer(world.in_time("its end", ends).await);
    assert_eq!(gate.count(Verb::Create), before, "it was not registered");
}

async fn a_worker_that_is_stopped_during_an_outage_ends_with_its_session(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let _master = leads(&world, &bob);
    let stopped = Stopped::default();
    let mut working = stopped.works(crew(&world, &ann), two());
    let task = world.submits(&bob, "task", "data").await;
    world.eventually("it is begun", async || stopped.begun() == 1).await;
    let session = answer(ann.session().await).info().id;
    gate.set(Way::Shut);
    stopped.stop.notify_one();
    working.waits_for(world.brief(), "it has a task").await;

    world.expire(session).await;

    working.gets(&world, "its end").await;
    no_worker_is_there(&world, &bob).await;
    let _other = works(&world, &bob, "bob");
    world.ends(&task, by("data by bob")).await;
    let history = answer(task.history().await).expect("it is there");
    assert_eq!(history.attempts.len(), 2, "one was lost");
    // A worker that cannot register is stopped, too.
    let idle = Stopped::default();
    let mut working = idle.works(crew(&world, &ann), two());
    working.waits_for(world.brief(), "it cannot register").await;
    idle.stop.notify_one();
    working.gets(&world, "its end").await;
    gate.set(Way::Open);
}

async fn a_member_that_is_stopped_leads_until_its_tasks_are_done(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let (first, second) = (Stopped::default(), Stopped::default());
    let of_bob = crew(&world, &bob);
    let mut leading = first.runs(crew(&world, &ann), CrewWorker::new());
    let slow = world.submits(&bob, "slow", "data").await;
    world.eventually("it is begun", async || first.begun() == 1).await;
    let waiting = second.runs(of_bob.clone(), CrewWorker::new());
    let master = world.at("crew/master");
    let candidates = async || below(&bob, &master).await;
    world.eventually("two are candidates", async || candidates().await.len() == 2).await;
    let all = candidates().await;

    first.stop.notify_one();

    let is_drained = async || {
        let workers = answer(of_bob.snapshot().await).workers;
        workers.iter().filter(|worker| worker.drained).count() == 1
    };
    world.eventually("it is drained", is_drained).await;
    // Its task has not ended: it still assigns the tasks of the others.
    let next = world.submits(&bob, "next", "data").await;
    world.eventually("the next is begun", async || second.begun() == 1).await;
    leading.waits_for(world.brief(), "it has a task").await;
    assert_eq!(candidates().await, all, "nobody has stepped down");
    first.free.send_replace(true);
    leading.gets(&world, "the end of its task").await;
    let left = candidates().await;
    assert_eq!(left.len(), 1, "it has stepped down before it returned");
    world.ends(&slow, by("slow")).await;
    second.free.send_replace(true);
    world.ends(&next, by("slow")).await;
    let last = world.submits(&bob, "last", "data").await;
    world.ends(&last, by("slow")).await;

    // A candidate does not wait until it leads.
    let idle = Stopped::default();
    let candidate = idle.runs(crew(&world, &ann), CrewWorker::new());
    world.eventually("two are candidates", async || candidates().await.len() == 2).await;
    idle.stop.notify_one();
    candidate.gets(&world, "its end").await;
    let is_first = async || candidates().await == left;
    world.eventually("it is no candidate any more", is_first).await;
    second.stop.notify_one();
    waiting.gets(&world, "its end").await;
    assert!(candidates().await.is_empty(), "it has stepped down before it returned");
}

async fn a_member_that_is_stopped_during_an_outage_ends_with_its_session(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let stopped = Stopped::default();
    let mut leading = stopped.runs(crew(&world, &ann), CrewWorker::new());
    let task = world.submits(&bob, "task", "data").await;
    world.eventually("it is begun", async || stopped.begun() == 1).await;
    let session = answer(ann.session().await).info().id;
    gate.set(Way::Shut);
    stopped.stop.notify_one();
    leading.waits_for(world.brief(), "it has a task").await;

    world.expire(session).await;

    leading.gets(&world, "its end").await;
    let (_master, _other) = (leads(&world, &bob), works(&world, &bob, "bob"));
    world.ends(&task, by("data by bob")).await;
    let history = answer(task.history().await).expect("it is there");
    assert_eq!(history.attempts.len(), 2, "one was lost");
    gate.set(Way::Open);
}

async fn no_attempt_is_lost_among_workers_that_stop(world: World) {
    const TASKS: usize = 40;
    const WORKERS: usize = 3;
    let bob = world.client().await;
    let _master = leads(&world, &bob);
    let mut tasks = Vec::new();
    for number in 0..TASKS {
        tasks.push(world.submits(&bob, &number.to_string(), "data").await);
    }
    let mut shifts = Vec::new();
    for _ in 0..WORKERS {
        let client = world.client().await;
        shifts.push(comes_and_stops(&world, &client));
    }

    for task in &tasks {
        world.ends(task, by("done")).await;
        let history = answer(task.history().await).expect("it is there");
        assert_eq!((history.attempts.len(), history.earlier), (1, 0), "{}", task.id());
    }
    for shift in shifts {
        shift.stop().await;
    }
}

/// A worker that stops after its second task, and begins again.
fn comes_and_stops(world: &World, client: &Client) -> Waiting<()> {
    let crew = crew(world, client);
    Waiting::new(async move {
        loop {
            let (begun, stop) = (AtomicUsize::new(0), Notify::new());
            let run = |_task: Assignment| {
                if begun.fetch_add(1, Ordering::Relaxed) == 1 {
                    stop.notify_one();
                }
                ready(Ok::<_, String>(Bytes::from_static(b"done")))
            };
            crew.work_until(two(), stop.notified(), run).await?;
        }
    })
}

async fn workers_are_drained_by_their_label(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let _master = leads(&world, &bob);
    let it = crew(&world, &bob);
    let [first, second, other] = [(); 3].map(|()| Stopped::default());
    let of = |label: &str| CrewWorker::new().labelled(label);
    let _workers = [
        first.works(crew(&world, &ann), of("host 7")),
        second.works(crew(&world, &bob), of("host 7")),
        other.works(crew(&world, &bob), two().labelled("other")),
    ];
    let drained = async || {
        let workers = answer(it.snapshot().await).workers;
        let drained =
            workers.iter().map(|one| (one.offers.label().map(str::to_owned), one.drained));
        let mut drained: Vec<_> = drained.collect();
        drained.sort();
        drained
    };
    world.eventually("all are there", async || drained().await.len() == 3).await;

    assert!(answer(world.in_time("draining", it.drain("host 7")).await));

    let label = |label: &str| Some(label.to_owned());
    let expected = [(label("host 7"), true), (label("host 7"), true), (label("other"), false)];
    assert_eq!(drained().await, expected);
    // Each task goes to a worker without tasks, unless that worker is drained.
    let tasks = [
        world.submits(&bob, "first", NewTask::new("data")).await,
        world.submits(&bob, "second", NewTask::new("data")).await,
    ];
    world.eventually("both are begun", async || other.begun() == 2).await;
    assert_eq!((first.begun(), second.begun()), (0, 0));
    assert!(!answer(world.in_time("draining", it.drain("nobody")).await));
    assert!(answer(world.in_time("undraining", it.undrain("host 7")).await));
    assert!(drained().await.iter().all(|(_, drained)| !drained));
    other.free.send_replace(true);
    for task in &tasks {
        world.ends(task, by("slow")).await;
    }
}
