//! Leaders that publish values, their observers, and hand-overs.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cluster::{By, Entry};
use futures_util::StreamExt as _;
use futures_util::future::join;
use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::{Error, ErrorKind};
use synod_core::path::Path;
use synod_core::store::{Change, Kind, Revision};
use synod_core::task::{Task, spawn};
use synod_recipes::Token;
use synod_recipes::election::{Election, Leader};

use crate::findings::Truth;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;
use crate::workload::belief::{Among, Beliefs, LEAD};
use crate::workload::grant::{Grants, Wants};
use crate::workload::holding::{self, Holding};

/// Three processes campaign, proclaim, observe, and resign, some in favour of another.
pub(super) struct Elections;

const ROUNDS: u64 = 3;

const PROCLAIMED: &str = "a value was proclaimed";
const TOO_LATE: &str = "a proclamation came too late";
const HEIR: &str = "a leader resigned in favour of another";
const GONE: &str = "an heir was gone";
const OBSERVED: &str = "an observer saw the value of its own process";

impl Workload for Elections {
    fn name(&self) -> &'static str {
        "election"
    }

    fn about(&self) -> &'static str {
        "three processes campaign, proclaim values, observe them, and hand over"
    }

    fn laws(&self) -> &'static [&'static str] {
        &[
            "L-EL-1", "L-EL-2", "L-EL-5", "L-EL-6", "L-EL-8", "L-EL-9", "L-EL-10", "L-EL-12",
            "L-MX-2",
        ]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[
            DROPPED,
            holding::LOST,
            holding::LATE,
            holding::SILENT,
            PROCLAIMED,
            TOO_LATE,
            HEIR,
            GONE,
            OBSERVED,
        ]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let all =
            All { beliefs: Beliefs::new(LEAD), grants: Grants::of(dir()), said: Said::default() };
        let (own, said, wills) = (all.clone(), all.said.clone(), all.said.clone());
        let sim = sim
            .given(holding::data(), "0")
            .aged(dir())
            .processes(3, move |me| work(me, own.clone()))
            .must_end("L-EL-5")
            .check("L-EL-10", holding::guarded_writes_rise)
            .check("L-EL-10", move |truth| said.check_values(truth))
            .check("L-EL-12", move |truth| wills.check_heirs(truth));
        all.grants.watch(sim)
    }
}

/// The state that all processes share.
#[derive(Clone)]
struct All {
    beliefs: Beliefs,
    grants: Grants,
    said: Said,
}

async fn work(me: Process, all: All) {
    let Ok(client) = me.client().await else { return };
    // Another client of the same process is another candidate.
    let second = if me.number() == 2 { me.second_client().await.ok() } else { None };
    let second = second.map(|client| Candidate {
        label: "beside",
        me: me.clone(),
        client,
        all: all.clone(),
    });
    let candidate = Candidate { label: "first", me, client, all };
    let observer = Observer::of(&candidate.me, &candidate.client);
    let beside = async {
        if let Some(second) = &second {
            second.rounds().await;
        }
    };
    Box::pin(join(candidate.rounds(), beside)).await;
    candidate.check_observed(&observer).await;
    holding::leaves_nothing(&candidate.me, &candidate.client, &candidate.all.grants, "L-EL-6")
        .await;
}

struct Candidate {
    /// Its name among the candidates of the process.
    label: &'static str,
    me: Process,
    client: Client,
    all: All,
}

impl Candidate {
    fn election(&self) -> Election {
        Election::new(&self.client, dir())
    }

    async fn rounds(&self) {
        for round in 0..self.me.rounds(ROUNDS) {
            self.round(round).await;
            self.me.rest(self.me.ttl() / 8).await;
        }
    }

    async fn round(&self, round: u64) {
        let (me, election) = (&self.me, self.election());
        let value = format!("{}.{}.{}.{round}", me.name(), me.life(), self.label);
        let leader = if me.pick(6) == 0 {
            me.perhaps(election.try_campaign(value.clone()))
                .await
                .transpose()
                .ok()
                .flatten()
                .flatten()
        } else {
            me.perhaps(election.campaign(value.clone())).await.transpose().ok().flatten()
        };
        if let Some(leader) = leader {
            self.leads(leader, &value).await;
        }
    }

    async fn leads(&self, leader: Leader, value: &str) {
        let Self { me, client, all, .. } = self;
        all.beliefs.entered(me, &leader, Among::Nobody);
        all.grants.note(me, &leader, Wants::All);
        self.proclaims(&leader, &format!("{value}.new")).await;
        Holding { me, client, judge: &all.beliefs, among: Among::Nobody }.pass(&leader).await;
        self.proclaims(&leader, &format!("{value}.last")).await;
        all.grants.returns(&leader);
        match me.pick(4) {
            0 => drop(leader),
            1 => drop(me.perhaps(leader.resign()).await),
            _ => self.resigns_to_another(leader).await,
        }
    }

    /// L-EL-10: a proclaimed value was written by the leader.
    async fn proclaims(&self, leader: &Leader, value: &str) {
        let from = self.me.committed();
        let told = self.me.perhaps(leader.proclaim(value.to_owned())).await;
        self.me.sometimes(PROCLAIMED, matches!(told, Some(Ok(()))));
        let lost = |error: &Error| error.kind() == ErrorKind::SessionLost;
        self.me.sometimes(TOO_LATE, matches!(&told, Some(Err(error)) if lost(error)));
        if matches!(told, Some(Ok(()))) {
            let (of, data) = (leader.path().clone(), value.to_owned());
            let said = Value { of, data, from, to: self.me.committed() };
            self.all.said.lock().values.push(said);
        }
    }

    async fn resigns_to_another(&self, leader: Leader) {
        let me = &self.me;
        let standing = match me.perhaps(self.election().candidates()).await {
            Some(Ok(standing)) => standing,
            Some(Err(error)) => return self.looked_in_vain(&error),
            None => return,
        };
        let others: Vec<_> = standing.iter().filter(|one| one.path != *leader.path()).collect();
        let Some(last) = others.last() else { return };
        let heir = last.path.clone();
        let (from, ticket) = (me.committed(), leader.path().clone());
        match me.perhaps(leader.resign_to(&heir)).await {
            Some(Ok(None)) => {
                me.sometimes(HEIR, true);
                let will = Will { of: ticket, heir, from, to: me.committed() };
                self.all.said.lock().wills.push(will);
            }
            Some(Ok(Some(leader))) => {
                me.sometimes(GONE, true);
                drop(me.perhaps(leader.resign()).await);
            }
            _ => {}
        }
    }

    /// L-EL-8: listing the candidates succeeds, or fails because the store does not answer.
    fn looked_in_vain(&self, error: &Error) {
        if !matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::SessionLost) {
            self.me.wrong("L-EL-8", || format!("listing the candidates: {error}"));
        }
    }

    /// L-EL-9: once everything is repaired, observers learn the current leader.
    async fn check_observed(&self, observer: &Observer) {
        let me = &self.me;
        me.mended().await;
        let Ok(leader) = self.election().campaign("in the end").await else { return };
        for _ in 0..120 {
            if !leader.is_held() {
                return;
            }
            if observer.token() >= Some(leader.token()) {
                return me.sometimes(OBSERVED, true);
            }
            clock::sleep(me.ttl() / 10).await;
        }
        me.wrong("L-EL-9", || {
            format!("{} leads, and its observer last saw {:?}", me.name(), observer.token())
        });
    }
}

/// A task that observes.
struct Observer {
    told: Arc<Mutex<Option<Token>>>,
    _task: Task,
}

impl Observer {
    /// L-EL-9: observers see terms in order.
    fn of(me: &Process, client: &Client) -> Self {
        let told = Arc::new(Mutex::new(None));
        let (me, latest) = (me.clone(), told.clone());
        let election = Election::new(client, dir());
        let task = spawn(async move {
            loop {
                let mut values = pin!(election.observe());
                while let Some(Ok(value)) = values.next().await {
                    let last =
                        latest.lock().unwrap_or_else(PoisonError::into_inner).replace(value.token);
                    if last > Some(value.token) {
                        me.wrong("L-EL-9", || {
                            format!("{} is observed after {last:?}", value.token)
                        });
                    }
                    me.dawdle().await;
                }
                clock::sleep(me.ttl() / 4).await;
            }
        });
        Self { told, _task: task }
    }

    fn token(&self) -> Option<Token> {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answered proclamations and hand-overs of leaders. Clones share them.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Book>>);

#[derive(Default)]
struct Book {
    values: Vec<Value>,
    wills: Vec<Will>,
}

/// A proclamation that succeeded, between these commits.
struct Value {
    of: Path,
    data: String,
    from: usize,
    to: usize,
}

/// A hand-over that succeeded, between these commits.
struct Will {
    of: Path,
    heir: Path,
    from: usize,
    to: usize,
}

impl Said {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// L-EL-10: each value was written, to the ticket of the lead.
    fn check_values(&self, truth: &Truth) -> Result<(), String> {
        for said in &self.lock().values {
            let written = |entry: &Entry| {
                entry.changes.iter().any(|change| {
                    let data = change.node.as_ref().map(|node| &node.data[..]);
                    change.path == said.of && data == Some(said.data.as_bytes())
                })
            };
            let entries = truth.log.get(said.from..said.to).unwrap_or_default();
            if !entries.iter().any(written) {
                return Err(format!("{} was proclaimed by {}, and was not", said.data, said.of));
            }
        }
        Ok(())
    }

    /// L-EL-12: when a leader left after a hand-over, the chosen candidate was the first, or was
    /// gone.
    fn check_heirs(&self, truth: &Truth) -> Result<(), String> {
        let mut line: BTreeSet<(Revision, &Path)> = BTreeSet::new();
        for (index, entry) in truth.log.iter().enumerate() {
            let tickets = |it: &&Change| it.path.name().contains("-latch-");
            for change in entry.changes.iter().filter(tickets) {
                let stat = change.node.as_ref().and_then(|node| node.stat);
                match stat.filter(|_| change.kind != Kind::Deleted) {
                    Some(stat) => drop(line.insert((stat.created, &change.path))),
                    None => line.retain(|(_, path)| **path != change.path),
                }
            }
            let went = |will: &&Will| {
                let gone = |it: &Change| it.path == will.of && it.kind == Kind::Deleted;
                let by_process = matches!(entry.by, By::Process(_));
                (will.from..will.to).contains(&index)
                    && by_process
                    && entry.changes.iter().any(gone)
            };
            for will in self.lock().wills.iter().filter(went) {
                let stands = line.iter().any(|(_, path)| **path == will.heir);
                let first = line.first().is_some_and(|(_, path)| **path == will.heir);
                if stands && !first {
                    return Err(format!("{} went, and {} is not the next", will.of, will.heir));
                }
            }
        }
        Ok(())
    }
}

fn dir() -> Path {
    Path::new("/election").expect("it is one")
}
