//! Transactions that move an amount from one node to another.

use std::time::Duration;

use crate::cluster::Site;
use synod_core::client::Client;
use synod_core::path::Path;
use synod_core::store::{
    Commit, Expect, Kind, Lifetime, Node, Outcome, Query, RejectReason, Txn, Version, View,
};

use crate::findings::Truth;
use crate::ledger::Ledger;
use crate::process::{DROPPED, Process};
use crate::setup::Sim;
use crate::workload::{WATCHED, Workload};

/// Three clients move money between two accounts, in transactions that also create and check.
pub(super) struct Transfers;

const ROUNDS: u64 = 3;
const SUM: i64 = 100;

impl Workload for Transfers {
    fn name(&self) -> &'static str {
        "transfers"
    }

    fn about(&self) -> &'static str {
        "three clients move money between two accounts, in one transaction each time"
    }

    fn laws(&self) -> &'static [&'static str] {
        &["L-OUT-1", "L-OUT-2", "L-OUT-3", "L-KV-2", "L-KV-9", "L-KV-10", "L-KV-12"]
    }

    fn marks(&self) -> &'static [&'static str] {
        &[
            DROPPED,
            "others wrote between two looks",
            "a transfer lost its race",
            "what was blocked was refused",
            "a transfer showed what it left",
        ]
    }

    fn unreached(&self) -> Vec<Site> {
        // No recipe creates tickets, whose names contain a date.
        [WATCHED, &[Site::SlowReader, Site::NearTheEnd, Site::BeatsCut, Site::WallClockSet]]
            .concat()
    }

    fn has_small_world(&self) -> bool {
        false
    }

    fn prepare(&self, sim: Sim) -> Sim {
        let ledger = Ledger::default();
        let books = ledger.clone();
        // Writes of strangers would change the sum.
        sim.without_strangers()
            .given(account(0), SUM.to_string())
            .given(account(1), "0")
            .processes(3, move |me| work(me, ledger.clone()))
            .ledger(&books)
            .check("L-KV-9", nothing_is_lost)
    }
}

async fn work(me: Process, ledger: Ledger) {
    let Ok(client) = me.client().await else { return };
    for round in 0..me.rounds(ROUNDS) {
        if let Some(accounts) = look(&me, &client).await {
            transfer(&me, &client, &ledger, round, &accounts).await;
        }
        me.rest(Duration::from_millis(200)).await;
    }
}

/// The amounts of both accounts, and their versions.
struct Accounts {
    held: [i64; 2],
    versions: [Version; 2],
}

impl Accounts {
    fn of(view: &View) -> Option<Self> {
        let [first, second] = &view.nodes[..] else { return None };
        let held = [amount(first)?, amount(second)?];
        Some(Self { held, versions: [first.stat?.version, second.stat?.version] })
    }
}

/// L-KV-12: a listing is a consistent snapshot, so no node is missing in it; L-KV-2: it is not
/// stale.
async fn look(me: &Process, client: &Client) -> Option<Accounts> {
    let before = me.committed();
    let view = me.perhaps(client.children(&dir())).await?.ok()?;
    let view = View::new(synod_core::store::Revision::ZERO, view);
    let accounts = Accounts::of(&view)?;
    let newest =
        view.nodes.iter().filter_map(|node| node.stat).map(|stat| stat.modified.get()).max();
    me.sometimes("others wrote between two looks", newest.is_some_and(|at| at > before as u64));
    if accounts.held.iter().sum::<i64>() != SUM {
        me.wrong("L-KV-12", || format!("the accounts hold {:?}", accounts.held));
    }
    Some(accounts)
}

async fn transfer(me: &Process, client: &Client, ledger: &Ledger, round: u64, at: &Accounts) {
    let amount = 1 + i64::try_from(me.pick(9)).unwrap_or(0);
    let slip = format!("{}.{}.{round}", me.name(), me.life());
    let blocked = me.pick(5) == 0;
    let held = [at.held[0] - amount, at.held[1] + amount];
    let txn = Txn::new().set(account(0), held[0].to_string(), Expect::Version(at.versions[0]));
    // If the first operation can be applied, the failing operation is known in advance.
    let txn = if blocked {
        txn.check(account(1), Expect::Absent)
    } else {
        txn.set(account(1), held[1].to_string(), Expect::Version(at.versions[1]))
    };
    let receipt = Path::new(&format!("/slips/{slip}")).expect("it is one");
    let txn = txn.create(receipt, slip.clone(), Lifetime::Persistent).look(Query::children(dir()));
    match ledger.write(me, &slip, client.commit(txn)).await {
        Some(Ok(Outcome::Committed(_))) if blocked => {
            me.wrong("L-KV-9", || "what could not be done was done".to_owned());
        }
        Some(Ok(Outcome::Committed(commit))) => looked(me, &commit, held),
        Some(Ok(Outcome::Rejected(no))) => {
            let fits = match (no.index, no.reason) {
                (0, RejectReason::OtherVersion) => true,
                (1, RejectReason::Exists) => blocked,
                // If the first version matches, so does the second: they are only written together.
                _ => false,
            };
            me.sometimes("a transfer lost its race", no.index == 0);
            me.sometimes("what was blocked was refused", no.index == 1);
            if !fits {
                me.wrong("L-KV-10", || format!("operation {} was named: {}", no.index, no.reason));
            }
        }
        _ => {}
    }
}

/// L-KV-9: the follow-up read of a transfer shows the state after the transfer.
fn looked(me: &Process, commit: &Commit, left: [i64; 2]) {
    let accounts = commit.look.as_ref().and_then(Accounts::of);
    me.sometimes("a transfer showed what it left", accounts.is_some());
    match accounts.map(|accounts| accounts.held) {
        Some(held) if held == left => {}
        held => me.wrong("L-KV-9", || format!("a transfer left {left:?}, and shows {held:?}")),
    }
}

/// L-KV-9: after each commit the sum of the accounts is the same.
fn nothing_is_lost(truth: &Truth) -> Result<(), String> {
    let mut held = [0_i64; 2];
    for (index, entry) in truth.log.iter().enumerate() {
        for change in entry.changes.iter().filter(|change| change.kind != Kind::Deleted) {
            for (place, held) in (0..).zip(&mut held) {
                if change.path == account(place) {
                    *held = change
                        .node
                        .as_ref()
                        .and_then(amount)
                        .ok_or("an account holds no number")?;
                }
            }
        }
        // The two accounts are created one after the other.
        if index > 1 && held.iter().sum::<i64>() != SUM {
            return Err(format!("after commit {index} the accounts hold {held:?}"));
        }
    }
    Ok(())
}

fn amount(node: &Node) -> Option<i64> {
    std::str::from_utf8(&node.data).ok()?.parse().ok()
}

fn account(number: u64) -> Path {
    Path::new(&format!("/bank/{number}")).expect("it is one")
}

fn dir() -> Path {
    Path::new("/bank").expect("it is one")
}
