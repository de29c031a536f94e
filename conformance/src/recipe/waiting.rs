//! [`Waiting`]: a waiter in a separate task; and the queries of cases about its wait queue.

use std::num::NonZeroU32;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::Query;
use synod_core::task::{self, Task};
use synod_recipes::lock::{Contender, inspect};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::actor::text_of;
use crate::door::answer;
use crate::world::World;

/// A waiter in a separate task. Dropping it ends the wait.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    pub(crate) told: oneshot::Receiver<Result<T>>,
    pub(crate) _task: Task,
}

impl<T: Send + 'static> Waiting<T> {
    pub(crate) fn new(work: impl Future<Output = Result<T>> + Send + 'static) -> Self {
        let (tell, told) = oneshot::channel();
        let task = task::spawn(async move {
            let _heard = tell.send(work.await).is_ok();
        });
        Self { told, _task: task }
    }

    /// The result of the wait, in time.
    pub(crate) async fn gets(mut self, world: &World, what: &str) -> T {
        let told = world.in_time(what, &mut self.told).await;
        answer(told.unwrap_or_else(|_gone| panic!("{what}: the waiter panicked")))
    }

    /// Returns `true` if the wait ends before `other` does.
    pub(crate) async fn ends_before(&mut self, other: impl Future<Output = ()>) -> bool {
        self.result_before(other).await.map(answer).is_some()
    }

    /// The result, if it ends before `other` does.
    pub(crate) async fn result_before(
        &mut self,
        other: impl Future<Output = ()>,
    ) -> Option<Result<T>> {
        match select(&mut self.told, pin!(other)).await {
            Either::Left((told, _)) => Some(told.expect("the waiter does not panic")),
            Either::Right(_) => None,
        }
    }

    /// Ends the wait, and returns when no thread runs it.
    pub(crate) async fn stop(self) {
        let Self { told, _task: task } = self;
        drop(task);
        // There is no result, unless the wait ended before.
        let _ended = told.await.is_ok();
    }

    /// Asserts that it is still waiting after a while.
    pub(crate) async fn waits_for(&mut self, brief: Duration, what: &str) {
        if let Ok(ended) = timeout(brief, &mut self.told).await {
            match ended.unwrap_or_else(|_gone| panic!("{what}: the waiter panicked")) {
                Ok(_) => panic!("{what}: it was granted"),
                Err(error) => panic!("{what}: the waiter failed: {}", text_of(&error)),
            }
        }
    }
}

impl World {
    /// Waits until there are `count` contenders in the wait queue.
    pub(crate) async fn stand(&self, client: &Client, dir: &Path, count: usize) {
        let standing = async || line(client, dir).await.len() == count;
        self.eventually(&format!("{count} stand in line"), standing).await;
    }

    /// Waits until nothing is left in a directory.
    pub(crate) async fn left_alone(&self, client: &Client, dir: &Path) {
        let names = || client.read(Query::children(dir).names_only());
        let empty = async || answer(names().await).nodes.is_empty();
        self.eventually("nothing is left", empty).await;
    }
}

/// A number of permits.
pub(crate) fn many(permits: u32) -> NonZeroU32 {
    NonZeroU32::new(permits).expect("more than none")
}

/// All contenders in the wait queue.
pub(crate) async fn line(client: &Client, dir: &Path) -> Vec<Contender> {
    answer(inspect(client, dir).await)
}
