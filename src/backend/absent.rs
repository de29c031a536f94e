//! Stands in for backends that are not compiled in.

use std::sync::Arc;

use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::Backend;

use crate::target::Target;

#[expect(clippy::needless_pass_by_value, reason = "the same shape as those that are there")]
pub(crate) fn open(target: Target) -> Result<Arc<dyn Backend>> {
    Err(Error::new(ErrorKind::Unsupported, "connecting").because(format!(
        "{}:// is not compiled in; switch on the feature `{}` of the crate `synod`",
        target.scheme.as_str(),
        target.scheme.feature().unwrap_or_default(),
    )))
}
