//! [`Alone`]: the directories of which the session knows that nobody else has anything there, so that it
//! need not look. Pure.
//!
//! The server numbers a sequential child by how many children were ever made in its directory. So whoever saw
//! that his ticket was the only child, has deleted it, and gets the very next number for the next one, knows
//! that this one is the only child, too: nobody made another in between.
//!
//! As long as it is the same directory. One that was removed and made again counts from the beginning, and may
//! have come as far. A watch tells of that, and must have been there before the look: what it tells comes
//! ahead of the answer to whatever was done later, on one connection.

use std::collections::BTreeMap;
use std::fmt;
use std::task::{Context, Waker};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use synod_core::path::Path;
use synod_core::store::Sequence;

/// How many directories are kept in mind. What is forgotten costs a look.
const MOST: usize = 256;

/// How long the paths that are watched for this may be together: what is watched is told to the server anew with
/// each connection, in one request, of which `hub.rs` leaves this much.
const BYTES: usize = 16_000;

/// How many tickets in a row must have been the only child before it is taken that the next one is.
const EARNED: u32 = 2;

/// So many at most, however often that was wrong.
const MOST_EARNED: u32 = 64;

/// The last number that a ticket may have.
const LAST: u64 = crate::sift::LAST.get();

/// A watch on a directory: it is ready when the watch has told. Dropping it takes the watch away.
pub(crate) type Coming = BoxFuture<'static, ()>;

/// A moment in the server's time, of which each directory has one at which it was made.
type Birth = i64;

/// The directories in which the session drew tickets lately.
#[derive(Default)]
pub(crate) struct Alone {
    dirs: BTreeMap<Path, Dir>,
    /// How long the paths are that are watched.
    bytes: usize,
    /// How many tickets were drawn since room was last made.
    drawn: usize,
}

struct Dir {
    last: Option<Last>,
    /// How many in a row it takes.
    price: u32,
    watch: Watch,
    /// Since room was last made.
    used: bool,
}

/// The last ticket that was drawn, and was the only child.
struct Last {
    ticket: Path,
    sequence: Sequence,
    /// How many in a row were.
    run: u32,
    /// On which connection.
    connection: u64,
    /// The birth of the directory, if it was watched by then.
    watched: Option<Birth>,
    deleted: bool,
}

#[derive(Default)]
enum Watch {
    #[default]
    No,
    /// It is on its way.
    Asked,
    Of(Birth, Coming),
}

/// A ticket that is about to be drawn.
#[derive(Debug)]
pub(crate) struct Draw {
    connection: u64,
    before: Option<Before>,
    /// Whether the directory was watched, or that was asked for, before it could be looked at.
    watched: bool,
    /// It need not be looked at if the next number comes.
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

/// A ticket that was drawn.
pub(crate) struct Drawn<'a> {
    pub(crate) ticket: &'a Path,
    pub(crate) sequence: Sequence,
    pub(crate) connection: u64,
}

impl Alone {
    /// A ticket is about to be drawn. Until it is, nothing is known of the directory. `None` if there is no room.
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
        if heard {
            self.bytes -= dir.as_str().len();
        }
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

    /// Whether the directory may be watched: then that is asked for, ahead of the look.
    pub(crate) fn ask(&mut self, dir: &Path, draw: &mut Draw) -> bool {
        let Some(known) = self.dirs.get_mut(dir) else { return false };
        let bytes = self.bytes + dir.as_str().len();
        let may = matches!(known.watch, Watch::No) && bytes <= BYTES;
        if may {
            self.bytes = bytes;
            known.watch = Watch::Asked;
            draw.watched = true;
        }
        may
    }

    /// What came of asking: the birth of the directory that is watched. What is not wanted any more is given back.
    pub(crate) fn watched(&mut self, dir: &Path, watch: Option<(Birth, Coming)>) -> Option<Coming> {
        let known = self.dirs.get_mut(dir).filter(|known| matches!(known.watch, Watch::Asked));
        match (known, watch) {
            (Some(known), Some((birth, coming))) => {
                known.watch = Watch::Of(birth, coming);
                None
            }
            (Some(known), None) => {
                known.watch = Watch::No;
                self.bytes -= dir.as_str().len();
                None
            }
            (None, watch) => watch.map(|(_, coming)| coming),
        }
    }

    /// The directory is not to be watched for this any more. The watch is given back, if it is there already.
    pub(crate) fn leave(&mut self, dir: &Path) -> Option<Coming> {
        let known = self.dirs.get_mut(dir)?;
        known.last = None;
        if matches!(known.watch, Watch::No) {
            return None;
        }
        self.bytes -= dir.as_str().len();
        match std::mem::take(&mut known.watch) {
            Watch::Of(_, coming) => Some(coming),
            Watch::No | Watch::Asked => None,
        }
    }

    /// A ticket was drawn and nobody looked: whether it is the only child. If that is not known, a look is due, of
    /// which [`Self::looked`] is to be told.
    pub(crate) fn won(&mut self, dir: &Path, draw: &mut Draw, drawn: &Drawn<'_>) -> bool {
        let Some(known) = self.dirs.get_mut(dir) else { return false };
        if known.hear() {
            self.bytes -= dir.as_str().len();
        }
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

    /// A ticket was drawn, and the look behind it showed that it was the only child of a directory of this birth; or
    /// else.
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

    /// The session deleted a node, for certain.
    pub(crate) fn deleted(&mut self, node: &Path) {
        let known = node.parent_str().and_then(|dir| self.dirs.get_mut(dir));
        if let Some(last) = known.and_then(|known| known.last.as_mut())
            && last.ticket == *node
        {
            last.deleted = true;
        }
    }

    /// Forgets the directories that were not used for so long as tickets were drawn in as many. Not
    /// again before that: else many who take turns would have it done each time.
    fn make_room(&mut self) {
        if self.drawn < MOST {
            return;
        }
        self.drawn = 0;
        let bytes = &mut self.bytes;
        self.dirs.retain(|dir, known| {
            let stays = std::mem::take(&mut known.used);
            if !stays && !matches!(known.watch, Watch::No) {
                *bytes -= dir.as_str().len();
            }
            stays
        });
    }
}

impl Dir {
    fn new() -> Self {
        Self { last: None, price: EARNED, watch: Watch::No, used: true }
    }

    /// Others were there after all: it takes more to be sure again.
    fn lose(&mut self) {
        self.last = None;
        self.price = (self.price * 2).min(MOST_EARNED);
    }

    /// Whether the watch has told just now. It is over then.
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

    /// Whether it is the directory of this birth, all the while.
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

impl fmt::Debug for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alone").field("dirs", &self.dirs.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
