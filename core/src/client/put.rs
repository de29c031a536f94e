//! [`Client::put`]: data at a path, whether or not there is a node yet.

use std::pin::pin;

use bytes::Bytes;
use futures_util::future::{Either, select};
use serde::Serialize;

use crate::client::Client;
use crate::clock::sleep;
use crate::error::{Error, ErrorKind, Result};
use crate::mutant::mistake;
use crate::path::Path;
use crate::retry::Retry;
use crate::session::deadline::Deadline;
use crate::session::{Session, only};
use crate::store::{Expect, Lifetime, OpResult, Outcome, Query, RejectReason, Txn};
use crate::value::encode;

/// # Writes of what may not be there yet
impl Client {
    /// Writes data to the node at `path`, and makes a persistent node if there is none.
    ///
    /// It replaces what is there, whatever its version: of two concurrent puts the later one stays. To replace
    /// only what was read, use [`Client::set`] with that version.
    ///
    /// It sets the node, and creates it if it is missing. If another client creates or removes the node between the two
    /// requests, both are tried again, within the deadline of the call. The data is written at most once.
    ///
    /// # Errors
    ///
    /// As every verb, and [`ErrorKind::Refused`] if there is an ephemeral node above, or
    /// a container with nodes below it at the path itself.
    /// With [`Effect::None`](crate::error::Effect::None) nothing was written. With
    /// [`Effect::Unknown`](crate::error::Effect::Unknown) the data may have been written, or may still be: a put that is
    /// repeated then ends with the data there, and may replace what another client wrote in between.
    ///
    /// # Cancel safety
    ///
    /// A dropped call is driven to the end of the request that was sent: the data is written or it is not. A node that it
    /// made stays, as others may have written to it since.
    ///
    /// # Examples
    ///
    /// ```
    /// # use synod_core::client::Client;
    /// # use synod_core::error::Result;
    /// # use synod_core::path;
    /// # async fn example(client: Client) -> Result<()> {
    /// let written = client.put(&path!("/config/limit"), "10").await?;
    /// assert!(written.stat.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn put(&self, path: &Path, data: impl Into<Bytes>) -> Result<OpResult> {
        let data: Bytes = data.into();
        self.on_session(async |session, by| put(&session, path, &data, by).await).await
    }

    /// Writes a value as JSON to the node at `path`, and makes a persistent node if there is none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the value cannot be written so,
    /// and as [`Client::put`].
    ///
    /// # Cancel safety
    ///
    /// As [`Client::put`].
    pub async fn put_value<T: Serialize + ?Sized>(
        &self,
        path: &Path,
        value: &T,
    ) -> Result<OpResult> {
        let data = encode(path, value)?;
        self.put(path, data).await
    }
}

/// Whether there are nodes below a path at which there is none: none can be made there.
async fn is_container(session: &Session, path: &Path, by: Deadline) -> Result<bool> {
    let node = session.read_by(Query::node(path).names_only(), by).await?;
    if node.node().is_some() {
        return Ok(false);
    }
    let below = Query::children(path).names_only();
    Ok(!session.read_by(below, by).await?.nodes.is_empty())
}

/// Sets or creates, until one of the two finds the node as it must be.
async fn put(session: &Session, path: &Path, data: &Bytes, by: Deadline) -> Result<OpResult> {
    let mut pauses = Retry::contended().delays(session.random());
    mistake!(PutKeepsWhatIsThere: return session.create_or_keep(path, data, by).await);
    loop {
        let set = Txn::new().set(path, data.clone(), Expect::Any);
        match only(session.commit_by(set, by).await?)? {
            Outcome::Rejected(no) if no.reason == RejectReason::Missing => {}
            outcome => return outcome.required(),
        }
        let create = Txn::new().create(path, data.clone(), Lifetime::Persistent);
        let created = only(session.keep_by(create, by).await?)?;
        let is_late = created.rejected().is_some_and(|no| no.reason == RejectReason::Exists);
        mistake!(PutLosesRace: let is_late = false);
        if !is_late {
            return created.required();
        }
        if is_container(session, path, by).await? {
            return Err(Error::new(ErrorKind::Refused, "putting data")
                .at(path)
                .because("there are nodes below it, and it is none itself"));
        }
        // Another client made it in between. It may remove it, too.
        let pause = sleep(pauses.next().unwrap_or_default());
        if let Either::Right(_) = select(pin!(pause), pin!(by.passed())).await {
            return Err(by.error("putting data").at(path));
        }
    }
}
