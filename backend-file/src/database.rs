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
        ttl INTEGER NOT NULL,
        lingers INTEGER NOT NULL,
        due INTEGER,
        clock TEXT
    ) STRICT;
    CREATE INDEX sessions_of_seat ON sessions (seat);
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
    let mut db = Connection::open_with_flags(dir.join("store.db"), flags)?;
    prepare(&db)?;
    // The thread of the checkpoints does that.
    db.pragma_update(None, "wal_autocheckpoint", 0)?;
    let format: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let owner: i64 = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
    match (owner, format) {
        (APPLICATION_ID, FORMAT) => {}
        (0, 0) => create(&mut db)?,
        (APPLICATION_ID, _) => {
            return Err(Fault::Foreign(format!(
                "the store has format {format}, and this version of synod knows format {FORMAT}"
            )));
        }
        _ => return Err(Fault::Foreign("store.db is not a store of synod".into())),
    }
    // Without a checkpoint, which syncs: a program that runs for a moment should not pay for one.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(db)
}

/// Opens a connection that only reads.
pub(crate) fn open_reader(dir: &Path) -> Result<Connection, Fault> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(dir.join("store.db"), flags)?;
    prepare(&db)?;
    db.pragma_update(None, "query_only", true)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(db)
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
    let found: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found == "ok" { Ok(()) } else { Err(Fault::Damaged(found)) }
}

/// Sets whether a commit waits until it is on the disk, with all commits before it.
pub(crate) fn set_synced(db: &Connection, synced: bool) -> Result<(), Fault> {
    db.pragma_update(None, "synchronous", if synced { "full" } else { "normal" })?;
    Ok(())
}
