//! Writes that survive a lost answer, [`ExactlyOnceClient`].

use bytes::Bytes;
use serde::Serialize;

use crate::client::Client;
use crate::client::put::put;
use crate::error::{Error, ErrorKind, Result};
use crate::path::Path;
use crate::session::once::OnceWrite;
use crate::store::{Expect, Lifetime, Op, OpResult, Outcome};
use crate::value::encode;

/// The directory of the write ids, unless [`ExactlyOnceClient::write_ids_at`] names another.
const WRITE_IDS: &str = "/synod-writes";

/// # Writes that survive a lost answer
impl Client {
    /// Returns the writes of this client that are repeated after a lost answer, and applied exactly
    /// once.
    ///
    /// # Examples
    ///
    /// ```
    /// # use synod_core::client::Client;
    /// # use synod_core::error::Result;
    /// # use synod_core::path;
    /// use synod_core::store::{Lifetime, Outcome};
    ///
    /// # async fn example(client: Client) -> Result<()> {
    /// let order = path!("/orders/17");
    /// match client.exactly_once().create(&order, "new", Lifetime::Persistent).await? {
    ///     Outcome::Committed(_) => println!("this call created it"),
    ///     Outcome::Rejected(why) => println!("another client has it: {why}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn exactly_once(&self) -> ExactlyOnceClient<'_> {
        ExactlyOnceClient { client: self, write_ids: Path::of_constant(WRITE_IDS) }
    }
}

/// Writes that are sent again when an answer is lost, until their effect is known: other libraries
/// call them idempotent or guaranteed writes. [`Client::exactly_once`] returns them.
///
/// A plain write whose answer was lost fails with
/// [`Effect::Unknown`](crate::error::Effect::Unknown), as a retry might be applied a second time,
/// or might find the effect of the first attempt and mistake it for the write of another client.
/// These writes distinguish the cases:
///
/// - `Committed`: this call was applied, once. No delayed request applies it again.
/// - `Rejected`: this call was not applied, and never will be.
/// - An error with [`Effect::None`](crate::error::Effect::None): this call failed and was not
///   applied, and never will be.
/// - An error with `Effect::Unknown`: the effect cannot be known, as the deadline or the retry
///   policy of the client ended the attempts, or the session was lost, while an answer was missing.
///
/// The stat of a result that was recovered after a lost answer is `None` if another write to the
/// node followed.
///
/// # Write ids
///
/// Each write also creates an ephemeral node with a unique name, its write id, in the same
/// transaction: in the directory `/synod-writes`, or [another](Self::write_ids_at). It is removed
/// in the background. It stays until the session ends if an answer was lost or the caller was
/// dropped. The identity of this client needs access to the directory.
///
/// # Cost
///
/// A transaction instead of a single write, and a request in the background that removes the write
/// id. After a lost answer: one more request, and a read of two nodes.
#[derive(Clone, Debug)]
#[must_use = "it writes nothing by itself"]
pub struct ExactlyOnceClient<'a> {
    client: &'a Client,
    write_ids: Path,
}

impl ExactlyOnceClient<'_> {
    /// Sets the directory of the write ids. Several clients may share it.
    pub fn write_ids_at(mut self, directory: impl Into<Path>) -> Self {
        self.write_ids = directory.into();
        self
    }

    /// Creates a node that must not exist: [`Client::create`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the directory of the write ids is at or below `path`,
    /// [`ErrorKind::Refused`] if no write id can be created in it, and the errors that are common
    /// to all calls: see [`Client`].
    ///
    /// # Cancel safety
    ///
    /// As [`Client::create`]: the node that a dropped call created is removed again, except after a
    /// lost answer.
    pub async fn create(
        &self,
        path: &Path,
        data: impl Into<Bytes>,
        lifetime: Lifetime,
    ) -> Result<Outcome<OpResult>> {
        let (path, data) = (path.clone(), data.into());
        self.send(Op::Create { path, data, lifetime, sequential: false }).await
    }

    /// Replaces the data of an existing node: [`Client::set`].
    ///
    /// # Errors
    ///
    /// As [`ExactlyOnceClient::create`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call completes in the background: the data is either replaced or unchanged.
    pub async fn set(
        &self,
        path: &Path,
        data: impl Into<Bytes>,
        expect: Expect,
    ) -> Result<Outcome<OpResult>> {
        let (path, data) = (path.clone(), data.into());
        self.send(Op::Set { path, data, expect }).await
    }

    /// Removes an existing node that has no children: [`Client::delete`]. A delayed duplicate of
    /// the request removes no later node of the path.
    ///
    /// # Errors
    ///
    /// As [`ExactlyOnceClient::create`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call completes in the background: the node is either removed or unchanged.
    pub async fn delete(&self, path: &Path, expect: Expect) -> Result<Outcome<()>> {
        let delete = Op::Delete { path: path.clone(), expect };
        Ok(self.send(delete).await?.map(drop))
    }

    /// Writes data to the node at `path`, and creates a persistent node if there is none:
    /// [`Client::put`]. It replaces the data once: never data that was written after this call
    /// returned.
    ///
    /// # Errors
    ///
    /// As [`ExactlyOnceClient::create`], and [`ErrorKind::Refused`] as [`Client::put`].
    ///
    /// # Cancel safety
    ///
    /// As [`Client::put`].
    pub async fn put(&self, path: &Path, data: impl Into<Bytes>) -> Result<OpResult> {
        let data: Bytes = data.into();
        self.check(path)?;
        let write_ids = Some(&self.write_ids);
        let put = self
            .client
            .on_session(async |session, by| put(&session, path, &data, by, write_ids).await);
        put.await
    }

    /// Creates a node with a value as JSON: [`Client::create_value`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the value cannot be serialised as JSON, and the errors of
    /// [`ExactlyOnceClient::create`].
    ///
    /// # Cancel safety
    ///
    /// As [`ExactlyOnceClient::create`].
    pub async fn create_value<T: Serialize + ?Sized>(
        &self,
        path: &Path,
        value: &T,
        lifetime: Lifetime,
    ) -> Result<Outcome<OpResult>> {
        let data = encode(path, value)?;
        self.create(path, data, lifetime).await
    }

    /// Replaces the data of an existing node by a value as JSON: [`Client::set_value`].
    ///
    /// # Errors
    ///
    /// As [`ExactlyOnceClient::create_value`].
    ///
    /// # Cancel safety
    ///
    /// As [`ExactlyOnceClient::set`].
    pub async fn set_value<T: Serialize + ?Sized>(
        &self,
        path: &Path,
        value: &T,
        expect: Expect,
    ) -> Result<Outcome<OpResult>> {
        let data = encode(path, value)?;
        self.set(path, data, expect).await
    }

    async fn send(&self, op: Op) -> Result<Outcome<OpResult>> {
        self.check(op.path())?;
        let sent = self.client.on_session(async |session, by| {
            // A new id in each session: a write id of the previous one proves nothing.
            OnceWrite::new(&session, &self.write_ids, op.clone(), by)?.send().await
        });
        sent.await
    }

    fn check(&self, path: &Path) -> Result<()> {
        if self.write_ids != *path && !self.write_ids.is_below(path) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Invalid, "writing exactly once").at(path).because(format!(
            "its write id would be at {}, at or below the node itself: name another directory",
            self.write_ids
        )))
    }
}
