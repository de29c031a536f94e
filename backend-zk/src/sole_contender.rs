//! [`SoleContender`]: the directories in which this session is the only contender, so that a create needs
//! no listing afterwards. Pure.
//!
//! The server numbers a sequential child by how many children were ever created in its directory.
//! Suppose that a session saw its ticket as the only child, has deleted it, and its next ticket
//! gets the very next number. Then no other client created a child in between, and the new ticket
//! is the only child too.
//!
//! This holds as long as it is the same directory: one that was removed and created again counts
//! from the beginning, and may have reached the same number. A watch, set before the listing,
//! reports a removal. On one connection its event arrives before the answer to any later request.

use std::collections::BTreeMap;
use std::fmt;
use std::task::{Context, Waker};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use synod_core::path::Path;
use synod_core::store::Sequence;

/// The most directories that are remembered, and watched. A directory that was forgotten costs one listing.
const MOST: usize = 256;

/// How many tickets in a row must have been the only child before the next one is assumed to be.
const EARNED: u32 = 2;

/// The upper limit of that number, however often the assumption was wrong.
const MOST_EARNED: u32 = 64;

/// The last number that a ticket may have.
const LAST: u64 = crate::selection::LAST.get();

/// A watch on a directory, ready when it has fired. Dropping it removes the watch.
pub(crate) type Coming = BoxFuture<'static, ()>;

/// The transaction that created a directory (its czxid), which distinguishes it from later
/// directories of the same path.
type Birth = i64;

/// The directories in which the session created tickets lately.
#[derive(Default)]
pub(crate) struct SoleContender {
    dirs: BTreeMap<Path, Dir>,
    /// Tickets created since room was last made.
    drawn: usize,
}

struct Dir {
    last: Option<Last>,
    /// How many in a row are required.
    price: u32,
    watch: Watch,
    /// Whether it was used since room was last made.
    used: bool,
}

/// The latest ticket, if it was the only child.
struct Last {
    ticket: Path,
    sequence: Sequence,
    /// How many in a row were the only child.
    run: u32,
    /// The connection on which it was created.
    connection: u64,
    /// The birth of the directory, if it was already watched.
    watched: Option<Birth>,
    deleted: bool,
}

#[derive(Default)]
enum Watch {
    #[default]
    No,
    /// The watch was requested.
    Asked,
    Of(Birth, Coming),
}

/// A ticket that is about to be created.
#[derive(Debug)]
pub(crate) struct Draw {
    connection: u64,
    before: Option<Before>,
    /// Whether the directory was watched, or a watch was requested, before the listing.
    watched: bool,
    /// Whether to skip the listing if the ticket gets the next number.
    pub(crate) bet: bool,
    /// Whether a watch would be worth its request.
    pub(crate) wants_watch: bool,
}

#[derive(Clone, Copy, Debug)]
struct Before {
    sequence: Sequence,
    run: u32,
    watched: Option<Birth>,
}

/// A ticket that was created.
pub(crate) struct Drawn<'a> {
    pub(crate) ticket: &'a Path,
    pub(crate) sequence: Sequence,
    pub(crate) connection: u64,
}

impl SoleContender {
    /// Call this before creating a ticket; until the result is reported, the directory is unknown.
    /// `None` if there is no room.
    pub(crate) fn draw(&mut self, dir: &Path, connection: u64) -> Option<Draw> {
        self.drawn += 1;
        if !self.dirs.contains_key(dir) {
            if self.dirs.len() >= MOST {
                self.make_room();
            }
            if self.dirs.len() >= MOST {
                return None;
            }
            self.dirs.insert(dir.clone(), Dir::new());
        }
        let known = self.dirs.get_mut(dir)?;
        known.used = true;
        let heard = known.hear();
        let last = known.last.take().filter(|last| {
            !heard && last.deleted && last.connection == connection && last.sequence.get() < LAST
        });
        let before =
            last.map(|Last { sequence, run, watched, .. }| Before { sequence, run, watched });
        let run = before.map_or(0, |before| before.run);
        let sure = before.is_some_and(|before| known.still(before.watched));
        Some(Draw {
            connection,
            before,
            watched: !matches!(known.watch, Watch::No),
            bet: sure && run >= known.price,
            wants_watch: run.saturating_add(1) >= known.price && matches!(known.watch, Watch::No),
        })
    }

    /// Whether the directory may be watched; if so, the caller sends that request before the
    /// listing.
    pub(crate) fn ask(&mut self, dir: &Path, draw: &mut Draw) -> bool {
        let Some(known) = self.dirs.get_mut(dir) else { return false };
        let may = matches!(known.watch, Watch::No);
        if may {
            known.watch = Watch::Asked;
            draw.watched = true;
        }
        may
    }

    /// The answer to the request: the birth of the directory that is watched. Returns a watch that
    /// is no longer wanted.
    pub(crate) fn watched(&mut self, dir: &Path, watch: Option<(Birth, Coming)>) -> Option<Coming> {
        let known = self.dirs.get_mut(dir).filter(|known| matches!(known.watch, Watch::Asked));
        match (known, watch) {
            (Some(known), Some((birth, coming))) => {
                known.watch = Watch::Of(birth, coming);
                None
            }
            (Some(known), None) => {
                known.watch = Watch::No;
                None
            }
            (None, watch) => watch.map(|(_, coming)| coming),
        }
    }

    /// Stops watching the directory for this purpose. Returns the watch, if it exists already.
    pub(crate) fn leave(&mut self, dir: &Path) -> Option<Coming> {
        let known = self.dirs.get_mut(dir)?;
        known.last = None;
        match std::mem::take(&mut known.watch) {
            Watch::Of(_, coming) => Some(coming),
            Watch::No | Watch::Asked => None,
        }
    }

    /// A ticket was created without a listing. Returns whether it is the only child. If that is
    /// unknown, a listing must follow, and its result is passed to [`Self::looked`].
    pub(crate) fn won(&mut self, dir: &Path, draw: &mut Draw, drawn: &Drawn<'_>) -> bool {
        let Some(known) = self.dirs.get_mut(dir) else { return false };
        let _heard = known.hear();
        let before = draw.before.filter(|before| {
            draw.bet
                && drawn.connection == draw.connection
                && drawn.follows(before.sequence)
                && known.still(before.watched)
        });
        let Some(before) = before else {
            known.lose();
            draw.watched = matches!(known.watch, Watch::Of(..));
            return false;
        };
        known.price = (known.price - 1).max(EARNED);
        known.last = Some(drawn.alone(before.run.saturating_add(1), before.watched));
        true
    }

    /// A ticket was created and a listing followed. `alone` is the birth of the directory if the
    /// ticket was the only child.
    pub(crate) fn looked(
        &mut self,
        dir: &Path,
        draw: &Draw,
        drawn: &Drawn<'_>,
        alone: Option<Birth>,
    ) {
        let Some(known) = self.dirs.get_mut(dir) else { return };
        let run = match draw.before {
            Some(before) if drawn.follows(before.sequence) => before.run.saturating_add(1),
            _ => 1,
        };
        let alone = alone.filter(|_| draw.connection == drawn.connection);
        known.last = alone.map(|birth| drawn.alone(run, draw.watched.then_some(birth)));
    }

    /// The session has certainly deleted a node.
    pub(crate) fn deleted(&mut self, node: &Path) {
        let known = node.parent_str().and_then(|dir| self.dirs.get_mut(dir));
        if let Some(last) = known.and_then(|known| known.last.as_mut())
            && last.ticket == *node
        {
            last.deleted = true;
        }
    }

    /// Forgets the directories that were not used while [`MOST`] tickets were created, and runs at
    /// most once in that many: otherwise, with too many directories in turn, every ticket would run
    /// it.
    fn make_room(&mut self) {
        if self.drawn < MOST {
            return;
        }
        self.drawn = 0;
        self.dirs.retain(|_, known| std::mem::take(&mut known.used));
    }
}

impl Dir {
    fn new() -> Self {
        Self { last: None, price: EARNED, watch: Watch::No, used: true }
    }

    /// Other contenders were there after all: require more tickets in a row next time.
    fn lose(&mut self) {
        self.last = None;
        self.price = (self.price * 2).min(MOST_EARNED);
    }

    /// Whether the watch has fired. A watch fires once.
    fn hear(&mut self) -> bool {
        let mut now = Context::from_waker(Waker::noop());
        let told = match &mut self.watch {
            Watch::Of(_, coming) => coming.poll_unpin(&mut now).is_ready(),
            Watch::No | Watch::Asked => false,
        };
        if told {
            self.watch = Watch::No;
            self.lose();
        }
        told
    }

    /// Whether the directory of this birth was watched all the time.
    fn still(&self, watched: Option<Birth>) -> bool {
        matches!((&self.watch, watched), (Watch::Of(birth, _), Some(watched)) if *birth == watched)
    }
}

impl Drawn<'_> {
    fn follows(&self, before: Sequence) -> bool {
        before.get().checked_add(1) == Some(self.sequence.get())
    }

    fn alone(&self, run: u32, watched: Option<Birth>) -> Last {
        let Self { ticket, sequence, connection } = *self;
        Last { ticket: ticket.clone(), sequence, run, connection, watched, deleted: false }
    }
}

impl fmt::Debug for SoleContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoleContender").field("dirs", &self.dirs.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
