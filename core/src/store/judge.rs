//! The first operation of a transaction that fails: [`judge`]. Pure, and shared by all stores that
//! evaluate transactions themselves.

use crate::path::Path;
use crate::store::facts::{Facts, Found, TryFacts};
use crate::store::node::Version;
use crate::store::txn::{Expect, Lifetime, Op, RejectReason, Rejected};

/// Decides whether `ops` succeed, in order, on the tree that `facts` describes.
///
/// Each operation sees the effects of the operations before it: a child may be created below a
/// parent that the same transaction creates, and a parent deleted after its last child. The store
/// itself decides whether a *sequential* create finds a free name; everything else about it is
/// judged like any create.
///
/// # Errors
///
/// The first operation that fails, and the reason.
pub fn judge(ops: &[Op], facts: &impl Facts) -> Result<(), Rejected> {
    let Ok(verdict) = try_judge(ops, facts);
    verdict
}

/// [`judge`] for facts that may fail. The outer result is the error of the facts, the inner one the
/// verdict.
///
/// # Errors
///
/// The first error of `facts`: the transaction is then not judged.
pub fn try_judge<F: TryFacts>(ops: &[Op], facts: &F) -> Result<Result<(), Rejected>, F::Error> {
    let mut world = Judging { facts, changes: Vec::new() };
    for (index, op) in ops.iter().enumerate() {
        match world.apply(op) {
            Ok(()) => {}
            Err(Verdict::Refused(why)) => {
                return Ok(Err(Rejected::new(index, op.path().clone(), why)));
            }
            Err(Verdict::Failed(error)) => return Err(error),
        }
    }
    Ok(Ok(()))
}

/// The reason for which no further operation is judged.
enum Verdict<E> {
    Refused(RejectReason),
    Failed(E),
}

impl<E> From<RejectReason> for Verdict<E> {
    fn from(why: RejectReason) -> Self {
        Self::Refused(why)
    }
}

/// The tree after the operations judged so far.
struct Judging<'a, F> {
    facts: &'a F,
    changes: Vec<Changed<'a>>,
}

/// A path that the transaction wrote. Each path has at most one write.
struct Changed<'a> {
    path: &'a Path,
    /// The node after the write. A transaction cannot expect the version of a node that it wrote
    /// itself, so the version is arbitrary.
    now: Option<Found>,
    /// `true` if `path` is only the start of the name.
    sequential: bool,
}

impl<'a, F: TryFacts> Judging<'a, F> {
    fn apply(&mut self, op: &'a Op) -> Result<(), Verdict<F::Error>> {
        match op {
            Op::Check { path, expect } => self.expect(path, *expect),
            Op::Create { path, lifetime, sequential, .. } => {
                if !sequential && (self.node(path)?.is_some() || self.occupied(path)?) {
                    return Err(RejectReason::Exists.into());
                }
                if self.is_below_leased(path)? {
                    return Err(RejectReason::BelowEphemeral.into());
                }
                if *lifetime != Lifetime::Container {
                    self.record(path, Some(created(*lifetime)), *sequential);
                }
                Ok(())
            }
            Op::Set { path, expect, .. } => {
                self.expect(path, *expect)?;
                let found = self.node(path)?;
                self.record(path, found, false);
                Ok(())
            }
            Op::Delete { path, expect } => {
                // A container with children is rejected for its children, as by a server for which
                // the container is a node.
                if self.node(path)?.is_none() && self.occupied(path)? {
                    return Err(RejectReason::HasChildren.into());
                }
                self.expect(path, *expect)?;
                if self.occupied(path)? {
                    return Err(RejectReason::HasChildren.into());
                }
                self.record(path, None, false);
                Ok(())
            }
        }
    }

    fn expect(&self, path: &Path, expect: Expect) -> Result<(), Verdict<F::Error>> {
        match (expect, self.node(path)?) {
            (Expect::Absent, None) if !self.occupied(path)? => Ok(()),
            (Expect::Absent, _) => Err(RejectReason::Exists.into()),
            (_, None) => Err(RejectReason::Missing.into()),
            (Expect::Version(version), Some(found)) if found.version != version => {
                Err(RejectReason::OtherVersion.into())
            }
            (Expect::Any | Expect::Version(_), Some(_)) => Ok(()),
        }
    }

    fn node(&self, path: &Path) -> Result<Option<Found>, Verdict<F::Error>> {
        match self.changes.iter().find(|change| !change.sequential && change.path == path) {
            Some(change) => Ok(change.now),
            None => self.facts.node(path).map_err(Verdict::Failed),
        }
    }

    fn occupied(&self, path: &Path) -> Result<bool, Verdict<F::Error>> {
        let created_below =
            self.changes.iter().any(|change| change.now.is_some() && change.path.is_below(path));
        if created_below {
            return Ok(true);
        }
        self.facts.occupied(path, &|below| self.is_gone(below)).map_err(Verdict::Failed)
    }

    fn is_gone(&self, path: &Path) -> bool {
        self.changes.iter().any(|change| change.now.is_none() && change.path == path)
    }

    fn is_below_leased(&self, path: &Path) -> Result<bool, Verdict<F::Error>> {
        for above in path.ancestors() {
            if self.node(&above)?.is_some_and(|found| found.leased) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn record(&mut self, path: &'a Path, now: Option<Found>, sequential: bool) {
        self.changes.push(Changed { path, now, sequential });
    }
}

fn created(lifetime: Lifetime) -> Found {
    let leased = matches!(lifetime, Lifetime::Session | Lifetime::Ttl(_));
    Found { version: Version::new(u64::MAX), leased }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::store::Txn;

    /// A tree of nodes, each in version 1; those whose name starts with `e` are ephemeral.
    struct Tree(BTreeMap<Path, Found>);

    impl Facts for Tree {
        fn node(&self, path: &Path) -> Option<Found> {
            self.0.get(path).copied()
        }

        fn occupied(&self, path: &Path, gone: &dyn Fn(&Path) -> bool) -> bool {
            self.0.keys().any(|node| node.is_below(path) && !gone(node))
        }
    }

    fn path(text: &str) -> Path {
        Path::new(text).expect("valid")
    }

    fn tree(nodes: &[&str]) -> Tree {
        Tree(
            nodes
                .iter()
                .map(|node| {
                    let path = path(node);
                    let leased = path.name().starts_with('e');
                    (path, Found { version: Version::new(1), leased })
                })
                .collect(),
        )
    }

    #[track_caller]
    fn says(nodes: &[&str], txn: &Txn, expected: Option<(usize, RejectReason)>) {
        let verdict = judge(&txn.ops, &tree(nodes)).err().map(|no| (no.index, no.reason));
        assert_eq!(verdict, expected, "{txn:?} on {nodes:?}");
    }

    fn create(text: &str) -> Txn {
        Txn::new().create(path(text), "", Lifetime::Persistent)
    }

    fn delete(text: &str) -> Txn {
        Txn::new().delete(path(text), Expect::Any)
    }

    const ONE: Expect = Expect::Version(Version::new(1));
    const TWO: Expect = Expect::Version(Version::new(2));

    #[test]
    fn one_operation_is_judged_by_what_stands_there() {
        says(&[], &create("/a/b/c"), None);
        says(&["/a"], &create("/a"), Some((0, RejectReason::Exists)));
        says(&["/a/b"], &create("/a"), Some((0, RejectReason::Exists)));
        says(&["/ab"], &create("/a"), None);
        says(&["/e"], &create("/e/b"), Some((0, RejectReason::BelowEphemeral)));
        says(&["/e"], &create("/e/b/c"), Some((0, RejectReason::BelowEphemeral)));
        says(&[], &Txn::new().set(path("/a"), "", Expect::Any), Some((0, RejectReason::Missing)));
        says(
            &["/a/b"],
            &Txn::new().set(path("/a"), "", Expect::Any),
            Some((0, RejectReason::Missing)),
        );
        says(&["/a"], &Txn::new().set(path("/a"), "", ONE), None);
        says(&["/a"], &Txn::new().set(path("/a"), "", TWO), Some((0, RejectReason::OtherVersion)));
        says(&[], &delete("/a"), Some((0, RejectReason::Missing)));
        says(&["/a", "/a/b"], &delete("/a"), Some((0, RejectReason::HasChildren)));
        says(&["/a/b"], &delete("/a"), Some((0, RejectReason::HasChildren)));
        says(&["/a"], &Txn::new().delete(path("/a"), TWO), Some((0, RejectReason::OtherVersion)));
        says(
            &["/a"],
            &Txn::new().check(path("/a"), Expect::Absent),
            Some((0, RejectReason::Exists)),
        );
        says(
            &["/a/b"],
            &Txn::new().check(path("/a"), Expect::Absent),
            Some((0, RejectReason::Exists)),
        );
        says(&[], &Txn::new().check(path("/a"), Expect::Absent), None);
        says(&["/a"], &Txn::new().check(path("/a"), Expect::Any), None);
    }

    #[test]
    fn operations_see_those_before_them() {
        says(&[], &create("/a").create(path("/a/b"), "", Lifetime::Persistent), None);
        says(
            &[],
            &create("/a/b").create(path("/a"), "", Lifetime::Persistent),
            Some((1, RejectReason::Exists)),
        );
        says(&["/a", "/a/b"], &delete("/a/b").delete(path("/a"), Expect::Any), None);
        says(
            &["/a", "/a/b", "/a/c"],
            &delete("/a/b").delete(path("/a"), Expect::Any),
            Some((1, RejectReason::HasChildren)),
        );
        says(
            &[],
            &Txn::new().create(path("/e"), "", Lifetime::Session).create(
                path("/e/x"),
                "",
                Lifetime::Persistent,
            ),
            Some((1, RejectReason::BelowEphemeral)),
        );
        says(
            &["/a"],
            &Txn::new()
                .create_sequential(path("/a/s-"), "", Lifetime::Session)
                .delete(path("/a"), Expect::Any),
            Some((1, RejectReason::HasChildren)),
        );
        says(&["/a"], &delete("/a").check(path("/a/b"), Expect::Absent), None);
    }

    /// A tree whose facts cannot be read below `/lost`.
    struct Failing(Tree);

    impl TryFacts for Failing {
        type Error = &'static str;

        fn node(&self, path: &Path) -> Result<Option<Found>, Self::Error> {
            if path.as_str().starts_with("/lost") {
                return Err("no answer");
            }
            Ok(Facts::node(&self.0, path))
        }

        fn occupied(&self, path: &Path, gone: &dyn Fn(&Path) -> bool) -> Result<bool, Self::Error> {
            Ok(Facts::occupied(&self.0, path, gone))
        }
    }

    #[test]
    fn facts_that_fail_are_no_verdict() {
        let facts = Failing(tree(&["/a"]));
        let judged = |txn: &Txn| match try_judge(&txn.ops, &facts) {
            Ok(verdict) => Ok(verdict.err().map(|no| (no.index, no.reason))),
            Err(error) => Err(error),
        };

        assert_eq!(judged(&create("/b")), Ok(None));
        assert_eq!(judged(&create("/a")), Ok(Some((0, RejectReason::Exists))));
        assert_eq!(judged(&create("/lost/x")), Err("no answer"));
        assert_eq!(judged(&create("/b/c").delete(path("/lost"), Expect::Any)), Err("no answer"));
        // The operations after the first rejection are not judged.
        assert_eq!(
            judged(&delete("/b").delete(path("/lost"), Expect::Any)),
            Ok(Some((0, RejectReason::Missing)))
        );
    }

    #[test]
    fn the_first_that_fails_is_named() {
        let txn = create("/x").check(path("/a"), TWO).delete(path("/missing"), Expect::Any);
        says(&["/a"], &txn, Some((1, RejectReason::OtherVersion)));
    }
}
