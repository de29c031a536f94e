//! [`Beliefs`]: the claims of each process to hold something, each checked at the time when it is
//! made.

use std::sync::{Arc, Mutex as Cell, MutexGuard, PoisonError};

use crate::cluster::By;
use synod_core::store::Revision;
use synod_recipes::{Held, Token};

use crate::process::Process;

/// The holders with which a holder may share the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Among {
    /// The holder holds alone.
    Nobody,
    /// The holder holds together with others that share.
    Sharing,
}

/// The laws that a violation breaks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Laws {
    /// Two processes claim at the same time to hold an exclusive lock.
    pub(super) overlap: &'static str,
    /// A process that enters is not certain of it.
    pub(super) certain: &'static str,
    /// A later ticket was granted before an earlier one.
    pub(super) order: &'static str,
    /// A token is not larger than the previous one.
    pub(super) tokens: &'static str,
    /// Two processes were granted the same ticket and token.
    pub(super) twins: &'static str,
    /// A process claims to hold although its session expired. `None` if other checks cover this.
    pub(super) silence: Option<&'static str>,
}

/// The laws of locks.
pub(super) const LOCK: Laws = Laws {
    overlap: "L-MX-1",
    certain: "L-MX-2",
    order: "L-MX-8",
    tokens: "L-MX-3",
    twins: "L-MX-12",
    silence: None,
};

/// The laws of elections.
pub(super) const LEAD: Laws = Laws {
    overlap: "L-EL-1",
    certain: "L-EL-2",
    order: "L-EL-1",
    tokens: "L-EL-1",
    twins: "L-EL-1",
    silence: Some("L-EL-2"),
};

/// Checks the claims of a process to hold something.
pub(super) trait Judge: Send + Sync {
    /// Checks that a process may claim to hold this, with a ticket that was created at that
    /// revision. Reports each violation.
    fn believes(&self, me: &Process, held: &dyn Held, among: Among, drawn: Option<Revision>);
}

/// The identity of a grant: the revision of the ticket, and the number of earlier grants of it.
type Place = (Revision, u32);

/// The claims of the processes to hold a lock, except those below. Clones share them.
///
/// Claims are ignored if a stranger removed the ticket or an operator ended the session: the
/// holder cannot know that before it is notified.
#[derive(Clone, Debug)]
pub(super) struct Beliefs {
    laws: Laws,
    book: Arc<Cell<Book>>,
}

/// The latest grants, of exclusive and of shared holders.
#[derive(Debug, Default)]
struct Book {
    /// The last grant: its identity, and the token.
    entered: [Option<(Place, Token)>; 2],
    /// The last grant that a process claimed to hold.
    believed: [Option<Believed>; 2],
    /// Cloned once for each current shared holder.
    sharing: Arc<()>,
}

/// A claim to hold: the grant, the process, and the law that a conflicting claim breaks.
type Believed = (Place, String, &'static str);

impl Among {
    fn index(self) -> usize {
        usize::from(self == Self::Sharing)
    }

    /// The kinds of entry that conflict with this one.
    fn against(self) -> &'static [Self] {
        match self {
            Self::Nobody => &[Self::Nobody, Self::Sharing],
            Self::Sharing => &[Self::Nobody],
        }
    }
}

impl Beliefs {
    pub(super) fn new(laws: Laws) -> Self {
        Self { laws, book: Arc::default() }
    }

    /// The same book, checked by other laws.
    pub(super) fn under(&self, laws: Laws) -> Self {
        Self { laws, book: self.book.clone() }
    }

    /// Registers a shared holder, as long as the returned value exists. Also returns `true` if
    /// there are others.
    pub(super) fn shares(&self) -> (Arc<()>, bool) {
        let sharing = self.lock().sharing.clone();
        let beside = Arc::strong_count(&sharing) > 2;
        (sharing, beside)
    }

    /// Checks a grant: the process must be certain of its lock, no later ticket may have been
    /// granted before, and its token must be larger than the earlier ones.
    pub(super) fn entered(&self, me: &Process, held: &dyn Held, among: Among) {
        self.entered_if(me, held, among, &|| held.is_held());
    }

    fn entered_if(&self, me: &Process, held: &dyn Held, among: Among, is_held: &dyn Fn() -> bool) {
        if !is_held() {
            let what = || format!("{} entered, and is not certain of it", held.seen_path());
            me.wrong(self.laws.certain, what);
        }
        let Some((drawn, _)) = me.born(held) else { return };
        if is_exception(me, held, drawn) {
            return;
        }
        let (place, token) = ((drawn, held.token().turn()), held.token());
        let last = self.enter(place, token, among);
        let Some(((before, turn), last_token)) = last else { return };
        if (before, turn) == place && last_token == token {
            me.wrong(self.laws.twins, || {
                format!("two are in with the ticket of #{drawn}, and token {token}")
            });
        } else if (before, turn) >= place {
            me.wrong(self.laws.order, || {
                format!("the ticket of #{drawn} enters after that of #{before}, which came later")
            });
        } else if last_token >= token {
            me.wrong(self.laws.tokens, || format!("token {token} is given out after {last_token}"));
        }
    }

    /// Like [`Beliefs::entered`], if another source than the guard reports whether the lock is
    /// held. Ignores a repeated grant. Returns `true` if the grant is new.
    pub(super) fn entered_anew(
        &self,
        me: &Process,
        held: &dyn Held,
        is_held: &dyn Fn() -> bool,
    ) -> bool {
        let place = me.born(held).map(|(drawn, _)| (drawn, held.token().turn()));
        let again = self.lock().entered[Among::Nobody.index()].map(|(last, _)| last) == place;
        if !again {
            self.entered_if(me, held, Among::Nobody, is_held);
        }
        !again
    }

    /// Records an entry. Returns the last entry that conflicts with it.
    fn enter(&self, place: Place, token: Token, among: Among) -> Option<(Place, Token)> {
        let mut book = self.lock();
        let against = among.against().iter().filter_map(|other| book.entered[other.index()]);
        let last = against.max();
        let own = &mut book.entered[among.index()];
        *own = (*own).max(Some((place, token)));
        last
    }

    /// Records a claim, or returns a later conflicting one that was recorded before.
    fn believe(&self, me: &Process, place: Place, among: Among) -> Option<Believed> {
        let mut book = self.lock();
        let latest =
            among.against().iter().filter_map(|other| book.believed[other.index()].as_ref());
        if let Some(later) = latest.filter(|(later, ..)| *later > place).max() {
            return Some(later.clone());
        }
        let own = &mut book.believed[among.index()];
        if own.as_ref().is_none_or(|(latest, ..)| *latest <= place) {
            *own = Some((place, me.name().to_owned(), self.laws.overlap));
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Judge for Beliefs {
    /// After a process claimed to hold a later conflicting ticket, no process may claim to hold an
    /// earlier one.
    fn believes(&self, me: &Process, held: &dyn Held, among: Among, drawn: Option<Revision>) {
        let Some(drawn) = drawn else { return };
        let place = (drawn, held.token().turn());
        if let Some((_, who, law)) = self.believe(me, place, among) {
            if !is_exception(me, held, drawn) {
                // If two laws apply, the more specific one.
                me.wrong(self.laws.overlap.max(law), || {
                    format!("{} believes that it holds, and {who} held since", me.name())
                });
            }
            return;
        }
        if let Some(law) = self.laws.silence {
            let owner = me.born(held).and_then(|(_, owner)| owner);
            if owner.is_some_and(|owner| me.ended_in_silence(owner)) {
                me.wrong(law, || {
                    format!("{} believes that it holds, and its session ended", me.name())
                });
            }
        }
    }
}

/// Returns `true` if the process cannot know that its ticket, created at `drawn`, was removed.
pub(super) fn is_exception(me: &Process, held: &dyn Held, drawn: Revision) -> bool {
    let ended = me.born(held).and_then(|(_, owner)| owner);
    me.removed_by(held.seen_path(), drawn) == Some(By::Stranger)
        || ended.is_some_and(|id| me.ended_by_force(id))
}
