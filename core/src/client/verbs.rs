//! The calls of a [`Client`] that read, write and watch nodes.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::watching::WatchContext;
use crate::client::{Client, ClientWatch};
use crate::error::Result;
use crate::mutant::mistake;
use crate::path::Path;
use crate::session::only;
use crate::store::{Expect, Lifetime, Node, OpResult, Outcome, Query, Txn, View};
use crate::value::{Value, encode};

/// # Calls on nodes
impl Client {
    /// Reads the latest state of the node at `path`. `None` for a container.
    ///
    /// # Errors
    ///
    /// The errors that are common to all calls: see [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn get(&self, path: &Path) -> Result<Option<Node>> {
        Ok(self.read(Query::node(path.clone())).await?.into_node())
    }

    /// Returns `true` if the latest state has a node at `path`. `false` for a container.
    ///
    /// # Errors
    ///
    /// The errors that are common to all calls: see [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.read(Query::node(path.clone()).names_only()).await?.node().is_some())
    }

    /// Reads the children of `path` with their data, sorted by path. Empty if there is no node at
    /// `path`.
    ///
    /// # Errors
    ///
    /// The errors that are common to all calls: see [`Client`].
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
    /// The errors that are common to all calls: see [`Client`].
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
    /// The errors that are common to all calls: see [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the node that a dropped call created is removed again.
    pub async fn create(
        &self,
        path: &Path,
        data: impl Into<Bytes>,
        lifetime: Lifetime,
    ) -> Result<Outcome<OpResult>> {
        only(self.commit(Txn::new().create(path.clone(), data, lifetime)).await?)
    }

    /// Creates a sequential node at `prefix` and a unique id. The client finds the node by that id
    /// if the answer is lost.
    ///
    /// # Errors
    ///
    /// The errors that are common to all calls: see [`Client`]. If the effect is unknown, the node
    /// is searched for and removed in the background.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves no node.
    pub async fn create_sequential(
        &self,
        prefix: &Path,
        data: impl Into<Bytes>,
        lifetime: Lifetime,
    ) -> Result<Outcome<OpResult>> {
        let data: Bytes = data.into();
        let outcome = self.on_session(async |session, by| {
            // A new id in each session, so that a node of the previous session is never taken for
            // the node of this one.
            let path = session.unique(prefix)?;
            let txn = Txn::new().create_sequential(path, data.clone(), lifetime);
            session.commit_by(txn, by).await
        });
        only(outcome.await?)
    }

    /// Replaces the data of an existing node.
    ///
    /// # Errors
    ///
    /// The errors that are common to all calls: see [`Client`].
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
        only(self.commit(Txn::new().set(path.clone(), data, expect)).await?)
    }

    /// Removes an existing node that has no children.
    ///
    /// On ZooKeeper the versions of a path start again with each node that is created there. So a
    /// delayed duplicate of the request, sent again because its answer was lost, may remove the
    /// next node of the path if that has the expected version. If other clients create the node
    /// again, remove it by [`Client::exactly_once`].
    ///
    /// # Errors
    ///
    /// The errors that are common to all calls: see [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call completes in the background: the node is either removed or unchanged.
    pub async fn delete(&self, path: &Path, expect: Expect) -> Result<Outcome<()>> {
        let outcome = self.commit(Txn::new().delete(path.clone(), expect)).await?;
        Ok(outcome.map(drop))
    }

    /// Applies a transaction, completely or not at all.
    ///
    /// # Errors
    ///
    /// The errors that are common to all calls: see [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call completes in the background. If the transaction only creates nodes, these are
    /// then removed again; otherwise its effect stays.
    pub async fn commit(&self, txn: Txn) -> Result<Outcome> {
        self.on_session(async |session, by| session.commit_by(txn.clone(), by).await).await
    }

    /// Answers a query, and reports every later change of the nodes that it covers, across
    /// sessions.
    ///
    /// # Errors
    ///
    /// The errors that are common to all calls: see [`Client`].
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
        let context = WatchContext { generations, tuning, root: self.root.clone(), query };
        Ok((view, ClientWatch::new(context, watch)))
    }

    /// Reads the node at `path` as a JSON value.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::error::ErrorKind::Corrupt) if the data of the node is not such
    /// a value, and the errors that are common to all calls: see [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn get_value<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<Value<T>>> {
        let value = self.get(path).await?.as_ref().map(Value::of);
        mistake!(CorruptIsNone: let value = value.filter(Result::is_ok));
        value.transpose()
    }

    /// Replaces the data of an existing node by a value as JSON.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::error::ErrorKind::Invalid) if the value cannot be serialised
    /// as JSON, and the errors that are common to all calls: see [`Client`].
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

    /// Creates a node with a value as JSON.
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
