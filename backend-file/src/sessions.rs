//! The sessions in the database. A session belongs to a seat, and ends with it.

use std::time::{Duration, UNIX_EPOCH};

use rusqlite::{Connection, Row, params};
use synod_core::clock;
use synod_core::store::SessionId;

use crate::fault::Fault;
use crate::machine::Machine;
use crate::seat_id::SeatId;

/// A session to add.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewSession {
    pub(crate) seat: SeatId,
    /// The time to live in milliseconds.
    pub(crate) ttl: u64,
    /// `true` if the session ends after its time to live, and not with its process.
    pub(crate) lingers: bool,
}

/// Adds a session.
pub(crate) fn add(db: &Connection, id: SessionId, new: NewSession) -> Result<(), Fault> {
    let sql = "INSERT INTO sessions (id, seat, pid, ttl, lingers) VALUES (?1, ?2, ?3, ?4, ?5)";
    let (seat, pid) = (new.seat.to_string(), std::process::id());
    let row = params![id.get(), seat, pid, new.ttl, new.lingers];
    db.prepare_cached(sql)?.execute(row)?;
    Ok(())
}

/// Returns the sessions that end with the process of their seat.
pub(crate) fn ending_with(db: &Connection, seat: SeatId) -> Result<Vec<SessionId>, Fault> {
    let sql = "SELECT id FROM sessions WHERE seat = ?1 AND NOT lingers ORDER BY id";
    let mut statement = db.prepare_cached(sql)?;
    let ids = statement.query_map([seat.to_string()], |row| row.get(0))?;
    Ok(ids.map(|id| id.map(SessionId::new)).collect::<Result<_, _>>()?)
}

/// Starts the time to live of the sessions of a dead seat that linger.
pub(crate) fn start_lingering(
    db: &Connection,
    seat: SeatId,
    machine: &Machine,
) -> Result<(), Fault> {
    let sql = "UPDATE sessions SET due = ttl + ?2, clock = ?3 WHERE seat = ?1 AND lingers";
    let row = params![seat.to_string(), machine.now(), machine.clock()];
    db.prepare_cached(sql)?.execute(row)?;
    Ok(())
}

/// Restarts the time to live of lingering sessions whose clock this process cannot read. Call it
/// only if there is no other process, which might read it.
pub(crate) fn linger_by(db: &Connection, machine: &Machine) -> Result<(), Fault> {
    let sql = "UPDATE sessions SET due = ttl + ?1, clock = ?2 WHERE clock <> ?2";
    db.prepare_cached(sql)?.execute(params![machine.now(), machine.clock()])?;
    Ok(())
}

/// Returns the sessions that lingered for their time to live.
pub(crate) fn overdue(db: &Connection, machine: &Machine) -> Result<Vec<SessionId>, Fault> {
    let sql = "SELECT id FROM sessions WHERE due <= ?1 AND clock = ?2 ORDER BY id";
    let mut statement = db.prepare_cached(sql)?;
    let ids = statement.query_map(params![machine.now(), machine.clock()], |row| row.get(0))?;
    Ok(ids.map(|id| id.map(SessionId::new)).collect::<Result<_, _>>()?)
}

/// Returns the sessions that linger by a clock that this process does not read, each with its time
/// to live in milliseconds.
pub(crate) fn lingering_elsewhere(
    db: &Connection,
    machine: &Machine,
) -> Result<Vec<(SessionId, u64)>, Fault> {
    let mut statement =
        db.prepare_cached("SELECT id, ttl FROM sessions WHERE clock <> ?1 ORDER BY id")?;
    let sessions = statement.query_map([machine.clock()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(sessions
        .map(|row| row.map(|(id, ttl)| (SessionId::new(id), ttl)))
        .collect::<Result<_, _>>()?)
}

/// The reason for the end of a session, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Not recorded, as nothing went wrong.
    Closed,
    Dropped,
    ProcessEnded,
    Lingered,
    Silent,
    Expired,
}

impl Reason {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "its owner closed it",
            Self::Dropped => "its owner dropped it without closing it",
            Self::ProcessEnded => "its process ended",
            Self::Lingered => "its process ended, a time to live ago",
            Self::Silent => "its process sent no heartbeat for its time to live",
            Self::Expired => "another process ended it",
        }
    }
}

/// The number of ends that are kept.
const ENDS: i64 = 256;

fn record_end(db: &Connection, id: SessionId, pid: u32, reason: Reason) -> Result<(), Fault> {
    if reason == Reason::Closed {
        return Ok(());
    }
    let reason = reason.as_str();
    tracing::info!("session {id} of process {pid} ends: {reason}");
    let since = clock::date().duration_since(UNIX_EPOCH).unwrap_or_default();
    let at = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    let sql = "INSERT INTO ends (session, pid, at, reason) VALUES (?1, ?2, ?3, ?4)";
    db.prepare_cached(sql)?.execute(params![id.get(), pid, at, reason])?;
    let sql = "DELETE FROM ends WHERE id <= ?1";
    db.prepare_cached(sql)?.execute([db.last_insert_rowid() - ENDS])?;
    Ok(())
}

/// Removes a session. Returns its seat if there was one.
pub(crate) fn remove(
    db: &Connection,
    id: SessionId,
    reason: Reason,
) -> Result<Option<SeatId>, Fault> {
    let sql = "DELETE FROM sessions WHERE id = ?1 RETURNING seat, pid";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([id.get()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let removed = seat(row.get_ref(0)?.as_str().unwrap_or_default())?;
    let pid = row.get(1)?;
    // The row is removed by the end of the statement.
    while rows.next()?.is_some() {}
    record_end(db, id, pid, reason)?;
    Ok(Some(removed))
}

fn seat(name: &str) -> Result<SeatId, Fault> {
    SeatId::parse(name).ok_or_else(|| Fault::Foreign(format!("the database has a seat {name:?}")))
}

/// Returns whether a session has not ended.
pub(crate) fn lives(db: &Connection, id: SessionId) -> Result<bool, Fault> {
    Ok(db.prepare_cached("SELECT 1 FROM sessions WHERE id = ?1")?.exists([id.get()])?)
}

/// Returns the sessions of a seat whose time to live is at most `ttl` milliseconds.
pub(crate) fn of_seat(db: &Connection, seat: SeatId, ttl: u64) -> Result<Vec<SessionId>, Fault> {
    let sql = "SELECT id FROM sessions WHERE seat = ?1 AND ttl <= ?2 AND due IS NULL ORDER BY id";
    let ttl = i64::try_from(ttl).unwrap_or(i64::MAX);
    let mut statement = db.prepare_cached(sql)?;
    let ids = statement.query_map(params![seat.to_string(), ttl], |row| row.get(0))?;
    Ok(ids.map(|id| id.map(SessionId::new)).collect::<Result<_, _>>()?)
}

/// Returns the sessions of a seat, each with its time to live.
pub(crate) fn with_ttl(db: &Connection, seat: SeatId) -> Result<Vec<(SessionId, Duration)>, Fault> {
    let mut statement = db.prepare("SELECT id, ttl FROM sessions WHERE seat = ?1 ORDER BY id")?;
    let session =
        |row: &Row<'_>| Ok((SessionId::new(row.get(0)?), Duration::from_millis(row.get(1)?)));
    let sessions = statement.query_map([seat.to_string()], session)?;
    Ok(sessions.collect::<Result<_, _>>()?)
}

/// Returns each seat that has sessions which do not linger yet, with the shortest time to live of
/// these.
pub(crate) fn seats(db: &Connection) -> Result<Vec<(SeatId, u64)>, Fault> {
    let sql = "SELECT seat, min(ttl) FROM sessions WHERE due IS NULL GROUP BY seat";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    let mut seats = Vec::new();
    while let Some(row) = rows.next()? {
        let seat = seat(row.get_ref(0)?.as_str().unwrap_or_default())?;
        seats.push((seat, row.get(1)?));
    }
    Ok(seats)
}
