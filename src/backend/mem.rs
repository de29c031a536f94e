//! `mem://` is a new store; `mem://name` is the store of that name in this process.

use std::sync::Arc;

use synod_core::error::Result;
use synod_core::store::Backend;
use synod_mem::MemBackend;

use crate::address::invalid;
use crate::plan::Target;

#[expect(clippy::needless_pass_by_value, reason = "the same shape as the other backends")]
pub(crate) fn open(target: Target) -> Result<Arc<dyn Backend>> {
    target.no_more_parameters(&[])?;
    if target.credentials.is_some() {
        return Err(invalid("a store in memory knows no users; leave user and password out"));
    }
    Ok(Arc::new(match target.hosts.first() {
        Some(name) => MemBackend::named(name),
        None => MemBackend::new(),
    }))
}
