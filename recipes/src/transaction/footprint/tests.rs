use synod_core::store::Version;

use super::*;

fn path(text: &str) -> Path {
    Path::new(text).expect("valid")
}

fn node(text: &str, created: u64, version: u64) -> Node {
    let (created, modified) = (Revision::new(created), Revision::new(created + version));
    let stat = Stat::new(created, modified, Version::new(version), None);
    Node::new(path(text)).with(Bytes::from("data"), stat)
}

/// A footprint that has read these paths, and found these nodes.
fn read(isolation: Isolation, paths: &[&str], nodes: &[Node]) -> (Footprint, Query) {
    let mut footprint = Footprint::new(isolation);
    let more = paths.iter().map(|text| path(text)).collect();
    let query = footprint.query(&more).expect("there are some");
    let view = View::new(Revision::new(9), nodes.to_vec());
    assert_eq!(footprint.record_view(&query, view).expect("stats"), Some(true));
    for text in paths {
        assert!(footprint.read(&path(text)).is_ok());
    }
    (footprint, query)
}

fn expected(footprint: &Footprint) -> Vec<(String, Option<Expect>)> {
    let expect = |op: &Op| match op {
        Op::Check { expect, .. } | Op::Set { expect, .. } | Op::Delete { expect, .. } => {
            Some(*expect)
        }
        Op::Create { .. } => None,
    };
    footprint.ops().iter().map(|op| (op.path().to_string(), expect(op))).collect()
}

const ONE: Option<Expect> = Some(Expect::Version(Version::new(1)));

#[test]
fn what_was_read_is_expected_unchanged() {
    let (nodes, levels) = (
        [node("/a", 3, 1), node("/b", 4, 1)],
        [Isolation::SerializableSnapshot, Isolation::Serializable, Isolation::RepeatableReads],
    );
    for level in levels {
        let (mut footprint, _) = read(level, &["/a", "/b", "/c", "/d"], &nodes);
        _ = footprint.put(&path("/b"), Bytes::new());
        _ = footprint.put(&path("/d"), Bytes::new());
        let absent = Some(Expect::Absent);
        let ops = [("/a", ONE), ("/c", absent), ("/b", ONE), ("/d", None)];
        assert_eq!(expected(&footprint), ops.map(|(text, expect)| (text.to_owned(), expect)));
    }
    let (mut footprint, _) = read(Isolation::ReadCommitted, &["/a", "/b", "/c"], &nodes);
    _ = footprint.put(&path("/b"), Bytes::new());
    assert_eq!(expected(&footprint), [("/b".to_owned(), Some(Expect::Any))]);
}

#[test]
fn what_is_written_blindly_is_bound_in_a_snapshot_only() {
    for (level, expect) in
        [(Isolation::SerializableSnapshot, ONE), (Isolation::Serializable, Some(Expect::Any))]
    {
        let (mut footprint, _) = read(level, &["/a"], &[node("/a", 3, 1)]);
        assert!(footprint.put(&path("/b"), Bytes::new()).is_none());
        assert_eq!(footprint.lacks_nodes(), expect == ONE);
        let query = footprint.whole().expect("there are some");
        let view = View::new(Revision::new(9), vec![node("/a", 3, 1), node("/b", 4, 1)]);
        assert!(footprint.record_whole(&query, view).expect("stats"));
        let ops = [("/a".to_owned(), ONE), ("/b".to_owned(), expect)];
        assert_eq!(expected(&footprint), ops.to_vec());
        assert!(!footprint.lacks_nodes() && !footprint.is_later());
        // Written again since the first answer, which was of revision 9.
        let view = View::new(Revision::new(12), vec![node("/a", 3, 1), node("/b", 4, 7)]);
        assert!(footprint.record_whole(&query, view).expect("stats"));
        assert_eq!(footprint.is_later(), expect == ONE);
    }
}

#[test]
fn what_only_an_earlier_run_has_read_is_asked_for_as_far_as_there_is_room() {
    let texts: Vec<String> = (0..Query::MAX_NODES).map(|it| format!("/n{it}")).collect();
    let paths: Vec<&str> = texts.iter().map(String::as_str).collect();
    let (earlier, _) = read(Isolation::Serializable, &paths, &[]);
    assert!(earlier.admit(&path("/n7")).is_ok(), "it was read");
    let error = earlier.admit(&path("/more")).expect_err("one more than a query is about");
    assert_eq!(error.kind(), ErrorKind::TooLarge);

    let mut footprint = earlier.next();
    assert!(footprint.read(&path("/n99")).is_ok());
    let query = footprint.query(&BTreeSet::from([path("/more")])).expect("there are some");

    let asked: BTreeSet<_> = query.nodes_asked().cloned().collect();
    assert_eq!(asked.len(), Query::MAX_NODES);
    assert!(asked.contains(&path("/more")) && asked.contains(&path("/n99")));
    let view = View::new(Revision::new(12), Vec::new());
    assert_eq!(footprint.record_view(&query, view).expect("stats"), Some(true));
    assert!(footprint.admit(&path("/again")).is_ok(), "this run has read one");
}

#[test]
fn parents_come_first_and_go_last() {
    let (mut footprint, _) = read(
        Isolation::Serializable,
        &["/a", "/a/b", "/c", "/c/d"],
        &[node("/a", 1, 1), node("/a/b", 2, 1)],
    );
    _ = footprint.delete(&path("/a"));
    _ = footprint.delete(&path("/a/b"));
    _ = footprint.create(&path("/c/d"), Bytes::new());
    _ = footprint.put(&path("/c"), Bytes::new());
    let order: Vec<_> = footprint.ops().iter().map(|op| op.path().to_string()).collect();
    assert_eq!(order, ["/a/b", "/a", "/c", "/c/d"]);
}

#[test]
fn another_incarnation_is_another_node() {
    let (mut footprint, query) = read(Isolation::Serializable, &["/a"], &[node("/a", 3, 1)]);
    let later = View::new(Revision::new(12), vec![node("/a", 7, 1)]);
    assert_eq!(footprint.record_view(&query, later).expect("stats"), Some(false));
}

#[test]
fn a_rejection_is_a_lost_race_or_a_refusal() {
    let no = |why| Rejected::new(0, path("/a"), why);
    let view = |nodes: &[Node]| View::new(Revision::new(12), nodes.to_vec());
    let blind = || {
        let (mut footprint, _) = read(Isolation::Serializable, &["/a"], &[node("/a", 3, 1)]);
        _ = footprint.put(&path("/b"), Bytes::new());
        let query = footprint.whole().expect("two");
        (footprint, query)
    };

    let (mut footprint, query) = blind();
    let verdict =
        footprint.judge(&no(RejectReason::OtherVersion), &query, view(&[node("/a", 3, 2)]));
    assert_eq!(verdict.expect("stats"), AfterRejection::RunAgain);
    let (mut footprint, query) = blind();
    let verdict = footprint.judge(&no(RejectReason::Missing), &query, view(&[node("/a", 3, 1)]));
    assert_eq!(verdict.expect("stats"), AfterRejection::SendAgain, "/b is to be created");
    let verdict = footprint.judge(&no(RejectReason::Exists), &query, view(&[node("/a", 3, 1)]));
    assert_eq!(
        verdict.expect("stats"),
        AfterRejection::Unexplained,
        "/b is a directory, or was there"
    );
    let (mut footprint, query) = blind();
    let verdict =
        footprint.judge(&no(RejectReason::BelowEphemeral), &query, view(&[node("/a", 3, 1)]));
    assert_eq!(verdict.expect("stats"), AfterRejection::Refused);
}

#[test]
fn a_run_reads_what_it_has_written() {
    let (mut footprint, _) = read(Isolation::Serializable, &["/a", "/b"], &[node("/a", 3, 1)]);
    assert_eq!(footprint.read(&path("/a")), Ok(Some(Bytes::from("data"))));
    _ = footprint.put(&path("/a"), Bytes::from("mine"));
    assert_eq!(footprint.read(&path("/a")), Ok(Some(Bytes::from("mine"))));
    _ = footprint.delete(&path("/a"));
    assert_eq!(footprint.read(&path("/a")), Ok(None));
    assert_eq!(footprint.read(&path("/b")), Ok(None));
    assert_eq!(footprint.read(&path("/c")), Err(NotKnown), "it has to be asked for");
}
