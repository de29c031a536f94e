//! etcd: this version of synod knows its URLs and has no backend for it yet.

use std::sync::Arc;

use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::Backend;

use crate::plan::Target;

#[expect(clippy::needless_pass_by_value, reason = "the same shape as the other backends")]
pub(crate) fn open(target: Target) -> Result<Arc<dyn Backend>> {
    target.no_more_parameters(&[])?;
    Err(Error::new(ErrorKind::Unsupported, "connecting")
        .because("this version of synod has no backend for etcd yet; use mem://"))
}
