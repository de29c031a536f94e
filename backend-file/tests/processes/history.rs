//! A history of writes that each process repeats in the same way, and what may be left of it.
//!
//! Step by step a process creates and deletes persistent nodes, and between them writes ephemeral
//! ones, which do not wait for the disk. It reports each answer with its revision. Whatever ends
//! the process or the machine, what is left is the state after some step: not before the last step
//! that was promised to be kept, and not behind the step that was in flight.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use synod_core::store::{Expect, Lifetime, Query, Store, Txn};

use crate::child::{node, report, session};

/// The time to live of the sessions: no session may end by it.
const TTL: Duration = Duration::from_secs(3_600);

/// The answers of a process to the steps of its history.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answers {
    /// The number of steps that were answered.
    pub(crate) steps: u64,
    /// The last revision that was shown.
    pub(crate) revision: u64,
}

impl Answers {
    /// Adds a line of the process.
    pub(crate) fn read(&mut self, line: &str) {
        if let Some(answer) = line.strip_prefix("answered ") {
            let numbers: Vec<u64> = answer.split(' ').filter_map(|n| n.parse().ok()).collect();
            (self.steps, self.revision) = (numbers[0], numbers[1]);
        }
    }

    /// Returns the last answered step whose commit was synced; a commit that was synced has all
    /// earlier ones before it.
    pub(crate) fn synced(self) -> u64 {
        (0..=self.steps).rev().find(|step| is_persistent(*step)).unwrap_or(0)
    }
}

/// Steps 1 and 2 of each five write ephemeral nodes alone. The first is one of them: only the
/// reservation of revisions is then on the disk.
fn is_persistent(step: u64) -> bool {
    !matches!(step % 5, 1 | 2)
}

fn transaction(step: u64) -> Txn {
    let kept = |step: u64| node(&format!("/kept/{step}"));
    let held = |step: u64| node(&format!("/held/{step}"));
    let data = vec![b'x'; usize::try_from(step * 97 % 3_000).expect("small")];
    match step % 5 {
        1 => Txn::new().create(held(step), data, Lifetime::Session),
        2 => Txn::new().set(held(step - 1), data, Expect::Any),
        3 => Txn::new().create(kept(step), data, Lifetime::Persistent),
        4 => Txn::new().create(kept(step), data, Lifetime::Persistent).create(
            node(&format!("/second/{step}")),
            "",
            Lifetime::Persistent,
        ),
        _ => Txn::new().delete(kept(step - 2), Expect::Any),
    }
}

/// Returns the names of the persistent nodes after a step.
fn state(step: u64) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for done in 1..=step {
        match done % 5 {
            3 => drop(names.insert(format!("kept {done}"))),
            4 => names.extend([format!("kept {done}"), format!("second {done}")]),
            0 => drop(names.remove(&format!("kept {}", done - 2))),
            _ => {}
        }
    }
    names
}

/// Runs the history, and reports each answer. Moves the log into the database after each of
/// `checkpoints`.
pub(crate) async fn run(directory: &Path, steps: u64, checkpoints: &[u64]) {
    let store = session(directory, TTL).await;
    for step in 1..=steps {
        let outcome = store.commit(transaction(step)).await.expect("answered");
        let commit = outcome.ok().expect("nobody else writes these nodes");
        let revision = commit.revision.expect("this store has it").get();
        report(&format!("answered {step} {revision}"));
        if checkpoints.contains(&step) {
            checkpoint(directory);
        }
    }
    store.close().await.expect("it ends");
}

/// The next write begins the log again.
fn checkpoint(directory: &Path) {
    let db = Connection::open(directory.join("store.db")).expect("it is there");
    let busy: i64 =
        db.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| row.get(0)).expect("it is there");
    assert_eq!(busy, 0, "no read takes that long");
}

/// Returns the names that are left, in the form of [`state`].
async fn left(store: &dyn Store) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for parent in ["kept", "second"] {
        let query = Query::children(node(&format!("/{parent}"))).names_only();
        let view = store.read(query).await.expect("answered");
        names.extend(view.nodes.iter().map(|node| format!("{parent} {}", node.path.name())));
    }
    names
}

/// Fails unless the store has the state after one of these steps, none of the ephemeral nodes, and
/// shows no revision again.
pub(crate) async fn verify(store: &dyn Store, from: u64, to: u64, shown: u64) {
    let found = left(store).await;
    assert!(
        (from..=to).any(|step| state(step) == found),
        "not the state after one of the steps {from} to {to}: {found:?}"
    );
    let held = Query::children(node("/held")).names_only();
    let held = store.read(held).await.expect("answered");
    assert!(held.nodes.is_empty(), "the process has ended: {held:?}");
    let created = Txn::new().create(node("/after"), "", Lifetime::Session);
    let commit = store.commit(created).await.expect("answered").ok().expect("it is new");
    let revision = commit.revision.expect("this store has it").get();
    assert!(revision > shown, "{revision} may have been shown before: {shown} was");
}

/// Fails if the id of a session, which is a revision, was shown before the session was opened.
pub(crate) fn verify_new(store: &dyn Store, shown: u64) {
    let id = store.session().id.get();
    assert!(id > shown, "{id} may have been shown before: {shown} was");
}

/// Fails if SQLite finds the database damaged.
pub(crate) fn check_database(directory: &Path) {
    let db = Connection::open(directory.join("store.db")).expect("it is there");
    let found: String =
        db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("it is there");
    assert_eq!(found, "ok");
}
