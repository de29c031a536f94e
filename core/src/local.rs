//! The values that are stored with a session or a client, one of each type: [`Locals`].

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::path::Path;

/// The values that are stored with one session, or with one client.
#[derive(Debug, Default)]
pub(crate) struct Locals(Mutex<BTreeMap<(Path, TypeId), Arc<dyn Any + Send + Sync>>>);

impl Locals {
    /// Returns the value of this type for this root; the default, if there is none yet.
    pub(crate) fn get<T: Default + Send + Sync + 'static>(&self, root: &Path) -> Arc<T> {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let value =
            values.entry((root.clone(), TypeId::of::<T>())).or_insert_with(|| Arc::<T>::default());
        // Never fails: the key is the id of the type.
        value.clone().downcast().unwrap_or_default()
    }
}
