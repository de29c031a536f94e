//! A model of a server and of its connection, on which other clients write between any two
//! requests.

use synod_core::path::Path;
use synod_core::random::Random;

use super::*;
use crate::client::ZkStat;
use crate::snapshot::ReadNode;

/// Path and data of each node.
type State = BTreeMap<String, Vec<u8>>;

#[derive(Clone)]
struct Modelled {
    data: Vec<u8>,
    czxid: i64,
    mzxid: i64,
    pzxid: i64,
}

/// The server, and every state that it was in.
struct Server {
    nodes: BTreeMap<String, Modelled>,
    history: Vec<State>,
    /// The events that were not taken from the connection yet.
    events: Vec<(String, Kind)>,
}

impl Server {
    fn new() -> Self {
        let root = Modelled { data: Vec::new(), czxid: 0, mzxid: 0, pzxid: 0 };
        let nodes = BTreeMap::from([("/r".to_owned(), root)]);
        Self {
            history: vec![State::from([("/r".to_owned(), Vec::new())])],
            nodes,
            events: Vec::new(),
        }
    }

    /// The next write of some client: nodes are created, written and deleted, some far more often
    /// than others.
    fn write(&mut self, random: &Random) {
        let zxid = i64::try_from(self.history.len()).expect("few");
        let place = |nodes: &BTreeMap<String, Modelled>| {
            let hot = random.below(3) == 0;
            let count = if hot { nodes.len().min(3) } else { nodes.len() };
            let index = usize::try_from(random.below(count as u64)).expect("few");
            nodes.keys().nth(index).expect("there is the root").clone()
        };
        let path = place(&self.nodes);
        match random.below(4) {
            0 if path.matches('/').count() < 4 => {
                let child = format!("{path}/{}", random.below(12));
                if !self.nodes.contains_key(&child) {
                    let data = zxid.to_string().into_bytes();
                    let node = Modelled { data, czxid: zxid, mzxid: zxid, pzxid: zxid };
                    self.nodes.get_mut(&path).expect("it is there").pzxid = zxid;
                    self.nodes.insert(child.clone(), node);
                    self.events.push((child, Kind::Created));
                }
            }
            1 if path != "/r" && self.names(&path).is_empty() => {
                self.nodes.remove(&path);
                self.nodes.get_mut(split(&path).0).expect("it has a directory").pzxid = zxid;
                self.events.push((path, Kind::Deleted));
            }
            _ => {
                let node = self.nodes.get_mut(&path).expect("it is there");
                (node.data, node.mzxid) = (zxid.to_string().into_bytes(), zxid);
                self.events.push((path, Kind::Updated));
            }
        }
        self.history
            .push(self.nodes.iter().map(|(path, it)| (path.clone(), it.data.clone())).collect());
    }

    fn names(&self, dir: &str) -> Vec<String> {
        let children = self.nodes.keys().filter(|path| split(path).0 == dir);
        children.map(|path| split(path).1.to_owned()).collect()
    }

    /// The last change of any node that is gathered.
    fn newest(&self, reach: &Reach) -> u64 {
        let gathered = self.nodes.iter().filter(|(path, _)| reach.covers(path));
        let newest = gathered.map(|(_, node)| node.czxid.max(node.mzxid).max(node.pzxid)).max();
        newest.and_then(|zxid| u64::try_from(zxid).ok()).unwrap_or_default()
    }

    fn found(&self, path: &str) -> Option<ReadNode> {
        let node = self.nodes.get(path)?;
        let num_children = i32::try_from(self.names(path).len()).expect("few");
        let Modelled { czxid, mzxid, pzxid, .. } = *node;
        let stat = ZkStat { czxid, mzxid, pzxid, num_children, ..ZkStat::NEW };
        Some(ReadNode { data: node.data.clone(), stat })
    }
}

/// The load: the writes between two requests, and the size of a request.
#[derive(Clone, Copy, Debug)]
struct Pace {
    writes: u64,
    fits: usize,
}

/// The answer to a batch, in as many parts as it takes, and the events that were reported before
/// it.
fn ask(
    server: &mut Server,
    batch: &Batch,
    reach: &Reach,
    pace: Pace,
    random: &Random,
) -> (Snapshot, Reported) {
    let full = batch.full.iter().flat_map(|path| [(path, true), (path, false)]);
    let asks: Vec<(&String, bool)> =
        full.chain(batch.data.iter().map(|path| (path, false))).collect();
    let mut answer = Snapshot { whole: asks.len() <= pace.fits, ..Snapshot::default() };
    for part in asks.chunks(pace.fits) {
        (0..random.below(pace.writes + 1)).for_each(|_| server.write(random));
        for (path, lists) in part {
            let Some(found) = server.found(path) else { continue };
            if *lists {
                answer.names.insert((*path).clone(), server.names(path));
            } else {
                answer.revision = answer.revision.max(found.newest());
                answer.nodes.insert((*path).clone(), found);
            }
        }
    }
    // The events that follow the answer may have arrived when the events are taken, or not.
    let before = server.events.len();
    (0..random.below(pace.writes + 1)).for_each(|_| server.write(random));
    let after = u64::try_from(server.events.len() - before).expect("few");
    let taken = before + usize::try_from(random.below(after + 1)).expect("few");
    let mut reported = Reported::default();
    for (path, kind) in server.events.drain(..taken) {
        reported.add(reach, &path, kind);
    }
    (answer, reported)
}

/// Gathers while others write. Returns the number of batches.
fn gather(seed: u64, pace: Pace, reach: &Reach) -> usize {
    let random = Random::seeded(seed);
    let mut server = Server::new();
    (0..random.below(150)).for_each(|_| server.write(&random));
    server.events.clear();
    let since = server.newest(reach);

    let mut gathering = Gathering::new(reach.clone());
    for batches in 1.. {
        let batch = gathering.batch();
        let (answer, reported) = ask(&mut server, &batch, reach, pace, &random);
        let Some(snapshot) = gathering.take(batch, answer, reported) else { continue };

        let at = snapshot.revision.get();
        assert!(at >= since, "[seed {seed}] {at} is older than what was there before, {since}");
        let state = &server.history[usize::try_from(at).expect("few")];
        let shown: State =
            snapshot.nodes.into_iter().map(|(path, found)| (path, found.data)).collect();
        let expected: State = state
            .iter()
            .filter(|(path, _)| reach.covers(path))
            .map(|(path, data)| (path.clone(), data.clone()))
            .collect();
        assert_eq!(shown, expected, "[seed {seed}] {pace:?} as of {at}");
        return batches;
    }
    unreachable!()
}

fn tree() -> Reach {
    Reach::of(&Query::subtree(Path::new("/r").expect("valid")))
}

fn children() -> Reach {
    Reach::of(&Query::children(Path::new("/r").expect("valid")).starting_with("1"))
}

#[test]
fn what_is_gathered_was_there_at_one_moment() {
    for seed in 0..250 {
        for pace in
            [Pace { writes: 2, fits: 5 }, Pace { writes: 4, fits: 30 }, Pace { writes: 1, fits: 1 }]
        {
            gather(seed, pace, &tree());
            gather(seed, pace, &children());
        }
    }
}

#[test]
fn it_takes_few_requests_however_much_is_written() {
    let pace = Pace { writes: 3, fits: 50 };
    let most = (0..300).map(|seed| gather(seed, pace, &tree())).max().expect("some");
    // One request for each level, and the requests that find a snapshot.
    assert!(most <= 30, "{most}");
}

#[test]
fn without_writes_each_level_is_asked_for_once() {
    let pace = Pace { writes: 0, fits: 1_000 };
    let most = (0..300).map(|seed| gather(seed, pace, &tree())).max().expect("some");
    assert_eq!(most, 6, "the data of four levels, and the names below two that are not the first");
}

#[test]
fn a_query_reaches_what_it_is_about() {
    let (tree, children) = (tree(), children());
    assert!(tree.descends("/r") && tree.descends("/r/1") && children.descends("/r"));
    assert!(!children.descends("/r/1"), "only children are asked for");
    assert!(tree.has("/r", "2") && children.has("/r", "12"));
    assert!(!children.has("/r", "2"), "it does not begin like that");
}

/// A node that last changed at this revision, with this number of children.
fn node(zxid: i64, num_children: i32) -> ReadNode {
    let stat = ZkStat { mzxid: zxid, num_children, ..ZkStat::NEW };
    ReadNode { data: Vec::new(), stat }
}

/// Takes an answer with these nodes, and with these names in `/r`, while this node was written.
fn takes(
    gathering: &mut Gathering,
    nodes: &[(&str, ReadNode)],
    names: &[&str],
    written: &str,
) -> Option<Revision> {
    let batch = gathering.batch();
    let revision = nodes.iter().map(|(_, found)| found.newest()).max().expect("some");
    let listed = names.iter().map(|name| (*name).to_owned()).collect();
    let answer = Snapshot {
        // Some names came with it: then it is small.
        whole: !names.is_empty(),
        nodes: nodes.iter().map(|(path, found)| ((*path).to_owned(), found.clone())).collect(),
        names: (!names.is_empty()).then(|| ("/r".to_owned(), listed)).into_iter().collect(),
        revision,
    };
    let mut reported = Reported::default();
    reported.add(gathering.reach(), written, Kind::Updated);
    gathering.take(batch, answer, reported).map(|snapshot| snapshot.revision)
}

#[test]
fn a_later_answer_shows_what_a_directory_was_as_the_rest_was_read() {
    let mut gathering = Gathering::new(tree());
    assert_eq!(takes(&mut gathering, &[("/r", node(2, 1))], &["a"], "/elsewhere"), None);
    assert_eq!(takes(&mut gathering, &[("/r/a", node(5, 0))], &[], "/r"), None);

    let moment = takes(&mut gathering, &[("/r", node(4, 1))], &["a"], "/r");
    assert_eq!(moment, Some(Revision::new(5)), "however often it is written");
}

#[test]
fn what_is_below_a_child_does_not_matter_to_a_listing() {
    let mut gathering = Gathering::new(children());
    assert_eq!(takes(&mut gathering, &[("/r", node(2, 2))], &["1", "12"], "/elsewhere"), None);
    let both = [("/r/1", node(3, 7)), ("/r/12", node(5, 0))];
    assert_eq!(takes(&mut gathering, &both, &[], "/r/1"), None);

    let moment = takes(&mut gathering, &[("/r/1", node(4, 7))], &[], "/r/1");
    assert_eq!(moment, Some(Revision::new(5)));
}
