//! Answers a [`Query`] from one snapshot of the database.

use rusqlite::Connection;
use rusqlite::types::ToSql;
use synod_core::path::Path;
use synod_core::store::{Detail, Node, Query, Revision, Scope, Sequence, View, Window};

use crate::fault::Fault;
use crate::meta::Meta;
use crate::tree::{self, COLUMNS, below};

/// Answers `query` in the transaction that `db` is in. In the follow-up query of a transaction,
/// `own` is the sequential node that it created.
pub(crate) fn answer(
    db: &Connection,
    query: &Query,
    meta: &Meta,
    own: Option<&(Path, Sequence)>,
) -> Result<View, Fault> {
    let nodes = match (query.scope, query.window) {
        (Scope::Node, _) => {
            let condition = "path = ?1 AND created IS NOT NULL";
            let mut nodes = Vec::new();
            for path in query.nodes_asked() {
                nodes.extend(select(db, query, condition, &[&path.as_str()])?);
            }
            nodes
        }
        (Scope::Children, None) => {
            let condition = "parent = ?1 AND path >= ?2 AND path < ?3 ORDER BY path";
            let (from, to) = named(query);
            select(db, query, condition, &[&query.path.as_str(), &from, &to])?
        }
        (Scope::Children, Some(window)) => in_window(db, query, window, own)?,
        (Scope::Subtree, _) => {
            let (from, to) = below(&query.path);
            let condition = "(path = ?1 AND created IS NOT NULL) \
                OR (path >= ?2 AND path < ?3) ORDER BY path";
            select(db, query, condition, &[&query.path.as_str(), &from, &to])?
        }
    };
    Ok(View::new(Revision::new(meta.revision), nodes))
}

/// The range of the paths that start with the prefix of the query. A pattern would not do: some
/// characters have a meaning in it. No path has the last character of Unicode.
fn named(query: &Query) -> (String, String) {
    let (dir, _) = below(&query.path);
    let from = dir + &query.prefix;
    let to = format!("{from}{}", char::MAX);
    (from, to)
}

/// The nodes in a window, oldest first.
fn in_window(
    db: &Connection,
    query: &Query,
    window: Window,
    own: Option<&(Path, Sequence)>,
) -> Result<Vec<Node>, Fault> {
    let own = own.filter(|(path, _)| path.parent_str() == Some(query.path.as_str()));
    let own = own.map_or(i64::MAX, |(_, sequence)| clamped(sequence.get()));
    let (count, before, newest) = match window {
        Window::Oldest { count } => (count, i64::MAX, false),
        Window::Newest { count, before } => {
            (count, before.map_or(i64::MAX, |before| clamped(before.get())), true)
        }
    };
    // Oldest first does not exclude what is behind the own node.
    let own = if newest { own } else { i64::MAX };
    let order = if newest { "DESC" } else { "ASC" };
    let condition = format!(
        "parent = ?1 AND sequence < ?4 AND sequence <= ?5 AND path >= ?2 AND path < ?3 \
         ORDER BY sequence {order} LIMIT ?6"
    );
    let count = clamped(count as u64);
    let (from, to) = named(query);
    let values: [&dyn ToSql; 6] = [&query.path.as_str(), &from, &to, &before, &own, &count];
    let mut nodes = select(db, query, &condition, &values)?;
    if newest {
        nodes.reverse();
    }
    Ok(nodes)
}

/// A number of the contract as one of the database, which has no larger ones.
fn clamped(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn select(
    db: &Connection,
    query: &Query,
    condition: &str,
    values: &[&dyn ToSql],
) -> Result<Vec<Node>, Fault> {
    let columns = match query.detail {
        Detail::Data => COLUMNS,
        Detail::Names => "path, created, modified, sequence, owner, NULL",
    };
    let sql = format!("SELECT {columns} FROM nodes WHERE {condition}");
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(values)?;
    let mut nodes = Vec::new();
    while let Some(row) = rows.next()? {
        nodes.push(tree::node(row)?);
    }
    Ok(nodes)
}
