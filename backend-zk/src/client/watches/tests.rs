use futures_util::FutureExt as _;

use super::*;

fn watches() -> (Watches, mpsc::UnboundedReceiver<u64>) {
    let (dropped, taken) = mpsc::unbounded_channel();
    (Watches::new(Forget::new(move |id| dropped.send(id).expect("it is read"))), taken)
}

fn event(event_type: EventType, path: &str) -> WatchedEvent {
    let session_state = SessionState::SyncConnected;
    WatchedEvent { event_type, session_state, path: path.to_owned(), zxid: -1 }
}

fn watch(watches: &mut Watches, path: &str, kind: WatchKind) -> Registered {
    let request = WatchRequest::new(path, kind);
    watches.request_sent(&request);
    watches.answered(request, 0).0.expect("it is there")
}

#[test]
fn a_recursive_watch_hears_of_all_below_it_and_others_of_their_path_alone() {
    let (mut watches, _dropped) = watches();
    let recursive = watch(&mut watches, "/a", WatchKind::Recursive);
    let node = watch(&mut watches, "/a", WatchKind::Persistent);
    let (Registered::Persistent(mut recursive), Registered::Persistent(mut node)) =
        (recursive, node)
    else {
        panic!("they stay")
    };
    let mut reported = |kind, path| {
        let removal = watches.event(&event(kind, path));
        let count = [&mut recursive, &mut node].map(|it| it.changed().now_or_never().is_some());
        (count, removal)
    };
    assert_eq!(reported(EventType::NodeCreated, "/a/b/c"), ([true, false], None));
    assert_eq!(reported(EventType::NodeDeleted, "/a"), ([true, true], None));
    assert_eq!(reported(EventType::NodeChildrenChanged, "/a"), ([false, true], None));
    assert_eq!(reported(EventType::NodeCreated, "/ab"), ([false, false], None));
    assert_eq!(reported(EventType::NodeChildrenChanged, "/a/b"), ([false, false], None));
}

#[test]
fn a_watch_for_one_event_has_one_and_is_set_again_until_then() {
    let (mut watches, _dropped) = watches();
    let data = WatchRequest::new("/x", WatchKind::Data);
    watches.request_sent(&data);
    assert!(watches.answered(data, NO_NODE).0.is_none(), "there is nothing to watch");
    let request = WatchRequest::or_creation("/x");
    watches.request_sent(&request);
    let absent = watches.answered(request, NO_NODE).0.expect("it waits for the creation");
    let child = watch(&mut watches, "/a", WatchKind::Child);
    watches.report(SessionState::Disconnected);
    assert_eq!(watches.paths_to_set(), [vec![], vec!["/x"], vec!["/a"]]);
    watches.event(&event(EventType::NodeCreated, "/x"));
    watches.event(&event(EventType::NodeDataChanged, "/a"));
    assert_eq!(watches.paths_to_set(), [vec![], vec![], vec!["/a"]]);
    watches.report(SessionState::Expired);
    let last = [absent, child].map(|it| {
        let Registered::Oneshot(one) = it else { panic!("it is for one event") };
        one.changed().now_or_never().expect("it has come").event_type
    });
    assert_eq!(last, [EventType::NodeCreated, EventType::Session]);
    assert_eq!(watches.paths.len(), 0);
}

#[test]
fn a_removal_takes_no_watch_that_is_still_wanted() {
    let (mut watches, _dropped) = watches();
    let _first = watch(&mut watches, "/a", WatchKind::Persistent);
    let _second = watch(&mut watches, "/a", WatchKind::Recursive);
    let _third = watch(&mut watches, "/a", WatchKind::Child);
    let removal = |removes| Some(("/a".to_owned(), removes));
    assert_eq!(watches.unwatch(0), None, "the server removes persistent ones with all others");
    assert_eq!(watches.unwatch(2), removal(Removes::Child));
    // Another watch is requested but not answered yet.
    let request = WatchRequest::new("/a", WatchKind::Recursive);
    watches.request_sent(&request);
    assert_eq!(watches.unwatch(1), None);
    let (registered, due) = watches.answered(request.clone(), 0);
    assert!(registered.is_some() && due.is_empty() && watches.deferred.is_empty());
    watches.request_sent(&request);
    assert_eq!(watches.unwatch(3), None);
    let (registered, due) = watches.answered(request, -102);
    assert!(registered.is_none(), "it was refused");
    assert_eq!(due, [("/a".to_owned(), Removes::Any)]);
    assert_eq!(watches.unwatch(3), None, "it is forgotten");
}

#[test]
fn what_was_asked_for_on_a_lost_connection_defers_no_removal() {
    let (mut watches, _dropped) = watches();
    let _watch = watch(&mut watches, "/a", WatchKind::Data);
    watches.request_sent(&WatchRequest::new("/a", WatchKind::Recursive));
    watches.report(SessionState::Disconnected);
    assert_eq!(watches.unwatch(0), Some(("/a".to_owned(), Removes::Any)));
}

#[test]
fn a_dropped_watcher_is_reported_unless_its_event_has_come() {
    let (mut watches, mut dropped) = watches();
    drop(watch(&mut watches, "/a", WatchKind::Data));
    assert_eq!(dropped.try_recv(), Ok(0));
    let Registered::Oneshot(one) = watch(&mut watches, "/b", WatchKind::Data) else {
        panic!("it is for one event")
    };
    watches.event(&event(EventType::NodeDeleted, "/b"));
    assert!(one.changed().now_or_never().is_some());
    assert!(dropped.try_recv().is_err());
}

#[test]
fn the_paths_above_end_at_the_root() {
    let all = |path| above(path).collect::<Vec<_>>();
    assert_eq!(all("/a/b/c"), ["/a/b", "/a", "/"]);
    assert_eq!(all("/a"), ["/"]);
    assert!(all("/").is_empty() && all("").is_empty());
}

/// The server removes persistent watches only together with all others of their path.
#[test]
fn a_persistent_watch_that_stayed_for_others_is_removed_after_them() {
    let removal = || Some(("/a".to_owned(), Removes::Any));
    let both = |watches: &mut Watches| {
        let one = watch(watches, "/a", WatchKind::Data);
        let all = watch(watches, "/a", WatchKind::Recursive);
        assert_eq!(watches.unwatch(1), None);
        (one, all)
    };
    let (mut watches, _dropped) = watches();
    let _both = both(&mut watches);
    assert_eq!(watches.event(&event(EventType::NodeDataChanged, "/a/below")), None);
    assert_eq!(watches.event(&event(EventType::NodeDataChanged, "/a")), removal());
    assert_eq!(watches.event(&event(EventType::NodeDataChanged, "/a")), None, "it is on its way");

    let (mut watches, _dropped) = self::watches();
    let _both = both(&mut watches);
    assert_eq!(watches.unwatch(0), removal());
    assert!(watches.leftover.is_empty());

    let (mut watches, _dropped) = self::watches();
    let _both = both(&mut watches);
    let _again = watch(&mut watches, "/a", WatchKind::Persistent);
    assert_eq!(watches.event(&event(EventType::NodeDataChanged, "/a")), None, "it is wanted again");

    let (mut watches, _dropped) = self::watches();
    let _both = both(&mut watches);
    watches.report(SessionState::Disconnected);
    assert_eq!(watches.event(&event(EventType::NodeDataChanged, "/a")), None, "it is gone");
}

#[test]
fn a_removal_that_was_deferred_for_another_watch_follows_after_it() {
    let (mut watches, _dropped) = watches();
    let _all = watch(&mut watches, "/a", WatchKind::Persistent);
    let request = WatchRequest::new("/a", WatchKind::Child);
    watches.request_sent(&request);
    assert_eq!(watches.unwatch(0), None, "it would take the other one, too");
    let (child, due) = watches.answered(request, 0);
    assert!(child.is_some() && due.is_empty());
    let removal = Some(("/a".to_owned(), Removes::Any));
    assert_eq!(watches.event(&event(EventType::NodeDeleted, "/a")), removal);
}
