//! [`Plan`]: a transaction in etcd's terms, with the answer to why it cannot be done.

use etcd_client::proto::PbKeyValue;
use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, Txn as Request, TxnOp};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Expect, Facts, Found, Lifetime, Op, Rejected, Why, judge};

use crate::fetch::version;
use crate::key;

/// How many conditions, and how many operations, etcd takes in one transaction.
const MOST: usize = 128;

/// What is sent for a transaction, and what its answers are about.
///
/// etcd looks at all conditions before it does anything. So what an operation needs of those
/// before it is settled here, and what remains are conditions on what stands there now.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    parts: Parts,
    /// How many writes there are, with the reads that belong to them.
    writes: usize,
    /// Where in the answers to the writes an operation's node is told of.
    told: Vec<Option<usize>>,
    /// What each question is about.
    asked: Vec<About>,
    /// What the operations so far have made, written and deleted. There are few: each is looked for
    /// from the start.
    changes: Vec<(Path, Changed)>,
    unleased: Vec<Path>,
}

/// What is sent.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    conditions: Vec<Compare>,
    writes: Vec<TxnOp>,
    questions: Vec<TxnOp>,
}

/// What is asked when the conditions do not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
enum About {
    Node(Path),
    Below(Path),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Changed {
    Made { leased: bool },
    Written,
    Gone,
}

impl Plan {
    /// The plan for `ops`. `leases` are those of the nodes that need one.
    pub(crate) fn new(ops: &[Op], leases: &[Option<i64>]) -> Result<Self> {
        let mut plan = Self::default();
        for (op, lease) in ops.iter().zip(leases) {
            let told = plan.add(op, *lease);
            plan.told.push(told);
        }
        let most = plan.parts.conditions.len().max(plan.writes).max(plan.parts.questions.len());
        if most > MOST {
            return Err(Error::new(ErrorKind::TooLarge, "commit").because(format!(
                "these operations come to {most} conditions, and etcd takes {MOST}"
            )));
        }
        Ok(plan)
    }

    fn add(&mut self, op: &Op, lease: Option<i64>) -> Option<usize> {
        match op {
            Op::Check { path, expect } => self.expect(path, *expect),
            Op::Create { path, data, lifetime, sequential } => {
                self.is_missing(path);
                // Nobody else gives that name, so nothing is below it.
                if !sequential {
                    self.is_childless(path);
                }
                self.is_below_no_lease(path);
                if *lifetime != Lifetime::Container {
                    let leased = lease.is_some();
                    self.changes.push((path.clone(), Changed::Made { leased }));
                    let options = lease.map(|lease| PutOptions::new().with_lease(lease));
                    self.write(TxnOp::put(key::of(path), data.clone(), options));
                }
            }
            Op::Set { path, data, expect } => {
                self.expect(path, *expect);
                self.changes.push((path.clone(), Changed::Written));
                // Without this an ephemeral node would become a persistent one.
                let keep = PutOptions::new().with_ignore_lease();
                self.write(TxnOp::put(key::of(path), data.clone(), Some(keep)));
                return Some(self.write(get(key::of(path))));
            }
            Op::Delete { path, expect } => {
                self.expect(path, *expect);
                self.is_childless(path);
                self.changes.push((path.clone(), Changed::Gone));
                self.write(TxnOp::delete(key::of(path), None));
            }
        }
        None
    }

    fn write(&mut self, op: TxnOp) -> usize {
        self.parts.writes.push(op);
        self.writes += 1;
        self.writes - 1
    }

    fn expect(&mut self, path: &Path, expect: Expect) {
        match expect {
            Expect::Any => {
                self.parts.conditions.push(Compare::version(key::of(path), CompareOp::Greater, 0));
                self.ask_node(path);
            }
            Expect::Version(version) => {
                // A missing key has the revision zero, and no key a negative one.
                let known = i64::try_from(version.get()).ok().filter(|version| *version > 0);
                let revision = known.unwrap_or(-1);
                let key = key::of(path);
                self.parts.conditions.push(Compare::mod_revision(key, CompareOp::Equal, revision));
                self.ask_node(path);
            }
            Expect::Absent => {
                self.is_missing(path);
                self.is_childless(path);
            }
        }
    }

    fn is_missing(&mut self, path: &Path) {
        self.parts.conditions.push(Compare::version(key::of(path), CompareOp::Equal, 0));
        self.ask_node(path);
    }

    /// Nothing is below the path but what this transaction has deleted by then.
    fn is_childless(&mut self, path: &Path) {
        let below = self.changes.iter().filter(|(other, _)| other.is_below(path));
        let mut gone = Vec::new();
        let mut impossible = false;
        for (other, changed) in below {
            match changed {
                Changed::Gone => gone.push(key::of(other)),
                Changed::Made { .. } | Changed::Written => impossible = true,
            }
        }
        if impossible {
            self.parts.conditions.push(never());
        }
        let count = i64::try_from(gone.len()).unwrap_or(i64::MAX);
        for part in key::below(path).without(gone) {
            let none = Compare::version(part.key, CompareOp::Equal, 0).with_range(part.end);
            self.parts.conditions.push(none);
        }
        self.ask(About::Below(path.clone()), || {
            let below = key::below(path);
            let one_more = GetOptions::new()
                .with_range(below.end)
                .with_keys_only()
                .with_limit(count.saturating_add(1));
            TxnOp::get(below.key, Some(one_more))
        });
    }

    /// Nothing above the path has a lease.
    fn is_below_no_lease(&mut self, path: &Path) {
        for above in path.ancestors() {
            let changed = self.changes.iter().find(|(path, _)| *path == above);
            match changed.map(|(_, changed)| changed) {
                Some(Changed::Made { leased: true }) => self.parts.conditions.push(never()),
                Some(Changed::Made { leased: false } | Changed::Gone) => {}
                Some(Changed::Written) | None => {
                    if !self.unleased.contains(&above) {
                        // Which is also true of what is not there.
                        let none = Compare::lease(key::of(&above), CompareOp::Equal, 0);
                        self.parts.conditions.push(none);
                        self.ask_node(&above);
                        self.unleased.push(above);
                    }
                }
            }
        }
    }

    fn ask_node(&mut self, path: &Path) {
        self.ask(About::Node(path.clone()), || get(key::of(path)));
    }

    fn ask(&mut self, about: About, op: impl FnOnce() -> TxnOp) {
        if !self.asked.contains(&about) {
            self.asked.push(about);
            self.parts.questions.push(op());
        }
    }

    /// How many operations are left for a look.
    pub(crate) fn room(&self) -> usize {
        MOST - self.writes
    }

    /// How many answers come before those to the look.
    pub(crate) fn writes(&self) -> usize {
        self.writes
    }

    /// Where in the answers each operation's node is told of, if it is.
    pub(crate) fn told(&self) -> &[Option<usize>] {
        &self.told
    }

    /// What is to be sent; it is there once.
    pub(crate) fn take(&mut self) -> Parts {
        std::mem::take(&mut self.parts)
    }

    /// Which operation is the first that could not be done, by the answers to the questions.
    pub(crate) fn rejected(&self, ops: &[Op], answers: &[Vec<PbKeyValue>]) -> Result<Rejected> {
        let known = Known { plan: self, answers };
        if let Err(rejected) = judge(ops, &known) {
            return Ok(rejected);
        }
        // A sequential create is judged without its name: somebody has that already.
        let taken = |op: &&Op| op.is_sequential() && known.node(op.path()).is_some();
        let taken = ops.iter().enumerate().find(|(_, op)| taken(op));
        taken.map(|(index, op)| Rejected::new(index, op.path().clone(), Why::Exists)).ok_or_else(
            || {
                Error::new(ErrorKind::Backend, "commit")
                    .because("etcd refused it for no known reason")
            },
        )
    }
}

impl Parts {
    /// The request, with a look at the end.
    pub(crate) fn request(mut self, look: impl IntoIterator<Item = TxnOp>) -> Request {
        self.writes.extend(look);
        Request::new().when(self.conditions).and_then(self.writes).or_else(self.questions)
    }
}

/// A condition that never holds.
fn never() -> Compare {
    Compare::version("/", CompareOp::Less, 0)
}

fn get(key: Vec<u8>) -> TxnOp {
    TxnOp::get(key, Some(GetOptions::new().with_keys_only()))
}

/// What stood there, as etcd told when the conditions did not hold.
struct Known<'a> {
    plan: &'a Plan,
    answers: &'a [Vec<PbKeyValue>],
}

impl Known<'_> {
    fn answer(&self, about: &About) -> &[PbKeyValue] {
        let place = self.plan.asked.iter().position(|asked| asked == about);
        place.and_then(|place| self.answers.get(place)).map_or(&[], Vec::as_slice)
    }
}

impl Facts for Known<'_> {
    fn node(&self, path: &Path) -> Option<Found> {
        let kv = self.answer(&About::Node(path.clone())).first()?;
        Some(Found { version: version(kv.mod_revision), leased: kv.lease != 0 })
    }

    fn occupied(&self, path: &Path, gone: &dyn Fn(&Path) -> bool) -> bool {
        // What others keep there is in the way as well.
        let keys = self.answer(&About::Below(path.clone()));
        keys.iter().any(|kv| !key::path(&kv.key).is_some_and(|path| gone(&path)))
    }
}

#[cfg(test)]
mod tests {
    use synod_core::store::Txn;

    use super::*;

    fn path(text: &str) -> Path {
        Path::new(text).expect("valid")
    }

    fn plan(txn: &Txn) -> Plan {
        Plan::new(&txn.ops, &vec![None; txn.ops.len()]).expect("small")
    }

    fn create(text: &str) -> Txn {
        Txn::new().create(path(text), "", Lifetime::Persistent)
    }

    #[test]
    fn what_operations_before_it_settle_is_no_condition() {
        let alone = plan(&create("/a/b")).parts.conditions.len();
        assert_eq!(alone, 3, "missing, childless, and a parent without a lease");
        let beside = create("/a").create(path("/a/b"), "", Lifetime::Persistent);
        assert_eq!(plan(&beside).parts.conditions.len(), 4, "nothing is asked of the parent twice");
        let siblings = create("/a/b").create(path("/a/c"), "", Lifetime::Persistent);
        assert_eq!(plan(&siblings).parts.conditions.len(), 5);
    }

    #[test]
    fn a_parent_that_goes_behind_its_child_needs_nothing_else_below() {
        let txn = Txn::new().delete(path("/a/b"), Expect::Any).delete(path("/a"), Expect::Any);
        let plan = plan(&txn);
        // Two of the child, one of the parent, and the two parts around the child.
        assert_eq!(plan.parts.conditions.len(), 5);
        let answer = |text: &str, modified| PbKeyValue {
            key: key::of(&path(text)),
            mod_revision: modified,
            ..PbKeyValue::default()
        };
        let (child, other) = (answer("/a/b", 1), answer("/a/c", 2));
        let answers =
            [vec![child.clone()], vec![], vec![answer("/a", 3)], vec![child.clone(), other]];
        let no = plan.rejected(&txn.ops, &answers).expect("known");
        assert_eq!((no.index, no.why), (1, Why::HasChildren));
    }

    #[test]
    fn a_name_that_is_taken_is_told_of() {
        let txn = Txn::new().create_sequential(path("/q/t-"), "", Lifetime::Persistent);
        let plan = plan(&txn);
        assert_eq!(plan.parts.conditions.len(), 2);
        let taken = vec![PbKeyValue { key: key::of(&path("/q/t-")), ..PbKeyValue::default() }];
        let no = plan.rejected(&txn.ops, &[taken, vec![]]).expect("known");
        assert_eq!((no.index, no.why), (0, Why::Exists));
        assert!(plan.rejected(&txn.ops, &[vec![], vec![]]).is_err());
    }

    #[test]
    fn more_than_etcd_takes_is_refused() {
        let deep = format!("/{}", ["d"; 200].join("/"));
        let error = Plan::new(&create(&deep).ops, &[None]).expect_err("200 ancestors");
        assert_eq!(error.kind(), ErrorKind::TooLarge);
    }
}
