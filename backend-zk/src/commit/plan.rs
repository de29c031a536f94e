//! [`Plan`]: the operations that are sent for a transaction. The role of each gives a refusal its
//! meaning.
//!
//! The `Store` contract offers more than the server: missing ancestors are created, a check can
//! require absence, empty containers are replaced. Each of these needs helper operations in the
//! same request, which depend on the tree. So a transaction is first sent without helpers. When the
//! server refuses an operation for a reason that helpers can resolve, the state of the tree is read
//! and added to [`Facts`], and the transaction is planned and sent again.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime, Op};

use crate::access_lists::AccessLists;
use crate::client::{CreateMode, CreateOptions, MultiWriter};
use crate::commit::occupant::EmptyContainers;
use crate::containers::{self, MARK, guard};

/// The known facts about the tree.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Missing ancestors, to be created as containers.
    pub(crate) missing: BTreeSet<Path>,
    /// Empty containers that are in the way of an operation. For a path in `below` there are no
    /// containers, only numbers of created children.
    pub(crate) empty_containers: BTreeMap<usize, EmptyContainers>,
    /// The ancestor whose absence proves the absence of an operation's path.
    pub(crate) absent: BTreeMap<usize, Path>,
    /// The ephemeral node below which an operation's path is certainly absent.
    pub(crate) below: BTreeMap<usize, Path>,
    /// Operations on a container, which counts as no node.
    pub(crate) on_container: BTreeSet<usize>,
    /// Operations that create a node where the session has just removed a container.
    pub(crate) vacated: BTreeSet<usize>,
}

/// The operations to send.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
}

/// One operation of the server's protocol.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// The operation of the transaction that it belongs to.
    pub(crate) index: usize,
    pub(crate) role: Role,
    pub(crate) act: Act,
}

/// The purpose of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The operation itself.
    Own,
    /// Creates an ancestor.
    Ancestor(Path),
    /// Proves that nothing exists at this path.
    Absence(Path),
    /// Removes an empty container.
    EmptyContainers,
    /// Writes a node that was created in the place of a container: in a transaction of several, not
    /// every server returns the stat of a create (ZOOKEEPER-4026), but every server returns the
    /// stat of a set.
    Again,
    /// Protects a node that replaced a container from the collector of the server.
    Guard,
    /// Undoes a create that was sent only as a proof.
    Undo,
}

/// The call of a step.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Check { path: String, version: i32 },
    Create { path: String, data: Bytes, options: CreateOptions },
    Set { path: String, data: Bytes, version: Option<i32> },
    Delete { path: String, version: Option<i32> },
}

/// A path that no node ever has.
const NOWHERE: &str = "/synod-nowhere-5f0e9c/x";

impl Plan {
    /// Plans `ops` with the known facts.
    ///
    /// # Errors
    ///
    /// If the request would be larger than a server accepts.
    pub(crate) fn new(ops: &[Op], facts: &Facts, access: &AccessLists) -> Result<Self> {
        let (containers, created, removed) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut planner =
            Planner { ops, facts, access, containers, created, removed, steps: Vec::new() };
        // Before all other steps: nodes that the request itself creates must not count.
        planner.check_children_created();
        for index in 0..ops.len() {
            planner.plan(index);
        }
        let plan = Self { steps: planner.steps };
        plan.check_size()?;
        Ok(plan)
    }

    fn check_size(&self) -> Result<()> {
        /// The server's limit, less the frame of the request.
        const FRAME: usize = 1_048_000;

        let size: usize = self.steps.iter().map(|step| step.act.size()).sum();
        if size > FRAME {
            return Err(Error::new(ErrorKind::TooLarge, "commit").because(format!(
                "{size} bytes in one request, containers and checks included, and ZooKeeper takes \
                 {FRAME}"
            )));
        }
        Ok(())
    }
}

struct Planner<'a> {
    ops: &'a [Op],
    facts: &'a Facts,
    access: &'a AccessLists,
    /// Containers that this request creates.
    containers: BTreeSet<Path>,
    /// Nodes that this request creates.
    created: BTreeSet<Path>,
    /// Paths that this request removes, or proves absent.
    removed: BTreeSet<Path>,
    steps: Vec<Step>,
}

impl Planner<'_> {
    fn plan(&mut self, index: usize) {
        match &self.ops[index] {
            // A container exists only with a child, whose create also creates the container.
            Op::Check { path, expect: Expect::Absent }
            | Op::Create { path, lifetime: Lifetime::Container, .. } => self.absence(index, path),
            Op::Check { path, expect } => self.check(index, path, *expect),
            Op::Create { path, data, lifetime, sequential } => {
                self.create(index, path, data, *lifetime, *sequential);
            }
            Op::Set { path, data, expect } => {
                let act =
                    Act::Set { path: text(path), data: data.clone(), version: version(*expect) };
                self.step(index, Role::Own, act);
            }
            Op::Delete { path, expect } => {
                self.remove_empty_containers(index);
                let act = Act::Delete { path: text(path), version: version(*expect) };
                self.step(index, Role::Own, act);
                self.removed.insert(path.clone());
            }
        }
    }

    fn check(&mut self, index: usize, path: &Path, expect: Expect) {
        let is_container =
            self.facts.on_container.contains(&index) || self.containers.contains(path);
        let path = if is_container { NOWHERE.to_owned() } else { text(path) };
        let act = Act::Check { path, version: version(expect).unwrap_or(-1) };
        self.step(index, Role::Own, act);
    }

    /// Creates the path and deletes it again, which the server refuses if anything exists there.
    fn absence(&mut self, index: usize, path: &Path) {
        if let Some(ephemeral) = self.facts.below.get(&index) {
            let act = Act::Check { path: text(ephemeral), version: -1 };
            return self.step(index, Role::EmptyContainers, act);
        }
        if self.remove_empty_containers(index) {
            return;
        }
        let highest = self.facts.absent.get(&index).unwrap_or(path);
        let options = CreateMode::Persistent.with_acl(&self.access.at(highest).node);
        let act = Act::Create { path: text(highest), data: Bytes::new(), options };
        self.step(index, Role::Absence(highest.clone()), act);
        self.step(index, Role::Undo, Act::Delete { path: text(highest), version: None });
        let between = path.ancestors().filter(|above| above.is_below(highest));
        self.removed.extend(between.chain([highest.clone(), path.clone()]));
    }

    fn create(
        &mut self,
        index: usize,
        path: &Path,
        data: &Bytes,
        lifetime: Lifetime,
        sequential: bool,
    ) {
        self.ancestors(index, path);
        let vacated = self.facts.vacated.contains(&index);
        let replaces = self.remove_empty_containers(index) || vacated;
        let options = create_options(path, lifetime, sequential, self.access);
        let act = Act::Create { path: text(path), data: data.clone(), options };
        self.step(index, Role::Own, act);
        if !sequential {
            self.removed.remove(path);
            self.created.insert(path.clone());
        }
        if replaces {
            let act = Act::Set { path: text(path), data: data.clone(), version: None };
            self.step(index, Role::Again, act);
        }
        let stays = lifetime != Lifetime::Session && !sequential;
        if stays && (vacated || self.was_container(path)) {
            let options = CreateMode::Ephemeral.with_acl(&self.access.at(path).node);
            let act = Act::Create { path: guard(path), data: Bytes::new(), options };
            self.step(index, Role::Guard, act);
        }
    }

    /// Returns `true` if the path is known to have had an empty container: for this operation, or
    /// another.
    fn was_container(&self, path: &Path) -> bool {
        self.facts
            .empty_containers
            .values()
            .any(|empty_containers| empty_containers.containers.contains(path))
    }

    fn ancestors(&mut self, index: usize, path: &Path) {
        let mut missing: Vec<Path> = path.ancestors().collect();
        missing.retain(|above| {
            let missing = self.facts.missing.contains(above) || self.removed.contains(above);
            missing && !self.containers.contains(above) && !self.created.contains(above)
        });
        for above in missing.into_iter().rev() {
            let (data, options) =
                (Bytes::from_static(MARK), containers::options(self.access, &above));
            let act = Act::Create { path: text(&above), data, options };
            self.step(index, Role::Ancestor(above.clone()), act);
            self.containers.insert(above);
        }
    }

    /// Proves that no child was created in the directory of each container to be removed since the
    /// directory was read: so no node is removed that has taken the container's place.
    ///
    /// The name of a sequential child contains the number of children created before; deleting a
    /// child by the expected name proves that it got that name.
    fn check_children_created(&mut self) {
        // If there are two numbers for one directory, the lower one is out of date. It is used, so
        // that the request is refused.
        let mut counts: BTreeMap<&Path, (i32, usize)> = BTreeMap::new();
        for (index, empty_containers) in &self.facts.empty_containers {
            for (dir, children_created) in &empty_containers.children_created {
                let count = counts.entry(dir).or_insert((*children_created, *index));
                *count = (*count).min((*children_created, *index));
            }
        }
        for (dir, (children_created, index)) in counts {
            let probe = containers::probe(dir);
            let options = CreateMode::PersistentSequential;
            let options = options.with_acl(&self.access.at(dir).node);
            let expected = format!("{probe}{children_created:010}");
            let act = Act::Create { path: probe, data: Bytes::new(), options };
            self.steps.push(Step { index, role: Role::EmptyContainers, act });
            let act = Act::Delete { path: expected, version: None };
            self.steps.push(Step { index, role: Role::EmptyContainers, act });
        }
    }

    /// Removes the empty containers that are in the way. Returns `true` if the operation's path is
    /// one.
    fn remove_empty_containers(&mut self, index: usize) -> bool {
        let Some(empty_containers) = self.facts.empty_containers.get(&index) else { return false };
        for container in &empty_containers.containers {
            // A container in the way of two operations is removed once.
            if self.removed.insert(container.clone()) {
                let act = Act::Delete { path: text(container), version: Some(0) };
                self.step(index, Role::EmptyContainers, act);
            }
        }
        if let Some(guard) = &empty_containers.guard {
            let act = Act::Delete { path: guard.clone(), version: None };
            self.step(index, Role::EmptyContainers, act);
        }
        empty_containers.containers.last() == Some(self.ops[index].path())
    }

    fn step(&mut self, index: usize, role: Role, act: Act) {
        self.steps.push(Step { index, role, act });
    }
}

fn text(path: &Path) -> String {
    path.as_str().to_owned()
}

/// The server's number of an expected version. A version that no node can have is never sent as
/// `-1`, which means any.
pub(crate) fn version(expect: Expect) -> Option<i32> {
    match expect {
        Expect::Version(version) => Some(i32::try_from(version.get()).unwrap_or(i32::MAX)),
        Expect::Any | Expect::Absent => None,
    }
}

/// The options to create a node of this kind.
pub(crate) fn create_options(
    path: &Path,
    lifetime: Lifetime,
    sequential: bool,
    access: &AccessLists,
) -> CreateOptions {
    let mode = match (lifetime, sequential) {
        (Lifetime::Session, false) => CreateMode::Ephemeral,
        (Lifetime::Session, true) => CreateMode::EphemeralSequential,
        (_, false) => CreateMode::Persistent,
        (_, true) => CreateMode::PersistentSequential,
    };
    let options = mode.with_acl(&access.at(path).node);
    match lifetime {
        // The server counts whole milliseconds.
        Lifetime::Ttl(ttl) => options.with_ttl(ttl.max(std::time::Duration::from_millis(1))),
        _ => options,
    }
}

impl Act {
    /// Adds this to a request of several operations.
    pub(crate) fn add_to(&self, writer: &mut MultiWriter<'_>) {
        match self {
            Self::Check { path, version } => writer.add_check_version(path, *version),
            Self::Create { path, data, options } => writer.add_create(path, data, options),
            Self::Set { path, data, version } => writer.add_set_data(path, data, *version),
            Self::Delete { path, version } => writer.add_delete(path, *version),
        }
    }

    pub(crate) fn path(&self) -> &str {
        let (Self::Check { path, .. }
        | Self::Create { path, .. }
        | Self::Set { path, .. }
        | Self::Delete { path, .. }) = self;
        path
    }

    fn size(&self) -> usize {
        /// Numbers, lengths and a short access list.
        const HEADER: usize = 80;
        /// The length of a list of one entry, which the header contains.
        const SHORT: usize = 24;

        let data = match self {
            Self::Create { data, options, .. } => {
                data.len() + options.acl().size().saturating_sub(SHORT)
            }
            Self::Set { data, .. } => data.len(),
            Self::Check { .. } | Self::Delete { .. } => 0,
        };
        HEADER + self.path().len() + data
    }
}

#[cfg(test)]
mod tests {
    use synod_core::store::Txn;

    use super::*;
    use crate::options::Access;

    fn path(text: &str) -> Path {
        Path::new(text).expect("valid")
    }

    fn open() -> AccessLists {
        AccessLists::new(Access::Open, &BTreeMap::new())
    }

    fn plan(txn: &Txn, facts: &Facts) -> Vec<String> {
        let plan = Plan::new(&txn.ops, facts, &open()).expect("small");
        let steps = plan.steps.iter().map(|step| {
            let act = match &step.act {
                Act::Check { path, .. } => format!("check {path}"),
                Act::Create { path, .. } => format!("create {path}"),
                Act::Set { path, .. } => format!("set {path}"),
                Act::Delete { path, .. } => format!("delete {path}"),
            };
            format!("{}: {act}", step.index)
        });
        steps.collect()
    }

    fn create(at: &str) -> Txn {
        Txn::new().create(path(at), "", Lifetime::Persistent)
    }

    #[test]
    fn a_step_takes_its_path_its_data_and_little_more() {
        let path = format!("/{}", "w".repeat(99));
        let data = Bytes::from_static(&[b'x'; 1_000]);
        let set = Act::Set { path: path.clone(), data, version: None };
        let check = Act::Check { path, version: 0 };
        assert_eq!((set.size(), check.size()), (1_180, 180));
    }

    #[test]
    fn missing_ancestors_are_made_once_and_in_order() {
        let facts = Facts { missing: [path("/a"), path("/a/b")].into(), ..Facts::default() };
        let txn = create("/x").create(path("/a/b/c"), "", Lifetime::Persistent);
        let txn =
            txn.create(path("/a/b/d"), "", Lifetime::Persistent).check(path("/a"), Expect::Any);
        assert_eq!(
            plan(&txn, &facts),
            [
                "0: create /x",
                "1: create /a",
                "1: create /a/b",
                "1: create /a/b/c",
                "2: create /a/b/d",
                "3: check /synod-nowhere-5f0e9c/x",
            ]
        );
    }

    #[test]
    fn an_empty_container_is_replaced_if_no_sibling_was_created() {
        let empty_containers = EmptyContainers {
            containers: vec![path("/a/b"), path("/a")],
            children_created: [(path("/a"), 3), (Path::root(), 12)].into(),
            guard: None,
        };
        let facts = Facts { empty_containers: [(1, empty_containers)].into(), ..Facts::default() };
        let txn = create("/x").create(path("/a"), "", Lifetime::Persistent);
        assert_eq!(
            plan(&txn, &facts),
            [
                "1: create /.synod-probe-5f0e9c",
                "1: delete /.synod-probe-5f0e9c0000000012",
                "1: create /a/.synod-probe-5f0e9c",
                "1: delete /a/.synod-probe-5f0e9c0000000003",
                "0: create /x",
                "1: delete /a/b",
                "1: delete /a",
                "1: create /a",
                "1: set /a",
                &format!("1: create {}", guard(&path("/a"))),
            ]
        );
    }

    #[test]
    fn what_is_made_where_a_container_was_is_guarded() {
        let facts = Facts { vacated: [0].into(), ..Facts::default() };
        let guarded = format!("0: create {}", guard(&path("/a")));
        assert_eq!(plan(&create("/a"), &facts), ["0: create /a", "0: set /a", &guarded]);
    }

    #[test]
    fn what_a_transaction_removes_it_makes_again_where_it_must() {
        let empty_containers = || EmptyContainers {
            containers: vec![path("/a/b"), path("/a")],
            children_created: [(path("/a"), 3), (Path::root(), 12)].into(),
            guard: None,
        };
        let below = EmptyContainers {
            containers: vec![path("/a/b")],
            children_created: [(path("/a"), 3)].into(),
            guard: None,
        };
        let children_created = [
            "1: create /.synod-probe-5f0e9c",
            "1: delete /.synod-probe-5f0e9c0000000012",
            "0: create /a/.synod-probe-5f0e9c",
            "0: delete /a/.synod-probe-5f0e9c0000000003",
        ];
        let facts = Facts {
            empty_containers: [(0, below), (1, empty_containers())].into(),
            ..Facts::default()
        };
        let txn = Txn::new().check(path("/a/b"), Expect::Absent).check(path("/a"), Expect::Absent);
        let txn = txn.create(path("/a/b/c"), "", Lifetime::Session);
        let rest = [
            "0: delete /a/b",
            "1: delete /a",
            "2: create /a",
            "2: create /a/b",
            "2: create /a/b/c",
        ];
        assert_eq!(plan(&txn, &facts), [&children_created[..], &rest].concat());

        let txn = Txn::new().delete(path("/a"), Expect::Any);
        let txn = txn.create(path("/a/b"), "", Lifetime::Session);
        let steps = ["0: delete /a", "1: create /a", "1: create /a/b"];
        assert_eq!(plan(&txn, &Facts::default()), steps);
    }

    #[test]
    fn a_check_for_absence_leaves_nothing() {
        let absent = Txn::new().check(path("/a/b"), Expect::Absent);
        assert_eq!(plan(&absent, &Facts::default()), ["0: create /a/b", "0: delete /a/b"]);
        let facts = Facts { absent: [(0, path("/a"))].into(), ..Facts::default() };
        assert_eq!(plan(&absent, &facts), ["0: create /a", "0: delete /a"]);
    }

    #[test]
    fn what_grows_too_large_is_refused() {
        let deep = format!("/{}", ["x"; 1_000].join("/"));
        let mut txn = Txn::new();
        let mut facts = Facts::default();
        for index in 0..128 {
            let at = path(&format!("{deep}/{index}"));
            let children_created = [(at.clone(), 0), (path(&deep), 0)].into();
            let containers = vec![at.clone(), at.clone()];
            facts
                .empty_containers
                .insert(index, EmptyContainers { containers, children_created, guard: None });
            txn = txn.create(at, "", Lifetime::Persistent);
        }
        let refused = Plan::new(&txn.ops, &facts, &open()).expect_err("too large");
        assert_eq!(refused.kind(), ErrorKind::TooLarge);
    }
}
