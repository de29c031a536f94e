//! The database file: its tables, and the ways to open it.
//!
//! SQLite in WAL mode keeps the data. Readers never wait, and see a snapshot with all commits that
//! ended before they began. Writers take the [turn](crate::place::Turn) first, so SQLite's own
//! waiting, which polls, is not used.
//!
//! The library is part of this crate. POSIX locks, which it uses, are lost when a process closes
//! any descriptor of the file: nothing else in the process may open `store.db`, and no other copy
//! of SQLite either.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::fault::Fault;

/// The name of the file.
pub(crate) const DATABASE: &str = "store.db";

/// The format of the tables. A store of another format is refused.
const FORMAT: i64 = 1;

/// The mark in the header of the file: `snd1`.
const APPLICATION_ID: i64 = 0x736E_6431;

/// The time to wait for a lock of the database. Only a program that is not synod can have it.
const BUSY: Duration = Duration::from_secs(5);

/// - `meta`: one row. `ceiling` is the last revision that is reserved, and synced to the disk;
///   `trimmed` the last one that `changes` has forgotten; `seats` counts the seats that were added
///   and removed; `boot` is the start of the machine at which the database was last found
///   undamaged.
/// - `nodes`: nodes, and containers, whose `created` is null.
/// - `sessions`: `due` and `clock` are set for a session that lingers, once its process has ended.
/// - `ends`: the last sessions that ended without being closed, for people.
/// - `changes`: the last changes, which the observers of all processes read by revision.
const TABLES: &str = "
    CREATE TABLE meta (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        revision INTEGER NOT NULL,
        ceiling INTEGER NOT NULL,
        trimmed INTEGER NOT NULL,
        seats INTEGER NOT NULL,
        boot TEXT NOT NULL
    ) STRICT;
    INSERT INTO meta VALUES (1, 0, 0, 0, 0, '');
    CREATE TABLE nodes (
        id INTEGER PRIMARY KEY,
        path TEXT NOT NULL UNIQUE,
        parent TEXT NOT NULL,
        created INTEGER,
        modified INTEGER,
        sequence INTEGER,
        owner INTEGER,
        ttl INTEGER,
        due INTEGER,
        clock TEXT,
        data BLOB
    ) STRICT;
    CREATE INDEX children ON nodes (parent, path);
    CREATE INDEX sequences ON nodes (parent, sequence) WHERE sequence IS NOT NULL;
    CREATE INDEX ephemerals ON nodes (owner) WHERE owner IS NOT NULL;
    CREATE INDEX leases ON nodes (clock, due) WHERE clock IS NOT NULL;
    CREATE TABLE sessions (
        id INTEGER PRIMARY KEY,
        seat TEXT NOT NULL,
        pid INTEGER NOT NULL,
        ttl INTEGER NOT NULL,
        lingers INTEGER NOT NULL,
        due INTEGER,
        clock TEXT
    ) STRICT;
    CREATE INDEX sessions_of_seat ON sessions (seat);
    CREATE TABLE ends (
        id INTEGER PRIMARY KEY,
        session INTEGER NOT NULL,
        pid INTEGER NOT NULL,
        at INTEGER NOT NULL,
        reason TEXT NOT NULL
    ) STRICT;
    CREATE TABLE changes (
        id INTEGER PRIMARY KEY,
        revision INTEGER NOT NULL,
        kind INTEGER NOT NULL,
        path TEXT NOT NULL,
        owner INTEGER
    ) STRICT;
    CREATE INDEX revisions ON changes (revision);
";

/// Opens a connection that may write. Creates the tables if the file is new. Call it in the turn
/// the first time.
pub(crate) fn open_writer(dir: &Path) -> Result<Connection, Fault> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = Connection::open_with_flags(dir.join(DATABASE), flags)?;
    prepare(&db)?;
    // The thread of the checkpoints does that.
    db.pragma_update(None, "wal_autocheckpoint", 0)?;
    if identity(&db)? == (0, 0) {
        create(&mut db)?;
    }
    check_format(&db)?;
    // A backup has another mode, until it is opened.
    db.pragma_update(None, "journal_mode", "wal")?;
    // Without a checkpoint, which syncs: a program that runs for a moment should not pay for one.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(db)
}

/// Opens a connection that only reads.
pub(crate) fn open_reader(dir: &Path) -> Result<Connection, Fault> {
    let db = open_copier(dir)?;
    db.pragma_update(None, "query_only", true)?;
    Ok(db)
}

/// Opens a connection that reads, and may write other files.
pub(crate) fn open_copier(dir: &Path) -> Result<Connection, Fault> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(dir.join(DATABASE), flags)?;
    prepare(&db)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(db)
}

/// Returns the program of the file and the format of its tables; zeros for a new file.
fn identity(db: &Connection) -> Result<(i64, i64), Fault> {
    let number = |name| db.pragma_query_value(None, name, |row| row.get(0));
    Ok((number("application_id")?, number("user_version")?))
}

/// Refuses the database of another program, and tables of another format.
pub(crate) fn check_format(db: &Connection) -> Result<(), Fault> {
    match identity(db)? {
        (APPLICATION_ID, FORMAT) => Ok(()),
        (APPLICATION_ID, format) => Err(Fault::Foreign(format!(
            "the store has format {format}, and this version of synod knows format {FORMAT}"
        ))),
        _ => Err(Fault::Foreign("store.db is not a store of synod".into())),
    }
}

fn prepare(db: &Connection) -> Result<(), Fault> {
    db.busy_timeout(BUSY)?;
    db.pragma_update(None, "temp_store", "memory")?;
    db.set_prepared_statement_cache_capacity(64);
    Ok(())
}

fn create(db: &mut Connection) -> Result<(), Fault> {
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables > 0 {
        return Err(Fault::Foreign("store.db is the database of another program".into()));
    }
    db.pragma_update(None, "journal_mode", "wal")?;
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute_batch(TABLES)?;
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    tx.pragma_update(None, "user_version", FORMAT)?;
    tx.commit()?;
    Ok(())
}

/// Checks that the database is undamaged. Reads all of it.
pub(crate) fn check(db: &Connection) -> Result<(), Fault> {
    damage(db)?.map_or(Ok(()), |found| Err(Fault::Damaged(found)))
}

/// Returns a description of the damage of the database, if there is any. Reads all of it.
pub(crate) fn damage(db: &Connection) -> Result<Option<String>, Fault> {
    let found: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    Ok((found != "ok").then_some(found))
}

/// Sets whether a commit waits until it is on the disk, with all commits before it.
pub(crate) fn set_synced(db: &Connection, synced: bool) -> Result<(), Fault> {
    db.pragma_update(None, "synchronous", if synced { "full" } else { "normal" })?;
    Ok(())
}
