//! Streams of watches.

use std::future::pending;
use std::pin::pin;

use futures_util::future::{Either, select};
use prost::Message as _;
use tokio::time::sleep;

use super::answer::Answer;
use super::frame::{Incoming, Outgoing};
use super::message::{CreateRequest, Event, KeyValue, WatchRequest, WatchResponse, Watching};
use super::refusal::Refusal;
use super::script::{Act, Kind};
use super::serve::{Asked, Order, hold};
use super::shared::{Counted, Shared};

/// One watch.
struct Watched {
    id: i64,
    request: CreateRequest,
    /// The first revision that was not sent to it.
    next: i64,
    /// The watch begins in the past, so that all old events are sent at once.
    behind: bool,
    _counted: Counted,
}

struct Stream {
    asked: Asked,
    outgoing: Outgoing,
    watches: Vec<Watched>,
    /// The last number that was given to a watch without one.
    last: i64,
}

/// The end of a stream.
enum End {
    Well,
    Cut,
    Reset(h2::Reason),
    Refused(Refusal),
    /// The client has closed the connection.
    Gone,
}

/// Serves a stream of watches until it ends.
pub(crate) async fn watch(asked: Asked, mut incoming: Incoming, outgoing: Outgoing) {
    match asked.shared.next(Kind::Watch, asked.member, asked.network) {
        Some(Act::Refuse(refusal) | Act::ApplyAndRefuse(refusal)) => {
            return outgoing.refuse(&refusal);
        }
        Some(Act::Ignore | Act::Mute) => return hold((incoming, outgoing)).await,
        Some(Act::Cut { .. }) => {
            let _cut = asked.orders.send(Order::Cut).is_ok();
            return pending().await;
        }
        Some(Act::Reset { reason, .. }) => return outgoing.reset(reason),
        Some(Act::End) => return outgoing.well(),
        Some(Act::GoAway) => drop(asked.orders.send(Order::GoAway)),
        Some(Act::Slow(slow) | Act::Late(slow)) => sleep(slow).await,
        _ => {}
    }
    let mut stream = Stream { asked, outgoing, watches: Vec::new(), last: 1 << 40 };
    let end = loop {
        if let Some(end) = stream.step(&mut incoming).await {
            break end;
        }
    };
    match end {
        End::Well => stream.outgoing.well(),
        End::Reset(reason) => stream.outgoing.reset(reason),
        End::Refused(refusal) => stream.outgoing.refuse(&refusal),
        End::Cut => {
            let _cut = stream.asked.orders.send(Order::Cut).is_ok();
            pending::<()>().await;
        }
        End::Gone => {}
    }
}

impl Stream {
    /// Waits for a request, or for an event to send.
    async fn step(&mut self, incoming: &mut Incoming) -> Option<End> {
        let shared = self.asked.shared.clone();
        let mut moved = shared.moved.subscribe();
        if let Err(refusal) = shared.admits(self.asked.member, &self.asked.caller, false) {
            return Some(End::Refused(refusal));
        }
        if let Some(end) = self.push().await {
            return Some(end);
        }
        match select(pin!(incoming.message()), pin!(moved.changed())).await {
            Either::Left((Some(message), _)) => {
                let request =
                    WatchRequest::decode(message).expect("the client says what it should");
                self.take(request.what.expect("it says something")).await
            }
            Either::Left((None, _)) => Some(End::Gone),
            Either::Right(_) => None,
        }
    }

    async fn take(&mut self, request: Watching) -> Option<End> {
        match request {
            Watching::Create(request) => self.create(request).await,
            Watching::Cancel(request) => {
                let known = self.watches.iter().position(|watched| watched.id == request.watch_id);
                drop(known.map(|place| self.watches.remove(place)));
                let canceled =
                    WatchResponse { watch_id: request.watch_id, canceled: true, ..self.response() };
                self.say(Kind::Cancel, known.map(|_| canceled)).await
            }
            Watching::Progress(_) => {
                // Up to the revision in the answer all events have been sent.
                if let Some(end) = self.push().await {
                    return Some(end);
                }
                let progress = WatchResponse { watch_id: -1, ..self.response() };
                self.say(Kind::Progress, Some(progress)).await
            }
        }
    }

    async fn create(&mut self, request: CreateRequest) -> Option<End> {
        let act = self.asked.shared.next(Kind::Create, self.asked.member, self.asked.network);
        if matches!(act, Some(Act::Ignore)) {
            return None;
        }
        let shared = self.asked.shared.clone();
        let (applied, compacted) =
            (shared.applied(self.asked.member), shared.state().keys.compacted);
        let mut id = request.watch_id;
        if id == 0 {
            self.last += 1;
            id = self.last;
        }
        let created = WatchResponse { watch_id: id, created: true, ..self.response() };
        let permitted = shared.state().users.check(self.asked.caller.token.as_deref());
        if let Err(refusal) = permitted {
            let code = refusal.code;
            let reason = format!("rpc error: code = {code:?} desc = {}", refusal.message);
            let refused = WatchResponse { canceled: true, cancel_reason: reason, ..created };
            return self.play(act, Kind::Create, refused).await;
        }
        if self.watches.iter().any(|watched| watched.id == id) {
            let cancel_reason = "mvcc: duplicate watch ID provided on the WatchStream".to_owned();
            let refused = WatchResponse { canceled: true, cancel_reason, ..created };
            return self.play(act, Kind::Create, refused).await;
        }
        let from = request.start_revision;
        let next = if from > 0 { from } else { applied + 1 };
        if next < compacted {
            if let Some(end) = self.play(act, Kind::Create, created).await {
                return Some(end);
            }
            let forgotten = WatchResponse {
                watch_id: id,
                canceled: true,
                compact_revision: compacted,
                ..self.response()
            };
            return self.say(Kind::Push, Some(forgotten)).await;
        }
        // The watch is counted before its answer is sent.
        let counted = Counted::new(&shared, |shared| &shared.watches);
        self.watches.push(Watched { id, request, next, behind: from > 0, _counted: counted });
        self.play(act, Kind::Create, created).await
    }

    /// Sends every watch its new events, by revision.
    async fn push(&mut self) -> Option<End> {
        let shared = self.asked.shared.clone();
        let member = self.asked.member;
        loop {
            let applied = shared.applied(member);
            let first = self.watches.iter().map(|watched| watched.next).min()?;
            if first > applied {
                return None;
            }
            for place in 0..self.watches.len() {
                let response = self.news(place, &shared, first, applied);
                if let Some(end) = self.say(Kind::Push, response).await {
                    return Some(end);
                }
            }
        }
    }

    /// The new events of a watch: one revision, or all that it missed.
    fn news(
        &mut self,
        place: usize,
        shared: &Shared,
        first: i64,
        applied: i64,
    ) -> Option<WatchResponse> {
        let state = shared.state();
        let watched = &mut self.watches[place];
        let up_to = if std::mem::take(&mut watched.behind) { applied } else { first };
        let header = Some(state.header_at(self.asked.member, up_to.max(first)));
        let after = watched.next - 1;
        watched.next = watched.next.max(up_to + 1);
        let commits = state.keys.since(after, up_to);
        let events = commits.iter().flat_map(|commit| &commit.events);
        let events: Vec<Event> =
            events.filter(|event| covers(&watched.request, event)).cloned().collect();
        let id = watched.id;
        (!events.is_empty()).then(|| WatchResponse {
            header,
            watch_id: id,
            events,
            ..WatchResponse::default()
        })
    }

    fn response(&self) -> WatchResponse {
        let shared = &self.asked.shared;
        let applied = shared.applied(self.asked.member);
        let header = Some(shared.state().header_at(self.asked.member, applied));
        WatchResponse { header, ..WatchResponse::default() }
    }

    async fn say(&mut self, kind: Kind, response: Option<WatchResponse>) -> Option<End> {
        let response = response?;
        let act = self.asked.shared.next(kind, self.asked.member, self.asked.network);
        self.play(act, kind, response).await
    }

    async fn play(&mut self, act: Option<Act>, kind: Kind, response: WatchResponse) -> Option<End> {
        match act {
            Some(Act::Ignore | Act::Mute) => return None,
            Some(Act::Refuse(refusal) | Act::ApplyAndRefuse(refusal)) => {
                return Some(End::Refused(refusal));
            }
            Some(Act::Cut { applied: false }) => return Some(End::Cut),
            Some(Act::Reset { applied: false, reason }) => return Some(End::Reset(reason)),
            Some(Act::End) => return Some(End::Well),
            Some(Act::Slow(slow) | Act::Late(slow)) => sleep(slow).await,
            Some(Act::GoAway) => drop(self.asked.orders.send(Order::GoAway)),
            // The end of a watch is a message without events, and is never divided.
            Some(Act::Fragment) if kind == Kind::Push && !response.events.is_empty() => {
                self.fragments(&response);
                return None;
            }
            _ => {}
        }
        let answer = Answer::Watch(response);
        let answer = match &act {
            Some(Act::Edit(edit)) => (edit.0)(answer),
            _ => answer,
        };
        let message = answer.encode();
        self.outgoing.message(&message);
        match act {
            Some(Act::Twice) => self.outgoing.message(&message),
            Some(Act::Cut { .. }) => return Some(End::Cut),
            Some(Act::Reset { reason, .. }) => return Some(End::Reset(reason)),
            _ => {}
        }
        None
    }

    /// Sends each event by itself.
    fn fragments(&mut self, response: &WatchResponse) {
        let last = response.events.len().saturating_sub(1);
        for (place, event) in response.events.iter().enumerate() {
            let events = vec![event.clone()];
            let piece = WatchResponse { events, fragment: place < last, ..response.clone() };
            self.outgoing.message(&Answer::Watch(piece).encode());
        }
    }
}

fn covers(request: &CreateRequest, event: &Event) -> bool {
    let key = event.kv.as_ref().map(|kv: &KeyValue| kv.key.as_slice()).unwrap_or_default();
    let from = request.key.as_slice();
    let inside = match request.range_end.as_slice() {
        [] => key == from,
        [0] => key >= from,
        end => from <= key && key < end,
    };
    inside && !request.filters.contains(&event.kind)
}
