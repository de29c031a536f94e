//! The laws of stores, checked on a directory: with all sessions in one seat, and with sessions in
//! three seats, as if they were in three processes.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::{Resource, getrlimit, setrlimit};
use synod_conformance::harness::{Ability, Harness, Profile};
use synod_conformance::run::Suite;
use synod_core::error::Result;
use synod_core::store::{Backend, Change, SessionId, SessionOptions, Store};
use synod_file::{FileBackend, FileOptions};
use synod_servers::home::Home;

/// The cases wait more than they work.
const AT_ONCE: usize = 32;

/// More than the machine may have processors, so that threads are preempted at any point.
const WORKERS: usize = 4;

/// The directories of all cases.
static HOME: LazyLock<Home> =
    LazyLock::new(|| Home::in_memory("file").expect("a directory can be created"));

/// A directory of its own, with as many seats as there are backends. Each session is opened in the
/// next seat.
#[derive(Clone, Debug)]
struct Directory(Arc<Seats>);

#[derive(Debug)]
struct Seats {
    path: PathBuf,
    backends: Vec<FileBackend>,
    next: AtomicUsize,
}

impl Directory {
    fn new(seats: usize) -> Self {
        static CREATED: AtomicUsize = AtomicUsize::new(0);
        let path = HOME.path().join(CREATED.fetch_add(1, Ordering::Relaxed).to_string());
        let options = FileOptions::new(&path).separate(seats > 1);
        let backends = (0..seats).map(|_| FileBackend::new(options.clone())).collect();
        Self(Arc::new(Seats { path, backends, next: AtomicUsize::new(0) }))
    }
}

#[async_trait]
impl Backend for Directory {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        let next = self.0.next.fetch_add(1, Ordering::Relaxed);
        self.0.backends[next % self.0.backends.len()].open(options).await
    }
}

#[async_trait]
impl Harness for Directory {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(self.clone())
    }

    fn profile(&self) -> Profile {
        Profile::new(Duration::from_secs(3), Duration::from_secs(20))
            .crowd(3_000)
            .offers(&[Ability::Expiry, Ability::TtlNodes, Ability::TaskCount])
            .offers(&[Ability::Truth, Ability::WatchCount])
            .lacks(Ability::Links, "nothing is between a process and its store")
            .lacks(Ability::Openings, "nothing is between a process and its store")
            .lacks(Ability::SequenceEnd, "a sequence is a revision, of which there are 2^63")
    }

    async fn expire(&self, session: SessionId) {
        self.0.backends[0].expire(session).await.expect("the directory is there");
    }

    async fn watches(&self) -> usize {
        self.0.backends.iter().map(FileBackend::watches).sum()
    }

    async fn truth(&self) -> Vec<Change> {
        self.0.backends[0].recent_changes().await.expect("the directory is there")
    }
}

impl Drop for Seats {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.path).is_ok();
    }
}

/// Allows as many open files as the system does: the cases that run at once need some.
fn allow_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("no more than the maximum");
}

fn main() -> ExitCode {
    allow_files();
    let suite = |seats| Suite::new(move || Directory::new(seats)).at_once(AT_ONCE);
    Suite::main_of(vec![("one", suite(1)), ("three", suite(3).on_workers(WORKERS))])
}
