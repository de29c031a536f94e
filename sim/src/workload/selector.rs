//! Work of leaders that fails, is interrupted, and is repeated.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cluster::Site;
use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::path::Path;
use synod_recipes::election::{LeaderSelector, Leadership, Term};

use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::Workload;
use crate::workload::belief::{Among, Beliefs, LEAD};
use crate::workload::grant::{Grants, Wants};
use crate::workload::holding::{self, Holding};

/// Three processes work whenever they lead, until they have finished; some interrupt themselves.
pub(super) struct Selectors;

const ROUNDS: u64 = 2;

const AGAIN: &str = "a process led again without a new request";
const INTERRUPTED: &str = "a term was interrupted";
const OVER: &str = "a term was over as the lead was lost";
const FAILED: &str = "work failed";

impl Workload for Selectors {
    fn name(&self) -> &'static str {
        "selector"
    }

    fn about(&self) -> &'static str {
        "three processes work while they lead, are interrupted, fail, and lead again"
    }

    fn laws(&self) -> &'static [&'static str] {
        &["L-EL-1", "L-EL-2", "L-EL-5", "L-EL-6", "L-EL-7", "L-EL-10", "L-MX-2", "L-MX-11"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, holding::LOST, holding::LATE, holding::SILENT, AGAIN, INTERRUPTED, OVER, FAILED]
    }

    fn unreached(&self) -> Vec<Site> {
        vec![Site::SlowReader, Site::EventsJoined]
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let (beliefs, grants) = (Beliefs::new(LEAD), Grants::of(dir()));
        let granted = grants.clone();
        let sim = sim
            .given(holding::data(), "0")
            .aged(dir())
            .processes(3, move |me| work(me, beliefs.clone(), granted.clone()))
            .must_end("L-EL-5")
            .check("L-EL-10", holding::guarded_writes_rise)
            .check("L-MX-11", holding::only_owners_remove_tickets);
        grants.watch(sim)
    }
}

async fn work(me: Process, beliefs: Beliefs, grants: Grants) {
    let Ok(client) = me.client().await else { return };
    let worker = Worker { me, client, beliefs, grants, at_work: AtomicU64::new(IDLE) };
    for round in 0..worker.me.rounds(ROUNDS) {
        Box::pin(worker.round(round)).await;
        worker.me.rest(worker.me.ttl() / 8).await;
    }
    holding::leaves_nothing(&worker.me, &worker.client, &worker.grants, "L-EL-6").await;
}

struct Worker {
    me: Process,
    client: Client,
    beliefs: Beliefs,
    grants: Grants,
    /// The term in which work is running: its revision, or that it was interrupted.
    at_work: AtomicU64,
}

/// No work is running.
const IDLE: u64 = 0;

/// Work is running, and was interrupted.
const STOPPED: u64 = u64::MAX;

/// The result of completed work.
type Done = Result<u64, &'static str>;

impl Worker {
    async fn round(&self, round: u64) {
        let label = format!("{}.{}.{round}", self.me.name(), self.me.life());
        let selector = LeaderSelector::new(&self.client, dir()).label(label.clone());
        let leads = self.me.perhaps(async {
            if self.me.pick(3) == 0 {
                self.once(&selector).await;
            } else {
                self.again(&selector).await;
            }
        });
        match select(pin!(leads), pin!(self.interrupts(&selector, &label))).await {
            Either::Left(_) => {}
            Either::Right((never, _)) => match never {},
        }
    }

    /// Runs one term. `lead` returns the result of the work.
    async fn once(&self, selector: &LeaderSelector) {
        let mut came_to = None;
        let term = selector.lead(|lead| async {
            let done = self.term(lead).await;
            came_to = Some(done);
            done
        });
        match term.await {
            Ok(Term::Done(done)) if came_to != Some(done) => {
                self.me.wrong("L-EL-7", || format!("the work came to {came_to:?}, not {done:?}"));
            }
            Ok(Term::Interrupted) => self.me.sometimes(INTERRUPTED, true),
            Ok(Term::Lost) => self.me.sometimes(OVER, true),
            _ => {}
        }
    }

    /// Runs terms until the work has finished.
    async fn again(&self, selector: &LeaderSelector) {
        let terms = AtomicU64::new(0);
        let _done = selector
            .keep_leading(|lead| async {
                let before = terms.fetch_add(1, Ordering::Relaxed);
                self.me.sometimes(AGAIN, before > 0);
                let done = self.term(lead).await;
                if self.me.pick(2) == 0 || before > 2 {
                    ControlFlow::Break(done)
                } else {
                    ControlFlow::Continue(())
                }
            })
            .await;
    }

    /// L-EL-7: work of one term at a time, and none after an interruption.
    async fn term(&self, lead: Leadership) -> Done {
        let Self { me, client, beliefs, grants, .. } = self;
        let number = lead.token().revision().get();
        if self.at_work.swap(number, Ordering::Relaxed) != IDLE {
            me.wrong("L-EL-7", || "work begins, and that of the last term goes on".to_owned());
        }
        let _at_work = AtWork(&self.at_work);
        beliefs.entered(me, &lead, Among::Nobody);
        grants.note(me, &lead, Wants::All);
        let is_held = || {
            if self.at_work.load(Ordering::Relaxed) == STOPPED {
                me.wrong("L-EL-7", || {
                    format!("work of term {number} goes on, and was interrupted")
                });
            }
            lead.is_held()
        };
        let stay = Holding { me, client, judge: beliefs, among: Among::Nobody };
        stay.pass_while(&lead, &is_held).await;
        let fails = me.pick(4) == 0;
        me.sometimes(FAILED, fails);
        if fails { Err("on purpose") } else { Ok(number) }
    }

    /// Interrupts now and then, and checks that no process is a candidate twice.
    async fn interrupts(&self, selector: &LeaderSelector, label: &str) -> Infallible {
        loop {
            self.me.rest(self.me.ttl() / 4).await;
            if self.me.pick(4) == 0 {
                selector.interrupt();
                let at_work = self.at_work.load(Ordering::Relaxed) != IDLE;
                self.me.sometimes(INTERRUPTED, at_work);
                if at_work {
                    self.at_work.store(STOPPED, Ordering::Relaxed);
                }
            }
            let Ok(standing) = selector.candidates().await else { continue };
            let own = standing.iter().filter(|one| one.label == label).count();
            // After a fault a ticket may be removed later.
            if own > 1 && self.me.harmed() == 0 {
                self.me.wrong("L-EL-7", || format!("{label} is a candidate {own} times"));
            }
        }
    }
}

/// Dropped when the work ends for any reason.
struct AtWork<'a>(&'a AtomicU64);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.store(IDLE, Ordering::Relaxed);
    }
}

fn dir() -> Path {
    Path::new("/work").expect("it is one")
}
