//! Translates a [`Query`] into ranges of etcd, and keys into nodes.

use bytes::Bytes;
use etcd_client::proto::PbKeyValue;
use etcd_client::{GetOptions, SortOrder, SortTarget, TxnOp};
use synod_core::path::Path;
use synod_core::store::{Detail, Node, Query, Revision, Scope, Sequence, Stat, Version, Window};

use crate::key::{self, Range};
use crate::lease;

/// Keys without data per request.
pub(crate) const PAGE: i64 = 4_096;
/// Nodes with data in the first request. The largest nodes that this crate writes fit into one
/// answer.
const DATA_PAGE: i64 = 64;
/// The target size of a further page, in bytes.
const PAGE_BYTES: usize = 4 << 20;
/// The most keys in a further page.
const MOST: i64 = 65_536;
/// Nodes with data in a follow-up read. The answer to a commit, with its read, must not be too
/// large to be received.
const LOOK_PAGE: i64 = 32;

/// Approximate bytes that etcd adds to a key and its value.
const KEY_BYTES: usize = 32;

/// One range of a query.
#[derive(Clone, Debug)]
pub(crate) struct Get {
    pub(crate) range: Range,
    keys_only: bool,
    window: Option<Window>,
}

impl Get {
    fn new(range: Range, keys_only: bool) -> Self {
        Self { range, keys_only, window: None }
    }

    /// The number of keys in the first request, divided by `less`.
    pub(crate) fn first_page(&self, less: i64) -> i64 {
        let page = if self.keys_only { PAGE } else { DATA_PAGE };
        (page / less).max(1)
    }

    /// The number of keys in the request after a page of `page` keys: as many as should fit, given
    /// the sizes of the previous answer.
    pub(crate) fn next_page(&self, page: i64, came: &[PbKeyValue]) -> i64 {
        let size = |kv: &PbKeyValue| kv.key.len() + kv.value.len() + KEY_BYTES;
        if came.is_empty() {
            return page;
        }
        let average = (came.iter().map(size).sum::<usize>() / came.len()).max(1);
        let fits = i64::try_from(PAGE_BYTES / average).unwrap_or(MOST);
        // The next keys may be larger.
        let most = if self.keys_only { MOST } else { page.saturating_mul(4).min(MOST) };
        fits.clamp(1, most)
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
                    // Zero would mean any revision; before the first revision there is nothing: see
                    // `view`.
                    Some(before) => options.with_max_create_revision(before_this(before).max(1)),
                    None => options,
                }
            }
        };
        (self.range.key.clone(), options)
    }

    /// The operation for the follow-up read of a transaction.
    pub(crate) fn look(&self) -> TxnOp {
        let (key, options) = self.options(if self.keys_only { PAGE } else { LOOK_PAGE });
        TxnOp::get(key, Some(options))
    }

    /// A part of the range.
    pub(crate) fn part(&self, range: Range) -> Self {
        Self { range, ..self.clone() }
    }

    /// Returns `true` if the range may need more than one request.
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

/// The node at a key, if the key is synod's.
pub(crate) fn node(kv: PbKeyValue) -> Option<Node> {
    Some(as_node(key::known(&kv.key)?, kv))
}

pub(crate) fn as_child(path: Path, kv: PbKeyValue) -> Node {
    let sequence = Sequence::new(number(kv.create_revision));
    as_node(path, kv).with_sequence(Some(sequence))
}

pub(crate) fn as_node(path: Path, kv: PbKeyValue) -> Node {
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

    fn dir() -> Path {
        Path::new("/d").expect("valid")
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
            vec![PbKeyValue { value: vec![0; size], ..PbKeyValue::default() }; count]
        };
        assert_eq!(data.next_page(64, &of(64, 10)), 256, "four times as many, as they are small");
        assert_eq!(data.next_page(1_100, &of(1_100, 10)), 4_400);
        assert_eq!(data.next_page(60_000, &of(60_000, 10)), 65_536, "however small they are");
        assert_eq!(data.next_page(64, &of(64, 1_000_000)), 4, "4 MiB are enough");
        assert_eq!(data.next_page(64, &of(1, 60_000_000)), 1);
        assert_eq!(names.next_page(4_096, &of(4_096, 0)), 65_536);
        let few = [data.next_page(1_100, &[]), data.next_page(1_100, &of(1, 10))];
        assert_eq!(few, [1_100, 4_400], "less may come than fits");
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
    fn a_limit_of_none_is_never_sent_as_zero() {
        assert_eq!([0, 1, 5].map(limit), [1, 1, 5]);
        assert_eq!(limit(usize::MAX), i64::MAX);
    }
}
