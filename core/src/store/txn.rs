//! What a transaction asks, and what became of it.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::name::MAX_NAME_BYTES;
use crate::path::{MAX_PATH_BYTES, Path};
use crate::store::node::{Revision, Sequence, SessionId, Stat, Version};
use crate::store::query::{Query, View};
use crate::store::session::{Feature, Limits};

/// How many bytes a store may add to the name of a sequential node.
pub const SEQUENCE_SUFFIX_LEN: usize = 20;

/// Operations that happen together or not at all, in order.
///
/// # Examples
///
/// ```
/// use synod_core::store::{Expect, Lifetime, Query, Txn};
///
/// # let [ticket, data] = ["/q/t", "/q/d"].map(|p| synod_core::path::Path::new(p).unwrap());
/// let guarded = Txn::new()
///     .check(ticket, Expect::Any)
///     .set(data.clone(), "mine", Expect::Any)
///     .look(Query::node(data));
/// assert_eq!(guarded.ops.len(), 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Txn {
    /// What to do, in order.
    pub ops: Vec<Op>,
    /// A query that is answered in the same round trip: as of the commit, or, if the transaction is
    /// rejected, as of the rejection. The view is not older than that, and perhaps a little newer. Its
    /// freshness does not matter.
    pub look: Option<Query>,
    /// Whether the look is answered only if the transaction is rejected.
    pub look_if_rejected: bool,
}

/// One operation of a [`Txn`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "every store must do each of them")]
pub enum Op {
    /// Goes on only if the node is as expected.
    Check {
        /// The node.
        path: Path,
        /// How it must be.
        expect: Expect,
    },
    /// Makes a node that must not exist.
    Create {
        /// The node, or the start of its name if it is sequential.
        path: Path,
        /// What it holds.
        data: Bytes,
        /// How long it stays.
        lifetime: Lifetime,
        /// Whether it gets a [`Sequence`]. The path must then be one that no other call gives.
        sequential: bool,
    },
    /// Replaces the data of a node that exists.
    Set {
        /// The node.
        path: Path,
        /// What it shall hold.
        data: Bytes,
        /// How it must be; never [`Expect::Absent`].
        expect: Expect,
    },
    /// Removes a node that exists and has no children.
    Delete {
        /// The node.
        path: Path,
        /// How it must be; never [`Expect::Absent`].
        expect: Expect,
    },
}

/// How a node must be for an operation to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "every store must check each of them")]
pub enum Expect {
    /// It exists.
    Any,
    /// It exists in this version.
    Version(Version),
    /// It does not exist, nor does anything below it.
    Absent,
}

/// How long a node stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "every store must know each of them")]
pub enum Lifetime {
    /// Until it is deleted.
    Persistent,
    /// Until it is deleted, or the session that made it ends: an ephemeral node.
    Session,
    /// While something is below it. Creating one changes nothing that can be seen.
    Container,
    /// Until it is deleted, or was not written for so long.
    Ttl(Duration),
}

impl Txn {
    /// No operation yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes on only if the node is as expected.
    pub fn check(self, path: impl Into<Path>, expect: Expect) -> Self {
        self.op(Op::Check { path: path.into(), expect })
    }

    /// Makes a node.
    pub fn create(self, path: impl Into<Path>, data: impl Into<Bytes>, lifetime: Lifetime) -> Self {
        let (path, data) = (path.into(), data.into());
        self.op(Op::Create { path, data, lifetime, sequential: false })
    }

    /// Makes a node with a [`Sequence`]. `path` is one that no other call gives; the store may add
    /// to it.
    pub fn create_sequential(
        self,
        path: impl Into<Path>,
        data: impl Into<Bytes>,
        lifetime: Lifetime,
    ) -> Self {
        let (path, data) = (path.into(), data.into());
        self.op(Op::Create { path, data, lifetime, sequential: true })
    }

    /// Replaces the data of a node.
    pub fn set(self, path: impl Into<Path>, data: impl Into<Bytes>, expect: Expect) -> Self {
        self.op(Op::Set { path: path.into(), data: data.into(), expect })
    }

    /// Removes a node.
    pub fn delete(self, path: impl Into<Path>, expect: Expect) -> Self {
        self.op(Op::Delete { path: path.into(), expect })
    }

    /// Adds an operation.
    pub fn op(mut self, op: Op) -> Self {
        self.ops.push(op);
        self
    }

    /// Asks for a view as of the commit, or of the rejection.
    pub fn look(mut self, query: Query) -> Self {
        (self.look, self.look_if_rejected) = (Some(query), false);
        self
    }

    /// Asks for a view as of the rejection, if the transaction is rejected. It costs a store little or nothing
    /// otherwise, and the commit has no view.
    pub fn look_if_rejected(mut self, query: Query) -> Self {
        (self.look, self.look_if_rejected) = (Some(query), true);
        self
    }

    /// The look, if it is answered for a commit.
    pub fn look_of_commit(&self) -> Option<&Query> {
        self.look.as_ref().filter(|_| !self.look_if_rejected)
    }

    /// Refuses what some store could not do. Every store calls this before it sends anything, so
    /// that a transaction means the same everywhere.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`]: no operation at all; two writes to one path; a check after a write of the same
    ///   path; two sequential creates in one directory; a set or delete of what is expected to be absent; a
    ///   write to the root; a lifetime of zero; a container with data or with a sequence; a sequential create
    ///   whose name leaves no room for what the store adds ([`SEQUENCE_SUFFIX_LEN`]); a look that [`Query::validate`]
    ///   refuses.
    /// - [`ErrorKind::TooLarge`]: more operations or more data than `limits` allows.
    /// - [`ErrorKind::Unsupported`]: a TTL node where `limits` has [`Feature::TtlNodes`].
    pub fn validate(&self, limits: &Limits) -> Result<()> {
        if self.ops.is_empty() {
            return Err(invalid("a transaction has at least one operation"));
        }
        if self.ops.len() > limits.operations {
            return Err(Error::new(ErrorKind::TooLarge, "commit").because(format!(
                "{} operations in one transaction, and this store takes {}",
                self.ops.len(),
                limits.operations
            )));
        }
        let mut size = 0;
        for (index, op) in self.ops.iter().enumerate() {
            op.validate(limits)?;
            size += op.size();
            self.validate_place(index, op)?;
        }
        if size > limits.request {
            return Err(Error::new(ErrorKind::TooLarge, "commit").because(format!(
                "{size} bytes in one transaction, and this store takes {}",
                limits.request
            )));
        }
        self.look.as_ref().map_or(Ok(()), Query::validate)
    }

    /// What an operation may not be, given those before it.
    fn validate_place(&self, index: usize, op: &Op) -> Result<()> {
        for earlier in &self.ops[..index] {
            if earlier.is_write() && earlier.path() == op.path() {
                return Err(invalid(if op.is_write() {
                    "two writes to one path in one transaction"
                } else {
                    "a check after a write of the same path; put the check first"
                })
                .at(op.path()));
            }
            if earlier.is_sequential()
                && op.is_sequential()
                && earlier.path().parent_str() == op.path().parent_str()
            {
                return Err(invalid("two sequential creates in one directory in one transaction")
                    .at(op.path()));
            }
        }
        Ok(())
    }
}

impl Op {
    /// The node it is about, or the start of its name if it is a sequential create.
    pub fn path(&self) -> &Path {
        match self {
            Self::Check { path, .. }
            | Self::Create { path, .. }
            | Self::Set { path, .. }
            | Self::Delete { path, .. } => path,
        }
    }

    /// Whether it changes anything.
    pub fn is_write(&self) -> bool {
        !matches!(self, Self::Check { .. })
    }

    /// Whether it is a sequential create.
    pub fn is_sequential(&self) -> bool {
        matches!(self, Self::Create { sequential: true, .. })
    }

    /// Roughly what it takes on the wire.
    fn size(&self) -> usize {
        const HEADER: usize = 64;
        HEADER + self.path().as_str().len() + self.data().len()
    }

    fn data(&self) -> &[u8] {
        match self {
            Self::Create { data, .. } | Self::Set { data, .. } => data,
            Self::Check { .. } | Self::Delete { .. } => &[],
        }
    }

    fn validate(&self, limits: &Limits) -> Result<()> {
        let path = self.path();
        if path.is_root() {
            return Err(invalid("the root is no node; it always exists and holds nothing").at(path));
        }
        if self.data().len() > limits.data {
            return Err(Error::new(ErrorKind::TooLarge, "commit").at(path).because(format!(
                "{} bytes of data, and this store takes {} a node",
                self.data().len(),
                limits.data
            )));
        }
        match self {
            Self::Set { expect: Expect::Absent, .. }
            | Self::Delete { expect: Expect::Absent, .. } => {
                Err(invalid("a node that is expected to be absent is not set or deleted").at(path))
            }
            Self::Create { data, lifetime: Lifetime::Container, sequential, .. }
                if *sequential || !data.is_empty() =>
            {
                Err(invalid("a container has no data and no sequence").at(path))
            }
            Self::Create { sequential: true, .. } if !has_sequence_room(path) => {
                Err(invalid("a sequential name leaves 20 bytes for what the store adds").at(path))
            }
            Self::Create { lifetime: Lifetime::Ttl(ttl), .. } => validate_ttl(*ttl, limits, path),
            _ => Ok(()),
        }
    }
}

fn has_sequence_room(path: &Path) -> bool {
    path.name().len() + SEQUENCE_SUFFIX_LEN <= MAX_NAME_BYTES
        && path.as_str().len() + SEQUENCE_SUFFIX_LEN <= MAX_PATH_BYTES
}

fn validate_ttl(ttl: Duration, limits: &Limits, path: &Path) -> Result<()> {
    /// What fits every store: ZooKeeper counts 40 bits of milliseconds, etcd 9 billion seconds.
    const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
    if ttl.is_zero() || ttl > LONGEST {
        return Err(invalid("a time to live is more than nothing and at most ten years").at(path));
    }
    if limits.missing_features.contains(&Feature::TtlNodes) {
        return Err(Error::new(ErrorKind::Unsupported, "commit")
            .at(path)
            .because("this store keeps no nodes with a time to live"));
    }
    Ok(())
}

fn invalid(reason: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, "commit").because(reason)
}

/// What became of a write that came to its end. Losing a race is an answer, not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "it happened or it did not")]
#[must_use = "a rejected write changed nothing"]
pub enum Outcome<T = Commit> {
    /// It happened, whole.
    Committed(T),
    /// It did not happen, none of it.
    Rejected(Rejected),
}

/// The first operation that could not be done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejected {
    /// Its place in the transaction, from zero.
    pub index: usize,
    /// Its path.
    pub path: Path,
    /// The reason. While others write, a store may find it by a read after the refusal: then this is the reason at a later moment.
    pub reason: RejectReason,
    /// The answer to the transaction's look: not older than the state that rejected it, and perhaps newer, so
    /// that it may show no reason any more. `None` if it had none, or if the look failed: the transaction is
    /// rejected all the same.
    pub look: Option<View>,
}

/// Why an operation could not be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectReason {
    /// There is something already.
    Exists,
    /// There is nothing.
    Missing,
    /// There is another version.
    OtherVersion,
    /// There is something below.
    HasChildren,
    /// There is an ephemeral node above.
    BelowEphemeral,
    /// The directory ran out of sequences. Use another.
    SequenceExhausted,
}

/// What a committed transaction did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Commit {
    /// When, if the store reports it.
    pub revision: Option<Revision>,
    /// What each operation did, in order.
    pub results: Vec<OpResult>,
    /// The answer to the transaction's look. `None` if it had none, or one for a rejection only, or if the look
    /// failed: the commit is done all the same.
    pub look: Option<View>,
}

/// What one operation did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpResult {
    /// The node; of a sequential create, with the name that the store gave it.
    pub path: Path,
    /// The place that a sequential create got.
    pub sequence: Option<Sequence>,
    /// What the node is after a create or a set. A transaction of one operation always has it; of several, a
    /// store may leave it out. A container has none.
    pub stat: Option<Stat>,
}

impl<T> Outcome<T> {
    /// What happened, if it did.
    pub fn ok(self) -> Option<T> {
        match self {
            Self::Committed(done) => Some(done),
            Self::Rejected(_) => None,
        }
    }

    /// Why it did not happen, if it did not.
    pub fn rejected(&self) -> Option<&Rejected> {
        match self {
            Self::Committed(_) => None,
            Self::Rejected(rejected) => Some(rejected),
        }
    }

    /// Turns the result of a write that happened.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Committed(done) => Outcome::Committed(f(done)),
            Self::Rejected(rejected) => Outcome::Rejected(rejected),
        }
    }

    /// For a caller that cannot go on without the write: a rejection becomes an error.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Refused`], with the path and the reason.
    pub fn required(self) -> Result<T> {
        match self {
            Self::Committed(done) => Ok(done),
            Self::Rejected(rejected) => Err(Error::new(ErrorKind::Refused, "commit")
                .at(&rejected.path)
                .because(rejected.reason.to_string())),
        }
    }
}

impl Rejected {
    /// The operation at `index`, about `path`, could not be done.
    pub fn new(index: usize, path: Path, reason: RejectReason) -> Self {
        Self { index, path, reason, look: None }
    }

    /// Adds the answer to the look.
    pub fn with_look(mut self, look: Option<View>) -> Self {
        self.look = look;
        self
    }
}

impl Commit {
    /// What a transaction did.
    pub fn new(revision: Option<Revision>, results: Vec<OpResult>, look: Option<View>) -> Self {
        Self { revision, results, look }
    }
}

impl OpResult {
    /// What an operation on `path` did.
    pub fn new(path: Path) -> Self {
        Self { path, sequence: None, stat: None }
    }

    /// Adds what the node is now.
    pub fn with_stat(mut self, stat: Stat) -> Self {
        self.stat = Some(stat);
        self
    }

    /// Adds the place that it got.
    pub fn with_sequence(mut self, sequence: Sequence) -> Self {
        self.sequence = Some(sequence);
        self
    }

    /// The session that owns the node now.
    pub fn owner(&self) -> Option<SessionId> {
        self.stat.and_then(|stat| stat.owner)
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exists => "it already exists",
            Self::Missing => "it does not exist",
            Self::OtherVersion => "it has another version",
            Self::HasChildren => "it has children",
            Self::BelowEphemeral => "nothing can be below an ephemeral node",
            Self::SequenceExhausted => "its directory ran out of sequence numbers; use another",
        })
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.reason)
    }
}
