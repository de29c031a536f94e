//! Maps nodes to etcd's flat key space: the key of `/a/b/c` is `/a/b//c`.
//!
//! So the children of `/a/b` are exactly the keys that start with `/a/b//`, and the nodes below it
//! are exactly those that start with `/a/b/`.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use synod_core::path::Path;

/// One key, or all keys from one up to another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Range {
    pub(crate) key: Vec<u8>,
    /// The first key after the range; empty for a single key.
    pub(crate) end: Vec<u8>,
}

impl Range {
    fn prefix(prefix: String) -> Self {
        let key = prefix.into_bytes();
        let mut end = key.clone();
        // No byte of a path is 0xff, so there is always a next one.
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        Self { key, end }
    }

    /// The parts of this range that remain without these keys, which are in it.
    pub(crate) fn without(self, mut gone: Vec<Vec<u8>>) -> Vec<Self> {
        gone.sort();
        let mut parts = Vec::new();
        let mut start = self.key;
        for key in gone {
            let next = [key.as_slice(), &[0]].concat();
            if start < key {
                parts.push(Self { key: start, end: key });
            }
            start = next;
        }
        if start < self.end {
            parts.push(Self { key: start, end: self.end });
        }
        parts
    }
}

/// The key of a node. That of the root is a key that no node has.
pub(crate) fn of(path: impl AsRef<str>) -> Vec<u8> {
    let (parent, name) = path.as_ref().rsplit_once('/').unwrap_or_default();
    [parent, "//", name].concat().into_bytes()
}

pub(crate) fn only(path: &Path) -> Range {
    Range { key: of(path), end: Vec::new() }
}

/// The children of a node with names that start with `prefix`.
pub(crate) fn children(path: &Path, prefix: &str) -> Range {
    Range::prefix([stem(path.as_str()), "//", prefix].concat())
}

/// Everything below the children of a node with names that start with `prefix`, but not the
/// children themselves.
pub(crate) fn grandchildren(path: &Path, prefix: &str) -> Vec<Range> {
    let all = Range::prefix([stem(path.as_str()), "/", prefix].concat());
    let children = children(path, prefix);
    if prefix.is_empty() {
        // The keys of the children are in the middle of the range.
        vec![Range { key: all.key, end: children.key }, Range { key: children.end, end: all.end }]
    } else {
        vec![all]
    }
}

/// Everything below a node.
pub(crate) fn below(path: impl AsRef<str>) -> Range {
    Range::prefix([stem(path.as_ref()), "/"].concat())
}

/// The path of the node at a key; `None` if the key is not synod's.
pub(crate) fn path(key: &[u8]) -> Option<Path> {
    let (parent, name) = std::str::from_utf8(key).ok()?.rsplit_once("//")?;
    if name.is_empty() || name.contains('/') {
        return None;
    }
    // Any other malformed key gives an invalid path.
    Path::new(&[parent, "/", name].concat()).ok()
}

/// [`path`] of a key that was read. Logs a key that is not synod's, as a warning once per
/// directory.
pub(crate) fn known(key: &[u8]) -> Option<Path> {
    let path = path(key);
    if path.is_none() {
        let shown = String::from_utf8_lossy(key);
        if FOREIGN.is_first(key) {
            tracing::warn!(key = ?shown, "skipped a key that is no node's: something else writes here");
        } else {
            tracing::debug!(key = ?shown, "skipped a key that is no node's");
        }
    }
    path
}

/// The directories with foreign keys that this process has warned about.
static FOREIGN: Foreign = Foreign(Mutex::new(BTreeSet::new()));

struct Foreign(Mutex<BTreeSet<Vec<u8>>>);

impl Foreign {
    /// The maximum number of directories to warn about.
    const MOST: usize = 256;

    /// Returns `true` if this is the first foreign key in its directory.
    fn is_first(&self, key: &[u8]) -> bool {
        let end = key.iter().rposition(|byte| *byte == b'/').unwrap_or_default();
        let mut warned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        warned.len() < Self::MOST && warned.insert(key[..end].to_vec())
    }
}

/// The child of `dir` that is, or is above, the node at `path`.
pub(crate) fn child(dir: &Path, path: &Path) -> Option<Path> {
    let rest = path.as_str().strip_prefix(stem(dir.as_str()))?.strip_prefix('/')?;
    match rest.split_once('/') {
        None => Some(path.clone()),
        Some((name, _)) => dir.join(name).ok(),
    }
}

/// The prefix of the keys below a node.
fn stem(path: &str) -> &str {
    if path == "/" { "" } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_keys_are_warned_of_once_for_each_directory_and_not_without_end() {
        let foreign = Foreign(Mutex::default());
        let first: Vec<bool> = ["/a/x", "/a/y", "/b/x", "loose", "other"]
            .map(|key| foreign.is_first(key.as_bytes()))
            .into();
        assert_eq!(first, [true, false, true, true, false]);
        let more = (0..1_000).filter(|number| foreign.is_first(format!("/{number}/x").as_bytes()));
        assert_eq!(more.count(), Foreign::MOST - 3);
    }

    #[test]
    fn what_is_left_of_a_range_without_some_keys_is_not_empty() {
        let range = |key: &[u8], end: &[u8]| Range { key: key.to_vec(), end: end.to_vec() };
        let all = || range(b"a", b"d");
        assert_eq!(all().without(vec![b"a".to_vec()]), [range(b"a\0", b"d")]);
        let rest = [range(b"a", b"b"), range(b"b\0", b"c\0\0"), range(b"c\0\0\0", b"d")];
        assert_eq!(all().without(vec![b"c\0\0".to_vec(), b"b".to_vec()]), rest);
        assert_eq!(range(b"a", b"a\0").without(vec![b"a".to_vec()]), []);
    }

    fn node(text: &str) -> Path {
        Path::new(text).expect("valid")
    }

    fn holds(range: &Range, key: &[u8]) -> bool {
        if range.end.is_empty() {
            return range.key == key;
        }
        range.key.as_slice() <= key && key < range.end.as_slice()
    }

    const PATHS: &[&str] = &[
        "/a", "/a/b", "/a/b/c", "/a!", "/a!/b", "/a/!", "/a/!/x", "/a0", "/a/0", "/a/.b", "/a/é/~",
        "/ab", "/ab/c", "/-", "/a/b/c/d", "/a/b!/c", "/é",
    ];

    #[test]
    fn a_key_is_read_back_as_its_path() {
        for text in PATHS {
            assert_eq!(path(&of(node(text))), Some(node(text)));
        }
        assert_eq!(of(node("/a/b/c")), b"/a/b//c");
        assert_eq!(of(node("/a")), b"//a");
    }

    #[test]
    fn ranges_hold_what_the_tree_says() {
        for (dir, other) in PATHS.iter().flat_map(|a| PATHS.iter().map(move |b| (a, b))) {
            let (dir, other) = (node(dir), node(other));
            let key = of(&other);
            let is_child = other.parent_str() == Some(dir.as_str());
            assert_eq!(holds(&below(&dir), &key), other.is_below(&dir), "{other} below {dir}");
            assert_eq!(holds(&children(&dir, ""), &key), is_child, "{other} in {dir}");
            let deeper = grandchildren(&dir, "").iter().any(|range| holds(range, &key));
            assert_eq!(deeper, other.is_below(&dir) && !is_child, "{other} deep below {dir}");
            let found = child(&dir, &other);
            assert_eq!(found.is_some(), other.is_below(&dir), "{found:?}");
        }
        assert!(holds(&below(Path::root()), b"//a") && holds(&below(Path::root()), b"/a//b"));
        assert!(holds(&children(&Path::root(), ""), b"//a"));
        assert!(!holds(&children(&Path::root(), ""), b"/a//b"));
    }

    #[test]
    fn what_others_keep_is_no_node() {
        for key in [
            &b""[..],
            b"/",
            b"//",
            b"a",
            b"/a",
            b"/a/b",
            b"//a/b",
            b"/a//",
            b"/a///b",
            b"//a//b",
            b"/a//\xff",
            b"x//a",
            b"/a//b/c",
            b"/a//..",
            b"/zookeeper//x",
        ] {
            assert_eq!(path(key), None, "{:?}", String::from_utf8_lossy(key));
        }
    }

    #[test]
    fn a_range_is_split_around_what_is_gone() {
        let range = below(node("/a"));
        let parts = range.clone().without(vec![b"/a//c".to_vec(), b"/a//b".to_vec()]);
        assert_eq!(parts.len(), 3);
        let held = |key: &[u8]| parts.iter().filter(|part| holds(part, key)).count();
        assert_eq!([held(b"/a//b"), held(b"/a//c")], [0, 0]);
        assert_eq!([held(b"/a//a"), held(b"/a//bb"), held(b"/a//c\0"), held(b"/a/b//x")], [1; 4]);
        assert_eq!(range.clone().without(Vec::new()), [range]);
    }
}
