//! [`Discovery`]: which services there are, and where their instances are.

use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::name::Name;
use synod_core::path::Path;
use synod_core::store::Query;

use crate::discovery::endpoint::Endpoints;
use crate::discovery::instance::Instance;
use crate::discovery::instance_format::InstanceFormat;
use crate::discovery::registration::Registration;
use crate::discovery::service::Service;
use crate::discovery::service_name::text_of;
use crate::keeper::NodeKeeper;
use crate::keeper::occupant::Occupied;

pub(crate) mod endpoint;
pub(crate) mod instance;
pub(crate) mod instance_format;
pub(crate) mod provider;
pub(crate) mod registration;
pub(crate) mod service;
pub(crate) mod service_name;
pub(crate) mod strategy;
pub(crate) mod uri_spec;

#[cfg_attr(not(doctest), doc = include_str!("../docs/discovery.md"))]
pub struct Discovery<T> {
    client: Client,
    base: Path,
    occupied: Occupied,
    format: InstanceFormat,
    /// It writes and reads payloads, and has none.
    payload: PhantomData<fn(T) -> T>,
}

impl<T> Discovery<T> {
    /// The services below `base`.
    pub fn new(client: &Client, base: impl Into<Path>) -> Self {
        let (client, base) = (client.clone(), base.into());
        let (occupied, format) = (Occupied::Refuse, InstanceFormat::default());
        Self { client, base, occupied, format, payload: PhantomData }
    }

    /// Lets [`register`](Self::register) replace an instance of the same id: the one that this program was before it was
    /// started again, or one that is to be replaced.
    pub fn take_over(self) -> Self {
        Self { occupied: Occupied::TakeOver, ..self }
    }

    /// Writes and reads instances as another library does.
    pub fn format(self, format: InstanceFormat) -> Self {
        Self { format, ..self }
    }

    /// The names of the services, sorted: of all that have instances, and of those whose directory is still there. ZooKeeper keeps an
    /// empty one for a while, and one that another library made as a node for good.
    ///
    /// # Errors
    ///
    /// As every verb of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn services(&self) -> Result<Vec<String>> {
        let view = self.client.read(Query::children(&self.base).names_only()).await?;
        let mut names: Vec<_> = view.nodes.iter().map(|node| text_of(node.path.name())).collect();
        names.sort();
        Ok(names)
    }

    fn service_path(&self, service: &str) -> Result<Path> {
        Ok(self.base.child(&Name::encode(service)?)?)
    }
}

impl<T: Serialize> Discovery<T> {
    /// Registers an instance of this program. It stays registered, across sessions, until it is unregistered. When this
    /// returned without an error, it was registered.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Refused`](synod_core::error::ErrorKind::Refused) if there is an instance with that id,
    /// [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid) if the name or the id is empty or too long, or if the
    /// instance cannot be written in the [format](Self::format),
    /// [`ErrorKind::Unreachable`](synod_core::error::ErrorKind::Unreachable) if it could not be registered within the deadline
    /// of the client, and what the store says. It is not registered then.
    ///
    /// # Cancel safety
    ///
    /// A dropped call unregisters it in the background.
    pub async fn register(&self, instance: Instance<T>) -> Result<Registration> {
        let Self { client, occupied, format, .. } = self;
        let instance = instance.complete(client.random());
        let path = self.service_path(&instance.name)?.child(&Name::encode(&instance.id)?)?;
        let data = format.write(&path, &instance)?;
        let keeper = NodeKeeper::start(client, &path, *occupied, data, "discovery").await?;
        Ok(Registration::new(keeper, instance, *format))
    }
}

impl<T: DeserializeOwned> Discovery<T> {
    /// The instances of a service that there are now.
    ///
    /// # Errors
    ///
    /// As every verb of a [`Client`]. A node that cannot be read as an instance is no error: it is
    /// [reported](Endpoints::unreadable), and leaves the others.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn instances(&self, service: &str) -> Result<Endpoints<T>> {
        let path = self.service_path(service)?;
        let nodes = self.client.read(Query::children(path)).await?.nodes;
        Ok(Endpoints::read(nodes.iter(), self.format, &Endpoints::default()))
    }

    /// Follows the instances of a service from now on. There need not be any.
    ///
    /// # Errors
    ///
    /// What the store says if it refuses to be read, and
    /// [`ErrorKind::SessionLost`](synod_core::error::ErrorKind::SessionLost) once the client is closed. An outage is no error:
    /// the call waits for its end. [`within`](crate::within) gives it a limit.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call follows nothing.
    pub async fn open(&self, service: &str) -> Result<Service<T>> {
        let path = self.service_path(service)?;
        // On the heap, so that the future of a caller stays small.
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
