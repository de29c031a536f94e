//! Compares the events of a store with the changes that happened: at least the last change of each
//! path, and nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use synod_core::store::{Change, End, Event, Kind, SessionEnd, Watch};
use tokio::time::timeout;

use crate::differential::model::{Deed, Model};
use crate::differential::neutral::Translate;
use crate::differential::program::{Ask, Reach, parent};

/// An observation: its session, and the step of its start.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) step: usize,
    pub(crate) who: usize,
    pub(crate) ask: Ask,
}

/// One watch of one store.
pub(crate) struct Listener<'a> {
    pub(crate) store: usize,
    pub(crate) observed: &'a Observed,
    pub(crate) model: &'a Model,
    pub(crate) translate: &'a Translate,
    pub(crate) patience: Duration,
}

impl Listener<'_> {
    /// Takes events until all changes are reported, and checks them. For a session that is over,
    /// takes them up to the end, whose reason is also checked.
    pub(crate) async fn listen(
        &self,
        watch: &mut Watch,
        over: bool,
    ) -> Result<Option<SessionEnd>, String> {
        let mut events = Vec::new();
        loop {
            let enough =
                if over { ended(&events).is_some() } else { self.unreported(&events).is_none() };
            if enough {
                break;
            }
            match timeout(self.patience, watch.next()).await {
                Ok(Some(event)) => events.push(event),
                Ok(None) => return Err("a watch was over without an end".into()),
                Err(_) => return Err(self.silence(&events, over)),
            }
        }
        while let Some(event) = watch.try_next() {
            events.push(event);
        }
        self.check(&events)?;
        match (over, ended(&events)) {
            (false, None) => Ok(None),
            (true, Some(End::SessionOver(why))) => match watch.next().await {
                None => Ok(Some(*why)),
                Some(event) => Err(format!("{event:?} after the end")),
            },
            (_, end) => Err(format!("the watch ended: {end:?}")),
        }
    }

    fn silence(&self, events: &[Event], over: bool) -> String {
        let lacking = match self.unreported(events) {
            Some(deed) if !over => {
                format!("{:?} of /{} (step {})", deed.kind, deed.place, deed.step + 1)
            }
            _ => "the end".into(),
        };
        format!("no event for {lacking} within {:?}; only {}", self.patience, self.shown(events))
    }

    /// A change whose last state was not reported.
    fn unreported(&self, events: &[Event]) -> Option<&Deed> {
        if events.iter().any(|event| matches!(event, Event::Resync)) {
            return None;
        }
        let ask = &self.observed.ask;
        let hints = ask.names_only && ask.reach != Reach::Node;
        let due = self.model.deeds().iter().filter(|deed| {
            let wanted = !hints || deed.kind != Kind::Updated;
            deed.step > self.observed.step && wanted && ask.covers(&deed.place)
        });
        let last: BTreeMap<&str, &Deed> = due.map(|deed| (deed.place.as_str(), deed)).collect();
        last.into_values().find(|deed| !self.is_told(deed, events, hints))
    }

    fn is_told(&self, deed: &Deed, events: &[Event], hints: bool) -> bool {
        let mut last = None;
        for change in changes(events) {
            let place = self.translate.place(&change.path);
            let of_children = change.kind == Kind::Children;
            if of_children && hints && Some(place.as_str()) == parent(&deed.place) {
                return true;
            }
            // In a listing of names a write may be reported, which does not show whether the node
            // exists.
            if !of_children && place == deed.place && !(hints && change.kind == Kind::Updated) {
                last = Some(change);
            }
        }
        last.is_some_and(|change| {
            let same_time = match (change.revision, self.when(deed)) {
                (Some(told), Some(true_one)) => told == true_one,
                _ => true,
            };
            same_time && (change.kind == Kind::Deleted) == (deed.kind == Kind::Deleted)
        })
    }

    fn when(&self, deed: &Deed) -> Option<synod_core::store::Revision> {
        deed.revisions.get(self.store).copied().flatten()
    }

    /// Only changes that happened are reported, once each and in order.
    fn check(&self, events: &[Event]) -> Result<(), String> {
        let mut latest = BTreeMap::new();
        for event in events {
            let change = match event {
                Event::Changed(change) => change,
                Event::Resync => {
                    latest.clear();
                    continue;
                }
                Event::Ended(_) => continue,
            };
            if change.kind == Kind::Children {
                continue;
            }
            let place = self.translate.place(&change.path);
            self.happened(change, &place)?;
            let Some(revision) = change.revision else { continue };
            let before = latest.insert(place, (revision, change.kind));
            if before
                .is_some_and(|(at, kind)| at > revision || (at, kind) == (revision, change.kind))
            {
                return Err(format!("{change:?} after {before:?}"));
            }
        }
        Ok(())
    }

    fn happened(&self, change: &Change, place: &str) -> Result<(), String> {
        if !self.observed.ask.covers(place) {
            return Err(format!("{:?} of /{place} is not observed", change.kind));
        }
        let comes_or_goes = change.kind != Kind::Updated;
        if comes_or_goes && self.model.may_be_container(place) {
            return Ok(());
        }
        let same = |deed: &&Deed| {
            let same_time = match (change.revision, self.when(deed)) {
                (Some(told), Some(true_one)) => told == true_one,
                _ => true,
            };
            deed.place == place && deed.kind == change.kind && same_time
        };
        let mut known = self.model.deeds().iter().filter(same).peekable();
        if known.peek().is_none() {
            return Err(format!("{:?} of /{place} never happened: {change:?}", change.kind));
        }
        let Some(node) = &change.node else { return Ok(()) };
        let told = |deed: &Deed| deed.data.as_ref().is_none_or(|data| *data == node.data);
        if self.observed.ask.names_only || known.any(told) {
            return Ok(());
        }
        Err(format!("the reported state of /{place} never existed: {change:?}"))
    }

    fn shown(&self, events: &[Event]) -> String {
        let shown = changes(events)
            .map(|change| format!("{:?} of /{}", change.kind, self.translate.place(&change.path)));
        format!("[{}]", shown.collect::<Vec<_>>().join(", "))
    }
}

fn changes(events: &[Event]) -> impl Iterator<Item = &Change> {
    events.iter().filter_map(|event| match event {
        Event::Changed(change) => Some(change),
        Event::Resync | Event::Ended(_) => None,
    })
}

fn ended(events: &[Event]) -> Option<&End> {
    events.iter().find_map(|event| match event {
        Event::Ended(end) => Some(end),
        Event::Changed(_) | Event::Resync => None,
    })
}
