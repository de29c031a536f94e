//! [`Posts`]: the parts that a process takes in queues and crews.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use synod_core::chance::Chance;
use synod_core::client::{Client, ClientOptions};
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{Backend, SessionOptions};
use synod_core::task::{Task, spawn};
use tokio::sync::watch;

use crate::clients::deed::Part;
use crate::clients::holder::Lapse;
use crate::clients::post::Post;
use crate::clients::{crew_post, queue_post};
use crate::history::Value;

/// The deadline of the client's calls: longer than the life of a session.
const DEADLINE: Duration = Duration::from_secs(5);

/// All parts of a process, with one client.
pub(crate) struct Posts {
    p: usize,
    lapse: Option<Lapse>,
    backend: Arc<dyn Backend>,
    client: Option<Client>,
    taken: Vec<Task>,
    leave: watch::Sender<bool>,
}

impl Posts {
    pub(crate) fn new(p: usize, backend: Arc<dyn Backend>, lapse: Option<Lapse>) -> Self {
        let leave = watch::Sender::new(false);
        Self { p, lapse, backend, client: None, taken: Vec::new(), leave }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// Takes one more part.
    pub(crate) async fn add(
        &mut self,
        part: Part,
        path: Path,
        (first, count): (Value, u64),
        ttl: Duration,
    ) -> Result<()> {
        let client = if let Some(client) = &self.client {
            client.clone()
        } else {
            let options = ClientOptions::default().session(SessionOptions::new(ttl));
            Client::open(self.backend.clone(), options.deadline(DEADLINE)).await?
        };
        self.client = Some(client.clone());
        let (p, lapse, chance) = (self.p, self.lapse, Chance::from_system());
        let post = Post { p, lapse, part, path, first, count, client, chance };
        self.taken.push(spawn(work(post, self.leave.subscribe())));
        Ok(())
    }

    /// Gives up all of them, and closes the client.
    pub(crate) async fn leave(&mut self) -> Result<()> {
        self.leave.send_replace(true);
        // Each of them drops the other end.
        self.leave.closed().await;
        self.taken.clear();
        match self.client.take() {
            Some(client) => client.close().await,
            None => Ok(()),
        }
    }
}

async fn work(post: Post, mut leave: watch::Receiver<bool>) {
    let working = async {
        match post.part {
            Part::Producer => queue_post::produce(&post).await,
            Part::Consumer => queue_post::consume(&post).await,
            Part::Taker => queue_post::take(&post).await,
            Part::Member | Part::Remover => crew_post::serve(&post).await,
            Part::Submitter => crew_post::submit(&post).await,
        }
    };
    match select(pin!(working), pin!(leave.wait_for(|now| *now))).await {
        Either::Left((ended, _)) => ended.expect("the path is short"),
        Either::Right(_left) => {}
    }
}
