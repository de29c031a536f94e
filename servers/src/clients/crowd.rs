//! The tasks of a process that share one client, until they are stopped: [`Crowd`].

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use synod_core::client::{Client, ClientOptions};
use synod_core::error::Result;
use synod_core::store::{Backend, SessionOptions};
use synod_core::task::{Task, spawn};
use tokio::sync::watch;

/// The deadline of the client's calls: longer than the TTL of a session, so that a task that cannot
/// reach a server waits until it has lost the locks that it holds.
const DEADLINE: Duration = Duration::from_secs(5);

/// Tasks with one client, which is opened with the first of them.
pub(super) struct Crowd {
    backend: Arc<dyn Backend>,
    client: Option<Client>,
    tasks: Vec<Task>,
    leave: watch::Sender<bool>,
}

impl Crowd {
    pub(super) fn new(backend: Arc<dyn Backend>) -> Self {
        let leave = watch::Sender::new(false);
        Self { backend, client: None, tasks: Vec::new(), leave }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Returns the client. If it is not open yet, it is opened with this TTL of its sessions.
    pub(super) async fn client(&mut self, ttl: Duration) -> Result<Client> {
        let client = if let Some(client) = &self.client {
            client.clone()
        } else {
            let options = ClientOptions::default().session(SessionOptions::new(ttl));
            Client::open(self.backend.clone(), options.timeout(DEADLINE)).await?
        };
        Ok(self.client.insert(client).clone())
    }

    /// Adds a task. It is dropped when all are stopped.
    pub(super) fn add(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        let mut leave = self.leave.subscribe();
        self.tasks.push(spawn(async move {
            let (work, left) = (pin!(work), pin!(leave.wait_for(|now| *now)));
            select(work, left).await;
        }));
    }

    /// Stops all tasks, and closes the client.
    pub(super) async fn leave(&mut self) -> Result<()> {
        self.leave.send_replace(true);
        // Each task drops the other end.
        self.leave.closed().await;
        self.tasks.clear();
        match self.client.take() {
            Some(client) => client.close().await,
            None => Ok(()),
        }
    }
}
