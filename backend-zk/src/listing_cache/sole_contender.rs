//! [`SoleContender`]: the directories in which this session is the only contender, so that a
//! create needs no listing afterwards. Pure.
//!
//! The server numbers a sequential child by the number of children that were ever created in its
//! directory. If a session saw its ticket as the only child, has deleted it, and its next ticket
//! gets the next number, then no other client has created a child in between: the new ticket is the
//! only child, too.
//!
//! This holds as long as it is the same directory: a directory that was removed and created again
//! counts from zero, and may have reached the same number. A watch, set before the listing, reports
//! a removal. On one connection its event arrives before the response to any later request.

use std::collections::BTreeMap;
use std::fmt;
use std::task::{Context, Waker};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use synod_core::path::Path;
use synod_core::store::Sequence;

/// The maximum number of directories that are recorded and watched. An evicted directory costs one
/// listing.
const MAX_DIRS: usize = 256;

/// The number of successive tickets that must have been the only child before the next one is
/// assumed to be the only child.
const MIN_STREAK: u32 = 2;

/// The upper limit of that number.
const MAX_STREAK: u32 = 64;

/// The last number that a ticket may have.
const LAST: u64 = crate::selection::LAST.get();

/// A watch on a directory, ready when it has fired. Dropping it removes the watch.
pub(crate) type WatchFired = BoxFuture<'static, ()>;

/// The transaction that created a directory, which distinguishes the directory from later ones of
/// the same path.
type Czxid = i64;

/// The directories in which the session created tickets lately.
#[derive(Default)]
pub(crate) struct SoleContender {
    dirs: BTreeMap<Path, Dir>,
    /// The number of tickets created since unused directories were last evicted.
    creates: usize,
}

struct Dir {
    last: Option<Last>,
    /// The number of successive tickets that are required.
    required_streak: u32,
    watch: Watch,
    /// The directory was used since unused directories were last evicted.
    used: bool,
}

/// The latest ticket, if it was the only child.
struct Last {
    ticket: Path,
    sequence: Sequence,
    /// The number of successive tickets that were the only child.
    streak: u32,
    /// The connection on which it was created.
    connection: u64,
    /// The czxid of the directory, if it was already watched.
    watched: Option<Czxid>,
    deleted: bool,
}

#[derive(Default)]
enum Watch {
    #[default]
    None,
    Requested,
    Set(Czxid, WatchFired),
}

/// A ticket that is about to be created.
#[derive(Debug)]
pub(crate) struct PendingCreate {
    connection: u64,
    previous: Option<Previous>,
    /// The directory was watched, or a watch was requested, before the listing.
    watched: bool,
    /// Skip the listing if the ticket gets the next number.
    pub(crate) skips_listing: bool,
    /// A watch would be worth its request.
    pub(crate) wants_watch: bool,
}

#[derive(Clone, Copy, Debug)]
struct Previous {
    sequence: Sequence,
    streak: u32,
    watched: Option<Czxid>,
}

/// A ticket that was created.
pub(crate) struct CreatedTicket<'a> {
    pub(crate) path: &'a Path,
    pub(crate) sequence: Sequence,
    pub(crate) connection: u64,
}

/// The listing that followed the create of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listing {
    /// No listing was requested.
    Omitted,
    /// The ticket is the only child of the directory with this czxid.
    OnlyChild(Czxid),
    /// The ticket is not the only child.
    Others,
}

impl SoleContender {
    /// Call this before creating a ticket; until the result is recorded, the directory is unknown.
    /// `None` if the directory cannot be recorded.
    pub(crate) fn before_create(&mut self, dir: &Path, connection: u64) -> Option<PendingCreate> {
        self.creates += 1;
        if !self.dirs.contains_key(dir) {
            if self.dirs.len() >= MAX_DIRS {
                self.evict_unused();
            }
            if self.dirs.len() >= MAX_DIRS {
                return None;
            }
            self.dirs.insert(dir.clone(), Dir::new());
        }
        let dir = self.dirs.get_mut(dir)?;
        dir.used = true;
        let fired = dir.poll_watch();
        let last = dir.last.take().filter(|last| {
            !fired && last.deleted && last.connection == connection && last.sequence.get() < LAST
        });
        let previous = last.map(|Last { sequence, streak, watched, .. }| Previous {
            sequence,
            streak,
            watched,
        });
        let streak = previous.map_or(0, |previous| previous.streak);
        let is_watched = previous.is_some_and(|previous| dir.is_watched_since(previous.watched));
        let has_watch = !matches!(dir.watch, Watch::None);
        Some(PendingCreate {
            connection,
            previous,
            watched: has_watch,
            skips_listing: is_watched && streak >= dir.required_streak,
            wants_watch: streak.saturating_add(1) >= dir.required_streak && !has_watch,
        })
    }

    /// Returns `true` if the directory may be watched: the caller then sends that request before
    /// the listing.
    pub(crate) fn request_watch(&mut self, dir: &Path, create: &mut PendingCreate) -> bool {
        let Some(dir) = self.dirs.get_mut(dir) else { return false };
        let may = matches!(dir.watch, Watch::None);
        if may {
            dir.watch = Watch::Requested;
            create.watched = true;
        }
        may
    }

    /// Records the response to that request: the czxid of the directory that is watched. Returns a
    /// watch that is no longer wanted.
    pub(crate) fn watch_answered(
        &mut self,
        dir: &Path,
        watch: Option<(Czxid, WatchFired)>,
    ) -> Option<WatchFired> {
        let dir = self.dirs.get_mut(dir).filter(|dir| matches!(dir.watch, Watch::Requested));
        match (dir, watch) {
            (Some(dir), Some((czxid, fired))) => {
                dir.watch = Watch::Set(czxid, fired);
                None
            }
            (Some(dir), None) => {
                dir.watch = Watch::None;
                None
            }
            (None, watch) => watch.map(|(_, fired)| fired),
        }
    }

    /// Stops watching the directory for the cache. Returns the watch, if it exists already.
    pub(crate) fn release_watch(&mut self, dir: &Path) -> Option<WatchFired> {
        let dir = self.dirs.get_mut(dir)?;
        dir.last = None;
        match std::mem::take(&mut dir.watch) {
            Watch::Set(_, fired) => Some(fired),
            Watch::None | Watch::Requested => None,
        }
    }

    /// Records a ticket that was created. Returns true if it is certainly the only child.
    /// Otherwise, if the listing was omitted, the caller must request it and record it with the
    /// same `create`.
    pub(crate) fn created(
        &mut self,
        dir: &Path,
        create: &mut PendingCreate,
        ticket: &CreatedTicket<'_>,
        listing: Listing,
    ) -> bool {
        let Some(dir) = self.dirs.get_mut(dir) else { return false };
        let czxid = match listing {
            Listing::Omitted => return dir.created_without_listing(create, ticket),
            Listing::OnlyChild(czxid) => Some(czxid),
            Listing::Others => None,
        };
        let streak = match create.previous {
            Some(previous) if ticket.follows(previous.sequence) => {
                previous.streak.saturating_add(1)
            }
            _ => 1,
        };
        let czxid = czxid.filter(|_| create.connection == ticket.connection);
        dir.last = czxid.map(|czxid| ticket.only_child(streak, create.watched.then_some(czxid)));
        czxid.is_some()
    }

    /// Records that the session has certainly deleted a node.
    pub(crate) fn deleted(&mut self, node: &Path) {
        let dir = node.parent_str().and_then(|dir| self.dirs.get_mut(dir));
        if let Some(last) = dir.and_then(|dir| dir.last.as_mut())
            && last.ticket == *node
        {
            last.deleted = true;
        }
    }

    /// Evicts the directories that were not used while [`MAX_DIRS`] tickets were created. Runs at
    /// most once per [`MAX_DIRS`] tickets: otherwise every ticket would run it, if there are too
    /// many directories.
    fn evict_unused(&mut self) {
        if self.creates < MAX_DIRS {
            return;
        }
        self.creates = 0;
        self.dirs.retain(|_, dir| std::mem::take(&mut dir.used));
    }
}

impl Dir {
    fn new() -> Self {
        Self { last: None, required_streak: MIN_STREAK, watch: Watch::None, used: true }
    }

    fn created_without_listing(
        &mut self,
        create: &mut PendingCreate,
        ticket: &CreatedTicket<'_>,
    ) -> bool {
        let _fired = self.poll_watch();
        let previous = create.previous.filter(|previous| {
            create.skips_listing
                && ticket.connection == create.connection
                && ticket.follows(previous.sequence)
                && self.is_watched_since(previous.watched)
        });
        let Some(previous) = previous else {
            self.require_more();
            create.watched = matches!(self.watch, Watch::Set(..));
            return false;
        };
        self.required_streak = (self.required_streak - 1).max(MIN_STREAK);
        self.last = Some(ticket.only_child(previous.streak.saturating_add(1), previous.watched));
        true
    }

    /// Requires a longer streak next time, because there were other contenders after all.
    fn require_more(&mut self) {
        self.last = None;
        self.required_streak = (self.required_streak * 2).min(MAX_STREAK);
    }

    /// Returns whether the watch has fired, and drops it then: a watch fires once.
    fn poll_watch(&mut self) -> bool {
        let mut now = Context::from_waker(Waker::noop());
        let fired = match &mut self.watch {
            Watch::Set(_, fired) => fired.poll_unpin(&mut now).is_ready(),
            Watch::None | Watch::Requested => false,
        };
        if fired {
            self.watch = Watch::None;
            self.require_more();
        }
        fired
    }

    /// Returns true if the directory with this czxid was watched without interruption.
    fn is_watched_since(&self, watched: Option<Czxid>) -> bool {
        matches!((&self.watch, watched), (Watch::Set(czxid, _), Some(watched)) if *czxid == watched)
    }
}

impl CreatedTicket<'_> {
    fn follows(&self, previous: Sequence) -> bool {
        previous.get().checked_add(1) == Some(self.sequence.get())
    }

    fn only_child(&self, streak: u32, watched: Option<Czxid>) -> Last {
        let Self { path, sequence, connection } = *self;
        Last { ticket: path.clone(), sequence, streak, connection, watched, deleted: false }
    }
}

impl fmt::Debug for SoleContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoleContender").field("dirs", &self.dirs.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
