//! [`Client`]: the requests of a session.

use std::time::Duration;

use crate::acl::Acl;
use crate::client::answer::{Answer, Reply};
use crate::client::departure::{Credentials, Departure};
use crate::client::event::StateWatcher;
use crate::client::granted::{Certain, Granted};
use crate::client::jute::Decoder;
use crate::client::multi::{MultiReader, MultiWriter};
use crate::client::node::{AddWatchMode, CreateOptions, ZkStat};
use crate::client::outbox::Outbox;
use crate::client::request::{Message, create_op, op};
use crate::client::watcher::{OneshotWatcher, PersistentWatcher};
use crate::client::watches::{WatchKind, WatchRequest};
use crate::client::zk_error::{NO_NODE, ZkError};

/// A session. It is ended when this is dropped.
///
/// Each method sends its request before it returns.
#[derive(Debug)]
pub(crate) struct Client {
    outbox: Outbox,
    id: i64,
    granted: Granted,
    certain: Certain,
    departure: Departure,
}

impl Client {
    pub(super) fn new(outbox: Outbox, id: i64, (granted, certain): (Granted, Certain)) -> Self {
        Self { outbox, id, granted, certain, departure: Departure::default() }
    }

    /// Adds the departure of the session's task.
    pub(super) fn departing(self, departure: Departure) -> Self {
        Self { departure, ..self }
    }

    /// Makes the task of the session disconnect without ending the session. Requests that are not
    /// answered yet fail. Returns the credentials for another client.
    pub(crate) fn depart(&self) -> Credentials {
        self.departure.request()
    }

    pub(crate) fn session_id(&self) -> i64 {
        self.id
    }

    /// The time to live of the session. A later connection may grant another one, which is visible
    /// here before the state of that connection is reported.
    pub(crate) fn session_timeout(&self) -> Duration {
        self.granted.get()
    }

    /// Sets the function that returns how long the session is still certain to live. When a
    /// connection is lost, each server is given a share of that time to take the session over.
    pub(crate) fn set_certain(&self, left: impl Fn() -> Option<Duration> + Send + Sync + 'static) {
        self.certain.set(left);
    }

    /// Follows the session's state. The current state counts as seen.
    pub(crate) fn state_watcher(&self) -> StateWatcher {
        self.outbox.states()
    }

    /// Returns the path that was created, which ends with a number if it is sequential, and its
    /// stat.
    pub(crate) fn create(
        &self,
        path: &str,
        data: &[u8],
        options: &CreateOptions,
    ) -> Answer<(String, ZkStat)> {
        let mut message = Message::new(create_op(options));
        message.body().create(path, data, options);
        self.outbox.send(message, None, |reply| {
            let body = reply.done()?;
            let mut reading = Decoder::new(&body);
            Ok((reading.text()?.to_owned(), reading.stat()?))
        })
    }

    pub(crate) fn delete(&self, path: &str, version: Option<i32>) -> Answer<()> {
        let mut message = Message::new(op::DELETE);
        message.body().text(path).int(version.unwrap_or(-1));
        self.outbox.send(message, None, |reply| reply.done().map(drop))
    }

    pub(crate) fn set_data(&self, path: &str, data: &[u8], version: Option<i32>) -> Answer<ZkStat> {
        let mut message = Message::new(op::SET_DATA);
        message.body().text(path).buffer(data).int(version.unwrap_or(-1));
        self.outbox.send(message, None, |reply| Decoder::new(&reply.done()?).stat())
    }

    /// Answered when the server has applied everything that was committed before it received this.
    pub(crate) fn sync(&self, path: &str) -> Answer<()> {
        let mut message = Message::new(op::SYNC);
        message.body().text(path);
        self.outbox.send(message, None, |reply| reply.done().map(drop))
    }

    pub(crate) fn get_data(&self, path: &str) -> Answer<(Vec<u8>, ZkStat)> {
        self.outbox.send(reading(op::GET_DATA, path, false), None, |reply| data(&reply.done()?))
    }

    pub(crate) fn get_and_watch_data(
        &self,
        path: &str,
    ) -> Answer<(Vec<u8>, ZkStat, OneshotWatcher)> {
        let asked = WatchRequest::new(path, WatchKind::Data);
        self.outbox.send(reading(op::GET_DATA, path, true), Some(asked), |mut reply| {
            let watch = reply.watch.take();
            let (data, stat) = data(&reply.done()?)?;
            Ok((data, stat, OneshotWatcher::of(watch)?))
        })
    }

    pub(crate) fn get_children(&self, path: &str) -> Answer<(Vec<String>, ZkStat)> {
        self.outbox
            .send(reading(op::GET_CHILDREN_2, path, false), None, |reply| children(&reply.done()?))
    }

    pub(crate) fn get_and_watch_children(
        &self,
        path: &str,
    ) -> Answer<(Vec<String>, ZkStat, OneshotWatcher)> {
        let asked = WatchRequest::new(path, WatchKind::Child);
        self.outbox.send(reading(op::GET_CHILDREN_2, path, true), Some(asked), |mut reply| {
            let watch = reply.watch.take();
            let (names, stat) = children(&reply.done()?)?;
            Ok((names, stat, OneshotWatcher::of(watch)?))
        })
    }

    pub(crate) fn get_acl(&self, path: &str) -> Answer<(Acl, ZkStat)> {
        let mut message = Message::new(op::GET_ACL);
        message.body().text(path);
        self.outbox.send(message, None, |reply| {
            let body = reply.done()?;
            let mut reading = Decoder::new(&body);
            Ok((reading.acl()?, reading.stat()?))
        })
    }

    /// The version is that of the access list.
    pub(crate) fn set_acl(&self, path: &str, acl: &Acl, version: Option<i32>) -> Answer<ZkStat> {
        let mut message = Message::new(op::SET_ACL);
        message.body().text(path).acl(acl).int(version.unwrap_or(-1));
        self.outbox.send(message, None, |reply| Decoder::new(&reply.done()?).stat())
    }

    /// `None` if there is no node.
    pub(crate) fn check_stat(&self, path: &str) -> Answer<Option<ZkStat>> {
        self.outbox.send(reading(op::EXISTS, path, false), None, stat_if_there)
    }

    /// Watches the node, or its creation if it does not exist.
    pub(crate) fn check_and_watch_stat(
        &self,
        path: &str,
    ) -> Answer<(Option<ZkStat>, OneshotWatcher)> {
        let asked = WatchRequest::or_creation(path);
        self.outbox.send(reading(op::EXISTS, path, true), Some(asked), |mut reply| {
            let watch = reply.watch.take();
            let stat = stat_if_there(reply)?;
            Ok((stat, OneshotWatcher::of(watch)?))
        })
    }

    pub(crate) fn watch(&self, path: &str, mode: AddWatchMode) -> Answer<PersistentWatcher> {
        let (kind, mode) = match mode {
            AddWatchMode::Persistent => (WatchKind::Persistent, 0),
            AddWatchMode::PersistentRecursive => (WatchKind::Recursive, 1),
        };
        let mut message = Message::new(op::ADD_WATCH);
        message.body().text(path).int(mode);
        self.outbox.send(message, Some(WatchRequest::new(path, kind)), |mut reply| {
            let watch = reply.watch.take();
            reply.done()?;
            PersistentWatcher::of(watch)
        })
    }

    /// Collects operations for a request that is applied as a whole or not at all.
    pub(crate) fn new_multi_writer(&self) -> MultiWriter<'_> {
        MultiWriter::new(&self.outbox)
    }

    /// Collects reads for a request that is answered with a consistent snapshot.
    pub(crate) fn new_multi_reader(&self) -> MultiReader<'_> {
        MultiReader::new(&self.outbox)
    }
}

fn reading(op: i32, path: &str, watch: bool) -> Message {
    let mut message = Message::new(op);
    message.body().text(path).flag(watch);
    message
}

fn data(body: &[u8]) -> Result<(Vec<u8>, ZkStat), ZkError> {
    let mut reading = Decoder::new(body);
    Ok((reading.buffer()?.to_vec(), reading.stat()?))
}

fn children(body: &[u8]) -> Result<(Vec<String>, ZkStat), ZkError> {
    let mut reading = Decoder::new(body);
    Ok((reading.texts()?, reading.stat()?))
}

fn stat_if_there(reply: Reply) -> Result<Option<ZkStat>, ZkError> {
    if reply.code == NO_NODE {
        return Ok(None);
    }
    Decoder::new(&reply.done()?).stat().map(Some)
}
