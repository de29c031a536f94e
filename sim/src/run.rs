//! Runs one history: its phases, its crashes, and the checks at its end.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cluster::{Alarm, Cluster, ClusterOptions, Death, Rates, Site, What};
use synod_core::clock;
use synod_core::runtime;
use synod_core::store::Backend;
use synod_core::task::Task;
use synod_testkit::choice::Choice;

use crate::findings::{Findings, Truth};
use crate::observations::Observations;
use crate::process::{Calm, Process};
use crate::recorder::{Recorder, Sessions, Watcher, Woken};
use crate::report::Report;
use crate::scheduler::{Scheduler, YEAR};
use crate::setup::{Body, Check, Hope, Mending, Sim, Way};
use crate::user_mistake::{Kept, UserMistake};

/// The time limit of a call once everything is repaired, in multiples of the time to live.
const PATIENCE: u32 = 40;

/// A number of turns that no history exceeds, unless a process retries in a busy loop.
const TURNS: u64 = 100_000;

/// The errors of clock rates, in millionths: a little less than the margin for two clocks that are
/// 1 % off.
const RATES: [i64; 6] = [-19_600, -10_000, -1_000, 1_000, 10_000, 19_600];

/// The last sequence of a directory, for stores that count them.
const LAST: u64 = i32::MAX as u64;

/// The simulation while it runs.
struct Run {
    scheduler: Scheduler,
    cluster: Cluster,
    findings: Findings,
    sessions: Sessions,
    observations: Observations,
    woken: Woken,
    around: Option<Way>,
    user_mistake: Option<UserMistake>,
    kept: Kept,
    seed: u64,
    rounds: u64,
    ttl: Duration,
    mending: Arc<Calm>,
    people: RefCell<Vec<Person>>,
}

/// A process while it runs.
struct Person {
    name: Arc<str>,
    body: Body,
    life: u32,
    /// The first of its lives since its last crash.
    since: u32,
    main: Option<Task>,
    done: Arc<AtomicBool>,
    frozen: bool,
}

impl Sim {
    /// Runs it.
    ///
    /// # Panics
    ///
    /// Within another simulation, or if no runtime can be created.
    pub fn run(self) -> Report {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime =
            builder.enable_time().start_paused(true).build().expect("a runtime can be made");
        // The scheduler runs its own tasks; the budget of the one runtime task must not interfere.
        runtime.block_on(tokio::task::unconstrained(history(self)))
    }
}

async fn history(mut sim: Sim) -> Report {
    let rates = if sim.swarms { sim.rates.clone().swarm(sim.seed) } else { sim.rates.clone() };
    let names = sim.bodies.iter().map(|(name, _)| name.clone()).collect();
    let run = Rc::new(Run::new(&mut sim, rates.clone()));
    let in_runtime = runtime::set(run.scheduler.as_runtime());
    let entered = run.scheduler.enter();
    let world = run.cluster.clone();
    let world = run.scheduler.spawn_as(0, async move { world.run().await });

    let truth = run.phases(&mut sim).await;
    // Calls of frozen processes end here, with an unknown effect.
    drop(world);
    run.people.borrow_mut().clear();
    run.kept.clear();
    run.scheduler.clear();
    let observations = run.observations.clone();
    let shown: Check = Box::new(move |truth| {
        observations.check(&truth.log).map_err(|(law, what)| (law.to_owned(), what))
    });
    for check in sim.checks.into_iter().chain([shown]) {
        if run.findings.is_wrong() {
            break;
        }
        if let Err((law, what)) = check(&truth) {
            run.findings.wrong(&law, what, truth.lasted, 0);
        }
    }

    drop(entered);
    drop(in_runtime);
    let found = run.findings.take();
    Report {
        seed: sim.seed,
        personality: sim.personality,
        rates,
        violation: found.violation,
        fired: run.cluster.with_decisions(|decisions| decisions.fired().to_vec()),
        lines: run.cluster.with_trace(crate::cluster::Trace::take),
        hash: run.cluster.with_trace(|trace| {
            trace.stir(run.scheduler.polls());
            trace.hash()
        }),
        marks: found.marks,
        lasted: truth.lasted,
        turns: run.scheduler.polls(),
        names,
    }
}

impl Run {
    fn new(sim: &mut Sim, rates: Rates) -> Self {
        let mut options = ClusterOptions::new(sim.personality);
        options.rates = rates;
        options.choice = sim.choice.clone();
        options.keep_trace = sim.keep_trace;
        options.ttl = sim.ttl;
        options.flaw = sim.flaw;
        let cluster = Cluster::new(options);
        // An exhaustive run covers every combination of faults, but not every order.
        let order = if sim.picks.is_some() { Choice::never() } else { sim.choice.clone() };
        for (path, data) in std::mem::take(&mut sim.given) {
            cluster.give(path, data);
        }
        for dir in std::mem::take(&mut sim.aged) {
            if let Ok(anchor) = dir.join("anchor") {
                cluster.give(anchor, "".into());
            }
            let short = cluster.with_decisions(|decisions| decisions.fires(Site::NearTheEnd, 0, 8));
            if let Some(short) = short {
                cluster.skip_sequences(&dir, LAST - short);
            }
        }
        if let Some(picks) = sim.picks.take() {
            cluster.with_decisions(|decisions| decisions.pick_only(picks));
        }
        let scheduler = Scheduler::new(sim.seed, order, cluster.clone(), sim.ttl);
        // Requests that the wrapper itself sends are attributed to the world.
        let around = sim.around.take().map(|layer| layer(Arc::new(cluster.backend(0))));
        let bodies = std::mem::take(&mut sim.bodies).into_iter().zip(1..);
        let people = bodies.map(|((name, body), actor)| Person {
            name: name.into(),
            body,
            life: 0,
            since: 0,
            main: None,
            done: Arc::new(AtomicBool::new(sim.absent.contains(&actor))),
            frozen: false,
        });
        Self {
            scheduler,
            cluster,
            findings: Findings::default(),
            sessions: Sessions::default(),
            observations: Observations::default(),
            woken: Woken::default(),
            around,
            user_mistake: sim.user_mistake,
            kept: Kept::default(),
            rounds: sim.rounds,
            seed: sim.seed,
            ttl: sim.ttl,
            mending: Arc::default(),
            people: RefCell::new(people.collect()),
        }
    }

    async fn phases(&self, sim: &mut Sim) -> Truth {
        let count = self.people.borrow().len();
        for place in 0..count {
            self.set_clock(place as u64 + 1);
            if self.place(place as u64 + 1).is_some() {
                self.start(place);
            }
        }
        self.until_done(sim.limit).await;

        let mending = self.mend(sim.mending, count);
        if !self.until_done(self.ttl * PATIENCE).await && !self.findings.is_wrong() {
            let late = self.unfinished().join(", ");
            self.wrong(&sim.late, format!("everything works again, and {late} did not end"));
        }
        for (law, hope) in std::mem::take(&mut sim.hopes) {
            if self.findings.is_wrong() {
                break;
            }
            self.hope(&law, hope).await;
        }
        if mending == Mending::All && !self.findings.is_wrong() {
            self.leaves_nothing(count).await;
        }
        Truth {
            log: self.cluster.log(),
            deaths: self.cluster.deaths(),
            woken: self.woken.take(),
            personality: sim.personality,
            lasted: self.cluster.age(),
            mended: mending == Mending::All,
        }
    }

    fn wrong(&self, law: &str, what: String) {
        self.findings.wrong(law, what, self.cluster.age(), 0);
    }

    /// Sets the clock rate of a process, if the fault fires.
    fn set_clock(&self, actor: u64) {
        let rate = self.cluster.with_decisions(|decisions| {
            decisions.fires(Site::ClockRate, actor, 1)?;
            usize::try_from(decisions.pick(Site::Way, actor, RATES.len() as u64)).ok()
        });
        if let Some(rate) = rate {
            self.scheduler.set_rate(actor, RATES[rate]);
            let about = || format!("{} ({} ppm)", Site::ClockRate, RATES[rate]);
            self.cluster.tell(actor, What::Fault, 0, about);
        }
    }

    /// Sets the wall clock of a process that starts: a year off, if the fault fires.
    fn set_wall(&self, actor: u64) {
        let way = self.cluster.with_decisions(|decisions| {
            decisions.fires(Site::WallClock, actor, 1).map(|_| decisions.pick(Site::Way, actor, 2))
        });
        let off = match way {
            None => 0,
            Some(0) => -YEAR,
            Some(_) => YEAR,
        };
        self.scheduler.set_wall(actor, off);
    }

    fn process(&self, actor: u64, name: Arc<str>, (life, since): (u32, u32)) -> Process {
        let mut inner: Arc<dyn Backend> = Arc::new(self.cluster.backend(actor));
        if let Some(around) = &self.around {
            inner = around(inner);
        }
        if let Some(user_mistake) = self.user_mistake {
            inner = user_mistake.around(inner, &self.cluster, actor);
        }
        let (cluster, findings) = (self.cluster.clone(), self.findings.clone());
        let watcher = Watcher {
            sessions: self.sessions.clone(),
            woken: self.woken.clone(),
            observations: self.observations.clone(),
            cluster: cluster.clone(),
            findings: findings.clone(),
            actor,
        };
        let backend = Arc::new(Recorder { inner, watcher });
        let (seed, ttl, rounds, user_mistake) =
            (self.seed, self.ttl, self.rounds, self.user_mistake);
        let mending = self.mending.clone();
        self.set_wall(actor);
        Process {
            actor,
            name,
            life,
            since,
            seed,
            rounds,
            ttl,
            user_mistake,
            kept: self.kept.clone(),
            cluster,
            backend,
            findings,
            mending,
        }
    }

    fn start(&self, place: usize) {
        let actor = place as u64 + 1;
        let person = &mut self.people.borrow_mut()[place];
        let me = self.process(actor, person.name.clone(), (person.life, person.since));
        person.life += 1;
        let (body, done) = (person.body.clone(), person.done.clone());
        let (kept, life) = (self.kept.clone(), (actor, me.life));
        person.main = Some(self.scheduler.spawn_as(actor, async move {
            body(me).await;
            kept.let_go(life);
            done.store(true, Ordering::Relaxed);
        }));
    }

    /// Runs until every process that is not frozen has ended, or until the limit. Returns `true` if
    /// they have ended.
    async fn until_done(&self, limit: Duration) -> bool {
        let end = self.cluster.age() + limit;
        let over = Arc::new(AtomicBool::new(false));
        let rings = over.clone();
        let bell = self.scheduler.spawn_as(0, async move {
            clock::sleep(limit).await;
            rings.store(true, Ordering::Relaxed);
        });
        loop {
            self.scheduler
                .run_until(|| {
                    self.attend();
                    self.check_turns();
                    over.load(Ordering::Relaxed) || self.findings.is_wrong() || self.is_done()
                })
                .await;
            if let Some((actor, what)) = self.scheduler.take_panic() {
                self.findings.wrong(
                    "L-OUT-8",
                    format!("a panic: {what}"),
                    self.cluster.age(),
                    actor,
                );
            }
            if self.findings.is_wrong() || self.is_done() || self.cluster.age() >= end {
                drop(bell);
                return self.is_done();
            }
        }
    }

    /// L-X-8: no process retries in a busy loop.
    fn check_turns(&self) {
        if self.scheduler.polls() > TURNS && !self.findings.is_wrong() {
            self.wrong("L-X-8", format!("more than {TURNS} turns of tasks"));
        }
    }

    fn is_done(&self) -> bool {
        let people = self.people.borrow();
        people.iter().zip(1..).all(|(person, actor)| {
            person.frozen || person.done.load(Ordering::Relaxed) || self.mending.awaits(actor)
        })
    }

    fn unfinished(&self) -> Vec<String> {
        let people = self.people.borrow();
        let late = people.iter().filter(|it| !it.frozen && !it.done.load(Ordering::Relaxed));
        late.map(|person| person.name.to_string()).collect()
    }

    /// Handles the alarms of the store.
    fn attend(&self) {
        for alarm in self.cluster.alarms() {
            match alarm {
                Alarm::Died => {
                    let deaths = self.cluster.deaths();
                    deaths.iter().rev().take(8).for_each(|death| self.check_death(death));
                }
                Alarm::Crash(actor) => self.crash(actor),
                Alarm::UserDies(actor) => self.user_dies(actor),
            }
        }
    }

    /// L-SES-2: no process is certain of a session that ended because it was silent.
    fn check_death(&self, death: &Death) {
        let Some(status) = self.sessions.status(death.session).filter(|_| death.silent) else {
            return;
        };
        let shown = self.scheduler.shown_to(death.actor);
        if status.until().is_some_and(|until| shown < until) {
            let what =
                format!("session {} is over, and its process is certain of it", death.session);
            self.findings.wrong("L-SES-2", what, self.cluster.age(), death.actor);
        }
    }

    fn crash(&self, actor: u64) {
        let Some(place) = self.place(actor) else { return };
        self.cluster.bury(actor);
        self.scheduler.kill(actor);
        let main = {
            let person = &mut self.people.borrow_mut()[place];
            person.since = person.life;
            person.main.take()
        };
        drop(main);
        self.start_later(place);
    }

    fn user_dies(&self, actor: u64) {
        let Some(place) = self.place(actor) else { return };
        drop(self.people.borrow_mut()[place].main.take());
        self.start_later(place);
    }

    /// The index of a process.
    fn place(&self, actor: u64) -> Option<usize> {
        let place = usize::try_from(actor).ok()?.checked_sub(1)?;
        let people = self.people.borrow();
        let person = people.get(place)?;
        (!person.frozen && !person.done.load(Ordering::Relaxed)).then_some(place)
    }

    fn start_later(&self, place: usize) {
        let actor = place as u64 + 1;
        let millis = u64::try_from(self.ttl.as_millis()).unwrap_or(1_000) * 2;
        let rest =
            self.cluster.with_decisions(|decisions| decisions.pick(Site::Way, actor, millis));
        let (me, body, done) = {
            let person = &mut self.people.borrow_mut()[place];
            let me = self.process(actor, person.name.clone(), (person.life, person.since));
            person.life += 1;
            (me, person.body.clone(), person.done.clone())
        };
        let (kept, life) = (self.kept.clone(), (actor, me.life));
        let main = self.scheduler.spawn_as(actor, async move {
            clock::sleep(Duration::from_millis(rest)).await;
            body(me).await;
            kept.let_go(life);
            done.store(true, Ordering::Relaxed);
        });
        self.people.borrow_mut()[place].main = Some(main);
    }

    /// Repairs everything, or a part of the world, while the rest stops for ever.
    fn mend(&self, mending: Option<Mending>, count: usize) -> Mending {
        let (way, server, first) = self.cluster.with_decisions(|decisions| {
            let way = decisions.pick(Site::Core, 0, 2);
            (
                way,
                decisions.pick(Site::Core, 0, 3),
                decisions.pick(Site::Core, 0, count.max(1) as u64),
            )
        });
        let mending = mending.unwrap_or(if way == 0 { Mending::All } else { Mending::Core });
        self.cluster.heal();
        for actor in 1..=count as u64 {
            self.scheduler.resume(actor);
        }
        if mending == Mending::Core {
            self.cluster.freeze(usize::try_from(server).unwrap_or(0));
            for place in 0..count {
                let actor = place as u64 + 1;
                let frozen = place as u64 != first
                    && self
                        .cluster
                        .with_decisions(|decisions| decisions.pick(Site::Core, actor, 2))
                        == 0;
                if frozen {
                    self.scheduler.pause(actor);
                    self.mending.freeze(actor);
                    self.people.borrow_mut()[place].frozen = true;
                    self.cluster.tell(actor, What::Phase, 0, || "frozen for ever".to_owned());
                }
            }
        }
        self.mending.set();
        mending
    }

    async fn hope(&self, law: &str, hope: Hope) {
        let actor = self.people.borrow().len() as u64 + 1;
        let me = self.process(actor, "auditor".into(), (0, 0));
        let told = Arc::new(std::sync::Mutex::new(None));
        let (tell, work) = (told.clone(), hope(me));
        let task = self.scheduler.spawn_as(actor, async move {
            let limited = clock::timeout(Duration::from_secs(600), work).await;
            let answer = limited.unwrap_or_else(|_late| Err("it never became so".to_owned()));
            *tell.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(answer);
        });
        let is_told = || told.lock().unwrap_or_else(std::sync::PoisonError::into_inner).is_some();
        self.scheduler
            .run_until(|| {
                self.attend();
                self.check_turns();
                self.findings.is_wrong() || is_told()
            })
            .await;
        if let Some((actor, what)) = self.scheduler.take_panic() {
            self.findings.wrong("L-OUT-8", format!("a panic: {what}"), self.cluster.age(), actor);
        }
        drop(task);
        let answer = told.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(Err(what)) = answer {
            self.wrong(law, what);
        }
    }

    /// L-X-5: once every process has ended and time has passed, no node, watch or task of them is
    /// left.
    async fn leaves_nothing(&self, count: usize) {
        let rings = Arc::new(AtomicBool::new(false));
        let (bell, rest) = (rings.clone(), self.ttl * 12);
        let task = self.scheduler.spawn_as(0, async move {
            clock::sleep(rest).await;
            bell.store(true, Ordering::Relaxed);
        });
        self.scheduler
            .run_until(|| {
                self.attend();
                self.check_turns();
                rings.load(Ordering::Relaxed) || self.findings.is_wrong()
            })
            .await;
        drop(task);
        let census = self.cluster.census();
        let mut tasks: usize =
            (1..=count as u64 + 1).map(|actor| self.scheduler.alive(actor)).sum();
        if self.around.is_some() {
            // The tasks of the wrapper that makes the mistake are among them.
            tasks = 0;
        }
        if census.sessions + census.watches + tasks > 0 && !self.findings.is_wrong() {
            let what =
                format!("every process has ended, and there are {tasks} tasks and {census:?}");
            self.wrong("L-X-5", what);
        }
    }
}

impl Scheduler {
    /// The clock of a process.
    fn shown_to(&self, actor: u64) -> clock::Instant {
        self.as_actor(actor, |_| clock::now())
    }
}
