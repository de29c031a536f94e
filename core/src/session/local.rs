//! The values that are stored with a session, one of each type: [`Locals`].

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The values that are stored with one session.
#[derive(Debug, Default)]
pub(super) struct Locals(Mutex<BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl Locals {
    /// Returns the value of this type; the default, if there is none yet.
    pub(super) fn get<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let value = values.entry(TypeId::of::<T>()).or_insert_with(|| Arc::<T>::default());
        // Never fails: the key is the id of the type.
        value.clone().downcast().unwrap_or_default()
    }
}
