//! Transactions and their results.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::name::MAX_NAME_BYTES;
use crate::path::{MAX_PATH_BYTES, Path};
use crate::store::node::{Revision, Sequence, SessionId, Stat, Version};
use crate::store::query::{Query, View};
use crate::store::session::{Feature, Limits};

/// The number of bytes that a store may append to the name of a sequential node.
pub const SEQUENCE_SUFFIX_LEN: usize = 20;

/// An ordered list of operations that are applied together or not at all.
///
/// # Examples
///
/// A write under a lock: it is applied only while the node of the ticket exists.
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
    /// The operations, in order.
    pub ops: Vec<Op>,
    /// A follow-up query that is answered in the same round trip: as of the commit, or, if the
    /// transaction is rejected, as of the rejection. The view is not older than that, and may be a
    /// little newer. The freshness of the query is ignored.
    pub look: Option<Query>,
    /// `true` if the follow-up query is answered only for a rejection.
    pub look_if_rejected: bool,
}

/// One operation of a [`Txn`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "every store must do each of them")]
pub enum Op {
    /// Requires that the node is in the given state.
    Check {
        /// The node.
        path: Path,
        /// The required state of the node.
        expect: Expect,
    },
    /// Creates a node that must not exist.
    Create {
        /// The node, or the start of its name if it is sequential.
        path: Path,
        /// The data of the node.
        data: Bytes,
        /// The time until which the node exists.
        lifetime: Lifetime,
        /// `true` if the node gets a [`Sequence`]. The path must then be one that no other call
        /// passes.
        sequential: bool,
    },
    /// Replaces the data of an existing node.
    Set {
        /// The node.
        path: Path,
        /// The new data.
        data: Bytes,
        /// The required state of the node; never [`Expect::Absent`].
        expect: Expect,
    },
    /// Removes an existing node that has no children.
    Delete {
        /// The node.
        path: Path,
        /// The required state of the node; never [`Expect::Absent`].
        expect: Expect,
    },
}

/// The state of a node that an operation requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "every store must check each of them")]
pub enum Expect {
    /// The node exists.
    Any,
    /// The node exists in this version.
    Version(Version),
    /// Neither the node nor any node below it exists.
    Absent,
}

/// The time until which a node exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "every store must know each of them")]
pub enum Lifetime {
    /// Until it is deleted.
    Persistent,
    /// Until it is deleted, or until the session that created it ends: an ephemeral node.
    Session,
    /// While a node exists below it. Creating a container has no visible effect.
    Container,
    /// Until it is deleted, or until it has not been written for this long (TTL node).
    Ttl(Duration),
}

impl Txn {
    /// Creates a transaction without operations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requires that the node is in the given state.
    pub fn check(self, path: impl Into<Path>, expect: Expect) -> Self {
        self.op(Op::Check { path: path.into(), expect })
    }

    /// Creates a node.
    pub fn create(self, path: impl Into<Path>, data: impl Into<Bytes>, lifetime: Lifetime) -> Self {
        let (path, data) = (path.into(), data.into());
        self.op(Op::Create { path, data, lifetime, sequential: false })
    }

    /// Creates a node with a [`Sequence`]. No other call may pass the same `path`; the store may
    /// append to it.
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

    /// Adds a follow-up query, which is answered as of the commit, or of the rejection.
    pub fn look(mut self, query: Query) -> Self {
        (self.look, self.look_if_rejected) = (Some(query), false);
        self
    }

    /// Adds a follow-up query that is answered only if the transaction is rejected, as of the
    /// rejection. Otherwise it costs the store little or nothing, and the commit has no view.
    pub fn look_if_rejected(mut self, query: Query) -> Self {
        (self.look, self.look_if_rejected) = (Some(query), true);
        self
    }

    /// Returns the follow-up query, if it is answered for a commit.
    pub fn look_of_commit(&self) -> Option<&Query> {
        self.look.as_ref().filter(|_| !self.look_if_rejected)
    }

    /// Rejects a transaction that some store could not apply. Every store calls this before it
    /// sends anything, so that a transaction means the same on every store.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`]: no operation; two writes to one path; a check after a write of the
    ///   same path; two sequential creates in one directory; a set or delete of a node that is
    ///   expected to be absent; a write to the root; a TTL of zero; a container with data or with a
    ///   sequence; a sequential create whose name leaves no room for the suffix of the store
    ///   ([`SEQUENCE_SUFFIX_LEN`]); a follow-up query that [`Query::validate`] rejects.
    /// - [`ErrorKind::TooLarge`]: more operations or more data than `limits` allows.
    /// - [`ErrorKind::Unsupported`]: a TTL node where `limits` has [`Feature::TtlNodes`].
    pub fn validate(&self, limits: &Limits) -> Result<()> {
        if self.ops.is_empty() {
            return Err(invalid("a transaction has at least one operation"));
        }
        if self.ops.len() > limits.operations {
            return Err(Error::new(ErrorKind::TooLarge, "commit").because(format!(
                "{} operations in one transaction; this store accepts {}",
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
                "{size} bytes in one transaction; this store accepts {}",
                limits.request
            )));
        }
        self.look.as_ref().map_or(Ok(()), Query::validate)
    }

    /// Validates an operation against the operations before it.
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
    /// Returns the node of the operation, or the start of its name if it is a sequential create.
    pub fn path(&self) -> &Path {
        match self {
            Self::Check { path, .. }
            | Self::Create { path, .. }
            | Self::Set { path, .. }
            | Self::Delete { path, .. } => path,
        }
    }

    /// Returns `true` for an operation that changes a node.
    pub fn is_write(&self) -> bool {
        !matches!(self, Self::Check { .. })
    }

    /// Returns `true` for a sequential create.
    pub fn is_sequential(&self) -> bool {
        matches!(self, Self::Create { sequential: true, .. })
    }

    /// Returns the approximate size of the operation on the wire.
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
            return Err(
                invalid("the root is not a node: it always exists and holds no data").at(path)
            );
        }
        if self.data().len() > limits.data {
            return Err(Error::new(ErrorKind::TooLarge, "commit").at(path).because(format!(
                "{} bytes of data; this store accepts {} a node",
                self.data().len(),
                limits.data
            )));
        }
        match self {
            Self::Set { expect: Expect::Absent, .. }
            | Self::Delete { expect: Expect::Absent, .. } => {
                Err(invalid("a node that is expected to be absent cannot be set or deleted")
                    .at(path))
            }
            Self::Create { data, lifetime: Lifetime::Container, sequential, .. }
                if *sequential || !data.is_empty() =>
            {
                Err(invalid("a container has no data and no sequence").at(path))
            }
            Self::Create { sequential: true, .. } if !has_sequence_room(path) => {
                Err(invalid("a sequential name leaves 20 bytes for the suffix of the store")
                    .at(path))
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
    /// The longest TTL that every store accepts: ZooKeeper counts 40 bits of milliseconds, etcd 9
    /// billion seconds.
    const MAX_TTL: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
    if ttl.is_zero() || ttl > MAX_TTL {
        return Err(invalid("a TTL is more than zero and at most ten years").at(path));
    }
    if limits.missing_features.contains(&Feature::TtlNodes) {
        return Err(Error::new(ErrorKind::Unsupported, "commit")
            .at(path)
            .because("this store has no TTL nodes"));
    }
    Ok(())
}

fn invalid(reason: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, "commit").because(reason)
}

/// The result of a write that the store answered: applied, or rejected by a check. A lost race is a
/// result, not an error.
///
/// # Examples
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path::Path;
/// use synod_core::store::{Expect, Outcome, Version};
///
/// /// Replaces `old`, unless another client was faster.
/// async fn replace(client: &Client, path: &Path, old: Version, data: &str) -> Result<bool> {
///     match client.set(path, data.to_owned(), Expect::Version(old)).await? {
///         Outcome::Committed(_) => Ok(true),
///         Outcome::Rejected(rejected) => {
///             println!("not written: {rejected}");
///             Ok(false)
///         }
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "it was applied or it was not")]
#[must_use = "a rejected write changed nothing"]
pub enum Outcome<T = Commit> {
    /// The write was applied completely.
    Committed(T),
    /// Nothing was applied.
    Rejected(Rejected),
}

/// The first operation of a transaction that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejected {
    /// The index of the operation in the transaction, from zero.
    pub index: usize,
    /// The path of the operation.
    pub path: Path,
    /// The reason. Some stores determine it by a read after the rejection; if other clients write
    /// at that time, it is the reason as of that read.
    pub reason: RejectReason,
    /// The answer to the follow-up query: not older than the state that caused the rejection, and
    /// possibly newer, so that it may no longer show the reason. `None` if the transaction had
    /// no follow-up query, or if the query failed: the transaction is rejected nevertheless.
    pub look: Option<View>,
}

/// The reason for which an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectReason {
    /// The node, or a node below it, exists already.
    Exists,
    /// The node does not exist.
    Missing,
    /// The node has another version.
    OtherVersion,
    /// The node has children.
    HasChildren,
    /// An ancestor is an ephemeral node.
    BelowEphemeral,
    /// The directory has no sequences left. Use another directory.
    SequenceExhausted,
}

/// The results of a committed transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Commit {
    /// The revision of the commit, if the store reports it.
    pub revision: Option<Revision>,
    /// The result of each operation, in order.
    pub results: Vec<OpResult>,
    /// The answer to the follow-up query. `None` if the transaction had none, or one for a
    /// rejection only, or if the query failed: the transaction is committed nevertheless.
    pub look: Option<View>,
}

/// The result of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpResult {
    /// The path of the node; for a sequential create, with the name that the store gave it.
    pub path: Path,
    /// The sequence of a sequential create.
    pub sequence: Option<Sequence>,
    /// The stat of the node after a create or a set. Present if the transaction has one operation;
    /// with several, a store may omit it. A container has none.
    pub stat: Option<Stat>,
}

impl<T> Outcome<T> {
    /// Returns the result of a write that was applied.
    pub fn ok(self) -> Option<T> {
        match self {
            Self::Committed(done) => Some(done),
            Self::Rejected(_) => None,
        }
    }

    /// Returns `true` if the write was applied.
    pub fn is_committed(&self) -> bool {
        matches!(self, Self::Committed(_))
    }

    /// Returns the rejection of a write that was not applied.
    pub fn rejected(&self) -> Option<&Rejected> {
        match self {
            Self::Committed(_) => None,
            Self::Rejected(rejected) => Some(rejected),
        }
    }

    /// Converts the result of a write that was applied.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Committed(done) => Outcome::Committed(f(done)),
            Self::Rejected(rejected) => Outcome::Rejected(rejected),
        }
    }

    /// Converts a rejection to an error, for a caller that requires the write.
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
    /// Creates the rejection of the operation at `index`, on `path`.
    pub fn new(index: usize, path: Path, reason: RejectReason) -> Self {
        Self { index, path, reason, look: None }
    }

    /// Adds the answer to the follow-up query.
    pub fn with_look(mut self, look: Option<View>) -> Self {
        self.look = look;
        self
    }
}

impl Commit {
    /// Creates the results of a transaction.
    pub fn new(revision: Option<Revision>, results: Vec<OpResult>, look: Option<View>) -> Self {
        Self { revision, results, look }
    }
}

impl OpResult {
    /// Creates the result of an operation on `path`.
    pub fn new(path: Path) -> Self {
        Self { path, sequence: None, stat: None }
    }

    /// Adds the stat of the node after the operation.
    pub fn with_stat(mut self, stat: Stat) -> Self {
        self.stat = Some(stat);
        self
    }

    /// Adds the sequence of the node.
    pub fn with_sequence(mut self, sequence: Sequence) -> Self {
        self.sequence = Some(sequence);
        self
    }

    /// Returns the session that owns the node after the operation.
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
