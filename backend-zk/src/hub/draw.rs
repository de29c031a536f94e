//! Optimisation: skips the listing after a create in directories where this session is the only
//! contender; see [`SoleContender`](crate::sole_contender::SoleContender). Its state and watches are under the lock of the
//! hub. These watches are of the same kind as those of [`once`](super::one_shot); a path that has a
//! persistent watch of the hub gets none.

use std::sync::{Arc, Weak};

use futures_util::FutureExt as _;
use synod_core::path::Path;
use synod_core::store::OpResult;
use synod_core::task::spawn;

use crate::client::{Client, OneshotWatcher, ZkStat};
use crate::error::Trouble;
use crate::hub::{Hub, State};
use crate::sole_contender::{Coming, Draw, Drawn};

/// The answer to a request for a watch on a directory, with the directory's stat.
type Asked = Result<(Option<ZkStat>, OneshotWatcher), Trouble>;

impl Hub {
    /// Call this before creating a ticket. If the directory is to be watched, that request has been
    /// sent when this returns.
    pub(crate) fn draw(self: &Arc<Self>, client: &Arc<Client>, dir: &Path) -> Option<Draw> {
        let mut state = self.state();
        let connection = state.draws.connection();
        let mut draw = state.draws.alone.draw(dir, connection)?;
        if draw.wants_watch
            && !state.watches.0.contains_key(dir)
            && state.draws.alone.ask(dir, &mut draw)
        {
            self.watch_dir(client, dir.clone());
        }
        Some(draw)
    }

    /// A task handles the answer: this runs under the lock, which handling the answer needs too.
    fn watch_dir(self: &Arc<Self>, client: &Client, dir: Path) {
        let (hub, wire) = (Arc::downgrade(self), self.wire.clone());
        let asked = client.check_and_watch_stat(dir.as_str());
        spawn(async move { keep_watch(&hub, &dir, wire.answer(asked).await) }).let_go();
    }

    /// A ticket was created without a listing. Returns whether it is known to be the only child.
    pub(crate) fn won(&self, dir: &Path, draw: &mut Draw, done: &OpResult) -> bool {
        let mut state = self.state();
        let connection = state.draws.connection();
        let Some(sequence) = done.sequence else { return false };
        let drawn = Drawn { ticket: &done.path, sequence, connection };
        state.draws.alone.won(dir, draw, &drawn)
    }

    /// A ticket was created and a listing followed: whether the ticket was the only child of a
    /// directory with this birth.
    pub(crate) fn looked(&self, dir: &Path, draw: &Draw, done: &OpResult, alone: Option<i64>) {
        let mut state = self.state();
        let connection = state.draws.connection();
        let Some(sequence) = done.sequence else { return };
        let drawn = Drawn { ticket: &done.path, sequence, connection };
        state.draws.alone.looked(dir, draw, &drawn, alone);
    }

    /// The session deleted a node.
    pub(crate) fn deleted(&self, node: &Path) {
        self.state().draws.alone.deleted(node);
    }
}

impl State {
    /// The answer to the request for a watch on a directory.
    fn keep_watch(&mut self, dir: &Path, answer: Asked) {
        let watch = match answer {
            Ok((Some(stat), watcher)) => Some((stat.czxid, coming(watcher))),
            // The directory does not exist. Drop the watch for its creation.
            Ok((None, _)) | Err(_) => None,
        };
        if let Some(coming) = self.draws.alone.watched(dir, watch) {
            self.watches.retire(dir, coming);
        }
    }

    /// Gives up the watch on a directory, for a persistent one.
    pub(super) fn leave_to_hub(&mut self, dir: &Path) {
        if let Some(coming) = self.draws.alone.leave(dir) {
            self.watches.retire(dir, coming);
        }
    }
}

fn keep_watch(hub: &Weak<Hub>, dir: &Path, answer: Asked) {
    if let Some(hub) = hub.upgrade() {
        hub.state().keep_watch(dir, answer);
    }
}

fn coming(watcher: OneshotWatcher) -> Coming {
    watcher.changed().map(|_told| ()).boxed()
}
