//! The current value of a node, kept up to date: [`ValueWatch`].

use std::fmt;
use std::sync::Arc;

use futures_util::stream::{BoxStream, unfold};
use serde::de::DeserializeOwned;

use crate::client::generations::closed;
use crate::client::{Client, ClientWatch};
use crate::clock::sleep;
use crate::error::{Error, Result};
use crate::mutant::mistake;
use crate::path::Path;
use crate::retry::Delays;
use crate::store::{End, Event, Node, Query, Stat};
use crate::value::Value;

/// The value of a node, read as JSON and kept up to date across sessions: see
/// [`Client::follow_value`].
///
/// It always has the last value that could be read. It does not keep the client open. Dropping it
/// frees its resources at the server.
#[must_use = "a value that is dropped is not followed"]
pub struct ValueWatch<T> {
    path: Path,
    watch: ClientWatch,
    current: Option<Value<T>>,
    /// The last version of the node that was reported to the caller, readable or not.
    seen: Option<Stat>,
    /// `true` if the node may have changed since the last read.
    stale: bool,
    /// The delays between reads that the store rejects.
    delays: Option<Delays>,
    /// The error of every later call, once the client is closed or the watch ended.
    final_error: Option<Error>,
}

impl Client {
    /// Reads the value of the node at `path` as JSON, and follows its changes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::error::ErrorKind::Corrupt) if the data of the node is
    /// currently not such a value, and the errors that are common to all calls. A missing node is
    /// not an error: its value is `None` until it is created.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: after a dropped call nothing is watched.
    ///
    /// # Examples
    ///
    /// ```
    /// # use synod_core::client::Client;
    /// # use synod_core::error::{ErrorKind, Result};
    /// # use synod_core::path;
    /// # async fn example(client: Client) -> Result<()> {
    /// let mut limit = client.follow_value::<u32>(&path!("/config/limit")).await?;
    /// loop {
    ///     println!("the limit is {:?}", limit.current().map(|limit| limit.value));
    ///     match limit.changed().await {
    ///         Ok(()) => {}
    ///         Err(error) if error.kind() == ErrorKind::Corrupt => eprintln!("{error}"),
    ///         Err(error) => return Err(error),
    ///     }
    /// }
    /// # }
    /// ```
    pub async fn follow_value<T: DeserializeOwned>(&self, path: &Path) -> Result<ValueWatch<T>> {
        let (view, watch) = self.watch(Query::node(path.clone())).await?;
        let mut following = ValueWatch {
            path: path.clone(),
            watch,
            current: None,
            seen: None,
            stale: false,
            delays: None,
            final_error: None,
        };
        following.learn(view.into_node().as_ref())?;
        Ok(following)
    }
}

impl<T: DeserializeOwned> ValueWatch<T> {
    /// Returns the value that was read last; `None` if there was no node then.
    pub fn current(&self) -> Option<&Value<T>> {
        self.current.as_ref()
    }

    /// Waits until the value changes or the node is deleted, and reads it: [`ValueWatch::current`]
    /// is then the new value. Values that are replaced in quick succession may be skipped; the last
    /// one never is.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::error::ErrorKind::Corrupt), once for each version of the node
    /// with other data: [`ValueWatch::current`] stays the last value that could be read, and the
    /// next call waits for another.
    ///
    /// [`ErrorKind::SessionLost`](crate::error::ErrorKind::SessionLost) when the client is closed,
    /// and the error of the store if it ended the watch. Every later call fails with the same
    /// error.
    ///
    /// The error of the store if it rejects the read, like
    /// [`ErrorKind::Denied`](crate::error::ErrorKind::Denied). The next call reads again after a
    /// delay. An outage is not an error: the call waits for its end.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the next call returns the change that a dropped call read.
    pub async fn changed(&mut self) -> Result<()> {
        mistake!(HeardForgotten: self.stale = false);
        loop {
            if let Some(why) = &self.final_error {
                return Err(why.clone());
            }
            if !self.stale {
                match self.watch.next().await {
                    Some(Event::Changed(_) | Event::Resync) => self.stale = true,
                    Some(Event::Ended(End::Failed(why))) => self.end(&why),
                    Some(Event::Ended(_)) | None => self.end(&closed()),
                }
                continue;
            }
            if let Some(delays) = &mut self.delays {
                sleep(delays.next().unwrap_or_default()).await;
            }
            let Some(read) = self.watch.context().read().await else {
                self.end(&closed());
                continue;
            };
            let node = read.inspect_err(|_| {
                self.delays.get_or_insert_with(|| self.watch.context().delays());
            })?;
            (self.stale, self.delays) = (false, None);
            if self.learn(node.as_ref())? {
                return Ok(());
            }
        }
    }

    /// Converts the values to a stream: first the current one, then each that
    /// [`ValueWatch::changed`] waits for, and its errors. It ends after the first error that every
    /// later call would repeat.
    pub fn into_stream(self) -> BoxStream<'static, Result<Option<Value<T>>>>
    where
        T: Send + 'static,
    {
        Box::pin(unfold((self, true), |(mut following, first)| async move {
            if following.final_error.is_some() {
                return None;
            }
            let read = if first { Ok(()) } else { following.changed().await };
            let value = read.map(|()| following.current.take());
            Some((value, (following, false)))
        }))
    }

    /// Records the state of the node. Returns `true` if it is new.
    fn learn(&mut self, node: Option<&Node>) -> Result<bool> {
        let stat = node.and_then(|node| node.stat);
        if stat == self.seen && node.is_some() == stat.is_some() {
            return Ok(false);
        }
        self.seen = stat;
        mistake!(BadValueForgetsGood: self.current = None);
        self.current = node.map(Value::of).transpose()?;
        Ok(true)
    }

    fn end(&mut self, why: &Arc<Error>) {
        let over = Error::new(why.kind(), "following a value").at(&self.path);
        self.final_error = Some(over.caused_by(why.clone()));
    }
}

impl<T> fmt::Debug for ValueWatch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueWatch")
            .field("path", &self.path)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}
