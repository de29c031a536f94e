//! The plain verbs of a [`Client`].

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::watching::Again;
use crate::client::{Client, ClientWatch};
use crate::error::Result;
use crate::mutant::mistake;
use crate::path::Path;
use crate::session::only;
use crate::store::{Expect, Lifetime, Node, OpResult, Outcome, Query, Txn, View};
use crate::value::{Value, encode};

/// # Plain verbs
///
/// Each fails with [`ErrorKind::Unreachable`](crate::error::ErrorKind::Unreachable) if there was no
/// answer within the deadline, with
/// [`ErrorKind::SessionLost`](crate::error::ErrorKind::SessionLost) once the client is closed or if
/// the session was lost while a write was on its way, and with what the store says.
impl Client {
    /// The node at `path`, as it is now. A container is none.
    ///
    /// # Errors
    ///
    /// As every verb.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn get(&self, path: &Path) -> Result<Option<Node>> {
        Ok(self.read(Query::node(path.clone())).await?.into_node())
    }

    /// The node at `path`, not older than what this session already knows: cheaper, and may lag.
    ///
    /// # Errors
    ///
    /// As every verb.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn get_local(&self, path: &Path) -> Result<Option<Node>> {
        Ok(self.read(Query::node(path.clone()).local()).await?.into_node())
    }

    /// Whether there is a node at `path` now. A container is none.
    ///
    /// # Errors
    ///
    /// As every verb.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.read(Query::node(path.clone()).names_only()).await?.node().is_some())
    }

    /// The children of `path` with their data, sorted by path. None if there is no node at `path`.
    ///
    /// # Errors
    ///
    /// As every verb.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn children(&self, path: &Path) -> Result<Vec<Node>> {
        Ok(self.read(Query::children(path.clone())).await?.nodes)
    }

    /// Answers a query.
    ///
    /// # Errors
    ///
    /// As every verb.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn read(&self, query: Query) -> Result<View> {
        self.on_session(async |session, by| session.read_by(query.clone(), by).await).await
    }

    /// Creates a node that must not exist.
    ///
    /// # Errors
    ///
    /// As every verb.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what a dropped call created is removed again.
    pub async fn create(
        &self,
        path: &Path,
        data: impl Into<Bytes>,
        lifetime: Lifetime,
    ) -> Result<Outcome<OpResult>> {
        only(self.commit(Txn::new().create(path.clone(), data, lifetime)).await?)
    }

    /// Creates a sequential node at `prefix` and a unique id, by which it is found again if the answer is lost.
    ///
    /// # Errors
    ///
    /// As every verb. If the effect is unknown, the node is looked for and removed in the background.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing remains of a dropped call.
    pub async fn create_sequential(
        &self,
        prefix: &Path,
        data: impl Into<Bytes>,
        lifetime: Lifetime,
    ) -> Result<Outcome<OpResult>> {
        let data: Bytes = data.into();
        let outcome = self.on_session(async |session, by| {
            // Another session, another id: what is of the last one is never taken for this one's.
            let path = session.unique(prefix)?;
            let txn = Txn::new().create_sequential(path, data.clone(), lifetime);
            session.commit_by(txn, by).await
        });
        only(outcome.await?)
    }

    /// Replaces the data of a node that exists.
    ///
    /// # Errors
    ///
    /// As every verb.
    ///
    /// # Cancel safety
    ///
    /// A dropped call is driven to its end: the data is replaced or it is not.
    pub async fn set(
        &self,
        path: &Path,
        data: impl Into<Bytes>,
        expect: Expect,
    ) -> Result<Outcome<OpResult>> {
        only(self.commit(Txn::new().set(path.clone(), data, expect)).await?)
    }

    /// Removes a node that exists and has no children.
    ///
    /// On ZooKeeper the versions of a path begin again with each node that is created there. So a request that was sent again
    /// because its answer was lost, and that arrives late, may remove the next node of the path if that has the expected
    /// version. Where other clients create the node again, remove it in a transaction that also checks a node of this
    /// client alone.
    ///
    /// # Errors
    ///
    /// As every verb.
    ///
    /// # Cancel safety
    ///
    /// A dropped call is driven to its end: the node is removed or it is not.
    pub async fn delete(&self, path: &Path, expect: Expect) -> Result<Outcome<()>> {
        let outcome = self.commit(Txn::new().delete(path.clone(), expect)).await?;
        Ok(outcome.map(drop))
    }

    /// Applies a transaction, whole or not at all.
    ///
    /// # Errors
    ///
    /// As every verb.
    ///
    /// # Cancel safety
    ///
    /// A dropped call is driven to its end. If it only creates, what it created is then removed
    /// again; else what it did stays done.
    pub async fn commit(&self, txn: Txn) -> Result<Outcome> {
        self.on_session(async |session, by| session.commit_by(txn.clone(), by).await).await
    }

    /// Answers a query, and reports every change of what it covers from then on, across sessions.
    ///
    /// # Errors
    ///
    /// As every verb.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call watches nothing.
    pub async fn watch(&self, query: Query) -> Result<(View, ClientWatch)> {
        let observed =
            self.on_session(async |session, by| session.observe_by(query.clone(), by).await);
        let (view, watch) = observed.await?;
        mistake!(ObservesTwice: crate::mutant::client::watch_and_forget(self, &query).await?);
        let (generations, tuning) = (self.generations.clone(), self.tuning.clone());
        let again = Again { generations, tuning, root: self.root.clone(), query };
        Ok((view, ClientWatch::new(again, watch)))
    }

    /// The value that the node at `path` holds as JSON.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::error::ErrorKind::Corrupt) if it holds something else, and as
    /// every verb.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn get_value<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<Value<T>>> {
        let value = self.get(path).await?.as_ref().map(Value::of);
        mistake!(CorruptIsNone: let value = value.filter(Result::is_ok));
        value.transpose()
    }

    /// Replaces what a node that exists holds by a value as JSON.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::error::ErrorKind::Invalid) if the value cannot be written so,
    /// and as every verb.
    ///
    /// # Cancel safety
    ///
    /// As [`Client::set`].
    pub async fn set_value<T: Serialize + ?Sized>(
        &self,
        path: &Path,
        value: &T,
        expect: Expect,
    ) -> Result<Outcome<OpResult>> {
        let data = encode(path, value)?;
        self.set(path, data, expect).await
    }

    /// Creates a node that holds a value as JSON.
    ///
    /// # Errors
    ///
    /// As [`Client::set_value`].
    ///
    /// # Cancel safety
    ///
    /// As [`Client::create`].
    pub async fn create_value<T: Serialize + ?Sized>(
        &self,
        path: &Path,
        value: &T,
        lifetime: Lifetime,
    ) -> Result<Outcome<OpResult>> {
        let data = encode(path, value)?;
        self.create(path, data, lifetime).await
    }
}
