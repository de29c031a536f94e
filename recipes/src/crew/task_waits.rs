//! [`TaskWaits`]: the waits of a client for the ends of tasks. Many of them share a watch.
//!
//! The first waits of a client for the tasks of a crew have a watch each, on the node of their
//! task. The others share one watch on the directory of the finished tasks, and one request reads
//! many tasks. The shared watch begins with a list of the names in that directory, which may be
//! long, so it is not used for a few waits.
//!
//! # Decisions that are easy to undo by mistake
//!
//! - **A read answers only the waits that began before it.** The task may have been removed and
//!   submitted again when a later wait begins.
//! - **Only a read decides.** A name in an event or a missed event causes the next read.
//! - **A wait that the others cannot share continues alone.** So each wait has the error of its own
//!   task, and a task that cannot be read delays no other.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::FutureExt as _;
use futures_util::future::{Either, select};
use synod_core::client::{Client, ClientWatch};
use synod_core::error::{Error, Result};
use synod_core::path::Path;
use synod_core::store::{Change, End, Event, Kind, Query, View};
use synod_core::task::{Task, spawn};
use tokio::sync::{Notify, oneshot};
use tracing::Instrument as _;

use crate::crew::task_record::{TaskEnd, ended};
use crate::support::retry::OutageBackoff;

/// The number of waits of a client for tasks of one crew that have a watch each.
const MAX_ALONE: usize = 8;

/// The maximum number of tasks that are read in one request.
const MAX_BATCH: usize = 50;

/// The waits of a client, by the directories of the finished tasks of their crews.
#[derive(Default)]
pub(super) struct TaskWaits(Mutex<BTreeMap<Path, CrewWaits>>);

/// The waits of a client for the tasks of one crew.
#[derive(Default)]
struct CrewWaits {
    /// The number of waits that have a watch each.
    alone: usize,
    group: Weak<WaitGroup>,
}

/// The place of a wait.
pub(super) enum TaskWaitPlace {
    /// The wait needs a watch of its own.
    Alone(AloneWait),
    Shared(SharedWait),
}

/// A wait that has a watch of its own. It counts until this value is dropped.
pub(super) struct AloneWait {
    all: Arc<TaskWaits>,
    dir: Path,
}

/// A wait that shares its watch with others. It ends when this value is dropped.
pub(super) struct SharedWait {
    group: Arc<WaitGroup>,
    task: Path,
    id: u64,
    end: oneshot::Receiver<Option<TaskEnd>>,
}

/// The waits that share a watch, and the task that answers them. The task ends with the last of
/// these waits.
struct WaitGroup {
    shared: Arc<GroupShared>,
    _task: Task,
}

/// The waits of a group, shared with its task.
#[derive(Default)]
struct GroupShared {
    state: Mutex<GroupState>,
    added: Notify,
}

#[derive(Default)]
struct GroupState {
    /// The waits for each task, in the order of their begin.
    waits: BTreeMap<Path, BTreeMap<u64, Sender>>,
    /// The tasks that must be read.
    unread: BTreeSet<Path>,
    next: u64,
    /// True once the task of the group has ended.
    is_over: bool,
}

/// The answer to a wait. A wait without an answer continues alone.
type Sender = oneshot::Sender<Option<TaskEnd>>;

impl TaskWaits {
    /// Begins a wait for a task, which is at `done` once it is finished.
    pub(super) fn begin(client: &Client, task: &Path, done: &Path) -> TaskWaitPlace {
        let all = client.local::<Self>();
        let dir = done.parent().unwrap_or_else(Path::root);
        let mut crews = all.lock();
        if !crews.contains_key(&dir) {
            crews.retain(|_dir, crew| crew.alone > 0 || crew.group.strong_count() > 0);
        }
        let crew = crews.entry(dir.clone()).or_default();
        if crew.alone < MAX_ALONE {
            crew.alone += 1;
            drop(crews);
            return TaskWaitPlace::Alone(AloneWait { all, dir });
        }
        let group = crew.group.upgrade();
        if let Some(wait) = group.and_then(|group| group.add(task)) {
            return TaskWaitPlace::Shared(wait);
        }
        let (group, wait) = WaitGroup::start(client, dir, task);
        crew.group = Arc::downgrade(&group);
        TaskWaitPlace::Shared(wait)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Path, CrewWaits>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AloneWait {
    fn drop(&mut self) {
        if let Some(crew) = self.all.lock().get_mut(&self.dir) {
            crew.alone -= 1;
        }
    }
}

impl SharedWait {
    /// Waits for the end of the task, or, as `Some(None)`, until there is no such task. `None` if
    /// the wait must continue alone.
    pub(super) async fn end(mut self) -> Option<Option<TaskEnd>> {
        (&mut self.end).await.ok()
    }
}

impl Drop for SharedWait {
    fn drop(&mut self) {
        let _sender = self.group.shared.remove(&self.task, self.id);
    }
}

impl WaitGroup {
    /// Starts a group with its first wait.
    fn start(client: &Client, dir: Path, task: &Path) -> (Arc<Self>, SharedWait) {
        let shared = Arc::<GroupShared>::default();
        let (id, end) = shared.lock().add(task);
        let span = tracing::debug_span!("waiting for tasks", recipe = "crew", path = %dir);
        let work = GroupTask {
            client: client.clone(),
            tasks: task.parent().unwrap_or_else(Path::root),
            finished: Query::children(dir).oldest(1).local().hints(),
            shared: shared.clone(),
            backoff: OutageBackoff::new(client),
            batch: MAX_BATCH,
        };
        let group = Arc::new(Self { shared, _task: spawn(work.run().instrument(span)) });
        (group.clone(), SharedWait { group, task: task.clone(), id, end })
    }

    /// Adds a wait. `None` if the task of the group has ended.
    fn add(self: Arc<Self>, task: &Path) -> Option<SharedWait> {
        let mut state = self.shared.lock();
        if state.is_over {
            return None;
        }
        let (id, end) = state.add(task);
        drop(state);
        self.shared.added.notify_one();
        Some(SharedWait { group: self, task: task.clone(), id, end })
    }
}

impl GroupState {
    fn add(&mut self, task: &Path) -> (u64, oneshot::Receiver<Option<TaskEnd>>) {
        let (sender, end) = oneshot::channel();
        let id = self.next;
        self.next += 1;
        self.waits.entry(task.clone()).or_default().insert(id, sender);
        self.unread.insert(task.clone());
        (id, end)
    }

    /// Removes the waits for a task that began before this one.
    fn take_before(&mut self, task: &Path, before: u64) -> BTreeMap<u64, Sender> {
        let Some(waits) = self.waits.get_mut(task) else { return BTreeMap::new() };
        let later = waits.split_off(&before);
        let earlier = std::mem::replace(waits, later);
        if waits.is_empty() {
            self.waits.remove(task);
        }
        earlier
    }
}

/// The tasks of one read.
struct TaskBatch {
    tasks: Vec<Path>,
    /// The first wait that begins after the read.
    before: u64,
}

impl GroupShared {
    fn lock(&self) -> MutexGuard<'_, GroupState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove(&self, task: &Path, id: u64) -> Option<Sender> {
        let mut state = self.lock();
        let waits = state.waits.get_mut(task)?;
        let sender = waits.remove(&id);
        if waits.is_empty() {
            state.waits.remove(task);
            state.unread.remove(task);
        }
        sender
    }

    /// Takes tasks that must be read.
    fn next_batch(&self, max: usize) -> Option<TaskBatch> {
        let mut state = self.lock();
        let tasks: Vec<Path> = state.unread.iter().take(max).cloned().collect();
        for task in &tasks {
            state.unread.remove(task);
        }
        let before = state.next;
        (!tasks.is_empty()).then_some(TaskBatch { tasks, before })
    }

    /// Returns the tasks of a batch whose read failed.
    fn put_back(&self, batch: TaskBatch) {
        let mut state = self.lock();
        let tasks = batch.tasks.into_iter().filter(|task| state.waits.contains_key(task));
        let tasks: Vec<Path> = tasks.collect();
        state.unread.extend(tasks);
    }

    /// Answers the waits for the tasks of a batch that have ended, or that do not exist. The waits
    /// for a task that cannot be parsed continue alone.
    fn answer(&self, batch: &TaskBatch, view: &View) {
        let mut answers = Vec::new();
        let mut state = self.lock();
        for task in &batch.tasks {
            let node = view.nodes.iter().find(|node| node.path == *task && node.stat.is_some());
            if let Some(end) = ended(node) {
                answers.push((state.take_before(task, batch.before), end));
            }
        }
        drop(state);
        for (waits, end) in answers {
            let Ok(end) = end else { continue };
            for sender in waits.into_values() {
                let _is_awaited = sender.send(end.clone()).is_ok();
            }
        }
    }

    /// Lets the waits for the tasks of a batch continue alone.
    fn release(&self, batch: &TaskBatch) {
        let mut state = self.lock();
        let take = |task| state.take_before(task, batch.before);
        let released: Vec<_> = batch.tasks.iter().map(take).collect();
        drop(state);
        drop(released);
    }

    /// Records that each task must be read.
    fn set_all_unread(&self) {
        let state = &mut *self.lock();
        state.unread.extend(state.waits.keys().cloned());
    }

    /// Records that a task must be read, if a wait is for it.
    fn set_unread(&self, task: Path) {
        let mut state = self.lock();
        if state.waits.contains_key(&task) {
            state.unread.insert(task);
        }
    }
}

/// The task that answers the waits of a group.
struct GroupTask {
    client: Client,
    /// The directory of the tasks.
    tasks: Path,
    /// The query for the directory of the finished tasks. Its window excludes nearly all of them
    /// from the view, and none from the events.
    finished: Query,
    shared: Arc<GroupShared>,
    backoff: OutageBackoff,
    /// The number of tasks that are read in one request.
    batch: usize,
}

impl GroupTask {
    /// Runs until the client is closed, or the store rejects the watch for good.
    async fn run(mut self) {
        while let Ok(()) = self.step().await {}
    }

    /// Observes the finished tasks until the watch ends. Fails if no later step can succeed.
    async fn step(&mut self) -> Result<()> {
        let mut watch = match self.client.watch(self.finished.clone()).await {
            Ok((_, watch)) => watch,
            Err(error) => return self.backoff.wait(error).await,
        };
        self.shared.set_all_unread();
        loop {
            self.read_all().await?;
            if self.follow(&mut watch).await?.is_none() {
                return Ok(());
            }
        }
    }

    /// Reads the tasks that must be read.
    async fn read_all(&mut self) -> Result<()> {
        while let Some(batch) = self.shared.next_batch(self.batch) {
            let Some((first, more)) = batch.tasks.split_first() else { return Ok(()) };
            match self.client.read(Query::nodes(first, more.iter().cloned())).await {
                Ok(view) => {
                    self.backoff.reset();
                    self.shared.answer(&batch, &view);
                }
                Err(error) if self.client.is_transient(&error) || self.client.is_closed() => {
                    self.shared.put_back(batch);
                    self.backoff.wait(error).await?;
                }
                Err(_of_one) if more.is_empty() => {
                    self.shared.release(&batch);
                    self.batch = MAX_BATCH;
                }
                Err(_of_some) => {
                    self.batch = batch.tasks.len() / 2;
                    self.shared.put_back(batch);
                }
            }
        }
        Ok(())
    }

    /// Waits for an event, and records all that have arrived, or waits for another wait to begin.
    /// Returns `None` if the watch has ended.
    async fn follow(&mut self, watch: &mut ClientWatch) -> Result<Option<()>> {
        let mut event = match select(pin!(self.shared.added.notified()), pin!(watch.next())).await {
            Either::Left(_) => return Ok(Some(())),
            Either::Right((event, _)) => event,
        };
        loop {
            match event {
                Some(Event::Changed(change)) => self.record(&change),
                Some(Event::Resync) => self.shared.set_all_unread(),
                Some(Event::Ended(End::Failed(error))) => {
                    self.backoff.wait(Error::clone(&error)).await?;
                    return Ok(None);
                }
                Some(Event::Ended(_)) | None => return Ok(None),
            }
            event = match watch.next().now_or_never() {
                Some(next) => next,
                None => return Ok(Some(())),
            };
        }
    }

    fn record(&self, change: &Change) {
        let task = self.tasks.join(change.path.name());
        match task {
            Ok(task) if change.kind != Kind::Children => self.shared.set_unread(task),
            _ => self.shared.set_all_unread(),
        }
    }
}

/// Lets the remaining waits continue alone, whatever ended the task.
impl Drop for GroupTask {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_over = true;
        let waits = take(&mut state.waits);
        drop(state);
        drop(waits);
    }
}
