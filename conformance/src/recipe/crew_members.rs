//! The members of a crew, for its cases: masters, workers, and submitters.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::path::Path;
use synod_core::store::{Node, Query};
use synod_recipes::crew::{Assignment, Crew, CrewTask, CrewWorker, NewTask, TaskEnd};
use synod_testkit::fault::Verb;
use tokio::sync::watch;

use crate::door::answer;
use crate::door::gate::Gate;
use crate::recipe::Waiting;
use crate::world::World;

/// The minimum number of calls that a master makes before its first step: its ticket, the switch,
/// and its watches.
const BEFORE_A_STEP: usize = 4;

pub(super) fn crew(world: &World, client: &Client) -> Crew {
    Crew::new(client, world.at("crew"))
}

/// A master in a separate task.
pub(super) fn leads(world: &World, client: &Client) -> Waiting<Infallible> {
    let crew = crew(world, client);
    Waiting::new(async move { crew.lead().await })
}

/// A worker in a separate task, with a name that it adds to the data.
pub(super) fn works(world: &World, client: &Client, name: &'static str) -> Waiting<Infallible> {
    works_as(world, client, CrewWorker::new(), move |task: Assignment| async move {
        Ok(Bytes::from(format!("{} by {name}", String::from_utf8_lossy(&task.data))))
    })
}

pub(super) fn works_as<F>(
    world: &World,
    client: &Client,
    worker: CrewWorker,
    run: impl Fn(Assignment) -> F + Send + Sync + 'static,
) -> Waiting<Infallible>
where
    F: Future<Output = Result<Bytes, String>> + Send + 'static,
{
    let crew = crew(world, client);
    Waiting::new(async move { crew.work(worker, run).await })
}

/// Makes failed attempts of the task be retried immediately.
pub(super) fn at_once(task: NewTask) -> NewTask {
    task.backoff(Duration::ZERO, Duration::ZERO)
}

/// Waits until the crew has no worker: until then, a task may be assigned to a worker that has just
/// left.
pub(super) async fn no_worker_is_there(world: &World, client: &Client) {
    let workers = world.at("crew/workers");
    world.eventually("no worker is there", async || below(client, &workers).await.is_empty()).await;
}

/// A worker whose work waits until it is released, and counts the started, the dropped and the
/// completed work.
#[derive(Clone, Default)]
pub(super) struct Slow {
    begun: Arc<AtomicUsize>,
    over: Arc<AtomicUsize>,
    free: Arc<watch::Sender<bool>>,
}

struct Over(Arc<AtomicUsize>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Slow {
    pub(super) fn works(
        &self,
        world: &World,
        client: &Client,
        worker: CrewWorker,
    ) -> Waiting<Infallible> {
        let slow = self.clone();
        works_as(world, client, worker, move |_task| {
            let (slow, mut free) = (slow.clone(), slow.free.subscribe());
            slow.begun.fetch_add(1, Ordering::Relaxed);
            async move {
                let _over = Over(slow.over.clone());
                let _free = free.wait_for(|free| *free).await.is_ok();
                Ok(Bytes::from_static(b"slow"))
            }
        })
    }

    pub(super) fn let_go(&self) {
        self.free.send_replace(true);
    }

    pub(super) fn begun(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }

    pub(super) fn over(&self) -> usize {
        self.over.load(Ordering::Relaxed)
    }
}

impl World {
    pub(super) async fn submits(
        &self,
        client: &Client,
        id: &str,
        task: impl Into<NewTask>,
    ) -> CrewTask {
        answer(self.in_time("submitting", crew(self, client).submit(id, task)).await)
    }

    pub(super) async fn ends(&self, task: &CrewTask, expected: TaskEnd) {
        let end = answer(self.in_time("the end of a task", task.wait()).await);
        assert_eq!(end.as_ref(), Some(&expected), "{}: {:?}", task.id(), shown(end.as_ref()));
    }
}

pub(super) fn shown(end: Option<&TaskEnd>) -> String {
    match end {
        Some(TaskEnd::Done(result)) => String::from_utf8_lossy(result).into_owned(),
        other => format!("{other:?}"),
    }
}

pub(super) fn by(text: &'static str) -> TaskEnd {
    TaskEnd::Done(Bytes::from_static(text.as_bytes()))
}

pub(super) async fn below(client: &Client, dir: &Path) -> Vec<Node> {
    answer(client.read(Query::children(dir)).await).nodes
}

/// A worker that is notified of no change, and only reads.
pub(super) async fn reads_only(world: &World, slow: &Slow) -> (Gate, Waiting<Infallible>) {
    let gate = world.gate();
    let client = world.client_on(gate.clone(), world.options()).await;
    gate.lose_events(true);
    let working = slow.works(world, &client, CrewWorker::new());
    (gate, working)
}

/// Stops answering its reads.
pub(super) fn reads_no_more(gate: &Gate) {
    gate.hold_behind([Verb::Read, Verb::Watch].map(|verb| (verb, gate.count(verb))));
}

impl World {
    /// Lets a client end, as the only master, at its first call, the next one at its second call,
    /// and so on, until a task ends before its master does. Each of these tasks ends as expected
    /// under the next master.
    pub(super) async fn each_master_ends(
        &self,
        bob: &Client,
        task: impl Fn() -> NewTask,
        end: TaskEnd,
    ) {
        for calls in 0.. {
            let gate = self.gate();
            let ann = self.client_on(gate.clone(), self.options()).await;
            let session = answer(ann.session().await).info().id;
            let task = self.submits(bob, &format!("{calls}"), task()).await;
            gate.die_after(calls);
            let mut dying = leads(self, &ann);
            if self.is_over_first(&task, &end, &gate).await {
                return assert!(calls > BEFORE_A_STEP, "it was ended by another than its master");
            }
            assert!(!dying.ends_before(async {}).await);
            self.expire(session).await;

            let next = leads(self, bob);

            self.ends(&task, end.clone()).await;
            // From now on this master makes no step: the next task has one master.
            next.stop().await;
        }
    }

    /// Returns `true` if a task is seen to end before its master makes a call that is not sent. The
    /// calls that were sent have then ended the task, so there is no later call to stop a master
    /// at.
    async fn is_over_first(&self, task: &CrewTask, end: &TaskEnd, gate: &Gate) -> bool {
        let ends = pin!(self.ends(task, end.clone()));
        matches!(select(ends, pin!(gate.died())).await, Either::Left(_))
    }
}
