//! [`Scheduler`]: the scheduler of a simulation. It runs the tasks of all processes on one thread,
//! in an order that the seed chooses, each process with its own clock.
//!
//! All ready tasks are in one set, so the order of their wake-ups does not matter. The next task is
//! chosen by numbers that depend only on each task and the count of its turns: a turn of one task
//! does not change the numbers of the others.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, SystemTime};

use crate::cluster::{Cluster, Site, What};
use synod_core::clock::{self, Instant};
use synod_core::random::mix;
use synod_core::runtime::{Runtime, RuntimeTask, Work};
use synod_core::task::Task;
use synod_testkit::choice::{Actor, Choice, Spot};

/// Runs tasks. Clones are the same scheduler.
#[derive(Clone)]
pub(crate) struct Scheduler(Rc<Inner>);

struct Inner {
    choice: Choice<Site>,
    policy: Policy,
    start: Instant,
    woken: Arc<Woken>,
    current: Cell<usize>,
    tasks: RefCell<Vec<Slot>>,
    actors: RefCell<Vec<Person>>,
    ready: RefCell<BinaryHeap<Reverse<(u64, usize)>>>,
    polls: Cell<u64>,
    /// The message of a panic, and the process of the task.
    panic: RefCell<Option<(u64, String)>>,
    /// Consulted before each turn of a task of a process.
    cluster: Cluster,
    ttl: Duration,
}

/// The rule that determines the order of the turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// A new choice for each turn.
    Uniform,
    /// Polls by priorities, which change a few times: this finds bugs that require one task to be
    /// late repeatedly.
    Priorities,
}

/// A task.
struct Slot {
    work: Option<Work>,
    actor: usize,
    key: u64,
    turns: u64,
    part: Arc<Member>,
    /// `true` if the task is ready but held back.
    starved: bool,
}

/// The scheduler's state of a process.
#[derive(Default)]
struct Person {
    /// The error of its clock rate, in millionths.
    rate: i64,
    /// The time for which the machine of the process was suspended so far, and the start of its
    /// current suspension.
    slept: Duration,
    asleep: Option<Instant>,
    /// The error of its wall clock, in seconds.
    wall: i64,
    spawned: u64,
    paused: bool,
    /// The tasks that wait for the end of a pause.
    parked: Vec<usize>,
}

impl Person {
    /// Returns the time for which the machine of the process was suspended so far.
    fn slept(&self) -> Duration {
        let now = clock::true_now();
        self.slept
            + self.asleep.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Resumes its machine, if it is suspended.
    fn wake(&mut self) {
        self.slept = self.slept();
        self.asleep = None;
    }
}

/// The tasks that were woken, and the waker of the scheduler.
#[derive(Default)]
struct Woken(Mutex<(Vec<usize>, Option<Waker>)>);

/// The part of a task that its wakers and its owner share.
struct Member {
    index: usize,
    is_woken: AtomicBool,
    is_finished: AtomicBool,
    is_aborted: AtomicBool,
    waits: Mutex<Option<Waker>>,
    woken: Arc<Woken>,
}

impl Woken {
    fn push(&self, index: usize) {
        let waker = {
            let mut woken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            woken.0.push(index);
            woken.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Wake for Member {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_finished.load(Ordering::Relaxed) && !self.is_woken.swap(true, Ordering::Relaxed)
        {
            self.woken.push(self.index);
        }
    }
}

impl RuntimeTask for Member {
    fn is_finished(&self) -> bool {
        self.is_finished.load(Ordering::Relaxed)
    }

    fn poll_finished(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_finished() {
            return Poll::Ready(());
        }
        *self.waits.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        Poll::Pending
    }

    fn abort(&self) {
        self.is_aborted.store(true, Ordering::Relaxed);
        if !self.is_finished() && !self.is_woken.swap(true, Ordering::Relaxed) {
            self.woken.push(self.index);
        }
    }
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Member({})", self.index)
    }
}

impl Scheduler {
    pub(crate) fn new(seed: u64, choice: Choice<Site>, cluster: Cluster, ttl: Duration) -> Self {
        let policy = if mix(seed ^ 0x5C4E_D01E).is_multiple_of(4) {
            Policy::Priorities
        } else {
            Policy::Uniform
        };
        Self(Rc::new(Inner {
            choice,
            policy,
            start: clock::true_now(),
            woken: Arc::default(),
            current: Cell::new(0),
            tasks: RefCell::default(),
            actors: RefCell::default(),
            ready: RefCell::default(),
            polls: Cell::new(0),
            panic: RefCell::new(None),
            cluster,
            ttl,
        }))
    }

    /// The scheduler as the runtime hooks of its thread.
    pub(crate) fn as_runtime(&self) -> Rc<dyn Runtime> {
        Rc::new(self.clone())
    }

    /// Runs tasks until `done` returns true. Between their turns virtual time advances.
    pub(crate) async fn run_until(&self, mut done: impl FnMut() -> bool) {
        poll_fn(|cx| {
            loop {
                if done() || self.0.panic.borrow().is_some() {
                    return Poll::Ready(());
                }
                self.gather();
                let Some(Reverse((_, index))) = self.0.ready.borrow_mut().pop() else {
                    let mut woken = self.0.woken.0.lock().unwrap_or_else(PoisonError::into_inner);
                    if woken.0.is_empty() {
                        woken.1 = Some(cx.waker().clone());
                        return Poll::Pending;
                    }
                    continue;
                };
                self.turn(index);
            }
        })
        .await;
    }

    /// Starts a task of a process.
    pub(crate) fn spawn_as(
        &self,
        actor: u64,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Task {
        let last = self.0.current.replace(place(actor));
        let task = synod_core::task::spawn(work);
        self.0.current.set(last);
        task
    }

    /// Runs `work` on behalf of a process.
    pub(crate) fn as_actor<T>(&self, actor: u64, work: impl FnOnce(&Self) -> T) -> T {
        let last = self.0.current.replace(place(actor));
        let done = work(self);
        self.0.current.set(last);
        done
    }

    /// The total number of polls.
    pub(crate) fn polls(&self) -> u64 {
        self.0.polls.get()
    }

    /// The number of tasks of a process.
    pub(crate) fn alive(&self, actor: u64) -> usize {
        let tasks = self.0.tasks.borrow();
        tasks.iter().filter(|slot| slot.actor == place(actor) && slot.work.is_some()).count()
    }

    /// Sets the error of the clock rate of a process, in millionths.
    pub(crate) fn set_rate(&self, actor: u64, rate: i64) {
        self.person(place(actor), |person| person.rate = rate);
    }

    /// Sets the error of the wall clock of a process, in seconds.
    pub(crate) fn set_wall(&self, actor: u64, off: i64) {
        self.person(place(actor), |person| person.wall = off);
    }

    /// Stops all tasks of a process.
    pub(crate) fn pause(&self, actor: u64) {
        self.person(place(actor), |person| person.paused = true);
    }

    /// Continues all tasks of a process.
    pub(crate) fn resume(&self, actor: u64) {
        let parked = self.person(place(actor), |person| {
            person.paused = false;
            person.wake();
            std::mem::take(&mut person.parked)
        });
        for index in parked {
            let part = self.0.tasks.borrow()[index].part.clone();
            part.is_woken.store(false, Ordering::Relaxed);
            part.wake();
        }
    }

    /// Drops all tasks of a process, as a crash does.
    pub(crate) fn kill(&self, actor: u64) {
        let actor = place(actor);
        let mut gone = Vec::new();
        for slot in &mut *self.0.tasks.borrow_mut() {
            if slot.actor == actor && !slot.part.is_finished() {
                slot.part.is_aborted.store(true, Ordering::Relaxed);
                slot.part.is_finished.store(true, Ordering::Relaxed);
                gone.extend(slot.work.take());
            }
        }
        self.person(actor, |person| {
            person.paused = false;
            person.wake();
            person.parked.clear();
        });
        let last = self.0.current.replace(actor);
        drop(gone);
        self.0.current.set(last);
    }

    /// Drops all tasks.
    pub(crate) fn clear(&self) {
        loop {
            let gone: Vec<Work> =
                self.0.tasks.borrow_mut().iter_mut().filter_map(|slot| slot.work.take()).collect();
            if gone.is_empty() {
                return;
            }
            drop(gone);
        }
    }

    /// The process of a task that panicked, and the message.
    pub(crate) fn take_panic(&self) -> Option<(u64, String)> {
        self.0.panic.borrow_mut().take()
    }

    fn person<T>(&self, actor: usize, change: impl FnOnce(&mut Person) -> T) -> T {
        let mut actors = self.0.actors.borrow_mut();
        if actors.len() <= actor {
            actors.resize_with(actor + 1, Person::default);
        }
        change(&mut actors[actor])
    }

    /// Moves the woken tasks to the set of ready tasks.
    fn gather(&self) {
        let mut woken = self.0.woken.0.lock().unwrap_or_else(PoisonError::into_inner);
        if woken.0.is_empty() {
            return;
        }
        let (tasks, mut ready) = (self.0.tasks.borrow(), self.0.ready.borrow_mut());
        for index in woken.0.drain(..) {
            ready.push(Reverse((self.rank(&tasks[index]), index)));
        }
    }

    fn rank(&self, task: &Slot) -> u64 {
        /// The number of turns of one task after which the priorities change.
        const STRETCH: u64 = 64;
        let n = match self.0.policy {
            Policy::Uniform => task.turns,
            Policy::Priorities => task.turns / STRETCH,
        };
        let spot = Spot { site: Site::Turn, actor: Actor::new(task.key), n };
        self.0.choice.pick(spot, 1 << 32)
    }

    /// Polls a task once.
    fn turn(&self, index: usize) {
        let (work, actor, part) = {
            let mut tasks = self.0.tasks.borrow_mut();
            let slot = &mut tasks[index];
            if slot.part.is_aborted.load(Ordering::Relaxed) {
                let work = slot.work.take();
                finish(&slot.part);
                drop(tasks);
                drop(work);
                return;
            }
            if slot.starved || slot.work.is_none() {
                return;
            }
            (slot.work.take(), slot.actor, slot.part.clone())
        };
        let Some(mut work) = work else { return };
        if self.holds_up(index, actor) {
            self.0.tasks.borrow_mut()[index].work = Some(work);
            return;
        }
        part.is_woken.store(false, Ordering::Relaxed);
        self.0.polls.set(self.0.polls.get() + 1);
        let waker = Waker::from(part.clone());
        let last = self.0.current.replace(actor);
        let outcome =
            catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut Context::from_waker(&waker))));
        let ended = match outcome {
            Ok(Poll::Pending) => false,
            Ok(Poll::Ready(())) => true,
            Err(panic) => {
                *self.0.panic.borrow_mut() = Some((actor as u64, said(panic.as_ref())));
                true
            }
        };
        if ended || part.is_aborted.load(Ordering::Relaxed) {
            drop(work);
            finish(&part);
        } else {
            let slot = &mut self.0.tasks.borrow_mut()[index];
            slot.work = Some(work);
            slot.turns += 1;
        }
        self.0.current.set(last);
    }

    /// Returns `true` if a task is not polled: its process is paused, or it is starved.
    fn holds_up(&self, index: usize, actor: usize) -> bool {
        if actor == 0 {
            return false;
        }
        if !self.person(actor, |person| person.paused) {
            let ttl = self.0.ttl;
            let (pause, starve, sleep) = self.0.cluster.with_decisions(|decisions| {
                let pause = decisions.lasting(Site::Paused, actor as u64, ttl * 3);
                let starve = decisions.lasting(Site::Starved, actor as u64, ttl * 2);
                (pause, starve, decisions.lasting(Site::Asleep, actor as u64, ttl * 3))
            });
            if let Some(sleep) = sleep {
                self.person(actor, |person| person.asleep = Some(clock::true_now()));
                self.suspend(actor as u64, Site::Asleep, sleep);
            } else if let Some(pause) = pause {
                self.suspend(actor as u64, Site::Paused, pause);
            } else if let Some(starve) = starve {
                self.starve(index, actor as u64, starve);
                return true;
            }
        }
        self.person(actor, |person| {
            if person.paused {
                person.parked.push(index);
            }
            person.paused
        })
    }

    fn suspend(&self, actor: u64, site: Site, pause: Duration) {
        self.0.cluster.tell(actor, What::Fault, 0, || format!("{site} for {pause:?}"));
        self.pause(actor);
        self.spawn_as(0, async move {
            clock::sleep(pause).await;
            with_room(|scheduler| scheduler.resume(actor));
        })
        .let_go();
    }

    fn starve(&self, index: usize, actor: u64, starve: Duration) {
        self.0.cluster.tell(actor, What::Fault, 0, || format!("{} for {starve:?}", Site::Starved));
        let part = {
            let slot = &mut self.0.tasks.borrow_mut()[index];
            slot.starved = true;
            slot.part.clone()
        };
        self.spawn_as(0, async move {
            clock::sleep(starve).await;
            with_room(|scheduler| {
                scheduler.0.tasks.borrow_mut()[index].starved = false;
                part.is_woken.store(false, Ordering::Relaxed);
                part.wake();
            });
        })
        .let_go();
    }
}

thread_local! {
    static ROOM: RefCell<Option<Scheduler>> = const { RefCell::new(None) };
}

/// Calls `work` with the scheduler of this thread: for tasks, which cannot hold it.
fn with_room(work: impl FnOnce(&Scheduler)) {
    if let Some(scheduler) = ROOM.with_borrow(Clone::clone) {
        work(&scheduler);
    }
}

/// The registration of a scheduler for its thread, until this is dropped.
pub(crate) struct Entered(());

impl Scheduler {
    /// Registers `self` as the scheduler of this thread.
    pub(crate) fn enter(&self) -> Entered {
        ROOM.with_borrow_mut(|here| *here = Some(self.clone()));
        Entered(())
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        ROOM.with_borrow_mut(|here| *here = None);
    }
}

impl Runtime for Scheduler {
    fn now(&self) -> Instant {
        let (now, rate) = (clock::true_now() - self.slept(), self.rate());
        if rate == 0 {
            return now;
        }
        let passed = nanos(now.saturating_duration_since(self.0.start));
        self.0.start + duration(passed + passed * i128::from(rate) / MILLION)
    }

    fn true_time(&self, shown: Instant) -> Instant {
        let (rate, slept) = (self.rate(), self.slept());
        if rate == 0 {
            return shown + slept;
        }
        // Rounded up, so that the clock then shows at least that time.
        let passed = nanos(shown.saturating_duration_since(self.0.start));
        let whole = MILLION + i128::from(rate);
        self.0.start + duration((passed * MILLION + whole - 1) / whole + 1) + slept
    }

    fn slept(&self) -> Duration {
        let actor = self.0.current.get();
        self.0.actors.borrow().get(actor).map_or(Duration::ZERO, Person::slept)
    }

    fn date(&self) -> SystemTime {
        /// The first of January 2026.
        const START: Duration = Duration::from_secs(1_767_225_600);
        /// The possible errors of a wall clock, in seconds.
        const OFF: [i64; 5] = [-YEAR, -2, 0, 2, YEAR];

        let actor = self.0.current.get();
        let set = self.0.cluster.with_decisions(|decisions| {
            decisions.fires(Site::WallClockSet, actor as u64, 1)?;
            usize::try_from(decisions.pick(Site::Way, actor as u64, OFF.len() as u64)).ok()
        });
        if let Some(off) = set.map(|way| OFF[way]) {
            let about = || format!("{} ({off} s off)", Site::WallClockSet);
            self.0.cluster.tell(actor as u64, What::Fault, 0, about);
            self.set_wall(actor as u64, off);
        }
        let right = START + clock::true_now().saturating_duration_since(self.0.start);
        let off = self.person(actor, |person| person.wall);
        let by = Duration::from_secs(off.unsigned_abs());
        SystemTime::UNIX_EPOCH + if off < 0 { right.saturating_sub(by) } else { right + by }
    }

    fn spawn(&self, work: Work) -> Arc<dyn RuntimeTask> {
        let actor = self.0.current.get();
        let nth = self.person(actor, |person| {
            person.spawned += 1;
            person.spawned
        });
        let mut tasks = self.0.tasks.borrow_mut();
        let part = Arc::new(Member {
            index: tasks.len(),
            is_woken: AtomicBool::new(true),
            is_finished: AtomicBool::new(false),
            is_aborted: AtomicBool::new(false),
            waits: Mutex::new(None),
            woken: self.0.woken.clone(),
        });
        let key = mix((actor as u64) << 32 ^ nth);
        let (work, part_too) = (Some(work), part.clone());
        tasks.push(Slot { work, actor, key, turns: 0, part: part_too, starved: false });
        self.0.woken.push(part.index);
        part
    }
}

const MILLION: i128 = 1_000_000;

/// The largest error of a wall clock, in seconds.
pub(crate) const YEAR: i64 = 365 * 24 * 60 * 60;

impl Scheduler {
    fn rate(&self) -> i64 {
        let actor = self.0.current.get();
        self.0.actors.borrow().get(actor).map_or(0, |person| person.rate)
    }
}

fn nanos(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
}

fn duration(nanos: i128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

fn place(actor: u64) -> usize {
    usize::try_from(actor).unwrap_or(0)
}

fn finish(part: &Member) {
    part.is_finished.store(true, Ordering::Relaxed);
    let waits = part.waits.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(waits) = waits {
        waits.wake();
    }
}

/// The message of a panic.
pub(crate) fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
}
