//! [`ShareShared`]: the state that a share shares with its task; and [`ShareChange`], a change of
//! it for readers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::Revision;
use tokio::sync::{Notify, watch};

use crate::mutant::mistake;
use crate::partition::division::Holders;
use crate::partition::roster::OwnClaim;

/// The state that a share shares with its task.
#[derive(Debug)]
pub(super) struct ShareShared {
    state: watch::Sender<ShareState>,
    /// Notified when items were released.
    released: Notify,
}

/// The known items of a share.
#[derive(Debug, Default)]
pub(super) struct ShareState {
    /// The session in which they are held.
    session: Option<Session>,
    /// The node of the member in that session.
    member: Option<Path>,
    pub(super) held: BTreeMap<String, HeldItem>,
    /// The items that are no longer held, but whose claim is not removed yet.
    leaving: BTreeSet<String>,
    /// The last grant of each item that was released.
    pub(super) released: BTreeMap<String, u64>,
    /// The number of the last grant.
    grants: u64,
    is_settled: bool,
    pub(super) is_over: bool,
}

/// An item that is held.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldItem {
    /// The number of its grant.
    pub(super) grant: u64,
    /// The revision of its claim's create, once that is known.
    created: Option<Revision>,
    /// True if the owner was requested to release it.
    pub(super) is_requested: bool,
}

impl ShareShared {
    pub(super) fn new() -> Self {
        Self { state: watch::Sender::default(), released: Notify::new() }
    }

    /// Starts a session as the member with this node.
    pub(super) fn enter_session(&self, session: &Session, member: &Path) {
        self.state.send_modify(|state| {
            (state.session, state.member) = (Some(session.clone()), Some(member.clone()));
        });
    }

    /// Records that these items are held from now on.
    pub(super) fn hold(&self, items: impl IntoIterator<Item = (String, Option<Revision>)>) {
        self.state.send_modify(|state| {
            for (item, created) in items {
                if state.is_over {
                    state.leaving.insert(item);
                } else {
                    state.hold(item, created);
                }
            }
        });
    }

    /// Updates the state from a view: the claims of this share, and the designated member of each
    /// item.
    pub(super) fn update(
        &self,
        own: &BTreeMap<String, OwnClaim>,
        member: &str,
        target: &Holders,
        is_settled: bool,
    ) {
        self.state.send_modify(|state| {
            state.held.retain(|item, _| own.contains_key(item));
            state.leaving.retain(|item| own.contains_key(item));
            for (item, claim) in own {
                if state.is_over {
                    state.leaving.insert(item.clone());
                } else if !state.leaving.contains(item) {
                    let held = state.hold(item.clone(), claim.created);
                    let is_wanted = target.get(item).is_some_and(|it| it == member);
                    held.is_requested |= !(is_wanted && claim.is_named);
                }
            }
            mistake!(GivenUnasked: for item in own.keys() {
                state.release(item);
            });
            state.is_settled = is_settled && state.leaving.is_empty() && !state.has_request();
        });
    }

    /// Records that the owner has stopped work on these items. Items without a request stay.
    pub(super) fn release(&self, items: &BTreeSet<String>) {
        self.state.send_modify(|state| {
            for item in items {
                state.release(item);
            }
        });
        self.released.notify_waiters();
    }

    /// Records that nothing is held any longer, and that all claims and the member must be removed.
    pub(super) fn stop(&self) {
        self.state.send_modify(|state| {
            let held = std::mem::take(&mut state.held);
            state.leaving.extend(held.into_keys());
            (state.is_settled, state.is_over) = (false, true);
        });
        self.released.notify_waiters();
    }

    pub(super) fn is_over(&self) -> bool {
        self.state.borrow().is_over
    }

    /// Waits until the share is over.
    pub(super) async fn over(&self) {
        let _over = self.watch().wait_for(|state| state.is_over).await.is_ok();
    }

    /// Records that these claims are removed.
    pub(super) fn record_removed(&self, items: &[String]) {
        self.state.send_modify(|state| state.leaving.retain(|item| !items.contains(item)));
    }

    /// Records that the session has ended, with everything in it.
    pub(super) fn record_session_lost(&self) {
        self.state.send_modify(|state| {
            let (released, grants) = (std::mem::take(&mut state.released), state.grants);
            let is_over = state.is_over;
            *state = ShareState { released, grants, is_over, ..ShareState::default() };
        });
    }

    /// The items whose claim is to be removed.
    pub(super) fn leaving(&self) -> Vec<String> {
        self.state.borrow().leaving.iter().cloned().collect()
    }

    /// Waits until there is a claim to be removed, or the share is over.
    pub(super) async fn until_leaving(&self) {
        loop {
            // Listens before the check, so that a release between the check and the wait also
            // wakes.
            let released = self.released.notified();
            if self.is_over() || !self.state.borrow().leaving.is_empty() {
                return;
            }
            released.await;
        }
    }

    /// Returns `true` if the claim to an item belongs to this share.
    pub(super) fn is_own(&self, item: &str) -> bool {
        let state = self.state.borrow();
        state.held.contains_key(item) || state.leaving.contains(item)
    }

    /// The items that are certainly held now.
    pub(super) fn items(&self) -> BTreeSet<String> {
        let state = self.state.borrow();
        if !state.is_certain() {
            return BTreeSet::new();
        }
        state.held.keys().cloned().collect()
    }

    /// Returns `true` if an item is certainly held now.
    pub(super) fn is_held(&self, item: &str) -> bool {
        let state = self.state.borrow();
        state.held.contains_key(item) && state.is_certain()
    }

    /// The revision of the create of an item's claim, if the item is held and that is known.
    pub(super) fn created(&self, item: &str) -> Option<Revision> {
        let state = self.state.borrow();
        state.held.get(item).filter(|_| state.is_certain())?.created
    }

    /// The node of the member in whose session an item is held.
    pub(super) fn member_of(&self, item: &str) -> Option<Path> {
        let state = self.state.borrow();
        state.held.contains_key(item).then(|| state.member.clone())?
    }

    pub(super) fn watch(&self) -> watch::Receiver<ShareState> {
        self.state.subscribe()
    }

    /// Waits until each item has its designated member. Returns false if the share ends first.
    pub(super) async fn settled(&self) -> bool {
        let mut state = self.watch();
        let settled = state.wait_for(|state| state.is_settled || state.is_over).await;
        settled.is_ok_and(|state| state.is_settled)
    }

    /// Waits until the claims to these items are removed, explicitly or with their session.
    pub(super) async fn gone(&self, items: &BTreeSet<String>) {
        let mut state = self.watch();
        let gone = state.wait_for(|state| state.leaving.is_disjoint(items));
        let _known = gone.await.is_ok();
    }
}

impl ShareState {
    fn is_certain(&self) -> bool {
        self.session.as_ref().is_some_and(Session::is_certain)
    }

    fn has_request(&self) -> bool {
        self.held.values().any(|held| held.is_requested)
    }

    fn hold(&mut self, item: String, created: Option<Revision>) -> &mut HeldItem {
        let grants = &mut self.grants;
        let held = self.held.entry(item).or_insert_with(|| {
            *grants += 1;
            HeldItem { grant: *grants, created: None, is_requested: false }
        });
        held.created = created.or(held.created);
        held
    }

    fn release(&mut self, item: &str) {
        if let Some(held) = self.held.get(item).copied().filter(|held| held.is_requested) {
            self.held.remove(item);
            self.released.insert(item.to_owned(), held.grant);
            self.leaving.insert(item.to_owned());
        }
    }
}

/// A change of the items of a [`Share`](crate::partition::Share).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShareChange {
    /// The member holds these items from now on.
    Acquired(BTreeSet<String>),
    /// The member must release these items: stop the work on them, then call
    /// [`Share::release`](crate::partition::Share::release). Until then the member holds them.
    Release(BTreeSet<String>),
    /// The member no longer holds these items: their session is lost, or another client has removed
    /// their claims. Stop the work on them immediately.
    Lost(BTreeSet<String>),
}

/// The items that a reader of changes knows, and its pending changes.
pub(super) struct ShareReader {
    state: watch::Receiver<ShareState>,
    known: BTreeMap<String, HeldItem>,
    pending: VecDeque<ShareChange>,
}

impl ShareReader {
    pub(super) fn new(state: watch::Receiver<ShareState>) -> Self {
        Self { state, known: BTreeMap::new(), pending: VecDeque::new() }
    }

    /// The next change. `None` after the last change.
    pub(super) async fn next(&mut self) -> Option<ShareChange> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return Some(change);
            }
            let (changes, held, is_over) = {
                let state = self.state.borrow_and_update();
                (changes(&self.known, &state), state.held.clone(), state.is_over)
            };
            self.known = held;
            self.pending.extend(changes);
            if !self.pending.is_empty() {
                continue;
            }
            if is_over {
                return None;
            }
            self.state.changed().await.ok()?;
        }
    }
}

/// The changes since a reader knew these items.
fn changes(known: &BTreeMap<String, HeldItem>, state: &ShareState) -> Vec<ShareChange> {
    let is_same = |item: &String, grant| state.held.get(item).is_some_and(|it| it.grant == grant);
    let gone = known.iter().filter(|(item, held)| !is_same(item, held.grant));
    // Neither the items that the owner released nor the items that are left at the end are
    // reported.
    let lost = gone.filter(|(item, held)| state.released.get(*item) != Some(&held.grant));
    let lost = if state.is_over { BTreeSet::new() } else { lost.map(|it| it.0.clone()).collect() };
    let held = || state.held.iter();
    let was_shown = |item: &String, held: &HeldItem| {
        known.get(item).is_some_and(|known| known.grant == held.grant)
    };
    let acquired = held().filter(|(item, held)| !was_shown(item, held));
    let requested = held().filter(|(item, held)| {
        let was_requested = known.get(*item).is_some_and(|it| it.is_requested);
        held.is_requested && !(was_shown(item, held) && was_requested)
    });
    let all = [
        (ShareChange::Lost as fn(_) -> _, lost),
        (ShareChange::Acquired, acquired.map(|it| it.0.clone()).collect()),
        (ShareChange::Release, requested.map(|it| it.0.clone()).collect()),
    ];
    let all = all.into_iter().filter(|(_, items): &(_, BTreeSet<String>)| !items.is_empty());
    all.map(|(change, items)| change(items)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_names_an_earlier_node_or_is_of_another_member_is_to_be_given_away() {
        let shared = ShareShared::new();
        let claim = |item: &str, is_named| (item.to_owned(), OwnClaim { created: None, is_named });
        let own = BTreeMap::from([claim("a", true), claim("b", false), claim("c", true)]);
        let target = [("a", "me"), ("b", "me"), ("c", "other")];
        let target = target.map(|(item, member)| (item.to_owned(), member.to_owned())).into();
        shared.update(&own, "me", &target, true);
        let state = shared.watch();
        let is_requested = |item: &str| state.borrow().held[item].is_requested;
        assert_eq!(["a", "b", "c"].map(is_requested), [false, true, true]);
        assert!(!state.borrow().is_settled, "no other member knows the holder");
        shared.release(&BTreeSet::from(["a".to_owned(), "b".to_owned()]));
        assert_eq!(shared.leaving(), ["b"], "an item without a request stays");
    }
}
