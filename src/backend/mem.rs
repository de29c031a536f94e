//! `mem://` is a new store; `mem://name` is the store of that name in this process.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use synod_core::error::Result;
use synod_core::store::Backend;
use synod_mem::MemBackend;

use crate::scheme::invalid;
use crate::target::Target;

#[expect(clippy::needless_pass_by_value, reason = "the same shape as the other backends")]
pub(crate) fn open(target: Target) -> Result<Arc<dyn Backend>> {
    target.no_more_parameters(&[])?;
    if target.credentials.is_some() {
        return Err(invalid("a store in memory knows no users; leave user and password out"));
    }
    if let Some(name) = target.hosts.first() {
        return Ok(Arc::new(MemBackend::named(name)));
    }
    let backend: Arc<dyn Backend> = Arc::new(MemBackend::new());
    if is_one_of_several(&backend) {
        tracing::warn!(
            "mem:// is opened again in this process, and is another, empty store: locks and elections of the one do not exclude \
             those of the other; to share a store give it a name, as in mem://name, or clone the client"
        );
    }
    Ok(backend)
}

/// Returns `true` if this process has another store without a name.
fn is_one_of_several(backend: &Arc<dyn Backend>) -> bool {
    static NAMELESS: Mutex<Vec<Weak<dyn Backend>>> = Mutex::new(Vec::new());

    let mut nameless = NAMELESS.lock().unwrap_or_else(PoisonError::into_inner);
    nameless.retain(|other| other.strong_count() > 0);
    nameless.push(Arc::downgrade(backend));
    nameless.len() > 1
}
