//! [`Plan`]: a transaction in etcd's terms, with the reads that explain a refusal.

use std::cell::Cell;

use etcd_client::proto::PbKeyValue;
use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, Txn as Request, TxnOp};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Expect, Facts, Found, Lifetime, Op, RejectReason, Rejected, judge};

use crate::fetch::version;
use crate::key::{self, Range};

/// The maximum number of conditions, and of operations, in one etcd transaction.
const MOST: usize = 128;

/// The size up to which data is written by a put that returns the previous data: for etcd, this is
/// cheaper than a read.
pub(crate) const SMALL: usize = 16 << 10;

/// The maximum number of such puts in a transaction: the previous data of many puts could exceed
/// the size of an answer.
const FEW: usize = 2;

/// No limit, to etcd.
const ALL: i64 = 0;

/// The extent of the reads by which a transaction explains its refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Asking {
    /// The reads that explain nearly all refusals: the nodes that operations name and other clients
    /// may have created or changed.
    #[default]
    Little,
    /// Every possible reason.
    All,
}

/// The request for a transaction, and the meaning of its answers.
///
/// etcd evaluates all conditions before it applies anything. So the conditions of an operation on
/// the results of earlier operations are evaluated here, and the remaining ones apply to the
/// current state of the store.
#[derive(Debug, Default)]
pub(crate) struct Plan<'a> {
    asking: Asking,
    parts: Parts,
    /// The number of writes, including the reads that belong to them.
    writes: usize,
    /// For each operation, the index of the answer that contains its node, if there is one.
    told: Vec<Option<usize>>,
    /// The subject of each read that explains a refusal.
    asked: Vec<About<'a>>,
    /// The creates, writes and deletes of the operations so far. There are few, so each lookup is a
    /// linear search.
    changes: Vec<(&'a Path, Changed)>,
    /// Paths that must have no lease, if they exist.
    unleased: Vec<&'a str>,
}

/// The parts of the request.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    conditions: Vec<Compare>,
    writes: Vec<TxnOp>,
    questions: Vec<TxnOp>,
}

/// The subject of a read that explains a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About<'a> {
    Node(&'a str),
    Below(&'a str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Changed {
    Made { leased: bool },
    Written,
    Gone,
}

impl<'a> Plan<'a> {
    /// Plans `ops`. `leases` has a lease for each node that needs one.
    pub(crate) fn new(ops: &'a [Op], leases: &[Option<i64>], asking: Asking) -> Result<Self> {
        let mut plan = Self { asking, ..Self::default() };
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

    fn add(&mut self, op: &'a Op, lease: Option<i64>) -> Option<usize> {
        match op {
            Op::Check { path, expect } => self.expect(path, *expect),
            Op::Create { path, data, lifetime, sequential } => {
                if *sequential {
                    // No other client uses that name: it has no children, and it exists only if the
                    // same create was sent before.
                    self.require(Compare::version(key::of(path), CompareOp::Equal, 0));
                    self.ask_for_all(About::Node(path.as_str()), ALL);
                } else {
                    self.require_absent(path);
                }
                self.require_below_no_lease(path);
                if *lifetime != Lifetime::Container {
                    let leased = lease.is_some();
                    self.changes.push((path, Changed::Made { leased }));
                    let options = lease.map(|lease| PutOptions::new().with_lease(lease));
                    self.write(TxnOp::put(key::of(path), data.clone(), options));
                }
            }
            Op::Set { path, data, expect } => {
                self.expect(path, *expect);
                self.changes.push((path, Changed::Written));
                // Without this an ephemeral node would become a persistent one.
                let keep = PutOptions::new().with_ignore_lease();
                let put = |options| TxnOp::put(key::of(path), data.clone(), Some(options));
                let sets = self.told.iter().flatten().count();
                return Some(if data.len() <= SMALL && sets < FEW {
                    self.write(put(keep.with_prev_key()))
                } else {
                    self.write(put(keep));
                    self.write(get(key::only(path), ALL))
                });
            }
            Op::Delete { path, expect } => {
                self.expect(path, *expect);
                self.require_childless(path);
                self.changes.push((path, Changed::Gone));
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

    fn require(&mut self, condition: Compare) {
        self.parts.conditions.push(condition);
    }

    fn expect(&mut self, path: &'a Path, expect: Expect) {
        match expect {
            Expect::Any => {
                self.require(Compare::version(key::of(path), CompareOp::Greater, 0));
                self.ask(About::Node(path.as_str()), ALL);
            }
            Expect::Version(version) => {
                // A missing key has the revision zero, and no key has a negative one.
                let known = i64::try_from(version.get()).ok().filter(|version| *version > 0);
                let revision = known.unwrap_or(-1);
                self.require(Compare::mod_revision(key::of(path), CompareOp::Equal, revision));
                self.ask(About::Node(path.as_str()), ALL);
            }
            Expect::Absent => self.require_absent(path),
        }
    }

    fn require_absent(&mut self, path: &'a Path) {
        self.require(Compare::version(key::of(path), CompareOp::Equal, 0));
        self.ask(About::Node(path.as_str()), ALL);
        self.require_childless(path);
    }

    /// Requires that nothing is below the path, except nodes that this transaction deletes before.
    fn require_childless(&mut self, path: &'a Path) {
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
            self.require(never());
        }
        let count = i64::try_from(gone.len()).unwrap_or(i64::MAX);
        for part in key::below(path).without(gone) {
            self.require(none_in(part));
        }
        self.ask_for_all(About::Below(path.as_str()), count.saturating_add(1));
    }

    /// Requires that nothing above the path has a lease.
    fn require_below_no_lease(&mut self, path: &'a Path) {
        for above in path.above().filter(|above| *above != "/") {
            let changed = self.changes.iter().find(|(path, _)| path.as_str() == above);
            match changed.map(|(_, changed)| changed) {
                Some(Changed::Made { leased: true }) => self.require(never()),
                Some(Changed::Made { leased: false } | Changed::Gone) => {}
                Some(Changed::Written) | None => {
                    if !self.unleased.contains(&above) {
                        // This also holds for a missing key.
                        self.require(Compare::lease(key::of(above), CompareOp::Equal, 0));
                        self.ask_for_all(About::Node(above), ALL);
                        self.unleased.push(above);
                    }
                }
            }
        }
    }

    /// Adds a read of at most `count` keys.
    fn ask(&mut self, about: About<'a>, count: i64) {
        if !self.asked.contains(&about) {
            self.asked.push(about);
            self.parts.questions.push(get(about.range(), count));
        }
    }

    /// Adds a read that is seldom the explanation.
    fn ask_for_all(&mut self, about: About<'a>, count: i64) {
        if self.asking == Asking::All {
            self.ask(about, count);
        }
    }

    /// The number of operations that remain for a follow-up read, which is added to the writes and
    /// to the reads.
    pub(crate) fn room(&self) -> usize {
        MOST - self.writes.max(self.asked.len())
    }

    /// The number of answers before those to the follow-up read, if the transaction was applied.
    pub(crate) fn writes(&self) -> usize {
        self.writes
    }

    /// The number of answers before those to the follow-up read, if the transaction was refused.
    pub(crate) fn questions(&self) -> usize {
        self.asked.len()
    }

    /// For each operation, the index of the answer that contains its node, if there is one.
    pub(crate) fn answer_places(&self) -> &[Option<usize>] {
        &self.told
    }

    /// Takes the parts of the request, which can be taken once.
    pub(crate) fn take(&mut self) -> Parts {
        std::mem::take(&mut self.parts)
    }

    /// The first operation that could not be applied, according to the answers to the reads; `None`
    /// if they do not show it, and all reads are needed.
    pub(crate) fn rejected(
        &self,
        ops: &[Op],
        answers: &[Vec<PbKeyValue>],
    ) -> Result<Option<Rejected>> {
        let known = Known { plan: self, answers, missed: Cell::new(false) };
        match judge(ops, &known) {
            Err(rejected) if !known.missed.get() => return Ok(Some(rejected)),
            _ if self.asking == Asking::Little => return Ok(None),
            _ => {}
        }
        // A sequential create is judged separately: it can only fail because its name exists.
        let taken = |op: &&Op| op.is_sequential() && known.node(op.path()).is_some();
        let taken = ops.iter().enumerate().find(|(_, op)| taken(op));
        let taken =
            taken.map(|(index, op)| Rejected::new(index, op.path().clone(), RejectReason::Exists));
        taken.map(Some).ok_or_else(|| {
            Error::new(ErrorKind::Backend, "commit").because("etcd refused it for no known reason")
        })
    }
}

impl About<'_> {
    fn range(self) -> Range {
        match self {
            Self::Node(path) => Range { key: key::of(path), end: Vec::new() },
            Self::Below(path) => key::below(path),
        }
    }
}

impl Parts {
    /// The request, with the follow-up read at the end of the reads; and at the end of the writes,
    /// if it is `always` wanted.
    pub(crate) fn request(
        mut self,
        look: impl Iterator<Item = TxnOp> + Clone,
        always: bool,
    ) -> Request {
        if always {
            self.writes.extend(look.clone());
        }
        self.questions.extend(look);
        Request::new().when(self.conditions).and_then(self.writes).or_else(self.questions)
    }
}

/// A condition that never holds.
fn never() -> Compare {
    Compare::version("/", CompareOp::Less, 0)
}

/// The condition that no key is in a range.
pub(crate) fn none_in(range: Range) -> Compare {
    Compare::version(range.key, CompareOp::Equal, 0).with_range(range.end)
}

fn get(range: Range, limit: i64) -> TxnOp {
    let options = GetOptions::new().with_range(range.end).with_keys_only().with_limit(limit);
    TxnOp::get(range.key, Some(options))
}

/// The state of the store, as etcd returned it when the conditions did not hold.
struct Known<'a> {
    plan: &'a Plan<'a>,
    answers: &'a [Vec<PbKeyValue>],
    /// The answer depends on something that was not read.
    missed: Cell<bool>,
}

impl Known<'_> {
    fn answer(&self, about: About<'_>) -> &[PbKeyValue] {
        let place = self.plan.asked.iter().position(|asked| *asked == about);
        self.missed.set(self.missed.get() || place.is_none());
        place.and_then(|place| self.answers.get(place)).map_or(&[], Vec::as_slice)
    }
}

impl Facts for Known<'_> {
    fn node(&self, path: &Path) -> Option<Found> {
        let kv = self.answer(About::Node(path.as_str())).first()?;
        Some(Found { version: version(kv.mod_revision), leased: kv.lease != 0 })
    }

    fn occupied(&self, path: &Path, gone: &dyn Fn(&Path) -> bool) -> bool {
        // Keys of other programs below the path prevent the delete as well.
        let keys = self.answer(About::Below(path.as_str()));
        keys.iter().any(|kv| !key::path(&kv.key).is_some_and(|path| gone(&path)))
    }
}

#[cfg(test)]
mod tests {
    use synod_core::store::{Txn, Version};

    use super::*;

    fn path(text: &str) -> Path {
        Path::new(text).expect("valid")
    }

    fn plan(txn: &Txn) -> Plan<'_> {
        Plan::new(&txn.ops, &vec![None; txn.ops.len()], Asking::All).expect("small")
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
    fn a_look_has_the_room_that_writes_and_reads_leave() {
        let empty = Txn::new();
        assert_eq!(plan(&empty).room(), MOST);
        let ten =
            (0..10).fold(Txn::new(), |txn, it| txn.delete(path(&format!("/{it}")), Expect::Any));
        let plan = plan(&ten);
        assert!(plan.writes() >= 10 && plan.questions() >= 10);
        assert_eq!(plan.room(), MOST - plan.writes().max(plan.questions()));
    }

    #[test]
    fn a_parent_deleted_after_its_child_must_have_no_other_child() {
        let txn = Txn::new().delete(path("/a/b"), Expect::Any).delete(path("/a"), Expect::Any);
        let plan = plan(&txn);
        // Two for the child, one for the parent, and the two ranges around the child.
        assert_eq!(plan.parts.conditions.len(), 5);
        let answer = |text: &str, modified| PbKeyValue {
            key: key::of(path(text)),
            mod_revision: modified,
            ..PbKeyValue::default()
        };
        let (child, other) = (answer("/a/b", 1), answer("/a/c", 2));
        let answers =
            [vec![child.clone()], vec![], vec![answer("/a", 3)], vec![child.clone(), other]];
        let no = plan.rejected(&txn.ops, &answers).expect("known").expect("reported");
        assert_eq!((no.index, no.reason), (1, RejectReason::HasChildren));
    }

    #[test]
    fn what_was_not_asked_is_not_taken_for_an_answer() {
        let little = |txn: &Txn, answers: &[Vec<PbKeyValue>]| {
            let leases = vec![None; txn.ops.len()];
            let plan = Plan::new(&txn.ops, &leases, Asking::Little).expect("small");
            assert_eq!(plan.asked.len(), answers.len(), "{:?}", plan.asked);
            let no = plan.rejected(&txn.ops, answers).expect("not all was asked");
            no.map(|no| (no.index, no.reason))
        };
        let there = || vec![PbKeyValue { mod_revision: 7, ..PbKeyValue::default() }];
        assert_eq!(little(&create("/a/b"), &[there()]), Some((0, RejectReason::Exists)));
        assert_eq!(little(&create("/a/b"), &[vec![]]), None, "below it, or above it");

        let ticket = Txn::new().create_sequential(path("/q/t-"), "", Lifetime::Persistent);
        assert_eq!(little(&ticket, &[]), None, "above it, or it is repeated");

        let version = Expect::Version(Version::new(3));
        let delete = Txn::new().delete(path("/a"), version);
        assert_eq!(little(&delete, &[there()]), Some((0, RejectReason::OtherVersion)));
        assert_eq!(little(&delete, &[vec![]]), None, "missing, or a container with children");

        let set = delete.set(path("/b"), "", Expect::Any);
        assert_eq!(little(&set, &[vec![], vec![]]), None, "the first of two is not known");
        let guarded = Txn::new().check(path("/t"), Expect::Any).set(path("/b"), "", version);
        assert_eq!(little(&guarded, &[there(), there()]), Some((1, RejectReason::OtherVersion)));
    }

    #[test]
    fn only_the_first_puts_of_small_data_answer_with_the_data_of_before() {
        let writes = |size: usize| {
            let txn = Txn::new().set(path("/a"), vec![0; size], Expect::Version(Version::new(3)));
            let txn = txn.set(path("/b"), "", Expect::Any).set(path("/c"), "", Expect::Any);
            let plan = plan(&txn);
            assert_eq!(plan.writes, plan.parts.writes.len());
            plan.answer_places().to_vec()
        };
        assert_eq!(writes(SMALL), [Some(0), Some(1), Some(3)], "a read follows the third");
        assert_eq!(writes(SMALL + 1), [Some(1), Some(2), Some(4)], "and the first");
    }

    #[test]
    fn a_taken_name_is_reported() {
        let txn = Txn::new().create_sequential(path("/q/t-"), "", Lifetime::Persistent);
        let plan = plan(&txn);
        assert_eq!(plan.parts.conditions.len(), 2);
        let taken = vec![PbKeyValue { key: key::of(path("/q/t-")), ..PbKeyValue::default() }];
        let no = plan.rejected(&txn.ops, &[taken, vec![]]).expect("known").expect("reported");
        assert_eq!((no.index, no.reason), (0, RejectReason::Exists));
        assert!(plan.rejected(&txn.ops, &[vec![], vec![]]).is_err());
    }

    #[test]
    fn more_than_etcd_takes_is_refused() {
        let deep = format!("/{}", ["d"; 200].join("/"));
        let txn = create(&deep);
        let error = Plan::new(&txn.ops, &[None], Asking::Little).expect_err("200 ancestors");
        assert_eq!(error.kind(), ErrorKind::TooLarge);
    }
}
