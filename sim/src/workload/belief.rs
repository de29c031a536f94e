//! [`Beliefs`]: who believed to hold what, and when; judged at the moment of believing.

use std::sync::{Arc, Mutex as Cell, MutexGuard, PoisonError};

use synod_core::path::Path;
use synod_core::recipe::{Held, Token};
use synod_core::store::Revision;
use synod_mem::cluster::By;

use crate::process::Process;

/// Beside whom somebody may be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Among {
    /// Beside nobody.
    Nobody,
    /// Beside others who say the same.
    Sharing,
}

/// The laws that a belief can break.
#[derive(Clone, Copy, Debug)]
pub(super) struct Laws {
    /// Two believe at one moment what only one may.
    pub(super) overlap: &'static str,
    /// Who enters is not certain of it.
    pub(super) certain: &'static str,
    /// Who came later entered before.
    pub(super) order: &'static str,
    /// Tokens do not rise.
    pub(super) tokens: &'static str,
    /// Two entered with one ticket and one token.
    pub(super) twins: &'static str,
    /// Somebody believes though his session ended in silence. `None` where other checks are to tell.
    pub(super) silence: Option<&'static str>,
}

/// Those of locks.
pub(super) const LOCK: Laws = Laws {
    overlap: "L-MX-1",
    certain: "L-MX-2",
    order: "L-MX-8",
    tokens: "L-MX-3",
    twins: "L-MX-12",
    silence: None,
};

/// Those of elections.
pub(super) const LEAD: Laws = Laws {
    overlap: "L-EL-1",
    certain: "L-EL-2",
    order: "L-EL-1",
    tokens: "L-EL-1",
    twins: "L-EL-1",
    silence: Some("L-EL-2"),
};

/// Who judges what somebody believes.
pub(super) trait Judge: Send + Sync {
    /// A process believes that it holds this, whose ticket was drawn then. Reports what is wrong about that.
    fn believes(&self, me: &Process, held: &dyn Held, among: Among, drawn: Option<Revision>);
}

/// What stands for an entry: when the ticket was drawn, and which time it is that it is used.
type Place = (Revision, u32);

/// Who believed what, of those who are no exception. Clones are the same.
///
/// An exception is whose ticket a stranger removed, or whose session was ended by force: nobody can know of
/// that before he is told.
#[derive(Clone, Debug)]
pub(super) struct Beliefs {
    laws: Laws,
    book: Arc<Cell<Book>>,
}

/// The latest of everything, of those who would be alone and of those who share.
#[derive(Debug, Default)]
struct Book {
    /// Who entered: the place, and the token.
    entered: [Option<(Place, Token)>; 2],
    /// The last place that anybody believed to be in with.
    believed: [Option<Believed>; 2],
    /// As many more of these as there are who share now.
    sharing: Arc<()>,
}

/// A belief: the place, who, and the law that is broken if there is another beside it.
type Believed = (Place, String, &'static str);

impl Among {
    fn index(self) -> usize {
        usize::from(self == Self::Sharing)
    }

    /// Whom it matters to that somebody is in so.
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

    /// The same, judged by other laws.
    pub(super) fn under(&self, laws: Laws) -> Self {
        Self { laws, book: self.book.clone() }
    }

    /// Somebody shares for as long as this lives; and whether others do.
    pub(super) fn shares(&self) -> (Arc<()>, bool) {
        let sharing = self.lock().sharing.clone();
        let beside = Arc::strong_count(&sharing) > 2;
        (sharing, beside)
    }

    /// Somebody entered: he is certain of it, nobody who came later is in before him, and his token is larger
    /// than theirs.
    pub(super) fn entered(&self, me: &Process, held: &dyn Held, among: Among) {
        self.entered_if(me, held, among, &|| held.is_held());
    }

    fn entered_if(&self, me: &Process, held: &dyn Held, among: Among, is_held: &dyn Fn() -> bool) {
        if !is_held() {
            let what = || format!("{} entered, and is not certain of it", held.seen_path());
            me.wrong(self.laws.certain, what);
        }
        let Some((drawn, _)) = me.born(held.seen_path()) else { return };
        if is_exception(me, held.seen_path(), drawn) {
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

    /// As [`Beliefs::entered`], where something else than the guard says whether it is held, and unless it is what was
    /// entered last: whether it is not.
    pub(super) fn entered_anew(
        &self,
        me: &Process,
        held: &dyn Held,
        is_held: &dyn Fn() -> bool,
    ) -> bool {
        let place = me.born(held.seen_path()).map(|(drawn, _)| (drawn, held.token().turn()));
        let again = self.lock().entered[Among::Nobody.index()].map(|(last, _)| last) == place;
        if !again {
            self.entered_if(me, held, Among::Nobody, is_held);
        }
        !again
    }

    /// Notes who enters. The last of those whom he may not be in beside.
    fn enter(&self, place: Place, token: Token, among: Among) -> Option<(Place, Token)> {
        let mut book = self.lock();
        let against = among.against().iter().filter_map(|other| book.entered[other.index()]);
        let last = against.max();
        let own = &mut book.entered[among.index()];
        *own = (*own).max(Some((place, token)));
        last
    }

    /// Notes a belief, unless somebody believed later what is against it: that is returned.
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
    /// Once a later ticket was believed to be in, beside which this may not be, no earlier one is.
    fn believes(&self, me: &Process, held: &dyn Held, among: Among, drawn: Option<Revision>) {
        let Some(drawn) = drawn else { return };
        let place = (drawn, held.token().turn());
        if let Some((_, who, law)) = self.believe(me, place, among) {
            if !is_exception(me, held.seen_path(), drawn) {
                // Of two laws that fit, the one that says more.
                me.wrong(self.laws.overlap.max(law), || {
                    format!("{} believes to be in, and {who} was since", me.name())
                });
            }
            return;
        }
        if let Some(law) = self.laws.silence {
            let owner = me.born(held.seen_path()).and_then(|(_, owner)| owner);
            if owner.is_some_and(|owner| me.ended_in_silence(owner)) {
                me.wrong(law, || format!("{} believes to be in, and his session ended", me.name()));
            }
        }
    }
}

/// Whether nobody could know that a ticket, drawn then, is gone.
pub(super) fn is_exception(me: &Process, ticket: &Path, drawn: Revision) -> bool {
    let ended = me.born(ticket).and_then(|(_, owner)| owner);
    me.removed_by(ticket, drawn) == Some(By::Stranger)
        || ended.is_some_and(|id| me.ended_by_force(id))
}
