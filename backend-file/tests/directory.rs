//! The directory of a store: where none may be, what it promises when it is opened again, and what
//! happens if it is removed.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path as FilePath;
use std::process::Command;
use std::time::Duration;

use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{
    Backend as _, Lifetime, Query, Revision, SessionOptions, Status, Store, Txn,
};
use synod_file::{FileBackend, FileOptions};
use synod_servers::home::Home;

const TTL: Duration = Duration::from_secs(4);

fn home() -> Home {
    Home::in_memory("directory").expect("a directory can be created")
}

async fn open(directory: &FilePath) -> Result<Box<dyn Store>> {
    FileBackend::new(FileOptions::new(directory)).open(&SessionOptions::new(TTL)).await
}

async fn refused(directory: &FilePath) -> Error {
    open(directory).await.expect_err("no store may be there")
}

async fn create(store: &dyn Store, path: &str) -> Revision {
    let path = Path::new(path).expect("valid");
    let created = Txn::new().create(path, "", Lifetime::Persistent);
    let commit = store.commit(created).await.expect("answered").ok().expect("it is free");
    commit.results[0].stat.expect("one operation").created
}

#[tokio::test]
async fn a_directory_that_others_may_enter_is_refused() {
    let home = home();
    let open_to_all = home.path().join("open");
    fs::create_dir(&open_to_all).expect("new");
    fs::set_permissions(&open_to_all, fs::Permissions::from_mode(0o750)).expect("mine");
    let error = refused(&open_to_all).await;
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("chmod 700"), "{error}");
    fs::set_permissions(&open_to_all, fs::Permissions::from_mode(0o700)).expect("mine");
    open(&open_to_all).await.expect("it is closed now").close().await.expect("it ends");
}

#[tokio::test]
async fn links_files_and_missing_rights_are_refused() {
    let home = home();
    let there = home.path().join("there");
    open(&there).await.expect("a new directory").close().await.expect("it ends");
    let link = home.path().join("link");
    symlink(&there, &link).expect("new");
    let error = refused(&link).await;
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("symbolic link"), "{error}");

    let file = home.path().join("file");
    fs::write(&file, "").expect("new");
    assert_eq!(refused(&file).await.kind(), ErrorKind::Invalid);
    assert_eq!(refused(&file.join("below")).await.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_file_system_that_may_not_share_locks_is_refused_unless_it_is_allowed() {
    // It has directories, and is none of those that are known.
    let directory = FilePath::new("/proc/self/task");
    let error = refused(directory).await;
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("fs=unchecked"), "{error}");

    let unchecked = FileOptions::new(directory).unchecked_file_system(true);
    let error = FileBackend::new(unchecked).open(&SessionOptions::new(TTL)).await;
    assert_ne!(error.expect_err("it is read only").kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn databases_of_others_and_of_later_versions_are_refused() {
    let home = home();
    let foreign = home.path().join("foreign");
    fs::create_dir(&foreign).expect("new");
    fs::set_permissions(&foreign, fs::Permissions::from_mode(0o700)).expect("mine");
    let database = rusqlite::Connection::open(foreign.join("store.db")).expect("new");
    database.execute_batch("CREATE TABLE mine (x)").expect("new");
    drop(database);
    let error = refused(&foreign).await;
    assert!(error.to_string().contains("another program"), "{error}");

    let later = home.path().join("later");
    open(&later).await.expect("new").close().await.expect("it ends");
    let database = rusqlite::Connection::open(later.join("store.db")).expect("there");
    database.pragma_update(None, "user_version", 2).expect("mine");
    drop(database);
    let error = refused(&later).await;
    assert!(error.to_string().contains("format 2"), "{error}");

    let noise = home.path().join("noise");
    fs::create_dir(&noise).expect("new");
    fs::set_permissions(&noise, fs::Permissions::from_mode(0o700)).expect("mine");
    fs::write(noise.join("store.db"), [7; 8_192]).expect("new");
    let error = refused(&noise).await;
    assert!(error.to_string().contains("no database"), "{error}");
}

#[tokio::test]
async fn no_revision_comes_again_after_a_store_is_opened_again_or_restored() {
    let home = home();
    let directory = home.path().join("store");
    let mut last = Revision::ZERO;
    for round in 0..3 {
        let store = open(&directory).await.expect("opened");
        let created = create(&*store, &format!("/{round}")).await;
        assert!(created > last, "{created} after {last}");
        last = created;
        store.close().await.expect("it ends");
    }

    let store = open(&directory).await.expect("opened");
    create(&*store, "/before").await;
    let backup = home.path().join("backup");
    fs::create_dir(&backup).expect("new");
    fs::set_permissions(&backup, fs::Permissions::from_mode(0o700)).expect("mine");
    // By another process: a process that closes the database loses its locks of it.
    let mut copy = Command::new("cp");
    copy.args(["store.db", "store.db-wal"].map(|file| directory.join(file))).arg(&backup);
    assert!(copy.status().expect("cp is there").success());
    for after in 0..100 {
        last = create(&*store, &format!("/after/{after}")).await;
    }
    let restored = open(&backup).await.expect("a copy is a store");
    let created = create(&*restored, "/after/0").await;
    assert!(created > last, "{created} after {last}: the copy does not know what was shown since");
}

#[tokio::test]
async fn the_sessions_of_a_directory_that_was_removed_are_lost() {
    let home = home();
    let directory = home.path().join("store");
    let store = open(&directory).await.expect("opened");
    create(&*store, "/a").await;
    fs::remove_dir_all(&directory).expect("mine");
    let mut status = store.status();
    let lost = status.wait_for(Status::is_lost).await.expect("it is told").to_owned();
    assert!(lost.is_lost());
    let path = Path::new("/a").expect("valid");
    let error = store.read(Query::node(path.clone())).await.expect_err("it is gone");
    assert_eq!(error.kind(), ErrorKind::SessionLost);

    // The same path is another store.
    let other = open(&directory).await.expect("a new directory");
    assert!(other.read(Query::node(path)).await.expect("answered").node().is_none());
    other.close().await.expect("it ends");
}
