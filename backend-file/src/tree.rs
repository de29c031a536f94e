//! The nodes in the database: reading and writing of single rows. Containers have rows, too, and
//! exist exactly while something is below them.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use synod_core::path::Path;
use synod_core::store::{Found, Node, Revision, Sequence, SessionId, Stat, TryFacts, Version};

use crate::fault::Fault;

/// The rows of the database, as the facts by which a transaction is judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree<'a>(pub(crate) &'a Connection);

/// The time to live of a node, by a clock of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) ttl: u64,
    /// The time by `clock` at which the node expires unless it is written.
    pub(crate) due: u64,
    pub(crate) clock: String,
}

/// A node to create.
#[derive(Debug)]
pub(crate) struct NewNode<'a> {
    pub(crate) path: &'a Path,
    pub(crate) data: &'a [u8],
    pub(crate) sequence: Option<Sequence>,
    pub(crate) owner: Option<SessionId>,
    pub(crate) lease: Option<Lease>,
}

/// The columns that [`node`] reads.
pub(crate) const COLUMNS: &str = "path, created, modified, sequence, owner, data";

/// Reads a node or a container from a row with [`COLUMNS`].
pub(crate) fn node(row: &Row<'_>) -> Result<Node, Fault> {
    let path = Path::new(row.get_ref(0)?.as_str().unwrap_or_default())?;
    let node = Node::new(path);
    let Some(created) = row.get::<_, Option<u64>>(1)? else { return Ok(node) };
    let (modified, sequence, owner) = (row.get(2)?, row.get::<_, Option<u64>>(3)?, row.get(4)?);
    let data = row.get_ref(5)?.as_blob_or_null().ok().flatten().unwrap_or_default();
    Ok(node
        .with(Bytes::copy_from_slice(data), stat(created, modified, owner))
        .with_sequence(sequence.map(Sequence::new)))
}

/// Makes a stat. The version is the revision of the last write, so that no path has a version
/// twice.
fn stat(created: u64, modified: u64, owner: Option<u64>) -> Stat {
    Stat::new(
        Revision::new(created),
        Revision::new(modified),
        Version::new(modified),
        owner.map(SessionId::new),
    )
}

/// The first path behind all paths below `path`.
pub(crate) fn below(path: &Path) -> (String, String) {
    let dir = if path.is_root() { "" } else { path.as_str() };
    // The character after the slash.
    (format!("{dir}/"), format!("{dir}0"))
}

impl Tree<'_> {
    /// Returns the data of a node as of its last write at `modified`, if it was not written since.
    pub(crate) fn unchanged(self, path: &Path, modified: Revision) -> Result<Option<Node>, Fault> {
        let sql = "SELECT path, created, modified, sequence, owner, data FROM nodes \
            WHERE path = ?1 AND modified = ?2";
        let mut statement = self.0.prepare_cached(sql)?;
        let mut rows = statement.query(params![path.as_str(), modified.get()])?;
        rows.next()?.map(node).transpose()
    }

    /// Returns the stat of a node.
    pub(crate) fn stat(self, path: &Path) -> Result<Option<Stat>, Fault> {
        let sql = "SELECT created, modified, owner FROM nodes \
            WHERE path = ?1 AND created IS NOT NULL";
        let found = self
            .0
            .prepare_cached(sql)?
            .query_row([path.as_str()], |row| Ok(stat(row.get(0)?, row.get(1)?, row.get(2)?)));
        Ok(found.optional()?)
    }

    /// Returns `true` if there is a node or a container.
    pub(crate) fn contains(self, path: &Path) -> Result<bool, Fault> {
        let sql = "SELECT 1 FROM nodes WHERE path = ?1";
        Ok(self.0.prepare_cached(sql)?.exists([path.as_str()])?)
    }

    /// Creates a node that was judged to be possible, and the containers above it.
    pub(crate) fn create(self, new: &NewNode<'_>, at: Revision) -> Result<Stat, Fault> {
        let parent = new.path.parent_str().unwrap_or("/");
        let sql = "INSERT INTO nodes \
            (path, parent, created, modified, sequence, owner, ttl, due, clock, data) \
            VALUES (?1, ?2, ?3, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        self.0.prepare_cached(sql)?.execute(params![
            new.path.as_str(),
            parent,
            at.get(),
            new.sequence.map(Sequence::get),
            new.owner.map(SessionId::get),
            new.lease.as_ref().map(|lease| lease.ttl),
            new.lease.as_ref().map(|lease| lease.due),
            new.lease.as_ref().map(|lease| &lease.clock),
            new.data,
        ])?;
        let sql = "INSERT OR IGNORE INTO nodes (path, parent) VALUES (?1, ?2)";
        let mut container = self.0.prepare_cached(sql)?;
        for above in new.path.ancestors().filter(|above| !above.is_root()) {
            let created = container.execute([above.as_str(), above.parent_str().unwrap_or("/")])?;
            if created == 0 {
                break;
            }
        }
        Ok(stat(at.get(), at.get(), new.owner.map(SessionId::get)))
    }

    /// Replaces the data of a node that was judged to exist. `now` is the time by `clock`, if the
    /// node has a time to live.
    pub(crate) fn set(
        self,
        path: &Path,
        data: &[u8],
        at: Revision,
        (now, clock): (u64, &str),
    ) -> Result<Stat, Fault> {
        let sql = "UPDATE nodes SET data = ?2, modified = ?3, due = ttl + ?4, \
            clock = iif(ttl IS NULL, NULL, ?5) WHERE path = ?1 RETURNING created, owner";
        let row = params![path.as_str(), data, at.get(), now, clock];
        Ok(self
            .0
            .prepare_cached(sql)?
            .query_row(row, |row| Ok(stat(row.get(0)?, at.get(), row.get(1)?)))?)
    }

    /// Removes a node that has no children, and the containers that become empty.
    pub(crate) fn remove(self, path: &Path) -> Result<(), Fault> {
        self.0.prepare_cached("DELETE FROM nodes WHERE path = ?1")?.execute([path.as_str()])?;
        let sql = "DELETE FROM nodes WHERE path = ?1 AND created IS NULL \
            AND NOT EXISTS (SELECT 1 FROM nodes WHERE parent = ?1)";
        let mut empty = self.0.prepare_cached(sql)?;
        for above in path.ancestors() {
            if empty.execute([above.as_str()])? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Returns the ephemeral nodes of a session.
    pub(crate) fn owned_by(self, session: SessionId) -> Result<Vec<Path>, Fault> {
        let sql = "SELECT path FROM nodes WHERE owner = ?1 ORDER BY path";
        let mut statement = self.0.prepare_cached(sql)?;
        let mut rows = statement.query([session.get()])?;
        let mut paths = Vec::new();
        while let Some(row) = rows.next()? {
            paths.push(Path::new(row.get_ref(0)?.as_str().unwrap_or_default())?);
        }
        Ok(paths)
    }
}

impl TryFacts for Tree<'_> {
    type Error = Fault;

    fn node(&self, path: &Path) -> Result<Option<Found>, Fault> {
        let sql = "SELECT modified, owner IS NOT NULL OR ttl IS NOT NULL FROM nodes \
            WHERE path = ?1 AND created IS NOT NULL";
        let found = self.0.prepare_cached(sql)?.query_row([path.as_str()], |row| {
            Ok(Found { version: Version::new(row.get(0)?), leased: row.get(1)? })
        });
        Ok(found.optional()?)
    }

    fn occupied(&self, path: &Path, gone: &dyn Fn(&Path) -> bool) -> Result<bool, Fault> {
        let sql = "SELECT path FROM nodes \
            WHERE path >= ?1 AND path < ?2 AND created IS NOT NULL ORDER BY path";
        let (from, to) = below(path);
        let mut statement = self.0.prepare_cached(sql)?;
        let mut rows = statement.query([from, to])?;
        while let Some(row) = rows.next()? {
            if !gone(&Path::new(row.get_ref(0)?.as_str().unwrap_or_default())?) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
