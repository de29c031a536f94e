//! Candidates of a latch that join, lead, are notified, and leave.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::cluster::{By, Site};
use futures_util::StreamExt as _;
use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::ErrorKind;
use synod_core::path::Path;
use synod_core::store::Kind;
use synod_core::task::{Task, spawn};
use synod_recipes::election::{Candidacy, LeaderLatch, Leadership, LeadershipChange};

use crate::findings::Truth;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;
use crate::workload::belief::{Among, Beliefs, LEAD};
use crate::workload::grant::{Grants, Wants};
use crate::workload::holding::{self, Holding};

/// Three processes are candidates of a latch, check continuously whether they lead, listen, and
/// leave in every state.
pub(super) struct Latches;

const ROUNDS: u64 = 3;

const WAITED: &str = "a candidate waited for the lead";
const LEFT: &str = "a candidate left while it waited";
const AGAIN: &str = "a candidate led again after it had lost the lead";
const FAILED: &str = "a candidate was notified of a failure to join";

impl Workload for Latches {
    fn name(&self) -> &'static str {
        "latch"
    }

    fn about(&self) -> &'static str {
        "three candidates join, ask whether they lead, listen to what happens, and leave"
    }

    fn laws(&self) -> &'static [&'static str] {
        &[
            "L-EL-1", "L-EL-2", "L-EL-3", "L-EL-4", "L-EL-5", "L-EL-6", "L-EL-8", "L-EL-10",
            "L-EL-11", "L-MX-2", "L-MX-11",
        ]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, holding::LOST, holding::LATE, holding::SILENT, WAITED, LEFT, AGAIN, FAILED]
    }

    fn unreached(&self) -> Vec<Site> {
        vec![Site::EventsJoined]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let all = All {
            beliefs: Beliefs::new(LEAD),
            grants: Grants::of(dir()),
            standing: Arc::default(),
        };
        let (own, stood) = (all.clone(), all.standing.clone());
        let sim = sim
            .given(holding::data(), "0")
            .aged(dir())
            .processes(3, move |me| work(me, own.clone()))
            .must_end("L-EL-5")
            .check("L-EL-10", holding::guarded_writes_rise)
            .check("L-MX-11", holding::only_owners_remove_tickets)
            .check("L-EL-11", move |truth| places_are_kept(truth, &stood));
        all.grants.watch(sim)
    }
}

/// The state that all processes share.
#[derive(Clone)]
struct All {
    beliefs: Beliefs,
    grants: Grants,
    standing: Arc<Mutex<Vec<Stood>>>,
}

/// The time of a candidate in the queue, as numbers of commits: its label, and the time of the
/// request to leave.
#[derive(Clone, Debug)]
struct Stood {
    label: String,
    until: usize,
}

async fn work(me: Process, all: All) {
    let Ok(client) = me.client().await else { return };
    let candidate = Candidate { me, client, all };
    for round in 0..candidate.me.rounds(ROUNDS) {
        candidate.round(round).await;
        candidate.me.rest(candidate.me.ttl() / 8).await;
    }
    holding::leaves_nothing(&candidate.me, &candidate.client, &candidate.all.grants, "L-EL-6")
        .await;
}

struct Candidate {
    me: Process,
    client: Client,
    all: All,
}

impl Candidate {
    async fn round(&self, round: u64) {
        let me = &self.me;
        let label = format!("{}.{}.{round}", me.name(), me.life());
        let latch = LeaderLatch::new(&self.client, dir()).label(label.clone());
        let Some(Ok(candidacy)) = me.perhaps(latch.join()).await else { return };
        let (before, failures) = (me.suffered(UNHEARD), Failures::of(&candidacy));
        let listener = Listener::of(me, &candidacy);
        self.look(&latch).await;
        let stays = me.pick(4) > 0;
        if stays {
            self.leads(&candidacy).await;
            if me.pick(3) == 0 {
                // Repeated if the lead was lost in between.
                let again = self.leads(&candidacy).await;
                me.sometimes(AGAIN, again);
            }
        } else {
            me.rest(me.ttl() / 4).await;
            me.sometimes(LEFT, !candidacy.is_leader());
        }
        // A candidate that does not know that its ticket was created removes it and reports the
        // failure.
        if me.suffered(UNHEARD) == before && !failures.any.load(Ordering::Relaxed) {
            let stood = Stood { label, until: me.committed() };
            self.all.standing.lock().unwrap_or_else(PoisonError::into_inner).push(stood);
        }
        if let Some(leadership) = candidacy.leadership() {
            self.all.grants.returns(&leadership);
        }
        if me.pick(3) == 0 {
            drop(candidacy);
        } else {
            let closed = me.perhaps(candidacy.close()).await;
            listener.closed.store(matches!(closed, Some(Ok(()))), Ordering::Relaxed);
        }
        me.rest(me.ttl() / 8).await;
        drop(listener);
    }

    /// Waits for the lead, and leads for a while. Returns `true` if that was a new term.
    async fn leads(&self, candidacy: &Candidacy) -> bool {
        let Self { me, client, all } = self;
        let began = me.age();
        let Some(Some(lead)) = me.perhaps(leading(me, candidacy)).await else { return false };
        me.sometimes(WAITED, me.age() > began + me.ttl() / 10);
        all.grants.note(me, &lead, Wants::All);
        // Uses the candidate's own report.
        let leads = || candidacy.leadership().is_some_and(|now| now.path() == lead.path());
        let is_new = all.beliefs.entered_anew(me, &lead, &leads);
        let stay = Holding { me, client, judge: &all.beliefs, among: Among::Nobody };
        stay.pass_while(&lead, &leads).await;
        is_new
    }

    /// L-EL-8: listing the candidates succeeds, or fails because the store does not answer.
    async fn look(&self, latch: &LeaderLatch) {
        if let Some(Err(error)) = self.me.perhaps(latch.candidates()).await
            && !matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::SessionLost)
        {
            self.me.wrong("L-EL-8", || format!("listing the candidates: {error}"));
        }
    }
}

/// Waits for the leadership, and ignores failures that are reported meanwhile; `None` if the
/// candidate is rejected repeatedly.
async fn leading(me: &Process, candidacy: &Candidacy) -> Option<Leadership> {
    let mut refusals = 0;
    while refusals < 5 {
        match candidacy.leading().await {
            Ok(lead) => return Some(lead),
            Err(error) => {
                let may_pass =
                    matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::SessionLost);
                refusals += u32::from(!may_pass);
                clock::sleep(me.ttl() / 4).await;
            }
        }
    }
    None
}

/// A task that reads the notifications of a candidate.
struct Listener {
    closed: Arc<AtomicBool>,
    _task: Task,
}

impl Listener {
    /// L-EL-4: gained and lost terms alternate, and no term is gained after the candidate left.
    fn of(me: &Process, candidacy: &Candidacy) -> Self {
        let closed = Arc::new(AtomicBool::new(false));
        let (me, left, changes) = (me.clone(), closed.clone(), candidacy.changes());
        let task = spawn(async move {
            let mut changes = pin!(changes);
            let mut leads = None;
            while let Some(change) = changes.next().await {
                let gained = matches!(change, LeadershipChange::Gained(_));
                let in_turn = match (change, leads) {
                    (LeadershipChange::Gained(lead), None) => {
                        leads = Some(lead.token());
                        true
                    }
                    (LeadershipChange::Lost(token), Some(last)) => {
                        leads = None;
                        token == last
                    }
                    (LeadershipChange::Failed(_), _) => {
                        me.sometimes(FAILED, true);
                        true
                    }
                    _ => false,
                };
                if !in_turn || (gained && left.load(Ordering::Relaxed)) {
                    me.wrong("L-EL-4", || "terms are not reported in turn".to_owned());
                }
                me.dawdle().await;
            }
        });
        Self { closed, _task: task }
    }
}

/// The faults after which a candidate fails without being notified.
const UNHEARD: &[Site] = &[Site::Refused, Site::Paused, Site::Starved];

/// A task that reads every failure to join.
struct Failures {
    any: Arc<AtomicBool>,
    _task: Task,
}

impl Failures {
    fn of(candidacy: &Candidacy) -> Self {
        let any = Arc::new(AtomicBool::new(false));
        let (failed, changes) = (any.clone(), candidacy.changes());
        let task = spawn(async move {
            let mut changes = pin!(changes);
            while let Some(change) = changes.next().await {
                failed.fetch_or(matches!(change, LeadershipChange::Failed(_)), Ordering::Relaxed);
            }
        });
        Self { any, _task: task }
    }
}

/// L-EL-11: no process removes its ticket while it is a candidate and its session is alive.
fn places_are_kept(truth: &Truth, standing: &Mutex<Vec<Stood>>) -> Result<(), String> {
    let standing = standing.lock().unwrap_or_else(PoisonError::into_inner);
    for stood in &*standing {
        let mut own = Vec::new();
        for entry in truth.log.iter().take(stood.until) {
            let By::Process(_) = entry.by else { continue };
            for change in entry.changes.iter().filter(|it| it.path.parent() == Some(dir())) {
                let data = change.node.as_ref().map(|node| &node.data[..]);
                if change.kind == Kind::Created && data == Some(stood.label.as_bytes()) {
                    own.push(&change.path);
                } else if change.kind == Kind::Deleted && own.contains(&&change.path) {
                    return Err(format!(
                        "{} is a candidate, and gave up {}",
                        stood.label, change.path
                    ));
                }
            }
        }
    }
    Ok(())
}

fn dir() -> Path {
    Path::new("/latch").expect("it is one")
}
