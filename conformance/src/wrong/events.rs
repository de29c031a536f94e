//! Mistakes in the events of a watch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use synod_core::path::Path;
use synod_core::store::{
    Change, Detail, End, Event, Feed, Kind, Node, Query, Scope, Store, View, Watch,
};
use tokio::time::timeout;

use crate::wrong::mistake::Mistake;
use crate::wrong::node_view::NodeView;
use crate::wrong::past::Past;
use crate::wrong::shared::{Shared, pause};
use crate::wrong::store::WrongStore;
use crate::wrong::watch_state::WatchState;

/// Forwards the events of one watch of the store inside.
pub(super) struct Teller {
    shared: Arc<Shared>,
    node_view: NodeView,
    past: Arc<Past>,
    watch_state: Arc<WatchState>,
    query: Query,
    feed: Feed,
    /// The paths in the view.
    shown: BTreeSet<Path>,
    silent: Arc<AtomicBool>,
    /// The number of pending events.
    waiting: Arc<AtomicUsize>,
    /// The store inside, to check whether it answers.
    probe: Option<Arc<dyn Store>>,
    probe_limit: Duration,
    /// The number of consecutive answers since an outage.
    answered: usize,
    known: BTreeMap<Path, Node>,
    told: usize,
    /// `true` if an event was omitted.
    hushed: bool,
    next: Option<Event>,
}

impl Teller {
    pub(super) fn new(
        store: &WrongStore,
        query: &Query,
        view: &View,
        (feed, waiting): (Feed, Arc<AtomicUsize>),
        silent: Arc<AtomicBool>,
    ) -> Self {
        let data = |node: &Node| (node.path.clone(), node.clone());
        let probes = [Mistake::WatchSilentAfterOutage, Mistake::GapUnreported];
        let probe = probes.iter().any(|mistake| store.makes(*mistake)).then(|| store.inner.clone());
        let mut teller = Self {
            shared: store.shared.clone(),
            node_view: store.node_view,
            past: store.past.clone(),
            watch_state: store.watch_state.clone(),
            query: query.clone(),
            feed,
            shown: view.nodes.iter().map(|node| node.path.clone()).collect(),
            silent,
            waiting,
            probe,
            probe_limit: store.info.ttl / 50,
            answered: 0,
            known: view.nodes.iter().map(data).collect(),
            told: 0,
            hushed: false,
            next: None,
        };
        if store.makes(Mistake::SpuriousChange) {
            for node in &view.nodes {
                if let Some(stat) = node.stat {
                    teller.send(Change::new(node.path.clone(), Kind::Updated).at(stat.modified));
                }
            }
        }
        teller
    }

    pub(super) async fn deliver(mut self, mut inner: Watch) {
        loop {
            let event = self.next_event(&mut inner).await;
            match event {
                Some(Event::Changed(change)) => self.changed(change, &mut inner).await,
                Some(Event::Resync) if self.is_in_gap() => self.hushed = true,
                Some(Event::Resync) => {
                    self.feed.resync();
                }
                Some(Event::Ended(end)) => {
                    if !self.swallows(&end) {
                        self.feed.end(end);
                    }
                }
                None => return std::future::pending().await,
            }
        }
    }

    async fn next_event(&mut self, inner: &mut Watch) -> Option<Event> {
        if let Some(event) = self.next.take() {
            return Some(event);
        }
        while self.probe.is_some() {
            match timeout(self.probe_limit, inner.next()).await {
                Ok(event) => return event,
                Err(_) => self.listen().await,
            }
        }
        inner.next().await
    }

    fn swallows(&self, end: &End) -> bool {
        let told = matches!(end, End::Delivered);
        match self.node_view.mistake {
            Some(Mistake::WatchHasNoEnd) => true,
            Some(Mistake::DropSilencesWatches) => self.watch_state.dropped.load(Ordering::Relaxed),
            Some(Mistake::OnceFallsSilent) => told,
            Some(Mistake::OnceWaitsForTheAbsent) => told && self.shown.is_empty(),
            _ => told && self.hushed,
        }
    }

    async fn changed(&mut self, change: Change, inner: &mut Watch) {
        if self.node_view.mistake != Some(Mistake::LocalBehindEvents) {
            self.past.forget();
        }
        match self.node_view.mistake {
            // The writer has its answer by then.
            Some(
                Mistake::WatchIgnoresOwnWrites
                | Mistake::CloseUntoldToWatchers
                | Mistake::ExpiryUntoldToWatchers
                | Mistake::TtlUntoldToWatchers,
            ) => pause().await,
            Some(Mistake::RecreationUntold) if change.kind == Kind::Deleted => {
                pause().await;
                self.next = inner.try_next();
                let again = matches!(&self.next, Some(Event::Changed(next))
                    if next.path == change.path && next.kind == Kind::Created);
                if again {
                    self.next = None;
                    return;
                }
            }
            Some(Mistake::EventsOutOfOrder) => return self.backwards(change, inner).await,
            Some(Mistake::OnceEndsUntold) if self.query.once => {
                return self.feed.end(End::Delivered);
            }
            _ => {}
        }
        if self.hide(&change) {
            self.hushed = true;
        } else {
            self.send(change);
        }
    }

    /// Stops reporting when the store does not answer: for ever, or until the store has answered
    /// for a while without an event.
    async fn listen(&mut self) {
        /// The number of answers to wait for: events of an outage are reported soon after the first
        /// answer.
        const QUIET: usize = 10;

        if let Some(store) = &self.probe {
            let asking = store.read(Query::node(Path::root()));
            let answers = timeout(self.probe_limit, asking).await;
            if !answers.is_ok_and(|answer| answer.is_ok()) {
                self.silent.store(true, Ordering::Relaxed);
                self.answered = 0;
            } else if self.is_in_gap() {
                self.answered += 1;
                self.silent.store(self.answered < QUIET, Ordering::Relaxed);
            }
        }
    }

    /// Returns `true` if the changes during an outage are omitted.
    fn is_in_gap(&self) -> bool {
        self.node_view.mistake == Some(Mistake::GapUnreported)
            && self.silent.load(Ordering::Relaxed)
    }

    /// Waits for further events, and forwards the last one first.
    async fn backwards(&mut self, first: Change, inner: &mut Watch) {
        pause().await;
        let mut changes = vec![first];
        while let Some(event) = inner.try_next() {
            match event {
                Event::Changed(change) => changes.push(change),
                other => {
                    self.next = Some(other);
                    break;
                }
            }
        }
        changes.into_iter().rev().for_each(|change| self.send(change));
    }

    fn send(&mut self, mut change: Change) {
        if let Some(node) = &mut change.node {
            let before = self.known.insert(node.path.clone(), node.clone());
            if let Some(before) = before
                && self.node_view.mistake == Some(Mistake::EventTellsOldNode)
            {
                *node = before.with_sequence(None);
            }
        }
        self.node_view.change(&mut change);
        let times = if self.node_view.mistake == Some(Mistake::EventTwice) { 2 } else { 1 };
        for change in std::iter::repeat_n(change, times) {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            self.feed.send(change);
        }
    }

    fn hide(&mut self, change: &Change) -> bool {
        const ROOM: usize = 256;
        const NOW_AND_THEN: usize = 2;
        let Some(mistake) = self.node_view.mistake else { return false };
        let scope = self.query.scope;
        self.told += 1;
        match mistake {
            Mistake::WatchMissesUpdate => scope == Scope::Node && change.kind == Kind::Updated,
            Mistake::WatchMissesDelete => scope == Scope::Node && change.kind == Kind::Deleted,
            Mistake::WatchMissesChildUpdate => {
                scope == Scope::Children && change.kind == Kind::Updated
            }
            Mistake::WatchNeedsNode => scope == Scope::Node && self.shown.is_empty(),
            Mistake::NamesWatchIsSilent => {
                scope == Scope::Children && self.query.detail == Detail::Names
            }
            Mistake::WatchIsShallow => {
                scope == Scope::Subtree
                    && change.path != self.query.path
                    && change.path.parent_str() != Some(self.query.path.as_str())
            }
            Mistake::PrefixWatchIsSilent => !self.query.prefix.is_empty(),
            Mistake::WindowNarrowsWatch => {
                self.query.window.is_some() && !self.shown.contains(&change.path)
            }
            Mistake::HintsHideDeletions => self.query.hints && change.kind == Kind::Deleted,
            Mistake::WatchFiresOnce => self.told > 1,
            Mistake::OnceFallsSilent => self.query.once && self.told > 1,
            Mistake::OnceWaitsForTheAbsent => self.query.once && self.shown.is_empty(),
            Mistake::EventDropped => {
                change.kind == Kind::Deleted || self.told.is_multiple_of(NOW_AND_THEN)
            }
            Mistake::FullChannelDropsEvent => self.waiting.load(Ordering::Relaxed) >= ROOM,
            Mistake::DropRemovesOtherWatches
            | Mistake::WatchSilentAfterOutage
            | Mistake::GapUnreported => self.silent.load(Ordering::Relaxed),
            Mistake::EventForWrongPath => {
                !change.path.as_str().starts_with(self.query.path.as_str())
            }
            _ => self.is_kept_back(mistake, change),
        }
    }

    /// Returns `true` if the change is hidden because of its author.
    fn is_kept_back(&self, mistake: Mistake, change: &Change) -> bool {
        let Some(revision) = change.revision else { return false };
        let unasked =
            change.kind == Kind::Deleted && !self.shared.books().commits.contains(&revision);
        match mistake {
            Mistake::WatchIgnoresOwnWrites => self.watch_state.is_own(revision),
            Mistake::ExpiryUntoldToWatchers => unasked,
            Mistake::CloseUntoldToWatchers => {
                let books = self.shared.books();
                unasked && books.closings.iter().any(|closing| closing.contains(&revision))
            }
            Mistake::TtlUntoldToWatchers => {
                unasked && self.shared.books().mortal.contains(&change.path)
            }
            _ => false,
        }
    }
}
