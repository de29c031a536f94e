//! [`Followed`]: a cell with a copy in this process.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream::unfold;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{Query, Stat};
use synod_core::task::{self, Task};
use tracing::Instrument;

use crate::cell::Cell;
use crate::cell::batch::Decided;
use crate::cell::copy::LocalCopy;
use crate::cell::follower::ValueFollower;
use crate::cell::page::{Decode, Page};
use crate::cell::update::Cost;
use crate::mutant::mistake;

/// A cell that is followed. Clones share everything. The last one takes the task and the watch with it.
pub(crate) struct Followed<T> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    cell: Cell,
    page: Arc<Page<T>>,
    /// It ends with this value, and with the client.
    _follower: Task,
}

impl<T> Clone for Followed<T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<T: Clone + Send + Sync + 'static> Followed<T> {
    /// Reads the value, after storing `first` if there is none; and follows it.
    pub(crate) async fn open(
        client: &Client,
        path: Path,
        recipe: &'static str,
        decode: Decode<T>,
        first: Bytes,
    ) -> Result<Self> {
        let cell = Cell::new(client, path, recipe);
        // What happens to the session from here on reaches the follower.
        let state = client.state();
        loop {
            let session = client.session().await?;
            let (view, watch) = client.watch(Query::node(cell.path())).await?;
            let Some(node) = view.into_node() else {
                store_first(&cell, first.clone()).await?;
                continue;
            };
            let page = Arc::new(Page::new(decode, &node, session)?);
            let span = tracing::debug_span!("following", recipe, path = %cell.path());
            let follower = ValueFollower::new(client, cell.path(), page.clone(), watch, state);
            let follower = task::spawn(follower.run().instrument(span));
            return Ok(Self { inner: Arc::new(Inner { cell, page, _follower: follower }) });
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.inner.cell.path()
    }

    /// The copy. Asks no server.
    pub(crate) fn get(&self) -> LocalCopy<T> {
        self.inner.page.get()
    }

    /// The copy, then each that replaces it. Ends with the client, and with the last clone of this value.
    pub(crate) fn changes(&self) -> impl Stream<Item = LocalCopy<T>> + Send + use<T> {
        unfold((self.inner.page.clone(), 0), |(page, seen)| async move {
            let (copy, edition) = page.after(seen).await?;
            Some((copy, (page, edition)))
        })
    }

    /// Replaces what is stored, whatever it is.
    pub(crate) async fn set(&self, data: Bytes) -> Result<Cost> {
        let decided = self.inner.cell.change(move |_before| Ok(Some(data.clone()))).await?;
        self.inner.learn(&decided);
        Ok(decided.cost)
    }

    /// Replaces exactly this version. If there is another one, or none, it returns the copy of that, and changes nothing.
    pub(crate) async fn try_set(
        &self,
        seen: Stat,
        data: Bytes,
    ) -> Result<Result<Cost, LocalCopy<T>>> {
        let replace = self.inner.cell.decide(move |found| {
            let is_it = found.stat == Some(seen);
            mistake!(NumberIsVersion: let is_it = {
                found.stat.is_some_and(|found| found.version == seen.version)
            });
            Ok(is_it.then(|| data.clone()))
        });
        let decided = replace.await?;
        self.inner.learn(&decided);
        Ok(if decided.written { Ok(decided.cost) } else { Err(self.get()) })
    }
}

/// Stores a value if there is none.
async fn store_first(cell: &Cell, first: Bytes) -> Result<()> {
    let store = move |before: Option<&Bytes>| Ok(before.is_none().then(|| first.clone()));
    cell.change(store).await.map(drop)
}

impl<T> Inner<T> {
    /// Takes over what a change of this client left in the store.
    fn learn(&self, decided: &Decided) {
        match &decided.last {
            Some(last) => self.page.written(self.cell.path(), &last.data, last.stat),
            // Some servers do not report what they created.
            None => self.page.written_unseen(),
        }
    }
}

impl<T> Drop for Inner<T> {
    fn drop(&mut self) {
        self.page.end();
    }
}

/// Shows the path only: the value is the application's.
impl<T> fmt::Debug for Followed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner.cell, f)
    }
}
