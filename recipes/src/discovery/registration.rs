//! [`Registration`]: a registered instance of this program.

use std::fmt;

use serde::Serialize;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;

use crate::discovery::instance::Instance;
use crate::discovery::instance_format::InstanceFormat;
use crate::keeper::NodeKeeper;

/// An instance that this program has registered. It stays registered, across sessions, until this
/// value is dropped; it is then unregistered in the background.
#[must_use = "dropping this unregisters the instance"]
pub struct Registration {
    keeper: NodeKeeper,
    service: String,
    id: String,
    registered: i64,
    format: InstanceFormat,
}

impl Registration {
    pub(super) fn new<T>(
        keeper: NodeKeeper,
        instance: Instance<T>,
        format: InstanceFormat,
    ) -> Self {
        let Instance { name, id, registered, .. } = instance;
        Self { keeper, service: name, id, registered, format }
    }

    /// The id of the instance.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The node of the registration.
    pub fn path(&self) -> &Path {
        self.keeper.path()
    }

    /// Returns `true` if the store certainly lists the instance now. False while its session is not
    /// certain, and between two sessions.
    pub fn is_registered(&self) -> bool {
        self.keeper.is_there()
    }

    /// Replaces the instance by another one of the same service and with the same id. An instance
    /// without an id or a date gets the id and the date of the registration. The next session
    /// registers the new instance, regardless of the result of this call.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it is of another service, has another id, or cannot be written in
    /// the format, and otherwise as [`KeptNode::set`](crate::presence::KeptNode::set).
    ///
    /// # Cancel safety
    ///
    /// A dropped call continues in the background: it is stored.
    pub async fn update<T: Serialize>(&self, mut instance: Instance<T>) -> Result<()> {
        if instance.id.is_empty() {
            instance.id.clone_from(&self.id);
        }
        if instance.registered == 0 {
            instance.registered = self.registered;
        }
        if (&instance.name, &instance.id) != (&self.service, &self.id) {
            return Err(Error::new(ErrorKind::Invalid, "updating an instance")
                .at(self.path())
                .because("it has another service or another id"));
        }
        self.keeper.set(self.format.write(self.path(), &instance)?).await
    }

    /// Unregisters the instance. When this returns without an error, the instance is removed and
    /// will not appear again.
    ///
    /// # Errors
    ///
    /// As [`KeptNode::close`](crate::presence::KeptNode::close).
    ///
    /// # Cancel safety
    ///
    /// A dropped call continues in the background: it is unregistered.
    pub async fn unregister(self) -> Result<()> {
        self.keeper.close().await
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("keeper", &self.keeper).finish_non_exhaustive()
    }
}
