//! [`ValueFollower`]: the task that keeps a copy as the store has the value.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};
use synod_core::client::{Client, ClientWatch, ConnectionState};
use synod_core::clock::sleep;
use synod_core::error::{Error, Result};
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::session::Session;
use synod_core::store::{Event, Query};
use tokio::sync::watch;

use crate::cell::page::Page;
use crate::mutant::mistake;

/// Reads the value whenever it may have changed: after an event, after an outage, and when it is asked to.
pub(super) struct ValueFollower<T> {
    sight: Sight<T>,
    connection: watch::Receiver<ConnectionState>,
}

/// What it takes to read the value, and to learn when to do so again.
struct Sight<T> {
    client: Client,
    query: Query,
    page: Arc<Page<T>>,
    /// `None` if the store could not go on with it.
    watch: Option<ClientWatch>,
    /// Whether the next read is of a change that an event reported.
    after_event: bool,
}

impl<T: Send + Sync + 'static> ValueFollower<T> {
    pub(super) fn new(
        client: &Client,
        path: &Path,
        page: Arc<Page<T>>,
        watch: ClientWatch,
        connection: watch::Receiver<ConnectionState>,
    ) -> Self {
        let (client, query) = (client.clone(), Query::node(path));
        let sight = Sight { client, query, page, watch: Some(watch), after_event: false };
        Self { sight, connection }
    }

    /// Ends with the client.
    pub(super) async fn run(mut self) {
        let mut is_read = true;
        while let Some(turn) = self.turn(is_read).await {
            match turn {
                Prompt::Connection(connection) => {
                    if !matches!(
                        connection,
                        ConnectionState::Connected | ConnectionState::Reconnected
                    ) {
                        self.sight.page.stale();
                    }
                    mistake!(OutageUnread: continue);
                    // What was missed is read as soon as that is possible.
                    (is_read, self.sight.after_event) = (false, false);
                }
                Prompt::Step => is_read = !is_read,
            }
        }
    }

    /// What happens first. `None` once the client is closed.
    async fn turn(&mut self, is_read: bool) -> Option<Prompt> {
        let turned =
            match select(pin!(self.connection.changed()), pin!(self.sight.step(is_read))).await {
                Either::Left((turned, _)) => turned,
                Either::Right(((), _)) => return Some(Prompt::Step),
            };
        turned.ok()?;
        Some(Prompt::Connection(*self.connection.borrow_and_update()))
    }
}

impl<T> Drop for ValueFollower<T> {
    /// Says that the value is not followed any more: the task ends with the client, or, perhaps before it was ever polled, with its
    /// runtime.
    fn drop(&mut self) {
        self.sight.page.unfollowed();
    }
}

/// What makes a follower go on.
enum Prompt {
    Connection(ConnectionState),
    /// The value was read, if it was not, or else it may have changed.
    Step,
}

impl<T: Send + Sync + 'static> Sight<T> {
    /// Waits until the value may have changed, if it was read; and otherwise reads it.
    async fn step(&mut self, is_read: bool) {
        if is_read { self.changed().await } else { self.read().await }
    }

    async fn changed(&mut self) {
        let Some(watch) = &mut self.watch else { return };
        let event = match select(pin!(watch.next()), pin!(self.page.asked())).await {
            Either::Left((event, _)) => event,
            Either::Right(_) => return,
        };
        mistake!(OutageUnread: let event = crate::mutant::recipe::change(event, watch).await);
        self.after_event = matches!(event, Some(Event::Changed(_)));
        if let None | Some(Event::Ended(_)) = event {
            self.watch = None;
        }
    }

    /// Reads, however long the store does not answer.
    async fn read(&mut self) {
        let mut delays = None;
        loop {
            match self.look().await {
                Ok(true) => return,
                // A write of this client overtook it.
                Ok(false) => continue,
                Err(error) => self.failed(&error),
            }
            let delays =
                delays.get_or_insert_with(|| Retry::forever().delays(self.client.random()));
            sleep(delays.next().unwrap_or_default()).await;
        }
    }

    /// What to read. A session that was given an event reads what the event is about, or something newer, also where an
    /// answer may lag. On ZooKeeper that is one request less.
    fn question(&mut self, session: &Session) -> Query {
        let query = self.query.clone();
        let after_event = std::mem::take(&mut self.after_event);
        if after_event && self.page.was_read_in(session) { query.local() } else { query }
    }

    /// Reads once. Returns whether that is the latest value.
    async fn look(&mut self) -> Result<bool> {
        let (writes, session) = (self.page.writes(), self.client.session().await?);
        let view = if self.watch.is_some() {
            session.read(self.question(&session)).await?
        } else {
            let (view, watch) = self.client.watch(self.query.clone()).await?;
            self.watch = Some(watch);
            view
        };
        self.page.read(view.node(), writes, session)
    }

    fn failed(&self, error: &Error) {
        if error.kind().is_outage() {
            self.page.stale();
        } else {
            self.page.refused(error);
        }
    }
}
