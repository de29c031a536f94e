//! [`ShareChange`]: what changes about the items of a member.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tokio::sync::watch;

use crate::partition::share_page::{HeldItem, ShareState};

/// What changes about the items of a [`Share`](crate::Share).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShareChange {
    /// These items are its own from now on.
    Acquired(BTreeSet<String>),
    /// These items are to be given away: stop the work on them, and then call [`Share::release`](crate::Share::release). Until
    /// then they are its own.
    Release(BTreeSet<String>),
    /// These items are not its own any more: their session is lost, or another client has removed their claims.
    /// Stop the work on them at once.
    Lost(BTreeSet<String>),
}

/// What a reader of changes knows, and what it is to be notified of.
pub(super) struct ShareReader {
    state: watch::Receiver<ShareState>,
    known: BTreeMap<String, HeldItem>,
    news: VecDeque<ShareChange>,
}

impl ShareReader {
    pub(super) fn new(state: watch::Receiver<ShareState>) -> Self {
        Self { state, known: BTreeMap::new(), news: VecDeque::new() }
    }

    /// The next change. `None` when there will be no other.
    pub(super) async fn next(&mut self) -> Option<ShareChange> {
        loop {
            if let Some(change) = self.news.pop_front() {
                return Some(change);
            }
            let (news, held, is_over) = {
                let state = self.state.borrow_and_update();
                (news(&self.known, &state), state.held.clone(), state.is_over)
            };
            self.known = held;
            self.news.extend(news);
            if !self.news.is_empty() {
                continue;
            }
            if is_over {
                return None;
            }
            self.state.changed().await.ok()?;
        }
    }
}

/// What happened since a reader knew these items.
fn news(known: &BTreeMap<String, HeldItem>, state: &ShareState) -> Vec<ShareChange> {
    let is_same = |item: &String, grant| state.held.get(item).is_some_and(|it| it.grant == grant);
    let gone = known.iter().filter(|(item, held)| !is_same(item, held.grant));
    // What was given away at the owner's own word is no news, and what is left in the end neither.
    let lost = gone.filter(|(item, held)| state.given.get(*item) != Some(&held.grant));
    let lost = if state.is_over { BTreeSet::new() } else { lost.map(|it| it.0.clone()).collect() };
    let held = || state.held.iter();
    let was_shown = |item: &String, held: &HeldItem| {
        known.get(item).is_some_and(|known| known.grant == held.grant)
    };
    let acquired = held().filter(|(item, held)| !was_shown(item, held));
    let asked = held().filter(|(item, held)| {
        held.is_asked && !(was_shown(item, held) && known.get(*item).is_some_and(|it| it.is_asked))
    });
    let all = [
        (ShareChange::Lost as fn(_) -> _, lost),
        (ShareChange::Acquired, acquired.map(|it| it.0.clone()).collect()),
        (ShareChange::Release, asked.map(|it| it.0.clone()).collect()),
    ];
    let all = all.into_iter().filter(|(_, items): &(_, BTreeSet<String>)| !items.is_empty());
    all.map(|(change, items)| change(items)).collect()
}
