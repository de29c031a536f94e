//! The laws of promoted changes of a value: their lock excludes the others, and leaves no nodes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cluster::By;
use synod_core::path::Path;
use synod_core::store::{Kind, Node, Query};

use crate::findings::Truth;
use crate::process::Process;
use crate::workload::left::none_is_left;

/// For each process, the last position in the log before its first fault that may leave a write
/// with an unknown effect. Clones share it.
pub(super) type Unharmed = Arc<Mutex<BTreeMap<u64, usize>>>;

/// While a change is under the lock, no other process writes the value, except to complete writes
/// with an unknown effect.
///
/// # Errors
///
/// The write that should have waited.
pub(super) fn the_others_stand_back(
    truth: &Truth,
    value: &Path,
    unharmed: &Unharmed,
) -> Result<(), String> {
    let (lock, gate) = (lock(value), gate(value));
    let unharmed = unharmed.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut tickets, mut named) = (BTreeMap::new(), None);
    for (place, entry) in truth.log.iter().enumerate() {
        for change in &entry.changes {
            if change.path == gate {
                named = change.node.as_ref().and_then(|node| {
                    let name = std::str::from_utf8(&node.data).ok()?;
                    lock.join(name).ok()
                });
            } else if change.path.parent().as_ref() == Some(&lock) {
                match change.kind {
                    Kind::Deleted => tickets.remove(&change.path),
                    _ => tickets.insert(change.path.clone(), entry.by),
                };
            } else if change.path == *value
                && let By::Process(writer) = entry.by
                && let Some(first) = named.as_ref().and_then(|named| tickets.get(named))
                && *first != entry.by
                && unharmed.get(&writer).is_some_and(|until| place < *until)
            {
                return Err(format!("process {writer} wrote under the lock of {first:?}"));
            }
        }
    }
    Ok(())
}

/// No ticket of the lock is left.
pub(super) async fn no_ticket_is_left(me: Process, value: Path) -> Result<(), String> {
    let is_ticket = |node: &Node| node.path.name().contains("lock-");
    none_is_left(me, Query::children(lock(&value)).names_only(), is_ticket).await
}

/// The directory of the tickets.
pub(super) fn lock(value: &Path) -> Path {
    Path::new(&format!("{value}-promotion")).expect("it is one")
}

fn gate(value: &Path) -> Path {
    Path::new(&format!("{}-gate", lock(value))).expect("it is one")
}
