//! [`SharePage`]: what a share and its task know in common: the items that are held, and those that are to be given away.

use std::collections::{BTreeMap, BTreeSet};

use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::Revision;
use tokio::sync::{Notify, watch};

use crate::mutant::mistake;
use crate::partition::division::Holders;
use crate::partition::roster::OwnClaim;

/// What a share and its task know in common.
#[derive(Debug)]
pub(super) struct SharePage {
    state: watch::Sender<ShareState>,
    /// Woken when items were given away.
    given: Notify,
}

/// What is known of the items of a share.
#[derive(Debug, Default)]
pub(super) struct ShareState {
    /// The session in which they are held.
    session: Option<Session>,
    /// The node of the member in that session.
    member: Option<Path>,
    pub(super) held: BTreeMap<String, HeldItem>,
    /// What is held no more, and whose claim is not removed yet.
    leaving: BTreeSet<String>,
    /// The last grant of each item that was given away.
    pub(super) given: BTreeMap<String, u64>,
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
    /// When its claim was created, once that is known.
    created: Option<Revision>,
    /// Whether it is to be given away.
    pub(super) is_asked: bool,
}

impl SharePage {
    pub(super) fn new() -> Self {
        Self { state: watch::Sender::default(), given: Notify::new() }
    }

    /// Begins in a session, as the member with this node.
    pub(super) fn enters(&self, session: &Session, member: &Path) {
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

    /// Takes note of what a view shows: the claims of this share, and which member is to have each item.
    pub(super) fn learn(
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
                    held.is_asked |= !(is_wanted && claim.is_named);
                }
            }
            mistake!(GivenUnasked: for item in own.keys() {
                state.give(item);
            });
            state.is_settled = is_settled && state.leaving.is_empty() && !state.is_asked();
        });
    }

    /// Records that the owner has stopped work on these items. Those that it was not asked for stay.
    pub(super) fn give(&self, items: &BTreeSet<String>) {
        self.state.send_modify(|state| {
            for item in items {
                state.give(item);
            }
        });
        self.given.notify_waiters();
    }

    /// Records that nothing is held any more, and that all claims and the member are to be removed.
    pub(super) fn stop(&self) {
        self.state.send_modify(|state| {
            let held = std::mem::take(&mut state.held);
            state.leaving.extend(held.into_keys());
            (state.is_settled, state.is_over) = (false, true);
        });
        self.given.notify_waiters();
    }

    pub(super) fn is_over(&self) -> bool {
        self.state.borrow().is_over
    }

    /// Waits until the share is over.
    pub(super) async fn over(&self) {
        let _over = self.watch().wait_for(|state| state.is_over).await.is_ok();
    }

    /// Records that these claims are removed.
    pub(super) fn are_gone(&self, items: &[String]) {
        self.state.send_modify(|state| state.leaving.retain(|item| !items.contains(item)));
    }

    /// Records that the session is over, and everything in it.
    pub(super) fn lost(&self) {
        self.state.send_modify(|state| {
            let (given, grants) = (std::mem::take(&mut state.given), state.grants);
            let is_over = state.is_over;
            *state = ShareState { given, grants, is_over, ..ShareState::default() };
        });
    }

    /// The items whose claim is to be removed.
    pub(super) fn leaving(&self) -> Vec<String> {
        self.state.borrow().leaving.iter().cloned().collect()
    }

    /// Waits until there is a claim to be removed, or the share is over.
    pub(super) async fn has_given(&self) {
        loop {
            // Listens from here on, so that what is given between the look and the wait wakes too.
            let given = self.given.notified();
            if self.is_over() || !self.state.borrow().leaving.is_empty() {
                return;
            }
            given.await;
        }
    }

    /// Whether the claim to an item is that of this share.
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

    /// Whether an item is certainly held now.
    pub(super) fn is_held(&self, item: &str) -> bool {
        let state = self.state.borrow();
        state.held.contains_key(item) && state.is_certain()
    }

    /// When the claim to an item was created, if it is held and that is known.
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

    /// Waits until each item has its member. False if it never will, as the share is over.
    pub(super) async fn settled(&self) -> bool {
        let mut state = self.watch();
        let settled = state.wait_for(|state| state.is_settled || state.is_over).await;
        settled.is_ok_and(|state| state.is_settled)
    }

    /// Waits until the claims to these items are removed, or gone with their session.
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

    fn is_asked(&self) -> bool {
        self.held.values().any(|held| held.is_asked)
    }

    fn hold(&mut self, item: String, created: Option<Revision>) -> &mut HeldItem {
        let grants = &mut self.grants;
        let held = self.held.entry(item).or_insert_with(|| {
            *grants += 1;
            HeldItem { grant: *grants, created: None, is_asked: false }
        });
        held.created = created.or(held.created);
        held
    }

    fn give(&mut self, item: &str) {
        if let Some(held) = self.held.get(item).copied().filter(|held| held.is_asked) {
            self.held.remove(item);
            self.given.insert(item.to_owned(), held.grant);
            self.leaving.insert(item.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_names_an_earlier_node_or_is_of_another_member_is_to_be_given_away() {
        let page = SharePage::new();
        let claim = |item: &str, is_named| (item.to_owned(), OwnClaim { created: None, is_named });
        let own = BTreeMap::from([claim("a", true), claim("b", false), claim("c", true)]);
        let target = [("a", "me"), ("b", "me"), ("c", "other")];
        let target = target.map(|(item, member)| (item.to_owned(), member.to_owned())).into();
        page.learn(&own, "me", &target, true);
        let state = page.watch();
        let asked = |item: &str| state.borrow().held[item].is_asked;
        assert_eq!(["a", "b", "c"].map(asked), [false, true, true]);
        assert!(!state.borrow().is_settled, "no other member knows whose it is");
        page.give(&BTreeSet::from(["a".to_owned(), "b".to_owned()]));
        assert_eq!(page.leaving(), ["b"], "what was not asked for stays");
    }
}
