use etcd_client::proto::{PbEvent, PbKeyValue, PbResponseHeader, PbWatchResponse};
use std::time::Duration;
use synod_core::error::{ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Event, Feed, Query, Watch};
use tokio::sync::oneshot;

use super::*;
use crate::watched::covers;

/// Adds a listener that watches a node of its own.
fn add(roster: &mut Roster, id: i64) -> (Watch, oneshot::Receiver<Result<i64>>) {
    listen(roster, id, &format!("/n{id}"))
}

fn listen(roster: &mut Roster, id: i64, at: &str) -> (Watch, oneshot::Receiver<Result<i64>>) {
    asks(roster, id, &Query::node(path(at)))
}

/// Adds a listener that waits for the deletion of a node of its own.
fn wait(roster: &mut Roster, id: i64) -> (Watch, oneshot::Receiver<Result<i64>>) {
    asks(roster, id, &Query::until_gone(path(&format!("/n{id}"))))
}

fn asks(roster: &mut Roster, id: i64, query: &Query) -> (Watch, oneshot::Receiver<Result<i64>>) {
    let (feed, watch) = Feed::new(8);
    let (ready, opened) = oneshot::channel();
    let covered = covers(query).remove(0);
    roster.add(covered.subject.clone(), Listener::new(id, &covered, feed, ready));
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

fn send_all(roster: &mut Roster) -> usize {
    std::iter::from_fn(|| roster.request().map(|_| roster.sent())).count()
}

fn created(name: i64) -> WatchResponse {
    says(PbWatchResponse { watch_id: name, created: true, ..PbWatchResponse::default() })
}

#[test]
fn a_refusal_without_a_name_is_of_the_request_whose_turn_it_is() {
    let mut roster = Roster::default();
    let (_one, mut first) = add(&mut roster, 1);
    let (_two, mut second) = add(&mut roster, 2);
    assert_eq!(send_all(&mut roster), 2);

    assert_eq!(roster.hear(created(1)), Heard::Fine);
    let refused = PbWatchResponse {
        watch_id: -1,
        created: true,
        canceled: true,
        cancel_reason: "etcdserver: permission denied".to_owned(),
        ..PbWatchResponse::default()
    };
    assert_eq!(roster.hear(says(refused)), Heard::Fine);

    assert_eq!(first.try_recv().expect("answered").expect("watched"), 7);
    let error = second.try_recv().expect("answered").expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Denied);
}

#[test]
fn what_is_compacted_is_watched_from_now_on_and_said_to_be_missed() {
    let mut roster = Roster::default();
    let (mut watch, _opened) = add(&mut roster, 1);
    assert_eq!(send_all(&mut roster), 1);
    roster.hear(created(1));
    roster.hang_up();
    assert_eq!(send_all(&mut roster), 1);
    roster.hear(created(2));
    let compacted = PbWatchResponse {
        watch_id: 2,
        canceled: true,
        compact_revision: 9,
        ..PbWatchResponse::default()
    };
    assert_eq!(roster.hear(says(compacted)), Heard::Fine);
    assert!(watch.try_next().is_none(), "a read now may be too early");

    assert_eq!(send_all(&mut roster), 1);
    assert_eq!(roster.hear(created(3)), Heard::Behind(7, 1));
    roster.resync(1);
    assert!(matches!(watch.try_next(), Some(Event::Resync)));
}

#[test]
fn listeners_of_the_same_query_share_a_watch() {
    let mut roster = Roster::default();
    let listen = |roster: &mut Roster, id| asks(roster, id, &Query::children(path("/d")));
    let (mut first, _opened) = listen(&mut roster, 1);
    assert_eq!(send_all(&mut roster), 1);
    roster.hear(created(1));
    let (mut second, mut opened) = listen(&mut roster, 2);
    assert_eq!(opened.try_recv().expect("reported at once").expect("watched"), 7);
    assert_eq!(send_all(&mut roster), 0, "it is watched already");

    roster.resync(1);
    for watch in [&mut first, &mut second] {
        assert!(matches!(watch.try_next(), Some(Event::Resync)));
    }
    roster.remove(1, soon());
    assert!(roster.request().is_none() && !roster.is_empty(), "one is left");
    roster.remove(2, soon());
    assert!(matches!(roster.request(), Some(Request::Cancel(1))));

    let _third = listen(&mut roster, 3);
    assert!(matches!(roster.request(), Some(Request::Cancel(1))));
    assert_eq!(send_all(&mut roster), 2, "the end of the one, and another");
}

/// The answer to a create, at another revision.
fn taken(name: i64, revision: i64) -> WatchResponse {
    let mut answer = created(name);
    answer.0.header = Some(PbResponseHeader { revision, ..PbResponseHeader::default() });
    answer
}

#[test]
fn a_second_watch_reports_what_the_first_is_late_with() {
    let mut roster = Roster::default();
    let (mut watch, _opened) = add(&mut roster, 1);
    assert_eq!(send_all(&mut roster), 1);
    roster.hear(created(1));
    roster.double(1);
    assert_eq!(send_all(&mut roster), 1);
    roster.hear(created(2));
    assert_eq!(send_all(&mut roster), 0, "the server wrote nothing meanwhile");

    roster.hear(gone(2, 1, 9));
    roster.hear(gone(1, 1, 9));
    let told = [watch.try_next(), watch.try_next()];
    assert!(matches!(told, [Some(Event::Changed(_)), None]), "{told:?}");

    roster.remove(1, soon());
    assert_eq!(send_all(&mut roster), 2, "the end of both");
}

#[test]
fn others_are_asked_for_while_the_server_writes_and_not_for_ever() {
    let mut roster = Roster::default();
    let _watch = add(&mut roster, 1);
    send_all(&mut roster);
    roster.hear(created(1));
    roster.double(1);
    for name in 2..=4 {
        assert_eq!(send_all(&mut roster), 1, "{name}");
        roster.hear(taken(name, 6 + name));
    }
    assert_eq!(send_all(&mut roster), 0);

    let refused = PbWatchResponse { watch_id: 3, canceled: true, ..PbWatchResponse::default() };
    assert_eq!(roster.hear(says(refused)), Heard::Fine);
    roster.hang_up();
    assert_eq!(send_all(&mut roster), 1, "the next stream has no second watch");
    roster.remove(1, soon());
    roster.wake(soon());
    assert_eq!(send_all(&mut roster), 1);
}

/// The deletion of the key that is watched as `/n1`, and so on.
fn gone(name: i64, number: i64, revision: i64) -> WatchResponse {
    let key = format!("//n{number}").into_bytes();
    let kv = PbKeyValue { key, mod_revision: revision, ..PbKeyValue::default() };
    let events = vec![PbEvent { r#type: 1, kv: Some(kv), prev_kv: None }];
    says(PbWatchResponse { watch_id: name, events, ..PbWatchResponse::default() })
}

/// Adds a listener as [`wait`] does; its watch is accepted with this id and reports the deletion.
fn wait_until_gone(roster: &mut Roster, id: i64, name: i64) -> Watch {
    let (watch, _opened) = wait(roster, id);
    send_all(roster);
    roster.hear(created(name));
    roster.hear(gone(name, id, 9));
    watch
}

#[test]
fn a_waiter_that_soon_waits_again_finds_the_node_watched() {
    let mut roster = Roster::default();
    let _first = wait_until_gone(&mut roster, 1, 1);
    roster.remove(1, soon());
    assert_eq!(send_all(&mut roster), 0);
    assert!(roster.is_empty() && roster.rests_until().is_some());

    let (mut watch, mut opened) = asks(&mut roster, 2, &Query::until_gone(path("/n1")));
    assert_eq!(opened.try_recv().expect("reported at once").expect("watched"), 9);
    assert!(!roster.is_empty() && roster.rests_until().is_none());
    roster.double(2);
    assert_eq!(send_all(&mut roster), 0, "it was watched before");
    roster.hear(gone(1, 1, 10));
    let told = [watch.try_next(), watch.try_next()];
    assert!(matches!(told, [Some(Event::Changed(_)), None]), "{told:?}");

    roster.remove(2, soon());
    roster.wake(Instant::now());
    assert_eq!(send_all(&mut roster), 0, "it has not rested for long");
    roster.wake(soon());
    assert!(matches!(roster.request(), Some(Request::Cancel(1))));
    let (_watch, mut opened) = asks(&mut roster, 3, &Query::until_gone(path("/n1")));
    assert!(opened.try_recv().is_err(), "it is watched anew");
}

#[test]
fn a_watch_that_can_report_nothing_is_not_kept() {
    let mut roster = Roster::default();
    let _first = wait_until_gone(&mut roster, 1, 1);
    roster.remove(1, soon());
    roster.hear(gone(1, 1, 10));
    assert!(matches!(roster.request(), Some(Request::Cancel(1))));

    // A watch that has reported nothing yet does not rest either.
    let _second = wait(&mut roster, 2);
    send_all(&mut roster);
    roster.hear(created(2));
    roster.remove(2, soon());
    assert!(matches!(roster.request(), Some(Request::Cancel(2))));
    // Nor does one that got a listener again.
    send_all(&mut roster);
    let _third = wait_until_gone(&mut roster, 3, 3);
    let _fourth = asks(&mut roster, 4, &Query::until_gone(path("/n3")));
    roster.remove(3, soon());
    roster.remove(4, soon());
    assert!(matches!(roster.request(), Some(Request::Cancel(3))));
}

#[test]
fn a_wait_for_a_deletion_shares_no_watch_with_a_full_observer() {
    let mut roster = Roster::default();
    let _both = (wait(&mut roster, 1), listen(&mut roster, 2, "/n1"));
    let filters = |roster: &Roster| match roster.request() {
        Some(Request::Create(_, options)) => format!("{options:?}").contains("filters: [Noput]"),
        other => panic!("{other:?}"),
    };
    assert!(filters(&roster), "no writes are reported");
    roster.sent();
    assert!(!filters(&roster), "every event is reported");
}

#[test]
fn few_watches_rest_and_none_beyond_its_stream() {
    let mut roster = Roster::default();
    let mut kept = Vec::new();
    for id in 1..=6 {
        kept.push(wait_until_gone(&mut roster, id, id));
    }
    for id in 1..=6 {
        roster.remove(id, soon());
    }
    assert!(matches!(roster.request(), Some(Request::Cancel(1))));
    assert_eq!(send_all(&mut roster), 2, "the first two that were left");

    roster.hang_up();
    assert!(roster.is_empty() && roster.rests_until().is_none());
    assert_eq!(send_all(&mut roster), 0);
}

#[test]
fn a_watch_that_was_refused_or_doubled_does_not_rest() {
    let mut roster = Roster::default();
    let _first = wait(&mut roster, 1);
    send_all(&mut roster);
    roster.hear(created(1));
    roster.double(1);
    roster.hear(gone(1, 1, 9));
    roster.remove(1, soon());
    assert!(roster.rests_until().is_none());
    assert_eq!(send_all(&mut roster), 1, "the end of the one; the other was never sent");

    let _second = wait_until_gone(&mut roster, 1, 3);
    roster.remove(1, soon());
    let cancelled = PbWatchResponse { watch_id: 3, canceled: true, ..PbWatchResponse::default() };
    assert_eq!(roster.hear(says(cancelled)), Heard::Fine);
    assert!(roster.is_empty() && roster.rests_until().is_none());
}

#[test]
fn a_watch_without_listeners_is_cancelled_or_never_sent() {
    let mut roster = Roster::default();
    let _both = (add(&mut roster, 1), add(&mut roster, 2));
    roster.sent();
    roster.remove(2, soon());
    roster.remove(1, soon());
    assert!(matches!(roster.request(), Some(Request::Cancel(1))));
    assert_eq!(send_all(&mut roster), 1);
    assert!(roster.is_empty());
}

fn progress(revision: i64) -> WatchResponse {
    let header = Some(PbResponseHeader { revision, ..PbResponseHeader::default() });
    WatchResponse(PbWatchResponse { header, watch_id: -1, ..PbWatchResponse::default() })
}

/// The start revision of each watch on the next stream, by its key.
fn resumed(roster: &mut Roster) -> Vec<(Vec<u8>, i64)> {
    roster.hang_up();
    let asked = std::iter::from_fn(|| {
        let request = roster.request()?;
        roster.sent();
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
    let mut roster = Roster::default();
    let _one = add(&mut roster, 1);
    send_all(&mut roster);
    roster.hear(created(1));
    let _two = add(&mut roster, 2);
    send_all(&mut roster);
    let _three = add(&mut roster, 3);

    assert_eq!(roster.hear(progress(50)), Heard::Progress(50));
    roster.progress(50);
    roster.progress(40);

    let from: Vec<i64> = resumed(&mut roster).into_iter().map(|(_key, from)| from).collect();
    assert_eq!(from, [50, 0, 0], "nothing was said of the second, and the third was not asked for");
}

#[test]
fn a_watch_that_is_asked_for_again_has_no_progress_before_it_is_accepted() {
    let mut roster = Roster::default();
    let _one = add(&mut roster, 1);
    send_all(&mut roster);
    roster.hear(created(1));
    assert_eq!(resumed(&mut roster)[0].1, 7);

    roster.progress(50);
    assert_eq!(
        resumed(&mut roster)[0].1,
        7,
        "the server may have said that before it took the watch"
    );
    let name = roster.last_name;
    roster.hear(created(name));
    roster.progress(60);
    assert_eq!(resumed(&mut roster)[0].1, 60);
}

#[test]
fn a_half_delivered_revision_makes_no_progress() {
    let mut roster = Roster::default();
    let _one = add(&mut roster, 1);
    send_all(&mut roster);
    roster.hear(created(1));
    let mut half = gone(1, 1, 9);
    half.0.fragment = true;
    roster.hear(half);
    roster.progress(50);
    assert_eq!(resumed(&mut roster)[0].1, 7, "the rest of revision 9 was not delivered");
}

#[test]
fn another_end_that_names_watches_by_itself_is_no_member() {
    let mut roster = Roster::default();
    let _one = add(&mut roster, 1);
    let _two = add(&mut roster, 2);
    send_all(&mut roster);
    assert_eq!(roster.hear(created(0)), Heard::Proxied);
    assert_eq!(roster.hear(created(1)), Heard::Fine, "a name of the client's own");
}
