//! Translates a [`Query`] into ranges of etcd, and their answers into a view.

use bytes::Bytes;
use etcd_client::proto::PbKeyValue;
use etcd_client::{GetOptions, SortOrder, SortTarget, TxnOp};
use synod_core::path::Path;
use synod_core::store::{
    Detail, Node, Query, Revision, Scope, Sequence, Stat, Version, View, Window,
};

use crate::key::{self, Range};
use crate::lease;

/// Keys without data per request.
pub(crate) const PAGE: i64 = 4_096;
/// Nodes with data in the first request. The largest nodes that this crate writes fit into one
/// answer.
const DATA_PAGE: i64 = 64;
/// The aimed size of a further page, in bytes.
const PAGE_BYTES: usize = 4 << 20;
/// The most keys in a further page. For each page, etcd before 3.5 goes through its index of all keys that are left, so
/// small pages of a large tree take quadratic time.
const MOST: i64 = 65_536;
/// Nodes with data in a look. The answer to a commit, with its look, must not be too large to be
/// received.
const LOOK_PAGE: i64 = 32;

/// Approximate bytes that etcd adds to a key and its value.
const KEY_BYTES: usize = 32;

/// One range of a query.
#[derive(Clone, Debug)]
pub(crate) struct Get {
    range: Range,
    keys_only: bool,
    window: Option<Window>,
}

impl Get {
    fn new(range: Range, keys_only: bool) -> Self {
        Self { range, keys_only, window: None }
    }

    /// The number of keys in the first request, `less` times fewer than usual.
    pub(crate) fn first_page(&self, less: i64) -> i64 {
        let page = if self.keys_only { PAGE } else { DATA_PAGE };
        (page / less).max(1)
    }

    /// The number of keys in the request after this page: as many as should fit, by the sizes in
    /// this page.
    pub(crate) fn next_page(&self, came: &[PbKeyValue]) -> i64 {
        let size = |kv: &PbKeyValue| kv.key.len() + kv.value.len() + KEY_BYTES;
        let count = came.len().max(1);
        let average = (came.iter().map(size).sum::<usize>() / count).max(1);
        // The next keys may be larger.
        let most = if self.keys_only { usize::MAX } else { count.saturating_mul(4) };
        i64::try_from((PAGE_BYTES / average).min(most)).unwrap_or(MOST).clamp(1, MOST)
    }

    /// The start key of the range, and the options of the request.
    pub(crate) fn options(&self, page: i64) -> (Vec<u8>, GetOptions) {
        let mut options = GetOptions::new();
        if !self.range.end.is_empty() {
            options = options.with_range(self.range.end.clone());
        }
        if self.keys_only {
            options = options.with_keys_only();
        }
        options = match self.window {
            None => options.with_limit(page),
            Some(Window::Oldest { count }) => {
                options.with_sort(SortTarget::Create, SortOrder::Ascend).with_limit(limit(count))
            }
            Some(Window::Newest { count, before }) => {
                let options = options
                    .with_sort(SortTarget::Create, SortOrder::Descend)
                    .with_limit(limit(count));
                match before {
                    // Zero would mean any; before the first there is nothing: see `view`.
                    Some(before) => options.with_max_create_revision(before_this(before).max(1)),
                    None => options,
                }
            }
        };
        (self.range.key.clone(), options)
    }

    /// The operation for the look of a transaction.
    pub(crate) fn look(&self) -> TxnOp {
        let (key, options) = self.options(if self.keys_only { PAGE } else { LOOK_PAGE });
        TxnOp::get(key, Some(options))
    }

    /// The rest of the range after the last key of an answer that was cut short.
    pub(crate) fn rest(&self, last: &[u8]) -> Self {
        let key = [last, &[0]].concat();
        Self { range: Range { key, end: self.range.end.clone() }, ..self.clone() }
    }

    /// Whether it may need more than one request.
    pub(crate) fn is_paged(&self) -> bool {
        self.window.is_none() && !self.range.end.is_empty()
    }
}

/// Zero would mean no limit to etcd.
fn limit(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX).max(1)
}

fn before_this(sequence: Sequence) -> i64 {
    i64::try_from(sequence.get()).unwrap_or(i64::MAX).saturating_sub(1)
}

/// The ranges that answer a query, in the order in which [`view`] takes their answers.
pub(crate) fn gets(query: &Query) -> Vec<Get> {
    let names = query.detail == Detail::Names;
    let path = &query.path;
    match (query.scope, query.window) {
        (Scope::Node, _) => {
            query.nodes_asked().map(|path| Get::new(key::only(path), names)).collect()
        }
        (Scope::Children, Some(window)) => {
            let range = key::children(path, &query.prefix);
            vec![Get { window: Some(window), ..Get::new(range, names) }]
        }
        // Keys below a child imply the child, which may be a container.
        (Scope::Children, None) if names && query.prefix.is_empty() => {
            vec![Get::new(key::below(path), true)]
        }
        (Scope::Children, None) => {
            let deeper = key::grandchildren(path, &query.prefix).into_iter();
            let children = Get::new(key::children(path, &query.prefix), names);
            std::iter::once(children).chain(deeper.map(|range| Get::new(range, true))).collect()
        }
        (Scope::Subtree, _) => {
            vec![Get::new(key::only(path), names), Get::new(key::below(path), names)]
        }
    }
}

/// The view from etcd's answers to [`gets`].
pub(crate) fn view(query: &Query, revision: i64, answers: Vec<Vec<PbKeyValue>>) -> View {
    let kvs = answers.into_iter().flatten();
    let mut nodes: Vec<Node> = match (query.scope, query.window) {
        (Scope::Node, _) if !query.more.is_empty() => {
            kvs.filter_map(|kv| asked(query, kv)).collect()
        }
        // The root has no key, and a key of another program at its place is no node.
        (Scope::Node, _) if query.path.is_root() => Vec::new(),
        (Scope::Node, _) => kvs.take(1).map(|kv| as_node(query.path.clone(), kv)).collect(),
        (Scope::Children, Some(window)) => through(window, kvs.filter_map(child)),
        (Scope::Children, None) => kvs.filter_map(|kv| child_or_container(query, kv)).collect(),
        (Scope::Subtree, _) => kvs.flat_map(|kv| with_containers(&query.path, kv)).collect(),
    };
    if query.window.is_none() {
        // A node comes before its duplicate as a container, which is dropped.
        nodes.sort_by(|a, b| {
            a.path.cmp(&b.path).then_with(|| b.stat.is_some().cmp(&a.stat.is_some()))
        });
        nodes.dedup_by(|a, b| a.path == b.path);
    }
    View::new(self::revision(revision), nodes)
}

/// The nodes in a window, oldest first.
fn through(window: Window, line: impl Iterator<Item = Node>) -> Vec<Node> {
    match window {
        Window::Oldest { count } => line.take(count).collect(),
        Window::Newest { count, before } => {
            let early = |node: &Node| before.is_none_or(|before| node.sequence < Some(before));
            let mut newest: Vec<Node> = line.filter(early).take(count).collect();
            newest.reverse();
            newest
        }
    }
}

/// One of several nodes that were asked for by their paths.
fn asked(query: &Query, kv: PbKeyValue) -> Option<Node> {
    let path = key::known(&kv.key).filter(|path| !path.is_root())?;
    query.nodes_asked().any(|asked| *asked == path).then(|| as_node(path, kv))
}

fn child_or_container(query: &Query, kv: PbKeyValue) -> Option<Node> {
    let path = key::known(&kv.key)?;
    let child = key::child(&query.path, &path)?;
    if !child.name().starts_with(&query.prefix) {
        return None;
    }
    Some(if child == path { as_child(path, kv) } else { Node::new(child) })
}

/// A node of a subtree, and the containers above it, up to the root of the subtree.
fn with_containers(root: &Path, kv: PbKeyValue) -> Vec<Node> {
    let Some(path) = key::known(&kv.key) else { return Vec::new() };
    let above = path.ancestors().take_while(|above| above.is_below(root)).map(Node::new);
    let mut nodes: Vec<Node> = above.collect();
    nodes.push(as_node(path, kv));
    nodes
}

fn child(kv: PbKeyValue) -> Option<Node> {
    Some(as_child(key::known(&kv.key)?, kv))
}

/// The node at a key, if the key is synod's.
pub(crate) fn node(kv: PbKeyValue) -> Option<Node> {
    Some(as_node(key::known(&kv.key)?, kv))
}

fn as_child(path: Path, kv: PbKeyValue) -> Node {
    let sequence = Sequence::new(number(kv.create_revision));
    as_node(path, kv).with_sequence(Some(sequence))
}

fn as_node(path: Path, kv: PbKeyValue) -> Node {
    let stat = stat(&kv);
    Node::new(path).with(Bytes::from(kv.value), stat)
}

pub(crate) fn stat(kv: &PbKeyValue) -> Stat {
    Stat::new(
        revision(kv.create_revision),
        revision(kv.mod_revision),
        version(kv.mod_revision),
        lease::owner(kv.lease),
    )
}

/// The version of a node is the revision of its last write.
pub(crate) fn version(modified: i64) -> Version {
    Version::new(number(modified))
}

pub(crate) fn version_of(modified: Revision) -> Version {
    Version::new(modified.get())
}

pub(crate) fn revision(number: i64) -> Revision {
    Revision::new(self::number(number))
}

/// etcd's numbers are signed, and never negative.
pub(crate) fn number(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kv(path: &str, created: i64) -> PbKeyValue {
        let key = key::of(Path::new(path).expect("valid"));
        PbKeyValue { key, create_revision: created, mod_revision: created, ..PbKeyValue::default() }
    }

    fn shown(view: &View) -> Vec<(&str, bool)> {
        view.nodes.iter().map(|node| (node.path.as_str(), node.stat.is_some())).collect()
    }

    fn dir() -> Path {
        Path::new("/d").expect("valid")
    }

    #[test]
    fn containers_are_named_once_and_nodes_are_not_taken_for_them() {
        let answers =
            vec![vec![kv("/d/a", 1), kv("/d/n", 2)], vec![kv("/d/c/x", 3), kv("/d/c/y/z", 4)]];
        let view = view(&Query::children(dir()), 9, answers);
        assert_eq!(shown(&view), [("/d/a", true), ("/d/c", false), ("/d/n", true)]);

        let answers = vec![vec![kv("/d", 1)], vec![kv("/d/a", 2), kv("/d/a/b/c", 3)]];
        let view = super::view(&Query::subtree(dir()), 9, answers);
        let expected = [("/d", true), ("/d/a", true), ("/d/a/b", false), ("/d/a/b/c", true)];
        assert_eq!(shown(&view), expected);
    }

    #[test]
    fn a_window_shows_so_many_oldest_first() {
        let line = || vec![vec![kv("/d/b", 3), kv("/d/a", 2), kv("/d/c", 1)]];
        let newest = |query: Query| {
            let view = view(&query, 9, line());
            view.nodes
                .iter()
                .filter_map(|node| node.sequence)
                .map(Sequence::get)
                .collect::<Vec<_>>()
        };
        assert_eq!(newest(Query::children(dir()).newest(2)), [2, 3]);
        assert_eq!(newest(Query::children(dir()).newest_before(9, Sequence::new(3))), [1, 2]);
        assert_eq!(newest(Query::children(dir()).newest_before(9, Sequence::new(0))), [0_u64; 0]);
        assert_eq!(newest(Query::children(dir()).oldest(0)), [0_u64; 0]);
    }

    #[test]
    fn pages_with_data_begin_small_and_grow_with_what_came() {
        let [data] = &gets(&Query::children(dir()).oldest(9))[..] else { panic!("one range") };
        let names = &gets(&Query::children(dir()).names_only())[0];
        assert_eq!((data.first_page(1), names.first_page(1)), (64, 4_096));
        assert_eq!(
            (data.first_page(16), data.first_page(4_096), names.first_page(16)),
            (4, 1, 256)
        );

        let of = |count: usize, size: usize| {
            let one = PbKeyValue { value: vec![0; size], ..kv("/d/a", 1) };
            vec![one; count]
        };
        assert_eq!(data.next_page(&of(64, 10)), 256, "four times as many, as they are small");
        assert_eq!(data.next_page(&of(1_100, 10)), 4_400);
        assert_eq!(data.next_page(&of(60_000, 10)), 65_536, "however small they are");
        assert_eq!(data.next_page(&of(64, 1_000_000)), 4, "4 MiB are enough");
        assert_eq!(data.next_page(&of(1, 60_000_000)), 1);
        assert_eq!(names.next_page(&of(4_096, 0)), 65_536);
    }

    #[test]
    fn only_a_range_without_a_window_has_further_pages() {
        let is_paged = |query: Query| gets(&query).iter().map(Get::is_paged).collect::<Vec<_>>();
        assert_eq!(is_paged(Query::node(dir())), [false]);
        assert_eq!(is_paged(Query::subtree(dir())), [false, true]);
        assert_eq!(is_paged(Query::children(dir()).newest(2)), [false]);
        assert_eq!(is_paged(Query::children(dir()).names_only()), [true]);
    }

    #[test]
    fn a_page_begins_right_after_the_last_key_of_the_one_before() {
        let whole = &gets(&Query::children(dir()).names_only())[0];
        let last = kv("/d/m", 1).key;
        let rest = whole.rest(&last);
        assert_eq!(rest.range.key, [&last[..], &[0]].concat());
        assert_eq!(rest.range.end, whole.range.end);
        assert!(rest.keys_only && rest.is_paged());
    }

    #[test]
    fn a_limit_of_none_is_never_sent_as_zero() {
        assert_eq!([0, 1, 5].map(limit), [1, 1, 5]);
        assert_eq!(limit(usize::MAX), i64::MAX);
    }

    #[test]
    fn what_is_no_node_is_skipped() {
        let foreign = PbKeyValue { key: b"/d//\xff".to_vec(), ..PbKeyValue::default() };
        let other = PbKeyValue { key: b"/d/loose".to_vec(), ..PbKeyValue::default() };
        let answers = vec![vec![foreign.clone(), kv("/d/a", 1)], vec![other, foreign]];
        assert_eq!(shown(&view(&Query::children(dir()), 9, answers.clone())), [("/d/a", true)]);
        assert_eq!(shown(&view(&Query::subtree(dir()), 9, answers)), [("/d/a", true)]);
    }
}
