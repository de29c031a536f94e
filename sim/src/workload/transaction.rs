//! Transactions that move amounts between accounts, and are serializable in the order of their
//! commits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::cluster::Site;
use synod_core::clock;
use synod_core::error::{Effect, Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Outcome, Query};
use synod_recipes::transaction::{Attempt, Isolation, Transaction};

use crate::findings::Truth;
use crate::ledger::Ledger;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::{WATCHED, Workload};

/// Three clients move amounts between three accounts, each at a level of isolation that keeps their
/// sum.
pub(super) struct Transactions;

const ROUNDS: u64 = 4;
const ACCOUNTS: u64 = 3;
const SUM: i64 = 100;

const RACED: &str = "another client was faster";
const GIVEN_UP: &str = "a run was given up";
const RESOLVED: &str = "a lost answer was found out";
const UNKNOWN: &str = "a transaction had an unknown effect";
const FAILED: &str = "a transaction failed for certain";

impl Workload for Transactions {
    fn name(&self) -> &'static str {
        "transaction"
    }

    fn about(&self) -> &'static str {
        "three clients move amounts between three accounts, whose sum no run of a transaction sees changed"
    }

    fn laws(&self) -> &'static [&'static str] {
        &["L-STM-1", "L-STM-2", "L-STM-3", "L-STM-7", "L-OUT-1", "L-OUT-2", "L-OUT-3"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[DROPPED, RACED, GIVEN_UP, RESOLVED, UNKNOWN, FAILED]
    }

    fn unreached(&self) -> Vec<Site> {
        [WATCHED, &[Site::SlowReader, Site::NearTheEnd, Site::BeatsCut, Site::WallClockSet]]
            .concat()
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let (ledger, reads) = (Ledger::default(), Reads::default());
        let (books, seen) = (ledger.clone(), reads.clone());
        // Writes of strangers would change the sum.
        let sim = sim.without_strangers();
        let sim = (1..ACCOUNTS).fold(sim.given(account(0), SUM.to_string()), |sim, number| {
            sim.given(account(number), "0")
        });
        sim.processes(3, move |me| work(me, ledger.clone(), reads.clone()))
            .must_end("L-STM-3")
            .ledger(&books)
            .eventually("L-STM-7", no_mark_is_left)
            .check("L-STM-1", move |truth| seen.explain(truth))
    }
}

/// The reads of the last run of each transaction, by the name of the transaction. Clones share
/// them.
#[derive(Clone, Default)]
struct Reads(Arc<Mutex<BTreeMap<String, Vec<String>>>>);

/// One transaction.
struct Transfer<'a> {
    me: &'a Process,
    reads: &'a Reads,
    slip: String,
    ends: [u64; 2],
    amount: i64,
    one_moment: bool,
}

async fn work(me: Process, ledger: Ledger, reads: Reads) {
    let Ok(client) = me.impatient_client().await else { return };
    let one = Transaction::new(&client, marks());
    for round in 0..me.rounds(ROUNDS) {
        let first = me.pick(ACCOUNTS);
        let transfer = Transfer {
            me: &me,
            reads: &reads,
            slip: format!("{}.{}.{round}", me.name(), me.life()),
            ends: [first, (first + 1 + me.pick(ACCOUNTS - 1)) % ACCOUNTS],
            amount: 1 + i64::try_from(me.pick(9)).unwrap_or(0),
            one_moment: true,
        };
        transfer.made(&one, &ledger).await;
        me.rest(Duration::from_millis(150)).await;
    }
}

impl Transfer<'_> {
    async fn made(mut self, one: &Transaction, ledger: &Ledger) {
        let levels =
            [Isolation::SerializableSnapshot, Isolation::Serializable, Isolation::RepeatableReads];
        let level = levels[usize::try_from(self.me.pick(3)).unwrap_or(0)];
        self.one_moment = level != Isolation::RepeatableReads;
        let ahead = if self.me.pick(2) == 0 { ACCOUNTS } else { 0 };
        let one = one.clone().isolation(level).prefetch((0..ahead).map(account));
        let lost = || self.me.suffered(&[Site::ReplyLost]);
        let (before, transfer) = (lost(), &self);
        let (mut runs, ended) = (0, Mutex::new(0));
        let call = async {
            let running = one.run(|run| {
                runs += 1;
                let ended = &ended;
                async move {
                    let result = transfer.run(&run).await;
                    *ended.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                    result
                }
            });
            running.await.map(Outcome::Committed)
        };
        let done = ledger.write(self.me, &self.slip, call).await;
        let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.me.sometimes(RACED, runs > 1);
        self.me.sometimes(GIVEN_UP, runs > ended);
        self.me.sometimes(RESOLVED, matches!(done, Some(Ok(_))) && runs == 1 && lost() > before);
        if let Some(Err(error)) = done {
            self.me.sometimes(UNKNOWN, error.effect() == Effect::Unknown);
            self.me.sometimes(FAILED, error.effect() == Effect::None);
        }
    }

    /// Reads all accounts, in any order, and moves an amount.
    async fn run(&self, run: &Attempt) -> Result<()> {
        let turn = self.me.pick(ACCOUNTS);
        let mut held = BTreeMap::new();
        for number in 0..ACCOUNTS {
            let number = (number + turn) % ACCOUNTS;
            held.insert(number, amount(run.get(&account(number)).await?.as_deref())?);
            if self.me.pick(4) == 0 {
                // Other clients may commit during the wait.
                clock::sleep(Duration::from_millis(self.me.pick(20))).await;
            }
        }
        if self.one_moment && held.values().sum::<i64>() != SUM {
            self.me.wrong("L-STM-2", || format!("a run saw {held:?}"));
        }
        let [from, to] = self.ends;
        run.put(&account(from), (held[&from] - self.amount).to_string())?;
        run.put(&account(to), (held[&to] + self.amount).to_string())?;
        run.put(&Path::new(&format!("/slips/{}", self.slip))?, self.slip.clone())?;
        let held = held.values().map(i64::to_string).collect();
        self.reads.lock().insert(self.slip.clone(), held);
        Ok(())
    }
}

impl Reads {
    /// L-STM-1: each transaction has read the state after the previous one, so the order of commits
    /// explains all of them.
    fn explain(&self, truth: &Truth) -> std::result::Result<(), String> {
        let reads = self.lock();
        let mut held: BTreeMap<Path, String> = BTreeMap::new();
        for (index, entry) in truth.log.iter().enumerate() {
            let changes = || {
                entry.changes.iter().filter_map(|change| {
                    let data = std::str::from_utf8(&change.node.as_ref()?.data).ok()?;
                    Some((&change.path, data))
                })
            };
            for (_, slip) in changes().filter(|(path, _)| path.as_str().starts_with("/slips/")) {
                let read = reads.get(slip).ok_or("a transaction that no run was for")?;
                let now: Vec<String> = (0..ACCOUNTS)
                    .filter_map(|number| held.get(&account(number)).cloned())
                    .collect();
                if *read != now {
                    return Err(format!("commit {index}, {slip}, has read {read:?} of {now:?}"));
                }
            }
            held.extend(changes().map(|(path, data)| (path.clone(), data.to_owned())));
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn amount(data: Option<&[u8]>) -> Result<i64> {
    let text = data.and_then(|data| std::str::from_utf8(data).ok());
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| Error::new(ErrorKind::Corrupt, "reading an account"))
}

/// Checks that the write ids of all transactions were removed with their sessions.
async fn no_mark_is_left(me: Process) -> std::result::Result<(), String> {
    let query = Query::children(marks()).names_only();
    let mut left = None;
    for _ in 0..100 {
        // Some servers may be unreachable for ever.
        if let Ok(client) = me.client().await
            && let Ok(view) = client.read(query.clone()).await
        {
            left = Some(view.nodes).filter(|nodes| !nodes.is_empty());
            if left.is_none() {
                break;
            }
        }
        clock::sleep(me.ttl() / 4).await;
    }
    left.map_or(Ok(()), |left| Err(format!("{left:?} are left")))
}

fn account(number: u64) -> Path {
    Path::new(&format!("/bank/{number}")).expect("it is one")
}

fn marks() -> Path {
    Path::new("/marks").expect("it is one")
}
