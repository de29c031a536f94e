//! [`CrewFeeds`]: the changes of the directories that a master follows.

use std::pin::Pin;

use futures_core::Stream;
use futures_util::StreamExt as _;
use futures_util::stream::{SelectAll, select_all, unfold};
use synod_core::client::Client;
use synod_core::error::Result;
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

type Changes = Pin<Box<dyn Stream<Item = (CrewDir, CacheEvent)> + Send>>;

/// The changes of all directories, from empty ones on.
pub(super) struct CrewFeeds {
    changes: SelectAll<Changes>,
    /// The directories that are not known as a whole yet.
    incomplete: Vec<CrewDir>,
    _mirrors: Vec<Mirror>,
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
                    .names_only()
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
        let mirrors = mirrors.into_iter().map(|(_, mirror)| mirror).collect();
        Ok(Self { changes: select_all(changes), incomplete, _mirrors: mirrors })
    }

    /// Whether all that was there at some moment after the beginning was reported.
    pub(super) fn are_complete(&self) -> bool {
        self.incomplete.is_empty()
    }

    /// The next change. `None` once the client is closed.
    pub(super) async fn next(&mut self) -> Option<CrewNews> {
        loop {
            let (dir, event) = self.changes.next().await?;
            match event {
                CacheEvent::Created(node) | CacheEvent::Updated { node, .. } => {
                    return Some(CrewNews::There(dir, node));
                }
                CacheEvent::Deleted(node) => return Some(CrewNews::Gone(dir, node)),
                CacheEvent::Reset => {
                    self.incomplete.push(dir);
                    return Some(CrewNews::Reset(dir));
                }
                CacheEvent::Complete(_) => {
                    self.incomplete.retain(|it| *it != dir);
                    if self.incomplete.is_empty() {
                        return Some(CrewNews::Complete);
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
