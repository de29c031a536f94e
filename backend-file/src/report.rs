//! [`FileReport`]: the state of a store, and of the processes that use it.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::Connection;
use rustix::fs::{CWD, Mode, OFlags};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::{Revision, SessionId};

use crate::database::{DATABASE, check_format, damage, open_reader};
use crate::fault::Fault;
use crate::meta::Meta;
use crate::place::{file_system, lock_holder};
use crate::seat;
use crate::seat_id::SeatId;
use crate::sessions;

/// The call of all errors of this module.
const READING: &str = "the report";

/// The size of `store.db-wal` from which it is a problem: several times that of a checkpoint.
const LONG_WAL: u64 = 4 * 64 * 1024 * 1024;

/// The state of a store in a directory, and of the processes that use it. To make it changes
/// nothing, and needs no turn: also while a process is stopped that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileReport {
    /// The directory.
    pub directory: PathBuf,
    /// The user id of the owner of the directory.
    pub owner: u32,
    /// The permissions of the directory, as `chmod` takes them.
    pub mode: u32,
    /// The name of the file system, or its number if it has no name here.
    pub file_system: String,
    /// The last revision.
    pub revision: Revision,
    /// The number of nodes.
    pub nodes: u64,
    /// The size of `store.db` in bytes.
    pub database_bytes: u64,
    /// The size of `store.db-wal` in bytes, which is copied into `store.db` and used again.
    pub wal_bytes: u64,
    /// The id of the process that has the turn to write at this moment, if the system reports it.
    pub writer: Option<u32>,
    /// The processes that have, or had, the store open.
    pub processes: Vec<FileProcess>,
    /// The last sessions that have ended, the oldest first.
    pub ended: Vec<FileSessionEnd>,
    /// The problems, each with what to do. Empty for a store in order.
    pub problems: Vec<String>,
}

/// A process that has, or had, a store open.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileProcess {
    /// The name of its files in `seats/`.
    pub seat: String,
    /// The process id, in the namespace of that process.
    pub pid: Option<u32>,
    /// The name of its program.
    pub program: Option<String>,
    /// The state of the process.
    pub state: FileProcessState,
    /// Its sessions, each with its time to live.
    pub sessions: Vec<(SessionId, Duration)>,
}

/// The state of a process that has, or had, a store open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileProcessState {
    /// Runs, or a child of it does.
    Runs,
    /// Stopped, as by `SIGSTOP`: its sessions end after their time to live.
    Stopped,
    /// Has ended. The next process that notices ends its sessions.
    Ended,
}

/// The end of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileSessionEnd {
    /// The session.
    pub session: SessionId,
    /// The process id of its owner, if that was known.
    pub pid: Option<u32>,
    /// The time of the end, by the clock of whoever ended it.
    pub at: SystemTime,
    /// The reason.
    pub reason: String,
}

/// Reports on a store. Blocks the thread.
pub(crate) fn report(directory: &Path) -> Result<FileReport> {
    read(directory).map_err(|fault| match fault {
        Fault::Io(error) if error.kind() == io::ErrorKind::NotFound => {
            Error::new(ErrorKind::Invalid, READING)
                .because(format!("there is no store in {}", directory.display()))
        }
        fault => fault.to_error(READING),
    })
}

fn read(directory: &Path) -> Result<FileReport, Fault> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |at: &OwnedFd, name: &str| rustix::fs::openat(at, name, flags, Mode::empty());
    let dir = rustix::fs::openat(CWD, directory, flags, Mode::empty()).map_err(io::Error::from)?;
    let about = fs::metadata(directory)?;
    let database = fs::metadata(directory.join(DATABASE))?;
    let wal = fs::metadata(directory.join(format!("{DATABASE}-wal"))).map_or(0, |wal| wal.len());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let turn = rustix::fs::openat(&dir, "turn", flags, Mode::empty()).map_err(io::Error::from)?;
    let seats = open(&dir, "seats").map_err(io::Error::from)?;
    let db = open_reader(directory)?;
    check_format(&db)?;
    let meta = Meta::read(&db)?;
    let mut processes = Vec::new();
    for id in seat::list(seats.as_fd())? {
        processes.push(process(&db, &seats, id)?);
    }
    let mut report = FileReport {
        directory: directory.to_owned(),
        owner: about.uid(),
        mode: about.mode() & 0o7777,
        file_system: file_system(&dir)?,
        revision: Revision::new(meta.revision),
        nodes: count(&db)?,
        database_bytes: database.len(),
        wal_bytes: wal,
        writer: lock_holder(&turn),
        processes,
        ended: ended(&db)?,
        problems: Vec::new(),
    };
    report.problems = problems(&report, damage(&db)?);
    Ok(report)
}

fn count(db: &Connection) -> Result<u64, Fault> {
    let sql = "SELECT count(*) FROM nodes WHERE created IS NOT NULL";
    Ok(db.query_row(sql, [], |row| row.get(0))?)
}

fn process(db: &Connection, seats: &OwnedFd, id: SeatId) -> Result<FileProcess, Fault> {
    let owner = seat::owner(seats.as_fd(), id)?;
    let stopped = owner.local_pid().is_some_and(is_stopped);
    let state = match (seat::is_free(seats.as_fd(), id)?, stopped) {
        (true, _) => FileProcessState::Ended,
        (false, true) => FileProcessState::Stopped,
        (false, false) => FileProcessState::Runs,
    };
    let sessions = sessions::with_ttl(db, id)?;
    let (pid, program) = (owner.pid(), owner.program());
    Ok(FileProcess { seat: id.to_string(), pid, program, state, sessions })
}

/// Returns `true` if a process of this namespace is stopped, or is being traced.
fn is_stopped(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.is_some_and(|state| state.trim_start().starts_with(['T', 't']))
}

fn ended(db: &Connection) -> Result<Vec<FileSessionEnd>, Fault> {
    let mut statement = db.prepare("SELECT session, pid, at, reason FROM ends ORDER BY id")?;
    let ends = statement.query_map([], |row| {
        Ok(FileSessionEnd {
            session: SessionId::new(row.get(0)?),
            pid: row.get(1)?,
            at: UNIX_EPOCH + Duration::from_millis(row.get(2)?),
            reason: row.get(3)?,
        })
    })?;
    Ok(ends.collect::<Result<_, _>>()?)
}

fn problems(report: &FileReport, damage: Option<String>) -> Vec<String> {
    let mut problems = Vec::new();
    let path = report.directory.display();
    let me = rustix::process::geteuid().as_raw();
    if report.owner != me {
        let owner = report.owner;
        problems.push(format!("{path} belongs to user {owner}, and this process is user {me}"));
    }
    if report.mode & 0o077 != 0 {
        problems.push(format!("other users may enter {path}; close it by: chmod 700 {path}"));
    }
    problems.extend(damage.map(|damage| {
        format!("store.db is damaged ({damage}); put a backup in its place, and keep a copy of it")
    }));
    if let Some(pid) = report.writer.filter(|pid| is_stopped(*pid)) {
        problems.push(format!(
            "process {pid} is stopped while it writes, so that no other can write; continue it by: \
             kill -CONT {pid}, or end it"
        ));
    }
    let stopped =
        report.processes.iter().filter(|process| process.state == FileProcessState::Stopped);
    problems.extend(stopped.map(|process| {
        let pid = process.pid.unwrap_or_default();
        format!("process {pid} is stopped, and loses its sessions after their time to live")
    }));
    if report.wal_bytes > LONG_WAL {
        problems.push(format!(
            "store.db-wal has {} bytes: a process may be stopped while it reads",
            report.wal_bytes
        ));
    }
    problems
}
