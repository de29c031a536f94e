//! [`CrewFeeds`]: the changes of the directories that a master follows.

use std::future::pending;
use std::pin::{Pin, pin};

use futures_core::Stream;
use futures_util::StreamExt as _;
use futures_util::future::{self, Either, select};
use futures_util::stream::{SelectAll, select_all, unfold};
use synod_core::client::Client;
use synod_core::error::{Error, Result};
use synod_core::store::Node;

use crate::crew::layout::CrewPaths;
use crate::mirror::Mirror;
use crate::mirror::event::CacheEvent;
use crate::mirror::extent::Extent;

/// What a master follows: a directory, or the node of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CrewDir {
    Workers,
    Todo,
    Assigned,
    Done,
    Switch,
}

/// What a master is notified of.
#[derive(Debug)]
pub(super) enum CrewNews {
    /// A node is there, perhaps in place of an earlier one of its path.
    There(CrewDir, Node),
    /// A node is gone.
    Gone(CrewDir, Node),
    /// What is known of a directory is to be forgotten: what is there follows.
    Reset(CrewDir),
    /// All that is there was reported.
    Complete,
}

/// More bytes than the date of the end of a task has.
const MAX_DATE: usize = 64;

type Changes = Pin<Box<dyn Stream<Item = (CrewDir, CacheEvent)> + Send>>;

/// The changes of all directories, from empty ones on.
pub(super) struct CrewFeeds {
    changes: SelectAll<Changes>,
    /// The directories that are not known as a whole yet.
    incomplete: Vec<CrewDir>,
    /// The error of the first directory that is not reported any more.
    failure: Pin<Box<dyn Future<Output = Error> + Send>>,
}

impl CrewFeeds {
    /// Follows the directories from now on: what is there is reported first.
    pub(super) async fn open(client: &Client, paths: &CrewPaths) -> Result<Self> {
        // What a step expects is checked by the store, so what is known may go back for a moment.
        let dirs = [
            (CrewDir::Workers, Extent::children(paths.workers())),
            (CrewDir::Todo, Extent::children(paths.all_todo()).deletions_as_reported()),
            (CrewDir::Assigned, Extent::subtree(paths.all_assigned()).deletions_as_reported()),
            (
                CrewDir::Done,
                Extent::children(paths.all_done())
                    .data_up_to(MAX_DATE)
                    .deletions_as_reported()
                    .known_by_name(|_name| true),
            ),
            (CrewDir::Switch, Extent::node(paths.switch())),
        ];
        let mirrors = dirs.map(|(dir, extent)| (dir, Mirror::start(client, extent, "crew")));
        for (_, mirror) in &mirrors {
            // It fails if the store refuses to be read.
            mirror.complete().await?;
        }
        let changes = mirrors.each_ref().map(|(dir, mirror)| changes(*dir, mirror));
        let incomplete = mirrors.iter().map(|(dir, _)| *dir).collect();
        let failures = mirrors.map(|(_, mirror)| Box::pin(async move { mirror.failure().await }));
        let failure = Box::pin(async move { future::select_all(failures).await.0 });
        Ok(Self { changes: select_all(changes), incomplete, failure })
    }

    /// Whether all that was there at some moment after the beginning was reported.
    pub(super) fn are_complete(&self) -> bool {
        self.incomplete.is_empty()
    }

    /// The next change.
    ///
    /// # Errors
    ///
    /// The error with which the store refuses a directory to be read, and
    /// [`ErrorKind::SessionLost`](synod_core::error::ErrorKind::SessionLost) once the client is closed.
    pub(super) async fn next(&mut self) -> Result<CrewNews> {
        loop {
            let next = async {
                match self.changes.next().await {
                    Some(event) => event,
                    // The client is closed, which is a failure.
                    None => pending().await,
                }
            };
            let (dir, event) = match select(pin!(next), &mut self.failure).await {
                Either::Left((event, _)) => event,
                Either::Right((failure, _)) => return Err(failure),
            };
            match event {
                CacheEvent::Created(node) | CacheEvent::Updated { node, .. } => {
                    return Ok(CrewNews::There(dir, node));
                }
                CacheEvent::Deleted(node) => return Ok(CrewNews::Gone(dir, node)),
                CacheEvent::Reset => {
                    self.incomplete.push(dir);
                    return Ok(CrewNews::Reset(dir));
                }
                CacheEvent::Complete(_) => {
                    self.incomplete.retain(|it| *it != dir);
                    if self.incomplete.is_empty() {
                        return Ok(CrewNews::Complete);
                    }
                }
                // What a step expects is checked by the store.
                CacheEvent::Stale => {}
            }
        }
    }
}

fn changes(dir: CrewDir, mirror: &Mirror) -> Changes {
    Box::pin(unfold(mirror.reader(), move |mut reader| async move {
        let event = reader.next().await?;
        Some(((dir, event), reader))
    }))
}
