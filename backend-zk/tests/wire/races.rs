//! Another client writes while a transaction is in flight: the result is the same as if the
//! transaction happened before or after that write.
//!
//! Random transactions are compared with memory, where both orders are tried. L-OUT-1 to 3.

use std::collections::BTreeSet;

use synod_core::path::Path;
use synod_core::random::Random;
use synod_core::store::{
    Backend as _, Expect, Lifetime, Outcome, Query, RejectReason, SessionOptions, Store, Txn,
    Version,
};
use synod_mem::MemBackend;
use tokio::time::timeout;

use crate::peer::Peer;
use crate::protocol::Request;
use crate::scene::{LONG, PATIENCE, done, make, open, path, peer, remove, set};
use crate::script::{Deed, Rule};
use crate::tree::Write;

const ROUNDS: u64 = 300;

/// The maximum number of requests of a transaction before the write of the other client.
const REQUESTS: u64 = 6;

/// Few paths, so that writes conflict; parents occur more often.
const PLACES: [&str; 9] = ["a", "a", "a", "a/b", "a/b", "a/b/c", "a/d", "e", "e/f"];

/// The effect of one operation of a transaction on its path.
#[derive(Clone, Copy, Debug)]
enum Verb {
    Create(Lifetime),
    Draw,
    Set(Wish),
    Delete(Wish),
    Check(Wish),
}

#[derive(Clone, Copy, Debug)]
enum Wish {
    Any,
    /// The version that was there before the transaction.
    Known,
    Absent,
}

type Act = (&'static str, Verb);

/// The comparable part of the end of a transaction.
#[derive(Debug, PartialEq, Eq)]
struct End {
    refused: Option<(usize, RejectReason)>,
    /// The nodes, their data, and whether a session owns them.
    tree: BTreeSet<(String, Vec<u8>, bool)>,
}

struct Round {
    dir: String,
    before: Vec<Txn>,
    acts: Vec<Act>,
    other: Vec<Request>,
    at: u64,
}

impl Round {
    fn new(number: u64, random: &Random) -> Self {
        let dir = format!("/round{number}");
        let below = |n: usize| usize::try_from(random.below(n as u64)).unwrap_or(0);
        let place = || PLACES[below(PLACES.len())];
        let whole = |place: &str| format!("{dir}/{place}");

        let mut before = vec![create(&dir, Lifetime::Persistent)];
        for place in PLACES.into_iter().filter(|_| random.below(5) == 0) {
            let lifetime =
                if random.below(5) == 0 { Lifetime::Session } else { Lifetime::Persistent };
            before.push(create(&whole(place), lifetime));
        }
        // Leaves containers at these paths, unless a node exists there.
        for place in PLACES.into_iter().filter(|_| random.below(5) == 0) {
            let inside = if random.below(3) == 0 { "deep/gone" } else { "gone" };
            let inside = whole(&format!("{place}/{inside}"));
            before.push(create(&inside, Lifetime::Persistent));
            before.push(Txn::new().delete(path(&inside), Expect::Any));
        }
        // Creates nodes, possibly in the place of containers.
        for place in PLACES.into_iter().filter(|_| random.below(12) == 0) {
            before.push(create(&whole(place), Lifetime::Persistent));
        }

        let mut acts: Vec<Act> = Vec::new();
        for _ in 0..=random.below(4) {
            let (place, wish) = (place(), [Wish::Any, Wish::Known, Wish::Absent][below(3)]);
            let verb = match random.below(12) {
                0..3 => Verb::Create(Lifetime::Persistent),
                3 | 4 => Verb::Create(Lifetime::Session),
                5 => Verb::Create(Lifetime::Container),
                6 => Verb::Draw,
                7 | 8 => Verb::Set(wish),
                9 | 10 => Verb::Delete(wish),
                _ => Verb::Check(wish),
            };
            if acts.iter().all(|(taken, _)| *taken != place) {
                acts.push((place, verb));
            }
        }

        let other = match (whole(place()), random.below(8)) {
            (at, 0..3) => vec![make(&at)],
            (at, 3) => vec![make(&at), make(&format!("{at}/more"))],
            (at, 4..7) => vec![remove(&at)],
            (at, _) => vec![set(&at, "other")],
        };
        Self { dir, before, acts, other, at: random.below(REQUESTS) }
    }

    /// The transaction, with the versions that this store gives.
    async fn txn(&self, store: &dyn Store) -> Txn {
        let mut txn = Txn::new();
        for (place, verb) in &self.acts {
            let at = path(&format!("{}/{place}", self.dir));
            let known = store.read(Query::node(&at)).await.expect("it answers");
            let known = known.node().and_then(|node| node.stat).map(|stat| stat.version);
            let expect = |wish| match wish {
                Wish::Any => Expect::Any,
                Wish::Absent => Expect::Absent,
                Wish::Known => Expect::Version(known.unwrap_or(Version::new(9))),
            };
            let written = |wish| match wish {
                Wish::Absent => Expect::Any,
                other => expect(other),
            };
            txn = match *verb {
                Verb::Create(Lifetime::Container) => txn.create(at, "", Lifetime::Container),
                Verb::Create(lifetime) => txn.create(at, "own", lifetime),
                Verb::Draw => txn.create_sequential(below(&at, "t-"), "own", Lifetime::Session),
                Verb::Set(wish) => txn.set(at, "own", written(wish)),
                Verb::Delete(wish) => txn.delete(at, written(wish)),
                Verb::Check(wish) => txn.check(at, expect(wish)),
            };
        }
        txn
    }

    async fn end(&self, store: &dyn Store, outcome: &Outcome) -> End {
        let view = store.read(Query::subtree(path(&self.dir))).await.expect("it answers");
        let there = view.nodes.iter().filter_map(|node| {
            // An empty container may be listed, without one.
            let stat = node.stat?;
            let name = node.path.as_str().trim_end_matches(|digit: char| digit.is_ascii_digit());
            Some((name.to_owned(), node.data.to_vec(), stat.owner.is_some()))
        });
        End { refused: outcome.rejected().map(|no| (no.index, no.reason)), tree: there.collect() }
    }

    /// On the scripted servers, and what the other client wrote meanwhile.
    async fn on(&self, peer: &Peer, store: &dyn Store) -> (End, Vec<Write>) {
        for txn in &self.before {
            let _exists = store.commit(txn.clone()).await.expect("the peer answers");
        }
        let (txn, session) = (self.txn(store).await, store.session().id.get());
        let logged = peer.world().log.len();
        for _ in 0..self.at {
            peer.when(Rule::new(Deed::Proceed).of(session));
        }
        peer.when(Rule::new(Deed::Meanwhile(self.other.clone())).of(session));
        let result = timeout(PATIENCE, store.commit(txn)).await.expect("it ends");
        let outcome = result.expect("the peer answers");
        peer.change(|world| world.script.calm());
        let world = peer.world().log[logged..].to_vec();
        let others = world.into_iter().filter(|entry| entry.session == 0 && !entry.closes);
        (self.end(store, &outcome).await, others.flat_map(|entry| entry.writes).collect())
    }

    /// Returns `true` if only the reason of a rejection differs: of several operations, the reason
    /// may be found by a read after the rejection.
    fn is_late(&self, end: &End, as_it_was: &End) -> bool {
        let at = |end: &End| end.refused.map(|(index, _)| index);
        self.acts.len() > 1
            && at(end).is_some()
            && at(end) == at(as_it_was)
            && end.tree == as_it_was.tree
    }

    /// Returns `true` if the transaction was rejected because a node to delete is missing: an empty
    /// container may nevertheless be deleted.
    fn may_delete(&self, end: &End) -> bool {
        let Some((index, RejectReason::Missing)) = end.refused else { return false };
        matches!(self.acts[index].1, Verb::Delete(Wish::Any | Wish::Absent))
    }

    /// On memory, with the writes of the other client first, or last.
    async fn expected(&self, writes: &[Write], first: bool) -> End {
        let backend = MemBackend::new();
        let store = backend.open(&SessionOptions::new(LONG)).await.expect("memory is there");
        for txn in &self.before {
            let _exists = store.commit(txn.clone()).await.expect("memory answers");
        }
        let txn = self.txn(&*store).await;
        if first {
            repeat(&*store, writes).await;
        }
        let outcome = store.commit(txn).await.expect("memory answers");
        if !first {
            repeat(&*store, writes).await;
        }
        self.end(&*store, &outcome).await
    }
}

fn create(at: &str, lifetime: Lifetime) -> Txn {
    Txn::new().create(path(at), "", lifetime)
}

fn below(dir: &Path, name: &str) -> Path {
    path(&format!("{dir}/{name}"))
}

/// The nodes that the other client wrote. Containers are not nodes, and memory has no containers.
async fn repeat(store: &dyn Store, writes: &[Write]) {
    for write in writes {
        let txn = match write {
            Write::Create { path: at, data, .. } => {
                Txn::new().create(path(at), data.clone(), Lifetime::Persistent)
            }
            Write::Set { path: at, data, .. } => {
                Txn::new().set(path(at), data.clone(), Expect::Any)
            }
            Write::Delete { path: at } => Txn::new().delete(path(at), Expect::Any),
        };
        let _no_node = store.commit(txn).await.expect("memory answers");
    }
}

pub(crate) async fn a_transaction_is_before_a_write_of_others_or_after_it() {
    let peer = peer(1);
    peer.change(|world| world.collects = false);
    let store = open(&peer, LONG).await;
    done(&*store, create("/warm", Lifetime::Persistent)).await;
    let (mut met, mut excused) = (0_u64, 0_u64);
    for number in 0..ROUNDS {
        let round = Round::new(number, &Random::seeded(number));
        let (end, writes) = round.on(&peer, &*store).await;
        let (after, before) =
            (round.expected(&writes, true).await, round.expected(&writes, false).await);
        let ends = [&after, &before];
        let disturbed = !writes.is_empty();
        met += u64::from(disturbed);
        if ends.into_iter().any(|it| end == *it || (disturbed && round.is_late(&end, it))) {
            continue;
        }
        if ends.into_iter().any(|it| round.may_delete(it)) {
            excused += 1;
            continue;
        }
        panic!(
            "round {number}: {:?} before {:?}, with {writes:?} at its request {}:\n{end:?}\ninstead of {after:?}\nor {before:?}",
            round.acts, round.before, round.at,
        );
    }
    assert!(met > ROUNDS / 10 && excused < ROUNDS / 20, "{met} were met, {excused} not compared");
}
