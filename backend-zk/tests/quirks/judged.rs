//! Random transactions, on which the server must decide as `judge` of the floor does.

use std::collections::BTreeMap;

use bytes::Bytes;
use synod_core::path::Path;
use synod_core::random::Random;
use synod_core::store::{
    Expect, Facts, Found, Lifetime, Node, Op, Outcome, Query, Rejected, Store, Txn, judge,
};

use super::{path, patient, session, session_with};

const TRANSACTIONS: usize = 1_000;

/// The expected nodes.
#[derive(Debug, Default)]
struct Model(BTreeMap<Path, Node>);

impl Facts for Model {
    fn node(&self, path: &Path) -> Option<Found> {
        let stat = self.0.get(path)?.stat?;
        Some(Found { version: stat.version, leased: stat.owner.is_some() })
    }

    fn occupied(&self, path: &Path, gone: &dyn Fn(&Path) -> bool) -> bool {
        self.0.keys().any(|node| node.is_below(path) && !gone(node))
    }
}

/// Three levels of two names each: few enough that the operations affect each other.
fn place(random: &Random, top: &Path) -> Path {
    let mut at = top.clone();
    for _ in 0..=random.below(3) {
        at = at.join(if random.below(2) == 0 { "a" } else { "b" }).expect("valid");
    }
    at
}

fn expect(random: &Random, model: &Model, at: &Path) -> Expect {
    match (random.below(3), model.node(at)) {
        (0, _) | (_, None) => Expect::Any,
        (1, Some(found)) => Expect::Version(found.version),
        (_, Some(found)) => {
            Expect::Version(synod_core::store::Version::new(found.version.get() + 1))
        }
    }
}

fn op(random: &Random, model: &Model, top: &Path, data: &Bytes) -> Op {
    let path = place(random, top);
    match random.below(11) {
        0..=2 => Op::Check { path, expect: Expect::Absent },
        3 => Op::Check { expect: expect(random, model, &path), path },
        4..=6 => {
            let lifetime = match random.below(5) {
                0 => Lifetime::Container,
                1 => Lifetime::Session,
                _ => Lifetime::Persistent,
            };
            let data = if lifetime == Lifetime::Container { Bytes::new() } else { data.clone() };
            Op::Create { path, data, lifetime, sequential: false }
        }
        7 => Op::Set { expect: expect(random, model, &path), path, data: data.clone() },
        _ => Op::Delete { expect: expect(random, model, &path), path },
    }
}

fn txn(random: &Random, model: &Model, top: &Path, number: usize) -> Txn {
    let data = Bytes::from(number.to_string());
    let count = 1 + random.below(4);
    (0..count).fold(Txn::new(), |txn, _| txn.op(op(random, model, top, &data)))
}

pub(super) async fn transactions_are_judged_as_the_floor_judges() {
    judges([session().await, session().await]).await;
}

/// On a server that never collects empty containers, transactions meet every one of them.
pub(super) async fn empty_containers_change_no_judgement() {
    let patient = patient();
    judges([session_with(&patient).await, session_with(&patient).await]).await;
}

async fn judges(stores: [Box<dyn Store>; 2]) {
    let random = Random::from_system();
    let top = path("/judged").join(&random.id()).expect("valid");
    let mut model = Model::default();
    let (mut committed, mut rejected) = (0, 0);
    for number in 0..TRANSACTIONS {
        let txn = txn(&random, &model, &top, number);
        let store = &stores[usize::from(random.below(2) == 0)];
        if txn.validate(&store.session().limits).is_err() {
            continue;
        }
        let outcome = store.commit(txn.clone()).await;

        let context = format!("{number} of {random:?}: {:?} on {:?}", txn.ops, model.0.keys());
        let verdict = match outcome.unwrap_or_else(|error| panic!("{error:?}: {context}")) {
            Outcome::Committed(_) => Ok(()),
            Outcome::Rejected(no) => Err(no),
        };
        let allowed = verdicts(&txn, &model);
        assert!(allowed.contains(&verdict), "{verdict:?}, and should be {allowed:?}: {context}");
        *(if verdict.is_ok() { &mut committed } else { &mut rejected }) += 1;
        let expected = after(&model, &txn, verdict.is_ok());
        model = read(&**store, &top).await;
        let found: BTreeMap<_, _> =
            model.0.iter().map(|(path, node)| (path.clone(), node.data.clone())).collect();
        assert_eq!(found, expected, "{context}");
    }
    assert!(committed > 20 && rejected > 20, "{committed} committed, {rejected} rejected");
}

/// The possible verdicts on a transaction: until an empty container is gone, a delete of it may
/// succeed.
fn verdicts(txn: &Txn, model: &Model) -> Vec<Result<(), Rejected>> {
    let lenient: Vec<usize> = (0..txn.ops.len())
        .filter(|index| matches!(&txn.ops[*index], Op::Delete { path, .. } if model.node(path).is_none()))
        .collect();
    let subsets = 0..1_usize << lenient.len();
    let verdicts = subsets.map(|subset| {
        let succeeds = |index: &usize| {
            lenient.iter().position(|l| l == index).is_some_and(|l| subset >> l & 1 == 1)
        };
        let left: Vec<usize> = (0..txn.ops.len()).filter(|index| !succeeds(index)).collect();
        let ops: Vec<Op> = left.iter().map(|index| txn.ops[*index].clone()).collect();
        judge(&ops, model).map_err(|no| Rejected::new(left[no.index], no.path, no.reason))
    });
    verdicts.collect()
}

/// The expected state after a transaction.
fn after(model: &Model, txn: &Txn, done: bool) -> BTreeMap<Path, Bytes> {
    let mut tree: BTreeMap<_, _> =
        model.0.iter().map(|(path, node)| (path.clone(), node.data.clone())).collect();
    for op in txn.ops.iter().filter(|_| done) {
        match op {
            Op::Create { lifetime: Lifetime::Container, .. } | Op::Check { .. } => {}
            Op::Create { path, data, .. } | Op::Set { path, data, .. } => {
                tree.insert(path.clone(), data.clone());
            }
            Op::Delete { path, .. } => {
                tree.remove(path);
            }
        }
    }
    tree
}

/// The actual state, by a subtree, and by each node separately.
async fn read(store: &dyn Store, top: &Path) -> Model {
    let view = store.read(Query::subtree(top)).await.expect("answers");
    let nodes = view.nodes.into_iter().filter(|node| node.stat.is_some());
    let model = Model(nodes.map(|node| (node.path.clone(), node)).collect());
    for (path, node) in &model.0 {
        let alone = store.read(Query::node(path)).await.expect("answers");
        assert_eq!(alone.node(), Some(node));
    }
    model
}
