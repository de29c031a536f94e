//! [`Discovery`]: the services below a path, and the addresses of their instances.

pub use crate::discovery::endpoint::{Endpoint, Endpoints};
pub use crate::discovery::instance::{Instance, InstanceKind, UriSpec};
pub use crate::discovery::instance_format::InstanceFormat;
pub use crate::discovery::provider::{Provider, Strategy};
pub use crate::discovery::registration::Registration;
pub use crate::discovery::service::{Service, ServiceView};

use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::name::Name;
use synod_core::path::Path;
use synod_core::store::Query;

use crate::keeper::NodeKeeper;
use crate::keeper::node::Occupied;
use crate::support::names::decoded_name;

pub(crate) mod endpoint;
pub(crate) mod instance;
pub(crate) mod instance_format;
pub(crate) mod provider;
mod published;
pub(crate) mod registration;
pub(crate) mod service;

#[cfg_attr(not(doctest), doc = include_str!("../docs/discovery.md"))]
pub struct Discovery<T> {
    client: Client,
    base: Path,
    occupied: Occupied,
    format: InstanceFormat,
    /// `Discovery` writes and reads payloads, but stores none.
    payload: PhantomData<fn(T) -> T>,
}

impl<T> Discovery<T> {
    /// The services below `base`.
    pub fn new(client: &Client, base: impl Into<Path>) -> Self {
        let (client, base) = (client.clone(), base.into());
        let (occupied, format) = (Occupied::Refuse, InstanceFormat::default());
        Self { client, base, occupied, format, payload: PhantomData }
    }

    /// Lets [`register`](Self::register) replace an instance with the same id, such as the instance
    /// of this program before its restart.
    pub fn take_over(self) -> Self {
        Self { occupied: Occupied::TakeOver, ..self }
    }

    /// Writes and reads instances in the format of another library.
    pub fn format(self, format: InstanceFormat) -> Self {
        Self { format, ..self }
    }

    /// The names of the services, sorted: all services with instances, and services whose empty
    /// directory still exists. ZooKeeper keeps an empty directory for a while, or for ever if
    /// another library created it as a node.
    ///
    /// # Errors
    ///
    /// The errors common to all calls of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn services(&self) -> Result<Vec<String>> {
        let view = self.client.read(Query::children(&self.base).names_only()).await?;
        let mut names: Vec<_> =
            view.nodes.iter().map(|node| decoded_name(node.path.name())).collect();
        names.sort();
        Ok(names)
    }

    fn service_path(&self, service: &str) -> Result<Path> {
        Ok(self.base.child(&Name::encode(service)?)?)
    }
}

impl<T: Serialize> Discovery<T> {
    /// Registers an instance of this program. It stays registered, across sessions, until it is
    /// unregistered. When this returns without an error, it is registered.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Refused`](synod_core::error::ErrorKind::Refused) if there is an instance with
    /// that id, [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid) if the name or the id
    /// is empty or too long, or if the instance cannot be written in the [format](Self::format),
    /// [`ErrorKind::Unreachable`](synod_core::error::ErrorKind::Unreachable) if it could not be
    /// registered within the time limit of the client, and any error that the store returns. Then
    /// it is not registered.
    ///
    /// # Cancel safety
    ///
    /// A dropped call unregisters it in the background.
    pub async fn register(&self, instance: Instance<T>) -> Result<Registration> {
        let Self { client, occupied, format, .. } = self;
        let instance = instance.complete(client.random());
        let path = self.instance_path(&instance.name, &instance.id)?;
        let data = format.write(&path, &instance)?;
        let keeper = NodeKeeper::start(client, &path, *occupied, data, "discovery").await?;
        Ok(Registration::new(keeper, instance, *format))
    }
}

impl<T: DeserializeOwned> Discovery<T> {
    /// The current instances of a service.
    ///
    /// # Errors
    ///
    /// The errors common to all calls of a [`Client`]. A node that cannot be read as an instance is
    /// no error: it is [reported](Endpoints::unreadable), and does not affect the others.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn instances(&self, service: &str) -> Result<Endpoints<T>> {
        let path = self.service_path(service)?;
        let nodes = self.client.read(Query::children(path)).await?.nodes;
        Ok(Endpoints::read(nodes.iter(), self.format, &Endpoints::default()))
    }

    /// Opens a service and follows its instances. The service may be empty.
    ///
    /// # Errors
    ///
    /// The error with which the store rejects reads, and
    /// [`ErrorKind::SessionLost`](synod_core::error::ErrorKind::SessionLost) once the client is
    /// closed. An outage is not an error: the call waits for its end. [`within`](crate::within)
    /// sets a limit.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves no task and no watch.
    pub async fn open(&self, service: &str) -> Result<Service<T>> {
        let path = self.service_path(service)?;
        // Boxed, so that the future of a caller stays small.
        Box::pin(Service::open(&self.client, path, self.format)).await
    }
}

impl<T> Clone for Discovery<T> {
    fn clone(&self) -> Self {
        let Self { client, base, occupied, format, payload } = self;
        let (client, base) = (client.clone(), base.clone());
        Self { client, base, occupied: *occupied, format: *format, payload: *payload }
    }
}

impl<T> fmt::Debug for Discovery<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Discovery").field("base", &self.base).finish_non_exhaustive()
    }
}
