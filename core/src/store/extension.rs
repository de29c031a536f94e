//! [`Extension`]: the calls that only one kind of store has.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// A value of a store's own type, with the calls that only this kind of store has, such as those
/// for access lists. Layers pass it through. See
/// [`SessionInfo::extension`](super::SessionInfo::extension).
///
/// Its paths are those of the store, without any namespace: a caller translates them by
/// [`SessionInfo::path_in_store`](super::SessionInfo::path_in_store).
#[derive(Clone, Default)]
pub struct Extension(Option<Arc<dyn Any + Send + Sync>>);

impl Extension {
    /// An extension of this type.
    pub fn new<T: Any + Send + Sync>(extension: Arc<T>) -> Self {
        Self(Some(extension))
    }

    /// The extension, if it has this type.
    pub(super) fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.0.clone()?.downcast().ok()
    }
}

/// Two sessions with the same properties are equal whatever else their stores can do.
impl PartialEq for Extension {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Extension {}

impl fmt::Debug for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Extension").field(&self.0.is_some()).finish()
    }
}
