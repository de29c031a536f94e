//! A loss of power after each write of a process, by a record of its writes and syncs.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use synod_servers::home::Home;

use crate::child::{Process, block_on, session};
use crate::history::{Answers, check_database, verify, verify_new};
use crate::journal::{Disk, Entry, Survivors, TRACER, read};
use crate::kills::is_thorough;

/// The number of steps of a history.
const STEPS: u64 = 18;

/// The steps after which the log is moved into the database, and begins again.
const CHECKPOINTS: [&str; 2] = ["7", "13"];

/// The number of random choices of sectors for each write that is not synced, in a thorough run.
const CHOICES: u64 = 20;

/// A revision of the far future: by the date alone, an opener would begin before it.
const FUTURE: u64 = 1 << 50;

/// The store is created meanwhile.
pub(crate) fn of_a_new_store() {
    let home = home();
    let directory = home.path().join("store");
    run(&home, &directory, Disk::default());
}

/// Only the reserved revisions say which were shown: the date is long before them.
pub(crate) fn of_an_old_store() {
    let home = home();
    let directory = home.path().join("store");
    block_on(async {
        let store = session(&directory, Duration::from_secs(60)).await;
        store.close().await.expect("it ends");
    });
    let db = Connection::open(directory.join("store.db")).expect("it is there");
    db.execute("UPDATE meta SET revision = ?1, ceiling = ?1", [FUTURE]).expect("one row");
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("nobody reads");
    drop(db);
    let mut disk = Disk::default();
    disk.add("store.db", fs::read(directory.join("store.db")).expect("it is there"));
    run(&home, &directory, disk);
}

fn home() -> Home {
    Home::in_memory("power").expect("a directory can be created")
}

/// Runs a history, and then loses the power at each of its writes.
fn run(home: &Home, directory: &Path, mut disk: Disk) {
    let record = record(home, directory);
    let seats = fs::read_dir(directory.join("seats")).expect("it is there");
    let names = seats.map(|seat| seat.expect("readable").file_name());
    let locks = names.filter(|name| name.to_string_lossy().ends_with(".lock")).collect();
    let (home, answers) = (home.path().to_owned(), Answers::default());
    let mut images = Images { home, locks, answers, made: 0 };
    let mut checkpointed = false;
    for (number, entry) in (0_u64..).zip(&record) {
        disk.apply(entry);
        match entry {
            Entry::Line(line) => images.answers.read(line),
            Entry::Write { file, .. } => {
                checkpointed |= file == "store.db" && images.answers.steps > 0;
                images.check(&disk, Survivors::All);
                let choices = if is_thorough() { CHOICES } else { 1 };
                for choice in 0..choices {
                    let seed = number * CHOICES + choice;
                    images.check(&disk, Survivors::Torn { seed });
                    images.check(&disk, Survivors::Any { seed });
                }
                // Without a sync in between, nothing else is left than before.
                if disk.pending() == 1 {
                    images.check(&disk, Survivors::None);
                }
            }
            _ => {}
        }
        if matches!(entry, Entry::Line(_) | Entry::Synced { .. }) {
            images.check(&disk, Survivors::None);
        }
    }
    assert_eq!(images.answers.steps, STEPS, "the history was recorded whole");
    assert!(checkpointed, "the log was moved into the database");
}

/// Runs a history, and returns what it wrote.
fn record(home: &Home, directory: &Path) -> Vec<Entry> {
    let file = home.path().join("record");
    let mut tracer = TRACER.to_vec();
    tracer.push(file.to_str().expect("text"));
    let command = ["history".to_owned(), STEPS.to_string()];
    let command: Vec<&str> =
        command.iter().map(String::as_str).chain(CHECKPOINTS.iter().copied()).collect();
    let mut process = Process::start_by(&tracer, directory, &command);
    let mut last = None;
    while let Some(line) = process.line() {
        last = Some(line);
    }
    assert_eq!(last.as_deref(), Some("ended"));
    drop(process);
    read(&fs::read_to_string(&file).expect("strace wrote it"), directory)
}

/// The stores that losses of power leave.
struct Images {
    home: PathBuf,
    /// The names of the locks of the seats: with them the next opener knows that their owners are
    /// dead.
    locks: Vec<OsString>,
    answers: Answers,
    made: usize,
}

impl Images {
    fn check(&mut self, disk: &Disk, survivors: Survivors) {
        self.made += 1;
        let directory = self.home.join(self.made.to_string());
        let seats = directory.join("seats");
        fs::DirBuilder::new().mode(0o700).recursive(true).create(&seats).expect("it is new");
        self.locks.iter().for_each(|lock| fs::write(seats.join(lock), "").expect("it is new"));
        disk.write(&directory, survivors);
        let answers = self.answers;
        let checked = std::panic::catch_unwind(|| {
            block_on(async {
                let store = session(&directory, Duration::from_secs(60)).await;
                verify_new(&*store, answers.revision);
                verify(&*store, answers.synced(), answers.steps + 1, answers.revision).await;
                store.close().await.expect("it ends");
            });
            check_database(&directory);
        });
        assert!(checked.is_ok(), "image {}: {survivors:?} after {answers:?}", self.made);
        fs::remove_dir_all(&directory).expect("it is there");
    }
}
