//! A write that creates the node if it is missing, [`Client::put`].

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
use crate::session::once::OnceWrite;
use crate::session::{Session, only};
use crate::store::{Expect, Lifetime, Op, OpResult, Outcome, Query, RejectReason, Txn};
use crate::value::encode;

/// # Writes that create missing nodes
impl Client {
    /// Writes data to the node at `path`, and creates a persistent node if there is none.
    ///
    /// It replaces any version of the node: of two concurrent puts the later one wins. To replace
    /// only the version that was read, use [`Client::set`] with that version.
    ///
    /// It sets the node, and creates it if it is missing. If another client creates or removes the
    /// node between the two requests, both are repeated, within the deadline of the call. The data
    /// is written at most once.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Refused`] if an ancestor is an ephemeral node, or if a container with nodes
    /// below it is at the path itself, and the errors that are common to all calls: see [`Client`].
    ///
    /// With [`Effect::None`](crate::error::Effect::None) nothing was written. With
    /// [`Effect::Unknown`](crate::error::Effect::Unknown) the data may have been written, or may
    /// still be: a repeated put then succeeds, and may replace the data that another client wrote
    /// in between. [`ExactlyOnceClient::put`](crate::client::ExactlyOnceClient::put) repeats the
    /// write after a lost answer without this risk.
    ///
    /// # Cancel safety
    ///
    /// The request of a dropped call completes in the background: the data is written or it is not.
    /// A created node stays, as other clients may have written to it since.
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
        self.on_session(async |session, by| put(&session, path, &data, by, None).await).await
    }

    /// Writes a value as JSON to the node at `path`, and creates a persistent node if there is
    /// none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the value cannot be serialised as JSON, and the errors of
    /// [`Client::put`].
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

/// Returns `true` for a container with nodes below it, at which no node can be created.
async fn is_container(session: &Session, path: &Path, by: Deadline) -> Result<bool> {
    let node = session.read_by(Query::node(path).names_only(), by).await?;
    if node.node().is_some() {
        return Ok(false);
    }
    let below = Query::children(path).names_only();
    Ok(!session.read_by(below, by).await?.nodes.is_empty())
}

/// Sets or creates the node, until one of the two succeeds. If `write_ids` is given, each write is
/// applied exactly once.
pub(super) async fn put(
    session: &Session,
    path: &Path,
    data: &Bytes,
    by: Deadline,
    write_ids: Option<&Path>,
) -> Result<OpResult> {
    let write = async |op: Op| match write_ids {
        Some(directory) => {
            let once = OnceWrite::new(session, directory, op, by)?.keep_created();
            // Boxed, so that the future of a plain put stays small.
            Box::pin(once.send()).await
        }
        None => only(session.keep_by(Txn::new().op(op), by).await?),
    };
    let mut delays = Retry::contended().delays(session.random());
    mistake!(PutKeepsWhatIsThere: return session.create_or_keep(path, data, by).await);
    loop {
        let set = Op::Set { path: path.clone(), data: data.clone(), expect: Expect::Any };
        match write(set).await? {
            Outcome::Rejected(no) if no.reason == RejectReason::Missing => {}
            outcome => return outcome.required(),
        }
        let created = write(persistent(path, data)).await?;
        let is_taken = created.rejected().is_some_and(|no| no.reason == RejectReason::Exists);
        mistake!(PutLosesRace: let is_taken = false);
        if !is_taken {
            return created.required();
        }
        if is_container(session, path, by).await? {
            return Err(Error::new(ErrorKind::Refused, "putting data")
                .at(path)
                .because("it is a container with nodes below it"));
        }
        // Another client created the node in between. It may also remove it.
        let delay = sleep(delays.next().unwrap_or_default());
        if let Either::Right(_) = select(pin!(delay), pin!(by.passed())).await {
            return Err(by.error("putting data").at(path));
        }
    }
}

fn persistent(path: &Path, data: &Bytes) -> Op {
    let (path, data) = (path.clone(), data.clone());
    Op::Create { path, data, lifetime: Lifetime::Persistent, sequential: false }
}
