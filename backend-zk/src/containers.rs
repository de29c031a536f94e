//! Containers: their distinction from nodes, and their protection from the server's collector.
//!
//! The servers have containers, but do not report whether a node is a container. So the containers
//! that this backend creates have a fixed text as their data, and an access list without write
//! permission: the server itself refuses a plain set. A container that another client created,
//! without that text, counts as a node.
//!
//! The server collects an empty container only if it once had a child. Therefore each is created
//! together with its first child, or with a child that is deleted immediately ([`PROBE`]).
//!
//! The collector works through a list of paths that may be minutes old, and then checks only
//! whether a node has children, not whether it is a container. So a non-ephemeral node that
//! replaces an empty container is created together with an ephemeral child of this session, its
//! guard, which stays until no such list can still contain the path.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use synod_core::path::Path;
use synod_core::store::{Revision, SessionId, Stat, Version};
use tokio::time::Instant;

use crate::access_lists::AccessLists;
use crate::client::{CreateMode, CreateOptions, ZkStat};

/// The data of a container, chosen so that no application writes it by accident.
pub(crate) const MARK: &[u8] = b"\x00synod container 5f0e\x9c\x00";

/// The name of a child that exists only within one transaction.
pub(crate) const PROBE: &str = ".synod-probe-5f0e9c";

/// The start of a guard's name.
const GUARD: &str = ".synod-guard-5f0e9c-";

/// The length of a guard's name: one byte more than a valid name has, so that no application can
/// create this node.
const GUARD_BYTES: usize = synod_core::name::MAX_NAME_BYTES + 1;

/// The lifetime of a guard. The collector takes 6 ms per container of its list, so this is enough
/// for twenty thousand containers that are empty at the same time.
const GUARD_TIME: Duration = Duration::from_secs(120);

/// Returns whether a node that was read is a container. A container is never written and has no
/// owner.
pub(crate) fn is_container(data: &[u8], stat: &ZkStat) -> bool {
    data == MARK && stat.version == 0 && stat.ephemeral_owner == 0
}

/// The number of children that were ever created in a node. The server appends this number to the
/// names of sequential children; its stat contains a number computed from it and from the number
/// of present children.
pub(crate) fn children_created(stat: &ZkStat) -> i32 {
    stat.cversion.wrapping_add(stat.num_children) / 2
}

/// The stat of a node.
pub(crate) fn translate(stat: &ZkStat) -> Stat {
    let revision = |zxid: i64| Revision::new(u64::try_from(zxid).unwrap_or(0));
    let version = Version::new(stat.version.cast_unsigned().into());
    let owner = stat.ephemeral_owner.cast_unsigned();
    let owner = (owner != 0).then_some(SessionId::new(owner));
    Stat::new(revision(stat.czxid), revision(stat.mzxid), version, owner)
}

/// The options to create a container: with every permission of its path except writing.
pub(crate) fn options(access: &AccessLists, path: &Path) -> CreateOptions {
    CreateMode::Container.with_acl(&access.at(path).container)
}

/// A child of `dir` that exists only within one transaction.
pub(crate) fn probe(dir: &Path) -> String {
    let dir = if dir.is_root() { "" } else { dir.as_str() };
    format!("{dir}/{PROBE}")
}

/// Returns `true` if a path is that of a [`probe`].
pub(crate) fn is_probe(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with(PROBE))
}

/// The path of the guard of a node.
pub(crate) fn guard(path: &Path) -> String {
    format!("{path}/{GUARD:-<GUARD_BYTES$}", path = path.as_str())
}

/// Returns `true` if this is the name of a guard.
pub(crate) fn is_guard(name: &str) -> bool {
    name.len() == GUARD_BYTES && name.starts_with(GUARD)
}

/// The guards that a session may have created, with the time of their creation.
#[derive(Debug, Default)]
pub(crate) struct Guards(Mutex<BTreeMap<String, Instant>>);

impl Guards {
    pub(crate) fn add(&self, guard: &str, now: Instant) {
        let mut guards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        guards.insert(guard.to_owned(), now);
    }

    /// Removes and returns the guards that are no longer needed.
    pub(crate) fn take_expired(&self, now: Instant) -> Vec<String> {
        let mut guards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |created: &Instant| now.duration_since(*created) >= GUARD_TIME;
        let expired = guards.iter().filter(|(_, created)| is_over(created));
        let expired = expired.map(|(guard, _)| guard.clone()).collect();
        guards.retain(|_, created| !is_over(created));
        expired
    }
}

/// The paths of empty containers that a session removed, with the time of the removal: the
/// collector's list may still name them.
#[derive(Debug, Default)]
pub(crate) struct Vacated(Mutex<BTreeMap<Path, Instant>>);

impl Vacated {
    pub(crate) fn add(&self, path: &Path, now: Instant) {
        self.paths().insert(path.clone(), now);
    }

    pub(crate) fn has(&self, path: &Path) -> bool {
        self.paths().contains_key(path)
    }

    /// Removes the paths that no list can still contain.
    pub(crate) fn forget(&self, now: Instant) {
        self.paths().retain(|_, removed| now.duration_since(*removed) < GUARD_TIME);
    }

    fn paths(&self) -> MutexGuard<'_, BTreeMap<Path, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::Permissions;
    use crate::options::Access;

    #[test]
    fn the_number_of_created_children_follows_from_the_changes_and_the_present_children() {
        let stat = |cversion, num_children| ZkStat { cversion, num_children, ..ZkStat::NEW };
        // Five were created, and two of them deleted.
        assert_eq!(children_created(&stat(7, 3)), 5);
        assert_eq!(children_created(&stat(0, 0)), 0);
    }

    #[test]
    fn a_container_cannot_be_written() {
        for access in [Access::Creator, Access::Open] {
            let lists = AccessLists::new(access, &BTreeMap::new());
            let options = options(&lists, &Path::root());
            let permissions = options.acl().entries()[0].permissions;
            assert!(permissions.contains(Permissions::READ), "{access:?}");
            assert!(!permissions.contains(Permissions::WRITE), "{access:?}");
        }
        for dir in ["/a/b", "/"] {
            let probe = probe(&Path::new(dir).expect("valid"));
            assert!(is_probe(&probe) && is_probe(&format!("{probe}0000000007")), "{probe}");
        }
        assert!(!is_probe("/a/b"));
    }

    #[test]
    fn no_application_can_create_a_guard() {
        let guard = guard(&Path::new("/a/b").expect("valid"));
        let name = guard.strip_prefix("/a/b/").expect("it is a child");
        assert!(is_guard(name));
        assert!(Path::new(&guard).is_err());
        assert!(!is_guard("b") && !is_guard(GUARD));
    }

    #[test]
    fn a_guard_expires() {
        let (guards, start) = (Guards::default(), Instant::now());
        guards.add("early", start);
        guards.add("late", start + Duration::from_secs(1));
        guards.add("again", start);
        guards.add("again", start + Duration::from_secs(1));

        assert!(guards.take_expired(start + GUARD_TIME / 2).is_empty());
        assert_eq!(guards.take_expired(start + GUARD_TIME), ["early"]);
        assert_eq!(guards.take_expired(start + GUARD_TIME * 2), ["again", "late"]);
        assert!(guards.take_expired(start + GUARD_TIME * 2).is_empty());
    }

    #[test]
    fn a_vacated_path_is_remembered_for_the_lifetime_of_a_guard() {
        let (vacated, start) = (Vacated::default(), Instant::now());
        let path = Path::new("/a").expect("valid");
        vacated.add(&path, start);
        vacated.forget(start + GUARD_TIME / 2);
        assert!(vacated.has(&path));
        vacated.forget(start + GUARD_TIME);
        assert!(!vacated.has(&path));
    }
}
