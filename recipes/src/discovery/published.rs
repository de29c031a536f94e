//! Published instances, which no process owns.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::name::Name;
use synod_core::path::Path;
use synod_core::store::{Expect, Query, RejectReason, SessionId};

use crate::discovery::Discovery;
use crate::discovery::instance::Instance;
use crate::support::retry::{Race, overtaken, repeat, repeat_race};

/// The action that errors of published instances name.
const DOING: &str = "publishing an instance";

impl<T: Serialize> Discovery<T> {
    /// Stores an instance that no process owns, such as a database that does not use synod: it
    /// stays until it is [withdrawn](Self::withdraw). Replaces a published instance with the same
    /// id. Returns the id.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Refused`] if a program that is alive has registered an instance with that id,
    /// [`ErrorKind::Invalid`] if the name or the id is empty or too long, or if the instance cannot
    /// be written in the [format](Self::format), and the errors that are common to all calls: see
    /// [`Client`](synod_core::client::Client). With
    /// [`Effect::Unknown`](synod_core::error::Effect::Unknown) it may be stored; repeat the call
    /// with the same id.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not have stored the instance. A request that was sent is completed
    /// in the background.
    pub async fn publish(&self, instance: Instance<T>) -> Result<String> {
        let instance = instance.permanent().complete(self.client.random());
        let path = self.instance_path(&instance.name, &instance.id)?;
        let data = self.format.write(&path, &instance)?;
        if let Some(stat) = self.client.get(&path).await?.and_then(|node| node.stat) {
            check_unowned(&path, stat.owner)?;
        }
        let stored = repeat(&self.client, || self.client.put(&path, data.clone())).await?;
        // A program may have registered the instance in the meantime. It then restores its own
        // data.
        check_unowned(&path, stored.stat.and_then(|stat| stat.owner))
            .map_err(Error::with_unknown_effect)?;
        Ok(instance.id)
    }
}

impl<T> Discovery<T> {
    /// Removes a [published](Self::publish) instance. Returns false if there is none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Refused`] if a program that is alive has registered it,
    /// [`ErrorKind::Invalid`] if the name or the id is empty or too long, and the errors that are
    /// common to all calls: see [`Client`](synod_core::client::Client).
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not have removed the instance. A request that was sent is
    /// completed in the background.
    pub async fn withdraw(&self, service: &str, id: &str) -> Result<bool> {
        let path = &self.instance_path(service, id)?;
        // A repeated attempt finds nothing if the answer to the first one was lost.
        let found = &AtomicBool::new(false);
        repeat_race(&self.client, || self.remove_unowned(path, found)).await?;
        Ok(found.load(Ordering::Relaxed))
    }

    /// Removes the node of an instance that no session owns, and records whether there was one.
    async fn remove_unowned(&self, path: &Path, found: &AtomicBool) -> Result<Race<()>> {
        let view = self.client.read(Query::node(path).names_only()).await?;
        let Some(stat) = view.node().and_then(|node| node.stat) else { return Ok(Race::Won(())) };
        check_unowned(path, stat.owner)?;
        found.store(true, Ordering::Relaxed);
        let outcome = self.client.delete(path, Expect::Version(stat.version)).await?;
        Ok(match outcome.rejected() {
            Some(no) if no.reason != RejectReason::Missing => Race::Lost(overtaken(DOING, path)),
            _ => Race::Won(()),
        })
    }

    /// The node of an instance.
    pub(super) fn instance_path(&self, service: &str, id: &str) -> Result<Path> {
        Ok(self.service_path(service)?.child(&Name::encode(id)?)?)
    }
}

/// Fails if a session owns the node of an instance.
fn check_unowned(path: &Path, owner: Option<SessionId>) -> Result<()> {
    match owner {
        None => Ok(()),
        Some(_) => Err(Error::new(ErrorKind::Refused, DOING)
            .at(path)
            .because("a program that is alive has registered this instance: unregister it there")),
    }
}
