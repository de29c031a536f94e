//! The care for the files of a store: backups and reports, a log that does not grow without bound,
//! a damaged database, and a directory that another machine uses.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, PermissionsExt as _};
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FileType, FlockOperation, Mode, flock, mknodat};
use synod_core::clock;
use synod_core::error::{ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Backend as _, Expect, Lifetime, Query, SessionOptions, Store, Txn};
use synod_file::{FileBackend, FileOptions, FileProcessState};
use synod_servers::home::Home;

fn home() -> (Home, PathBuf) {
    let home = Home::in_memory("care").expect("a directory can be created");
    let directory = home.path().join("store");
    (home, directory)
}

async fn open(directory: &FilePath) -> Result<Box<dyn Store>> {
    let ttl = SessionOptions::new(Duration::from_secs(60));
    FileBackend::new(FileOptions::new(directory)).open(&ttl).await
}

fn path(text: &str) -> Path {
    Path::new(text).expect("valid")
}

/// Waits until the threads of all seats have ended, which nobody waits for otherwise.
fn wait_until_left(directory: &FilePath) {
    for file in fs::read_dir(directory.join("seats")).expect("there") {
        let file = file.expect("readable").path();
        if file.extension().is_some_and(|part| part == "lock") {
            let lock = fs::File::open(file).expect("there");
            flock(&lock, FlockOperation::LockShared).expect("granted");
        }
    }
}

/// Changes the database while nobody has it open.
fn change(directory: &FilePath, sql: &str) {
    wait_until_left(directory);
    let database = rusqlite::Connection::open(directory.join("store.db")).expect("there");
    database.execute_batch(sql).expect("valid");
}

#[tokio::test]
async fn the_log_does_not_grow_with_the_number_of_commits() {
    const SIZE: usize = 256 * 1024;
    let (_home, directory) = home();
    let store = open(&directory).await.expect("new");
    let created = Txn::new().create(path("/a"), "", Lifetime::Session);
    store.commit(created).await.expect("answered").ok().expect("free");
    let log = || fs::metadata(directory.join("store.db-wal")).expect("there").len();
    // Four times the size at which the log is copied in the turn.
    for round in 0..1_024_usize {
        let data = vec![u8::try_from(round % 251).expect("small"); SIZE];
        let set = Txn::new().set(path("/a"), data, Expect::Any);
        store.commit(set).await.expect("answered").ok().expect("there");
    }
    assert!(log() < 192 * 1024 * 1024, "{} bytes", log());
    store.close().await.expect("it ends");
}

#[tokio::test]
async fn a_database_that_a_restart_has_damaged_is_refused_and_names_the_backup() {
    let (_home, directory) = home();
    let store = open(&directory).await.expect("new");
    for number in 0..200 {
        let at = path(&format!("/node-{number}"));
        let created = Txn::new().create(at, vec![7; 1_000], Lifetime::Persistent);
        store.commit(created).await.expect("answered").ok().expect("free");
    }
    store.close().await.expect("it ends");
    drop(store);
    // As if the machine had been started again; the log is copied into the database.
    change(&directory, "UPDATE meta SET boot = 'earlier'; PRAGMA wal_checkpoint(TRUNCATE);");
    open(&directory).await.expect("nothing is damaged").close().await.expect("it ends");

    change(&directory, "UPDATE meta SET boot = 'earlier'; PRAGMA wal_checkpoint(TRUNCATE);");
    let file = fs::OpenOptions::new().write(true).open(directory.join("store.db")).expect("there");
    let pages = file.metadata().expect("there").len() / 4_096;
    // Not the first pages, which each opening reads.
    for page in pages / 2..pages {
        file.write_all_at(&[0xA5; 1_024], page * 4_096).expect("written");
    }
    drop(file);
    let error = open(&directory).await.expect_err("it is damaged");
    assert_eq!(error.kind(), ErrorKind::Backend);
    assert!(error.to_string().contains("synod backup"), "{error}");
}

#[tokio::test]
async fn a_backup_of_a_store_in_use_is_a_store_as_of_one_moment() {
    let (home, directory) = home();
    let store = open(&directory).await.expect("new");
    let backend = FileBackend::new(FileOptions::new(&directory));
    let create = async |at: &str, lifetime| {
        let created = Txn::new().create(path(at), "", lifetime);
        store.commit(created).await.expect("answered").ok().expect("free")
    };
    create("/before", Lifetime::Persistent).await;
    create("/ephemeral", Lifetime::Session).await;
    let backup = home.path().join("backup.db");
    backend.backup(&backup).await.expect("written");
    let last = create("/after", Lifetime::Persistent).await.results[0].stat.expect("one").created;
    let mode = fs::metadata(&backup).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let error = backend.backup(&backup).await.expect_err("it exists");
    assert!(error.to_string().contains("name a new file"), "{error}");
    let restored = home.path().join("restored");
    fs::DirBuilder::new().mode(0o700).create(&restored).expect("new");
    fs::rename(&backup, restored.join("store.db")).expect("there");
    let other = open(&restored).await.expect("it is a store");
    let is_there = async |at: &str| {
        let view = other.read(Query::node(path(at))).await.expect("answered");
        view.node().is_some()
    };
    assert!(is_there("/before").await);
    assert!(!is_there("/after").await);
    let created = Txn::new().create(path("/new"), "", Lifetime::Persistent);
    let commit = other.commit(created).await.expect("answered").ok().expect("free");
    assert!(commit.results[0].stat.expect("one").created > last, "no revision comes again");
}

#[tokio::test]
async fn a_session_that_nobody_has_ends_while_its_process_lives() {
    let (_home, directory) = home();
    let backend = FileBackend::new(FileOptions::new(&directory));
    let store = backend.open(&SessionOptions::new(Duration::from_secs(1))).await.expect("new");
    let sessions = async || backend.report().await.expect("read").processes[0].sessions.len();
    // As if its commit had failed, and were found later.
    let seat = backend.report().await.expect("read").processes[0].seat.clone();
    let database = rusqlite::Connection::open(directory.join("store.db")).expect("there");
    let sql = "INSERT INTO sessions (id, seat, pid, ttl, lingers) VALUES (1, ?1, 1, 3600000, 0)";
    database.execute(sql, [seat]).expect("valid");
    assert_eq!(sessions().await, 2);
    while sessions().await > 1 {
        clock::sleep(Duration::from_millis(10)).await;
    }
    assert!(store.status().borrow().until().is_some(), "the other one lives");
}

#[tokio::test]
async fn a_backup_of_nothing_leaves_nothing() {
    let (home, directory) = home();
    let backend = FileBackend::new(FileOptions::new(&directory));
    let to = home.path().join("backup.db");
    let error = backend.backup(&to).await.expect_err("there is no store");
    assert!(error.to_string().contains("there is no store"), "{error}");
    assert!(!to.exists() && !directory.exists());
    let error = backend.report().await.expect_err("there is no store");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(!directory.exists());
    open(&directory).await.expect("new").close().await.expect("it ends");
    let error = backend.backup(home.path().join("no/backup.db")).await.expect_err("no directory");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_report_has_the_processes_and_the_ends_of_sessions_and_what_is_wrong() {
    let (_home, directory) = home();
    let backend = FileBackend::new(FileOptions::new(&directory));
    let store = backend.open(&SessionOptions::new(Duration::from_secs(60))).await.expect("new");
    let report = backend.report().await.expect("read");
    assert_eq!(report.problems, [""; 0]);
    let [process] = &report.processes[..] else { panic!("one process: {report:?}") };
    assert_eq!((process.pid, process.state), (Some(std::process::id()), FileProcessState::Runs));
    assert_eq!(process.sessions, [(store.session().id, Duration::from_secs(60))]);
    assert!(process.program.is_some());

    backend.expire(store.session().id).await.expect("it lives");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).expect("mine");
    let report = backend.report().await.expect("read");
    let [end] = &report.ended[..] else { panic!("one end: {report:?}") };
    assert_eq!((end.session, end.pid), (store.session().id, Some(std::process::id())));
    assert!(end.reason.contains("another process"), "{end:?}");
    let [problem] = &report.problems[..] else { panic!("one problem: {report:?}") };
    assert!(problem.contains("chmod 700"), "{problem}");
}

#[tokio::test]
async fn a_directory_whose_seat_belongs_to_another_machine_is_refused() {
    let (_home, directory) = home();
    open(&directory).await.expect("new").close().await.expect("it ends");
    // Locked, and nobody reads its FIFO: as another kernel would have it.
    let file = |part: &str| directory.join(format!("seats/00000000000000aa.{part}"));
    let lock = fs::File::create(file("lock")).expect("new");
    flock(&lock, FlockOperation::LockExclusive).expect("free");
    mknodat(CWD, file("wake"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("new");
    let error = open(&directory).await.expect_err("the other machine has it");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("shared between machines"), "{error}");

    // Its owner ends.
    drop(lock);
    open(&directory).await.expect("it is free").close().await.expect("it ends");
    assert!(!file("lock").exists(), "the dead seat was removed");
}
