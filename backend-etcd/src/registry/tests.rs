use etcd_client::proto::{PbEvent, PbKeyValue, PbResponseHeader, PbWatchResponse};
use std::time::Duration;
use synod_core::error::{ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Event, Feed, Query, Watch};
use tokio::sync::oneshot;

use super::*;
use crate::watched_range::covers;

/// Adds a listener that watches its own node.
fn add(registry: &mut Registry, id: i64) -> (Watch, oneshot::Receiver<Result<i64>>) {
    listen(registry, id, &format!("/n{id}"))
}

fn listen(registry: &mut Registry, id: i64, at: &str) -> (Watch, oneshot::Receiver<Result<i64>>) {
    asks(registry, id, &Query::node(path(at)))
}

/// Adds a listener that waits for the deletion of its own node.
fn wait(registry: &mut Registry, id: i64) -> (Watch, oneshot::Receiver<Result<i64>>) {
    asks(registry, id, &Query::until_gone(path(&format!("/n{id}"))))
}

fn asks(
    registry: &mut Registry,
    id: i64,
    query: &Query,
) -> (Watch, oneshot::Receiver<Result<i64>>) {
    let (feed, watch) = Feed::new(8);
    let (ready, opened) = oneshot::channel();
    let covered = covers(query).remove(0);
    registry.add(covered.subject.clone(), Listener::new(id, &covered, feed, ready));
    (watch, opened)
}

fn path(text: &str) -> Path {
    Path::new(text).expect("valid")
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(1)
}

fn says(response: PbWatchResponse) -> WatchResponse {
    let header = Some(PbResponseHeader { revision: 7, ..PbResponseHeader::default() });
    WatchResponse(PbWatchResponse { header, ..response })
}

fn send_all(registry: &mut Registry) -> usize {
    std::iter::from_fn(|| registry.request().map(|_| registry.sent())).count()
}

fn created(name: i64) -> WatchResponse {
    says(PbWatchResponse { watch_id: name, created: true, ..PbWatchResponse::default() })
}

#[test]
fn a_refusal_without_a_name_is_of_the_request_whose_turn_it_is() {
    for nameless in [-1, 0] {
        let mut registry = Registry::default();
        let (_one, mut first) = add(&mut registry, 1);
        let (_two, mut second) = add(&mut registry, 2);
        assert_eq!(send_all(&mut registry), 2);

        assert_eq!(registry.receive(created(1)), Consequence::Fine);
        let refused = PbWatchResponse {
            watch_id: nameless,
            created: true,
            canceled: true,
            cancel_reason: "etcdserver: permission denied".to_owned(),
            ..PbWatchResponse::default()
        };
        assert_eq!(registry.receive(says(refused)), Consequence::Fine);

        assert_eq!(first.try_recv().expect("answered").expect("watched"), 7);
        let error = second.try_recv().expect("answered").expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Denied);
    }
}

#[test]
fn an_answer_is_to_the_request_that_it_names() {
    let mut registry = Registry::default();
    let (_one, mut first) = add(&mut registry, 1);
    let (_two, mut second) = add(&mut registry, 2);
    assert_eq!(send_all(&mut registry), 2);
    assert_eq!(registry.receive(created(2)), Consequence::Fine);
    assert!(registry.unanswered_since().is_some() && first.try_recv().is_err());
    assert_eq!(second.try_recv().expect("answered").expect("watched"), 7);
    // Lost requests do not count as answered.
    assert_eq!(registry.receive(created(2)), Consequence::Fine);
    assert!(registry.unanswered_since().is_some());
}

#[test]
fn what_a_server_says_of_one_watch_is_no_progress_of_all() {
    let mut registry = Registry::default();
    let (_watch, _opened) = add(&mut registry, 1);
    assert_eq!(send_all(&mut registry), 1);
    registry.receive(created(1));
    let nothing = |name| says(PbWatchResponse { watch_id: name, ..PbWatchResponse::default() });
    assert_eq!(registry.receive(nothing(1)), Consequence::Fine);
    assert_eq!(registry.receive(nothing(ALL)), Consequence::Progress(7));
}

#[test]
fn a_refusal_of_the_stream_is_one_of_each_watch() {
    let mut registry = Registry::default();
    let (_one, mut first) = add(&mut registry, 1);
    let (mut watch, _opened) = add(&mut registry, 2);
    assert_eq!(send_all(&mut registry), 2);
    registry.receive(created(2));
    registry.refuse(&Error::new(ErrorKind::Denied, "watch"));

    let error = first.try_recv().expect("answered").expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(matches!(watch.try_next(), Some(Event::Ended(_))));
    assert!(registry.is_empty());
}

#[test]
fn what_is_compacted_is_watched_from_now_on_and_said_to_be_missed() {
    let mut registry = Registry::default();
    let (mut watch, _opened) = add(&mut registry, 1);
    assert_eq!(send_all(&mut registry), 1);
    registry.receive(created(1));
    registry.hang_up();
    assert_eq!(send_all(&mut registry), 1);
    registry.receive(created(2));
    let compacted = PbWatchResponse {
        watch_id: 2,
        canceled: true,
        compact_revision: 9,
        ..PbWatchResponse::default()
    };
    assert_eq!(registry.receive(says(compacted)), Consequence::Fine);
    assert!(watch.try_next().is_none(), "a read now may be too early");

    assert_eq!(send_all(&mut registry), 1);
    assert_eq!(registry.receive(created(3)), Consequence::Behind(7, 1));
    registry.resync(1);
    assert!(matches!(watch.try_next(), Some(Event::Resync)));
}

#[test]
fn listeners_of_the_same_query_share_a_watch() {
    let mut registry = Registry::default();
    let listen = |registry: &mut Registry, id| asks(registry, id, &Query::children(path("/d")));
    let (mut first, _opened) = listen(&mut registry, 1);
    assert_eq!(send_all(&mut registry), 1);
    registry.receive(created(1));
    let (mut second, mut opened) = listen(&mut registry, 2);
    assert_eq!(opened.try_recv().expect("reported at once").expect("watched"), 7);
    assert_eq!(send_all(&mut registry), 0, "it is watched already");

    registry.resync(1);
    for watch in [&mut first, &mut second] {
        assert!(matches!(watch.try_next(), Some(Event::Resync)));
    }
    registry.remove(1, soon());
    assert!(registry.request().is_none() && !registry.is_empty(), "one is left");
    registry.remove(2, soon());
    assert!(matches!(registry.request(), Some(Request::Cancel(1))));

    let _third = listen(&mut registry, 3);
    assert!(matches!(registry.request(), Some(Request::Cancel(1))));
    assert_eq!(send_all(&mut registry), 2, "the end of the one, and another");
}

/// The answer to a create, at another revision.
fn taken(name: i64, revision: i64) -> WatchResponse {
    let mut answer = created(name);
    answer.0.header = Some(PbResponseHeader { revision, ..PbResponseHeader::default() });
    answer
}

#[test]
fn a_second_watch_reports_what_the_first_is_late_with() {
    let mut registry = Registry::default();
    let (mut watch, _opened) = add(&mut registry, 1);
    assert_eq!(send_all(&mut registry), 1);
    registry.receive(created(1));
    registry.double(1);
    assert_eq!(send_all(&mut registry), 1);
    registry.receive(created(2));
    assert_eq!(send_all(&mut registry), 0, "the server wrote nothing meanwhile");

    registry.receive(gone(2, 1, 9));
    registry.receive(gone(1, 1, 9));
    let events = [watch.try_next(), watch.try_next()];
    assert!(matches!(events, [Some(Event::Changed(_)), None]), "{events:?}");

    registry.remove(1, soon());
    assert_eq!(send_all(&mut registry), 2, "the end of both");
}

#[test]
fn others_are_asked_for_while_the_server_writes_and_not_for_ever() {
    let (mut registry, _watch) = accepted();
    registry.double(1);
    for name in 2..=4 {
        assert_eq!(send_all(&mut registry), 1, "{name}");
        registry.receive(taken(name, 6 + name));
    }
    assert_eq!(send_all(&mut registry), 0);

    let refused = PbWatchResponse { watch_id: 3, canceled: true, ..PbWatchResponse::default() };
    assert_eq!(registry.receive(says(refused)), Consequence::Fine);
    registry.hang_up();
    assert_eq!(send_all(&mut registry), 1, "the next stream has no second watch");
    registry.remove(1, soon());
    registry.wake(soon());
    assert_eq!(send_all(&mut registry), 1);
}

/// The deletion of the key that is watched as `/n1`, and so on.
fn gone(name: i64, number: i64, revision: i64) -> WatchResponse {
    let key = format!("//n{number}").into_bytes();
    let kv = PbKeyValue { key, mod_revision: revision, ..PbKeyValue::default() };
    let events = vec![PbEvent { r#type: 1, kv: Some(kv), prev_kv: None }];
    says(PbWatchResponse { watch_id: name, events, ..PbWatchResponse::default() })
}

/// Adds a listener as [`wait`] does; its watch is accepted with this id and reports the deletion.
fn wait_until_gone(registry: &mut Registry, id: i64, name: i64) -> Watch {
    let (watch, _opened) = wait(registry, id);
    send_all(registry);
    registry.receive(created(name));
    registry.receive(gone(name, id, 9));
    watch
}

#[test]
fn a_waiter_that_soon_waits_again_finds_the_node_watched() {
    let mut registry = Registry::default();
    let _first = wait_until_gone(&mut registry, 1, 1);
    registry.remove(1, soon());
    assert_eq!(send_all(&mut registry), 0);
    assert!(registry.is_empty() && registry.rests_until().is_some());

    let (mut watch, mut opened) = asks(&mut registry, 2, &Query::until_gone(path("/n1")));
    assert_eq!(opened.try_recv().expect("reported at once").expect("watched"), 9);
    assert!(!registry.is_empty() && registry.rests_until().is_none());
    registry.double(2);
    assert_eq!(send_all(&mut registry), 0, "it was watched before");
    registry.receive(gone(1, 1, 10));
    let events = [watch.try_next(), watch.try_next()];
    assert!(matches!(events, [Some(Event::Changed(_)), None]), "{events:?}");

    registry.remove(2, soon());
    registry.wake(Instant::now());
    assert_eq!(send_all(&mut registry), 0, "it has not rested for long");
    registry.wake(soon());
    assert!(matches!(registry.request(), Some(Request::Cancel(1))));
    let (_watch, mut opened) = asks(&mut registry, 3, &Query::until_gone(path("/n1")));
    assert!(opened.try_recv().is_err(), "it is watched anew");
}

#[test]
fn a_watch_that_can_report_nothing_is_not_kept() {
    let mut registry = Registry::default();
    let _first = wait_until_gone(&mut registry, 1, 1);
    registry.remove(1, soon());
    registry.receive(gone(1, 1, 10));
    assert!(matches!(registry.request(), Some(Request::Cancel(1))));

    // Nor does a watch rest that has not reported anything yet.
    let _second = wait(&mut registry, 2);
    send_all(&mut registry);
    registry.receive(created(2));
    registry.remove(2, soon());
    assert!(matches!(registry.request(), Some(Request::Cancel(2))));
    // Nor does one that got a listener again.
    send_all(&mut registry);
    let _third = wait_until_gone(&mut registry, 3, 3);
    let _fourth = asks(&mut registry, 4, &Query::until_gone(path("/n3")));
    registry.remove(3, soon());
    registry.remove(4, soon());
    assert!(matches!(registry.request(), Some(Request::Cancel(3))));
}

#[test]
fn a_wait_for_a_deletion_shares_no_watch_with_a_full_observer() {
    let mut registry = Registry::default();
    let _both = (wait(&mut registry, 1), listen(&mut registry, 2, "/n1"));
    let filters = |registry: &Registry| match registry.request() {
        Some(Request::Create(_, options)) => format!("{options:?}").contains("filters: [Noput]"),
        other => panic!("{other:?}"),
    };
    assert!(filters(&registry), "no writes are reported");
    registry.sent();
    assert!(!filters(&registry), "every event is reported");
}

#[test]
fn few_watches_rest_and_none_beyond_its_stream() {
    let mut registry = Registry::default();
    let mut kept = Vec::new();
    for id in 1..=6 {
        kept.push(wait_until_gone(&mut registry, id, id));
    }
    for id in 1..=6 {
        registry.remove(id, soon());
    }
    assert!(matches!(registry.request(), Some(Request::Cancel(1))));
    assert_eq!(send_all(&mut registry), 2, "the first two that were left");

    registry.hang_up();
    assert!(registry.is_empty() && registry.rests_until().is_none());
    assert_eq!(send_all(&mut registry), 0);
}

#[test]
fn a_watch_that_was_refused_or_doubled_does_not_rest() {
    let mut registry = Registry::default();
    let _first = wait(&mut registry, 1);
    send_all(&mut registry);
    registry.receive(created(1));
    registry.double(1);
    registry.receive(gone(1, 1, 9));
    registry.remove(1, soon());
    assert!(registry.rests_until().is_none());
    assert_eq!(send_all(&mut registry), 1, "the end of the one; the other was never sent");

    let _second = wait_until_gone(&mut registry, 1, 3);
    registry.remove(1, soon());
    let cancelled = PbWatchResponse { watch_id: 3, canceled: true, ..PbWatchResponse::default() };
    assert_eq!(registry.receive(says(cancelled)), Consequence::Fine);
    assert!(registry.is_empty() && registry.rests_until().is_none());
}

#[test]
fn a_watch_without_listeners_is_cancelled_or_never_sent() {
    let mut registry = Registry::default();
    let _both = (add(&mut registry, 1), add(&mut registry, 2));
    registry.sent();
    registry.remove(2, soon());
    registry.remove(1, soon());
    assert!(matches!(registry.request(), Some(Request::Cancel(1))));
    assert_eq!(send_all(&mut registry), 1);
    assert!(registry.is_empty());
}

/// A registry with the watch of one listener, which the server has accepted.
fn accepted() -> (Registry, (Watch, oneshot::Receiver<Result<i64>>)) {
    let mut registry = Registry::default();
    let one = add(&mut registry, 1);
    send_all(&mut registry);
    registry.receive(created(1));
    (registry, one)
}

fn progress(revision: i64) -> WatchResponse {
    let header = Some(PbResponseHeader { revision, ..PbResponseHeader::default() });
    WatchResponse(PbWatchResponse { header, watch_id: -1, ..PbWatchResponse::default() })
}

/// The start revision of each watch on the next stream, by its key.
fn resumed(registry: &mut Registry) -> Vec<(Vec<u8>, i64)> {
    registry.hang_up();
    let asked = std::iter::from_fn(|| {
        let request = registry.request()?;
        registry.sent();
        let Request::Create(key, options) = request else { panic!("{request:?}") };
        let shown = format!("{options:?}");
        let from = shown.split_once("start_revision: ").expect("shown").1;
        let digits = from.split(|c: char| !c.is_ascii_digit()).next().expect("one");
        Some((key, digits.parse().expect("a number")))
    });
    asked.collect()
}

#[test]
fn watches_that_a_server_accepted_go_on_where_it_said_that_they_are() {
    let (mut registry, _one) = accepted();
    let _two = add(&mut registry, 2);
    send_all(&mut registry);
    let _three = add(&mut registry, 3);

    assert_eq!(registry.receive(progress(50)), Consequence::Progress(50));
    registry.progress(50);
    registry.progress(40);

    let from: Vec<i64> = resumed(&mut registry).into_iter().map(|(_key, from)| from).collect();
    assert_eq!(from, [50, 0, 0], "nothing was said of the second, and the third was not asked for");
}

#[test]
fn a_watch_that_is_asked_for_again_has_no_progress_before_it_is_accepted() {
    let (mut registry, _one) = accepted();
    assert_eq!(resumed(&mut registry)[0].1, 7);

    registry.progress(50);
    assert_eq!(
        resumed(&mut registry)[0].1,
        7,
        "the server may have said that before it took the watch"
    );
    let name = registry.last_name;
    registry.receive(created(name));
    registry.progress(60);
    assert_eq!(resumed(&mut registry)[0].1, 60);
}

#[test]
fn events_that_are_too_large_are_not_asked_for_again() {
    let (mut registry, _one) = accepted();
    registry.miss();
    assert_eq!(resumed(&mut registry)[0].1, 0, "it begins anew, from now on");
}

#[test]
fn a_half_delivered_revision_makes_no_progress() {
    let (mut registry, _one) = accepted();
    let mut half = gone(1, 1, 9);
    half.0.fragment = true;
    registry.receive(half);
    registry.progress(50);
    assert_eq!(resumed(&mut registry)[0].1, 7, "the rest of revision 9 was not delivered");
}

#[test]
fn another_end_that_names_watches_by_itself_is_no_member() {
    let mut registry = Registry::default();
    let _one = add(&mut registry, 1);
    let _two = add(&mut registry, 2);
    send_all(&mut registry);
    assert_eq!(registry.receive(created(0)), Consequence::Proxied);
    assert_eq!(registry.receive(created(1)), Consequence::Fine, "a name of the client's own");
}

#[test]
fn a_watch_that_is_refused_leaves_no_request_in_the_way_of_others() {
    let (mut registry, (mut watch, _opened)) = accepted();
    registry.double(1);
    let why = "etcdserver: permission denied".to_owned();
    let refused = PbWatchResponse {
        watch_id: 1,
        canceled: true,
        cancel_reason: why,
        ..PbWatchResponse::default()
    };
    assert_eq!(registry.receive(says(refused)), Consequence::Fine);
    assert!(matches!(watch.try_next(), Some(Event::Ended(_))));
    assert!(registry.request().is_none(), "the second watch is not needed any more");

    let _two = add(&mut registry, 2);
    assert!(matches!(registry.request(), Some(Request::Create(..))));
}

#[test]
fn a_watch_that_is_refused_ends_its_second_watch() {
    let (mut registry, _one) = accepted();
    registry.double(1);
    assert_eq!(send_all(&mut registry), 1);
    let refused = PbWatchResponse { watch_id: 1, canceled: true, ..PbWatchResponse::default() };
    assert_eq!(registry.receive(says(refused)), Consequence::Fine);
    assert!(matches!(registry.request(), Some(Request::Cancel(2))));
    assert_eq!(send_all(&mut registry), 1, "the end of the second, and not of the first");
}

#[tokio::test(start_paused = true)]
async fn an_answer_whose_turn_it_is_gives_the_next_its_own_time() {
    let mut registry = Registry::default();
    let _watches: Vec<_> = (1..=3).map(|id| add(&mut registry, id)).collect();
    assert_eq!(send_all(&mut registry), 3);
    let began = Instant::now();
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(registry.unanswered_since(), Some(began));

    registry.receive(created(1));
    assert_eq!(registry.unanswered_since(), Some(began + Duration::from_secs(5)));
    tokio::time::advance(Duration::from_secs(5)).await;
    // The answer to the second was lost.
    registry.receive(created(3));
    assert_eq!(registry.unanswered_since(), Some(began + Duration::from_secs(5)));
}
