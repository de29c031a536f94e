//! [`AccessLists`]: the access lists of the nodes that a client creates.

use std::collections::BTreeMap;

use synod_core::path::Path;

use crate::acl::Acl;
use crate::options::Access;

/// The access lists by path. A node gets the lists of the nearest path at or above it.
#[derive(Clone, Debug)]
pub(crate) struct AccessLists {
    /// For every other path.
    default: Lists,
    /// The longest path first.
    by_path: Vec<(Path, Lists)>,
}

/// The lists at one path.
#[derive(Clone, Debug)]
pub(crate) struct Lists {
    pub(crate) node: Acl,
    /// The same without the permission to write: see `containers.rs`.
    pub(crate) container: Acl,
}

impl AccessLists {
    pub(crate) fn new(default: Access, by_path: &BTreeMap<Path, Acl>) -> Self {
        let lists = |(path, acl): (&Path, &Acl)| (path.clone(), Lists::new(acl.clone()));
        let mut by_path: Vec<_> = by_path.iter().map(lists).collect();
        by_path.sort_by_key(|(path, _)| std::cmp::Reverse(path.as_str().len()));
        Self { default: Lists::new(default.acl()), by_path }
    }

    /// The lists of a node at this path.
    pub(crate) fn at(&self, path: &Path) -> &Lists {
        let nearest = self.by_path.iter().find(|(top, _)| path == top || path.is_below(top));
        nearest.map_or(&self.default, |(_, lists)| lists)
    }
}

impl Lists {
    fn new(node: Acl) -> Self {
        Self { container: node.without_writing(), node }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_the_nearest_path_holds() {
        let at = |path: &str| Path::new(path).expect("valid");
        let lists = |by_path: &[(&str, &str)]| {
            let by_path =
                by_path.iter().map(|(path, list)| (at(path), list.parse().expect("valid")));
            AccessLists::new(Access::Open, &by_path.collect())
        };
        let some = lists(&[("/a", "world:r"), ("/a/b/c", "world:rw"), ("/a/bc", "world:c")]);
        for (path, list) in [
            ("/", "world:anyone:cdrwa"),
            ("/b/a", "world:anyone:cdrwa"),
            ("/ab", "world:anyone:cdrwa"),
            ("/a", "world:anyone:r"),
            ("/a/b", "world:anyone:r"),
            ("/a/b/cc", "world:anyone:r"),
            ("/a/b/c", "world:anyone:rw"),
            ("/a/b/c/d/e", "world:anyone:rw"),
            ("/a/bc/x", "world:anyone:c"),
        ] {
            assert_eq!(some.at(&at(path)).node.to_string(), list, "{path}");
        }
        assert_eq!(some.at(&at("/a/b/c")).container.to_string(), "world:anyone:r");
        let all = lists(&[("/", "world:r"), ("/a", "open")]);
        assert_eq!(all.at(&at("/b")).node.to_string(), "world:anyone:r");
        assert_eq!(all.at(&at("/a/b")).node, Acl::open());
    }
}
