//! The ring of changes: the last changes of all processes, which each observer reads by revision.

use rusqlite::{Connection, params};
use synod_core::path::Path;
use synod_core::store::{Change, Kind, Revision, SessionId};

use crate::fault::Fault;
use crate::meta::Meta;

/// The number of revisions that are kept. An observer that is further behind reads again.
pub(crate) const KEPT: u64 = 16_384;

/// The number of revisions after which the oldest are removed.
const TRIM: u64 = 256;

/// An entry of the ring.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) revision: Revision,
    pub(crate) news: News,
}

/// A change, or the end of a session.
#[derive(Clone, Debug)]
pub(crate) enum News {
    Changed { path: Path, kind: Kind },
    Ended(SessionId),
}

impl Entry {
    /// Returns the change, without its node; `None` for the end of a session.
    pub(crate) fn into_change(self) -> Option<Change> {
        match self.news {
            News::Changed { path, kind } => Some(Change::new(path, kind).at(self.revision)),
            News::Ended(_) => None,
        }
    }
}

/// The number of a kind in the table; that of an end is [`ENDED`].
const KINDS: [Kind; 3] = [Kind::Created, Kind::Updated, Kind::Deleted];
const ENDED: u8 = 3;

/// Adds a change.
pub(crate) fn add(db: &Connection, at: Revision, path: &Path, kind: Kind) -> Result<(), Fault> {
    let number = KINDS.iter().position(|other| *other == kind).unwrap_or_default();
    let sql = "INSERT INTO changes (revision, kind, path) VALUES (?1, ?2, ?3)";
    db.prepare_cached(sql)?.execute(params![at.get(), number, path.as_str()])?;
    Ok(())
}

/// Adds the end of a session.
pub(crate) fn add_end(db: &Connection, at: Revision, session: SessionId) -> Result<(), Fault> {
    let sql = "INSERT INTO changes (revision, kind, path, owner) VALUES (?1, ?2, '', ?3)";
    db.prepare_cached(sql)?.execute(params![at.get(), ENDED, session.get()])?;
    Ok(())
}

/// Removes the oldest entries, now and then.
pub(crate) fn trim(db: &Connection, meta: &mut Meta, kept: u64) -> Result<(), Fault> {
    if meta.revision.saturating_sub(meta.trimmed) < kept + TRIM.min(kept) {
        return Ok(());
    }
    meta.trimmed = meta.revision - kept;
    let sql = "DELETE FROM changes WHERE revision <= ?1";
    db.prepare_cached(sql)?.execute([meta.trimmed])?;
    Ok(())
}

/// Reads the entries after a revision, in order.
pub(crate) fn after(db: &Connection, revision: u64) -> Result<Vec<Entry>, Fault> {
    let sql = "SELECT revision, kind, path, owner FROM changes WHERE revision > ?1 \
        ORDER BY revision, id";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([revision])?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        let kind: usize = row.get(1)?;
        let news = match KINDS.get(kind) {
            Some(kind) => News::Changed {
                path: Path::new(row.get_ref(2)?.as_str().unwrap_or(""))?,
                kind: *kind,
            },
            None => News::Ended(SessionId::new(row.get(3)?)),
        };
        entries.push(Entry { revision: Revision::new(row.get(0)?), news });
    }
    Ok(entries)
}
