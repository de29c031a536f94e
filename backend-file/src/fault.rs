//! [`Fault`]: a failure of the database or of a file, and the error that a caller gets for it.

use std::io;

use rusqlite::ErrorCode;
use synod_core::error::{Error, ErrorKind};
use synod_core::path::InvalidPath;
use synod_core::store::SessionEnd;

/// A failure below the contract.
#[derive(Debug)]
pub(crate) enum Fault {
    Sql(rusqlite::Error),
    Io(io::Error),
    /// The directory is not the one that was opened any more.
    Gone,
    /// The database does not agree with itself.
    Damaged(String),
    /// The seat with this name has an owner that runs under another kernel.
    Shared(String),
    /// The data in the database is not of this program.
    Foreign(String),
}

impl Fault {
    /// Returns the error of the call `doing`, for which nothing was written.
    pub(crate) fn to_error(&self, doing: &'static str) -> Error {
        match self {
            Self::Gone => SessionEnd::Expired.error(doing),
            Self::Sql(error) => sql_error(error, doing),
            Self::Io(error) => Error::new(ErrorKind::Backend, doing)
                .because(format!("a file of the store failed: {error}")),
            Self::Damaged(found) => {
                Error::new(ErrorKind::Backend, doing).because(format!("{DAMAGED} ({found})"))
            }
            Self::Shared(seat) => Error::new(ErrorKind::Unsupported, doing).because(format!(
                "the directory is shared between machines: another one has the seat {seat}, whose \
                 FIFO nobody on this machine reads; a store in a directory is for one machine"
            )),
            Self::Foreign(why) => Error::new(ErrorKind::Backend, doing).because(why.clone()),
        }
    }
}

/// A damaged database is never repaired silently: what was lost cannot be known.
const DAMAGED: &str = "the database store.db is damaged, and is not repaired: stop all programs \
    that use it, keep a copy of the directory, and put a file of `synod backup` in its place";

fn sql_error(error: &rusqlite::Error, doing: &'static str) -> Error {
    let code = error.sqlite_error_code();
    let kind = match code {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => ErrorKind::Unreachable,
        Some(ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => ErrorKind::Denied,
        _ => ErrorKind::Backend,
    };
    let why = match code {
        Some(ErrorCode::DiskFull) => "the disk is full".to_owned(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "another program has the database locked: only synod may open its files".to_owned()
        }
        Some(ErrorCode::DatabaseCorrupt) => DAMAGED.to_owned(),
        Some(ErrorCode::NotADatabase) => "store.db is no database".to_owned(),
        _ => format!("the database failed: {error}"),
    };
    Error::new(kind, doing).because(why)
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<InvalidPath> for Fault {
    fn from(invalid: InvalidPath) -> Self {
        Self::Foreign(format!("the database has a path that no store has: {invalid}"))
    }
}
