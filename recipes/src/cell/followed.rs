//! [`FollowedValue`]: a single value with a local copy; [`FollowTask`]: the task that keeps the
//! copy equal to the value in the store.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_core::Stream;
use futures_util::future::{Either, select};
use futures_util::stream::unfold;
use synod_core::client::{Client, ClientWatch, ConnectionState};
use synod_core::error::{Error, Result};
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Event, Query, Stat};
use synod_core::task::{self, Task};
use tokio::sync::watch;
use tracing::Instrument;

use crate::cell::SingleValue;
use crate::cell::change::{Cost, Decided};
use crate::cell::copy::LocalCopy;
use crate::cell::value_state::{Decode, ValueShared};
use crate::mutant::mistake;
use crate::support::retry::RetryDelays;

/// A single value with a local copy. Clones share everything; the last one ends the task and the
/// watch.
pub(crate) struct FollowedValue<T> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    value: SingleValue,
    shared: Arc<ValueShared<T>>,
    /// The task ends with this value, and with the client.
    _task: Task,
}

impl<T> Clone for FollowedValue<T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<T> FollowedValue<T> {
    pub(crate) fn path(&self) -> &Path {
        self.inner.value.path()
    }
}

impl<T: Clone + Send + Sync + 'static> FollowedValue<T> {
    /// Reads the value, after storing `first` if there is none, and follows it.
    pub(crate) async fn open(
        client: &Client,
        path: Path,
        recipe: &'static str,
        decode: Decode<T>,
        first: Bytes,
    ) -> Result<Self> {
        let value = SingleValue::new(client, path, recipe);
        // The task is notified of every change of the session from now on.
        let connection = client.state();
        loop {
            let session = client.session().await?;
            let (view, watch) = client.watch(Query::node(value.path())).await?;
            let Some(node) = view.into_node() else {
                store_first(&value, first.clone()).await?;
                continue;
            };
            let shared = Arc::new(ValueShared::new(decode, &node, session)?);
            let span = tracing::debug_span!("following", recipe, path = %value.path());
            let task = FollowTask::new(client, value.path(), shared.clone(), watch, connection);
            let task = task::spawn(task.run().instrument(span));
            return Ok(Self { inner: Arc::new(Inner { value, shared, _task: task }) });
        }
    }

    /// Returns the copy, without a request.
    pub(crate) fn get(&self) -> LocalCopy<T> {
        self.inner.shared.get()
    }

    /// Returns the copy, then each that replaces it. Ends with the client, and with the last clone
    /// of this value.
    pub(crate) fn changes(&self) -> impl Stream<Item = LocalCopy<T>> + Send + use<T> {
        unfold((self.inner.shared.clone(), 0), |(shared, last)| async move {
            let (copy, number) = shared.after(last).await?;
            Some((copy, (shared, number)))
        })
    }

    /// Replaces the stored data unconditionally.
    pub(crate) async fn set(&self, data: Bytes) -> Result<Cost> {
        let decided = self.inner.value.change(move |_before| Ok(Some(data.clone()))).await?;
        self.inner.record_change(&decided);
        Ok(decided.cost)
    }

    /// Replaces exactly this version. If there is another version, or no node, it changes nothing
    /// and returns a copy of the current state.
    pub(crate) async fn try_set(
        &self,
        expected: Stat,
        data: Bytes,
    ) -> Result<Result<Cost, LocalCopy<T>>> {
        let replace = self.inner.value.decide(move |found| {
            let is_expected = found.stat == Some(expected);
            mistake!(NumberIsVersion: let is_expected = {
                found.stat.is_some_and(|found| found.version == expected.version)
            });
            Ok(is_expected.then(|| data.clone()))
        });
        let decided = replace.await?;
        self.inner.record_change(&decided);
        Ok(if decided.written { Ok(decided.cost) } else { Err(self.get()) })
    }
}

/// Stores a value if there is none.
async fn store_first(value: &SingleValue, first: Bytes) -> Result<()> {
    let store = move |before: Option<&Bytes>| Ok(before.is_none().then(|| first.clone()));
    value.change(store).await.map(drop)
}

impl<T> Inner<T> {
    /// Records the value that a change of this client left in the store.
    fn record_change(&self, decided: &Decided) {
        match &decided.last {
            Some(last) => self.shared.record_write(self.value.path(), &last.data, last.stat),
            // Some servers do not report the stat of a created node.
            None => self.shared.record_unseen_write(),
        }
    }
}

impl<T> Drop for Inner<T> {
    fn drop(&mut self) {
        self.shared.end();
    }
}

/// The task that reads the value whenever it may have changed: after an event, after an outage, and
/// on request.
struct FollowTask<T> {
    reader: FollowReader<T>,
    connection: watch::Receiver<ConnectionState>,
}

/// The parts of the task that read the value, and that wait for a reason to read it again.
struct FollowReader<T> {
    client: Client,
    query: Query,
    shared: Arc<ValueShared<T>>,
    /// `None` if the store could not continue the watch.
    watch: Option<ClientWatch>,
    /// True if an event has reported the change that is read next.
    is_after_event: bool,
}

/// The reason for the next step of the task.
enum Prompt {
    Connection(ConnectionState),
    /// The value was read, or may have changed.
    Step,
}

impl<T: Send + Sync + 'static> FollowTask<T> {
    fn new(
        client: &Client,
        path: &Path,
        shared: Arc<ValueShared<T>>,
        watch: ClientWatch,
        connection: watch::Receiver<ConnectionState>,
    ) -> Self {
        let (client, query, watch) = (client.clone(), Query::node(path), Some(watch));
        let reader = FollowReader { client, query, shared, watch, is_after_event: false };
        Self { reader, connection }
    }

    /// Runs until the client is closed.
    async fn run(mut self) {
        let mut is_read = true;
        while let Some(prompt) = self.next(is_read).await {
            match prompt {
                Prompt::Connection(connection) => {
                    if !matches!(
                        connection,
                        ConnectionState::Connected | ConnectionState::Reconnected
                    ) {
                        self.reader.shared.set_stale();
                    }
                    mistake!(OutageUnread: continue);
                    // Reads missed changes as soon as possible.
                    (is_read, self.reader.is_after_event) = (false, false);
                }
                Prompt::Step => is_read = !is_read,
            }
        }
    }

    /// Waits for the next prompt. `None` once the client is closed.
    async fn next(&mut self, is_read: bool) -> Option<Prompt> {
        let changed = {
            let (changed, step) = (self.connection.changed(), self.reader.step(is_read));
            match select(pin!(changed), pin!(step)).await {
                Either::Left((changed, _)) => changed,
                Either::Right(((), _)) => return Some(Prompt::Step),
            }
        };
        changed.ok()?;
        Some(Prompt::Connection(*self.connection.borrow_and_update()))
    }
}

impl<T> Drop for FollowTask<T> {
    /// Records that the value is no longer followed: the task ended with the client, or with its
    /// runtime, possibly before it was first polled.
    fn drop(&mut self) {
        self.reader.shared.task_ended();
    }
}

impl<T: Send + Sync + 'static> FollowReader<T> {
    /// Waits until the value may have changed, if it was read; otherwise reads it.
    async fn step(&mut self, is_read: bool) {
        if is_read { self.changed().await } else { self.read().await }
    }

    async fn changed(&mut self) {
        let Some(watch) = &mut self.watch else { return };
        let event = match select(pin!(watch.next()), pin!(self.shared.read_requested())).await {
            Either::Left((event, _)) => event,
            Either::Right(_) => return,
        };
        mistake!(OutageUnread: let event = crate::mutant::recipe::change(event, watch).await);
        self.is_after_event = matches!(event, Some(Event::Changed(_)));
        if let None | Some(Event::Ended(_)) = event {
            self.watch = None;
        }
    }

    /// Reads the value, and retries during outages.
    async fn read(&mut self) {
        let mut delays = RetryDelays::forever(self.client.random());
        loop {
            match self.try_read().await {
                Ok(true) => return,
                // A write of this client was answered during the read.
                Ok(false) => {}
                Err(error) => {
                    self.record_failure(&error);
                    delays.wait().await;
                }
            }
        }
    }

    /// Returns the query of the next read.
    ///
    /// A session that has received an event reads at least the state that the event is about, also
    /// with a local read, which may lag otherwise. On ZooKeeper a local read saves one request.
    fn next_query(&mut self, session: &Session) -> Query {
        let query = self.query.clone();
        let is_after_event = std::mem::take(&mut self.is_after_event);
        if is_after_event && self.shared.was_read_in(session) { query.local() } else { query }
    }

    /// Reads once. Returns `true` if the result is the latest value.
    async fn try_read(&mut self) -> Result<bool> {
        let (writes, session) = (self.shared.writes(), self.client.session().await?);
        let view = if self.watch.is_some() {
            session.read(self.next_query(&session)).await?
        } else {
            let (view, watch) = self.client.watch(self.query.clone()).await?;
            self.watch = Some(watch);
            view
        };
        self.shared.record_read(view.node(), writes, session)
    }

    fn record_failure(&self, error: &Error) {
        if error.kind().is_outage() {
            self.shared.set_stale();
        } else {
            self.shared.set_refused(error);
        }
    }
}
