//! [`Scene`]: servers, clients that are processes of their own, and the record of their events.

#![expect(clippy::print_stdout, reason = "excused breaches are reported")]

use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use synod_conformance::harness::Link;
use synod_core::random::Random;
use synod_servers::check::defect::Defect;
use synod_servers::check::record::{Breach, Record};
use synod_servers::clients::book::Book;
use synod_servers::clients::client::{Client, End};
use synod_servers::clients::entry::{Answer, Entry, Installed, Op, Seen, What, now};
use synod_servers::pipe::{Lost, Pipe};
use synod_servers::stall::Stall;
use synod_testkit::limit::waits_for;
use tokio::time::{Instant, sleep, timeout};

use crate::scenarios::Fault;
use crate::servers::SIZE;
use crate::stand::Stand;
use crate::{MISTAKE, NO_VERDICT, WORKER};

/// The limit for every event that must happen eventually. ZooKeeper's servers repeat a lost message
/// of an election after up to a minute.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The TTL of sessions: long enough for a busy machine.
pub(crate) const TTL: Duration = Duration::from_secs(3);

/// Servers, clients and the record of one scenario.
pub(crate) struct Scene {
    pub(crate) stand: Stand,
    pub(crate) random: Random,
    pub(crate) book: Book,
    clients: Vec<Arc<Actor>>,
    values: Arc<AtomicU64>,
    seed: u64,
    /// The mistake of every client.
    mistake: Option<Fault>,
    /// The defects of servers that this scene may show.
    defects: &'static [Defect],
    /// The version of the servers, if that matters. Queried before any fault.
    version: Vec<u32>,
    /// The breaches that the scene itself found.
    breaches: Vec<Breach>,
    /// Servers that do not run, and servers that are paused or cut off.
    killed: Vec<usize>,
    paused: Vec<usize>,
    parted: Vec<usize>,
    /// Servers whose disk stalls.
    stalled: Vec<(usize, Stall)>,
}

/// A client, and the proxy between it and the servers.
pub(crate) struct Actor {
    pub(crate) client: Client,
    pub(crate) pipe: Pipe,
    values: Arc<AtomicU64>,
    book: Book,
}

impl Scene {
    /// A scene with choices from this seed.
    pub(crate) fn open(
        name: &str,
        stand: Stand,
        mistake: Option<Fault>,
        seed: u64,
    ) -> Result<Self, String> {
        let file = format!("{}-{seed:016x}.jsonl", name.replace("::", "-"));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults").join(file);
        let book = Book::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let random = Random::seeded(seed);
        // All of one length, so that none is part of another.
        let values = Arc::new(AtomicU64::new((random.below(1 << 40) + (1 << 40)) << 20));
        Ok(Self {
            stand,
            random,
            book,
            clients: Vec::new(),
            values,
            seed,
            mistake,
            defects: &[],
            version: Vec::new(),
            breaches: Vec::new(),
            killed: Vec::new(),
            paused: Vec::new(),
            parted: Vec::new(),
            stalled: Vec::new(),
        })
    }

    /// Lets the scene show these defects of its servers.
    pub(crate) fn may_show(mut self, defects: &'static [Defect]) -> Self {
        if !defects.is_empty() {
            self.version = self.stand.servers.version().expect("the servers run");
        }
        self.defects = defects;
        self
    }

    /// Adds a breach that the scene itself found. [`Scene::judge`] reports it.
    pub(crate) fn breach(&mut self, breach: Breach) {
        self.breaches.push(breach);
    }

    /// Returns `true` if these servers have a defect that this scene may show.
    pub(crate) fn has_defect(&self) -> bool {
        self.defects.iter().any(|defect| defect.affects(&self.version))
    }

    /// The breaches so far that a defect of the servers explains.
    pub(crate) async fn defects_shown(&mut self) -> usize {
        let (found, record) = self.found().await.expect("the servers report what they kept");
        found.len() - self.without_defects(&record, found).len()
    }

    /// A client with a session.
    pub(crate) async fn client(&mut self) -> Arc<Actor> {
        self.client_for(TTL).await
    }

    /// A client with a session of this TTL.
    pub(crate) async fn client_for(&mut self, ttl: Duration) -> Arc<Actor> {
        let actor = self.process();
        actor.open(ttl).await;
        actor
    }

    /// A client without a session.
    pub(crate) fn process(&mut self) -> Arc<Actor> {
        let pipe = Pipe::start(&self.stand.servers.addresses()).expect("free ports");
        let number = self.clients.len() + 1;
        let program = std::env::current_exe().expect("this is one");
        let mut command = Command::new(program);
        command.args([WORKER, &number.to_string(), &self.stand.servers.url(pipe.addresses())]);
        if let Some(mistake) = self.mistake {
            command.env(MISTAKE, mistake.to_string());
        }
        let client = Client::start(number, &mut command, &self.book).expect("it can be started");
        let (values, book) = (self.values.clone(), self.book.clone());
        let actor = Arc::new(Actor { client, pipe, values, book });
        self.clients.push(actor.clone());
        actor
    }

    /// Applies a fault to servers, and records it.
    fn done<T>(&self, what: String, outcome: &io::Result<T>) {
        let outcome = match outcome {
            Ok(_) => Installed::Installed,
            Err(_) => Installed::Indeterminate,
        };
        self.book.nemesis(what, outcome);
    }

    pub(crate) fn kill(&mut self, server: usize) {
        let outcome = self.stand.servers.processes().kill(server);
        self.done(format!("kill server {server}"), &outcome);
        self.killed.push(server);
    }

    pub(crate) fn restart(&mut self, server: usize) {
        let outcome = self.stand.servers.processes().restart(server);
        self.done(format!("restart server {server}"), &outcome);
        self.killed.retain(|killed| *killed != server);
    }

    pub(crate) fn pause(&mut self, server: usize) {
        let outcome = self.stand.servers.processes().pause(server);
        self.done(format!("pause server {server}"), &outcome);
        self.paused.push(server);
    }

    pub(crate) async fn resume(&mut self, server: usize) {
        self.report_leases().await;
        let outcome = self.stand.servers.processes().resume(server);
        self.done(format!("resume server {server}"), &outcome);
        self.paused.retain(|paused| *paused != server);
    }

    /// Stalls the disk of a server.
    pub(crate) fn stall(&mut self, server: usize) {
        let stall = self.stand.servers.processes().stall(server);
        self.done(format!("stall the disk of server {server}"), &stall);
        self.stalled.extend(stall.map(|stall| (server, stall)));
    }

    /// Ends the stall of a disk.
    pub(crate) async fn resume_disk(&mut self, server: usize) {
        self.report_leases().await;
        self.stalled.retain(|(stalled, _)| *stalled != server);
        self.done(format!("resume server {server}, whose disk stalled"), &Ok(()));
    }

    /// Records the remaining TTL of each lease by the servers' reports, if that can prove a defect
    /// of the servers. Without an answer nothing is proved.
    async fn report_leases(&self) {
        if !self.has_defect() {
            return;
        }
        let asked = now();
        let running: Vec<usize> = (0..SIZE)
            .filter(|server| !self.paused.contains(server) && !self.killed.contains(server))
            .filter(|server| self.stalled.iter().all(|(stalled, _)| stalled != server))
            .collect();
        for (session, left) in self.stand.servers.leases(&running).await {
            let until = asked + u64::try_from(left.as_nanos()).unwrap_or_default();
            let what = What::Lease { until };
            self.book.add(Entry { t: now(), p: 0, s: Some(session), id: None, what });
        }
    }

    pub(crate) fn part(&mut self, server: usize) {
        self.stand.servers.part(server, Link::Cut);
        self.done(format!("part server {server}"), &Ok(()));
        self.parted.push(server);
    }

    pub(crate) fn join(&mut self, server: usize) {
        self.stand.servers.part(server, Link::Open);
        self.done(format!("join server {server}"), &Ok(()));
        self.parted.retain(|parted| *parted != server);
    }

    /// Applies a random fault to a server, for this time.
    pub(crate) async fn suffers(&mut self, lasts: Duration) {
        let server = usize::try_from(self.random.below(SIZE as u64)).unwrap_or_default();
        match self.random.below(3) {
            0 => {
                self.kill(server);
                sleep(lasts).await;
                self.restart(server);
            }
            1 => {
                self.pause(server);
                sleep(lasts).await;
                self.resume(server).await;
            }
            _ => {
                self.part(server);
                sleep(lasts).await;
                self.join(server);
            }
        }
    }

    /// Reserves this number of unused values, and returns the first.
    pub(crate) fn values(&self, count: u64) -> u64 {
        self.values.fetch_add(count, Ordering::Relaxed)
    }

    /// Ends a session before its time.
    pub(crate) async fn expire(&self, session: u64) {
        // Recorded before the expiry: from now on nothing follows from the TTL of the session.
        let what = What::Nemesis { what: "expire".to_owned(), outcome: Installed::Installed };
        self.book.add(Entry { t: now(), p: 0, s: Some(session), id: None, what });
        self.stand.servers.expire(session).await.expect("the session is ended");
    }

    /// [`Scene::expire`], where a session may have ended already, or no server answers.
    pub(crate) async fn try_expire(&self, session: u64) {
        let what =
            What::Nemesis { what: "try to expire".to_owned(), outcome: Installed::Installed };
        self.book.add(Entry { t: now(), p: 0, s: Some(session), id: None, what });
        let _may_be_over = timeout(TTL, self.stand.servers.expire(session)).await;
    }

    /// Returns the server that leads, as soon as one does.
    pub(crate) async fn leader(&mut self) -> usize {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(leader) = self.stand.servers.processes().leader() {
                return leader;
            }
            assert!(Instant::now() < end, "there is no leader after {PATIENCE:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns a server that follows.
    pub(crate) async fn follower(&mut self) -> usize {
        (self.leader().await + 1) % SIZE
    }

    /// Ends all faults.
    pub(crate) async fn heal(&mut self) {
        for server in self.parted.clone() {
            self.join(server);
        }
        for server in self.paused.clone() {
            self.resume(server).await;
        }
        while let Some((server, _)) = self.stalled.first() {
            self.resume_disk(*server).await;
        }
        for server in self.killed.clone() {
            self.restart(server);
        }
        self.stand.servers.processes().await_ready().expect("servers that are whole answer");
        for actor in self.clients.iter().filter(|actor| !actor.client.is_gone()) {
            actor.pipe.lose_nothing();
            actor.pipe.only(None);
            actor.pipe.set(Link::Open);
            let runs = actor.client.runs(Duration::from_secs(1)).await;
            if !runs {
                actor.client.go_on().expect("it is there");
            }
        }
    }

    /// Ends all faults, reads all data, and checks the record. Ends all clients, and returns the
    /// servers.
    pub(crate) async fn judge(mut self) -> Result<Stand, String> {
        self.heal().await;
        let eve = self.client().await;
        let (found, record) = self.settled(&eve).await?;
        if !record.indeterminate.is_empty() {
            return Err(format!("{NO_VERDICT}{:?} may not have happened", record.indeterminate));
        }
        let found = self.without_defects(&record, found);
        if found.is_empty() {
            self.book.discard().map_err(|error| error.to_string())?;
            return Ok(self.stand);
        }
        let told: Vec<_> = found.iter().take(10).map(ToString::to_string).collect();
        let (count, path) = (found.len(), self.book.path().display());
        Err(format!(
            "{count} breaches [seed {:#x}], taken down in {path}\n{}",
            self.seed,
            told.join("\n")
        ))
    }

    /// The breaches that no defect of the servers explains.
    fn without_defects(&self, record: &Record, mut found: Vec<Breach>) -> Vec<Breach> {
        if self.defects.is_empty() {
            return found;
        }
        found.retain(|breach| {
            let defect = self.defects.iter().find(|it| it.excuses(&self.version, record, breach));
            if let Some(defect) = defect {
                println!("known defect: {}: {breach}", defect.what);
            }
            defect.is_none()
        });
        found
    }

    /// The breaches, once every watch had the time to report every change.
    async fn settled(&mut self, eve: &Actor) -> Result<(Vec<Breach>, Record), String> {
        let end = Instant::now() + PATIENCE;
        loop {
            eve.list("", false).await;
            let (found, record) = self.found().await?;
            // A watch that lacks only an event may still report it.
            let waits = found.iter().all(|breach| breach.law == "L-WAT-6");
            if found.is_empty() || !waits || Instant::now() > end {
                self.book.truth(record.facts.clone());
                return Ok((found, record));
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// The breaches up to now, and the record that contains them.
    async fn found(&mut self) -> Result<(Vec<Breach>, Record), String> {
        let facts = self.stand.facts().await?;
        let truth = |fact| Entry { t: now(), p: 0, s: None, id: None, what: What::Truth { fact } };
        let mut entries = self.book.entries();
        entries.extend(facts.into_iter().map(truth));
        let record = Record::of(&entries);
        let mut found = record.breaches();
        found.extend(self.breaches.iter().cloned());
        Ok((found, record))
    }
}

/// A path that only scenes use.
pub(crate) fn at(below: &str) -> String {
    format!("/faults{}{below}", if below.is_empty() { "" } else { "/" })
}

impl Actor {
    pub(crate) async fn open(&self, ttl: Duration) -> u64 {
        let ttl = u64::try_from(ttl.as_millis()).expect("short");
        let opened = timeout(PATIENCE, self.client.call(Op::Open { ttl })).await;
        match opened.expect("a session is opened in time") {
            End::Ok(_) => self.session().expect("it was reported"),
            other => panic!("no session was opened: {other:?}"),
        }
    }

    /// The last session that it opened.
    pub(crate) fn session(&self) -> Option<u64> {
        let number = self.client.number();
        self.book.last(|entry| entry.s.filter(|_| entry.p == number))
    }

    /// The last status of its session that the process reported.
    pub(crate) fn believes(&self) -> Option<String> {
        let number = self.client.number();
        self.book.last(|entry| match &entry.what {
            What::Belief { status, .. } if entry.p == number => Some(status.clone()),
            _ => None,
        })
    }

    /// A call that may have any result, but ends.
    pub(crate) async fn call(&self, op: Op) -> End {
        let limit = TTL + PATIENCE;
        waits_for(format_args!("{op:?}"));
        let ended = timeout(limit, self.client.call(op.clone())).await;
        ended.unwrap_or_else(|_elapsed| panic!("{op:?}: no end within {limit:?}"))
    }

    /// A call that must be answered.
    pub(crate) async fn done(&self, op: Op) -> Answer {
        match self.call(op.clone()).await {
            End::Ok(answer) if answer.refused.is_none() => answer,
            other => panic!("{op:?}: {other:?}"),
        }
    }

    /// A call with a lost request or answer.
    pub(crate) async fn lossy(&self, op: Op, lost: Lost, mark: &str) -> End {
        let before = self.pipe.lost();
        self.pipe.lose(lost, mark);
        let end = self.call(op).await;
        let outcome = if self.pipe.lose_nothing() || self.pipe.lost() == before {
            Installed::Skipped
        } else {
            Installed::Installed
        };
        let what = format!("lose the {lost:?} of {mark} of client {}", self.client.number());
        self.book.nemesis(what, outcome);
        assert_eq!(outcome, Installed::Installed, "the fault had no place, so this proves nothing");
        end
    }

    pub(crate) fn value(&self) -> u64 {
        self.values.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn create(&self, path: &str) -> Op {
        Op::Create { path: at(path), value: self.value(), ephemeral: false }
    }

    pub(crate) fn ephemeral(&self, path: &str) -> Op {
        Op::Create { path: at(path), value: self.value(), ephemeral: true }
    }

    pub(crate) fn ticket(&self, directory: &str, ephemeral: bool) -> Op {
        let value = self.value();
        Op::Ticket { path: at(&format!("{directory}/{value}-")), value, ephemeral }
    }

    pub(crate) fn set(&self, path: &str) -> Op {
        Op::Set { path: at(path), value: self.value() }
    }

    pub(crate) async fn read(&self, path: &str, local: bool) -> End {
        self.call(Op::Read { path: at(path), local }).await
    }

    pub(crate) async fn list(&self, path: &str, local: bool) -> End {
        self.call(Op::List { path: at(path), local }).await
    }

    /// Writes a register if it is unchanged since it was read.
    pub(crate) fn cas(&self, path: &str, seen: &Seen) -> Op {
        let from = seen.value.unwrap_or_default();
        Op::Cas { path: at(path), from, version: seen.version, value: self.value() }
    }

    /// Repeats a call until it is answered.
    pub(crate) async fn insists(&self, op: impl Fn() -> Op) -> Answer {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.call(op()).await {
                End::Ok(answer) => return answer,
                End::Fail(why) if why.starts_with("SessionLost") => drop(self.open(TTL).await),
                other => assert!(Instant::now() < end, "{:?}: still {other:?}", op()),
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until a node no longer exists.
    pub(crate) async fn sees_gone(&self, path: &str) {
        let gone = async || matches!(self.read(path, false).await, End::Ok(answer) if answer.nodes.is_empty());
        eventually(&format!("{path} is gone"), gone).await;
    }
}

pub(crate) fn shown(end: &End) -> Option<&Seen> {
    match end {
        End::Ok(answer) => answer.nodes.first(),
        _ => None,
    }
}

pub(crate) async fn eventually(what: &str, holds: impl AsyncFnMut() -> bool) {
    assert!(in_time(what, holds).await, "{what}: not within {PATIENCE:?}");
}

/// Waits until the condition holds. Returns `false` if it does not hold within the patience.
pub(crate) async fn in_time(what: &str, mut holds: impl AsyncFnMut() -> bool) -> bool {
    waits_for(what);
    let end = Instant::now() + PATIENCE;
    while !holds().await {
        if Instant::now() > end {
            return false;
        }
        sleep(Duration::from_millis(20)).await;
    }
    true
}
