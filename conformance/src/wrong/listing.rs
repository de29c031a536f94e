//! Mistakes in listings.

use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::random::mix;
use synod_core::store::{Node, Query, Scope, Sequence, View, Window};

use crate::wrong::mistake::Mistake;
use crate::wrong::shared::pause;
use crate::wrong::store::WrongStore;

pub(super) async fn read(store: &WrongStore, query: &Query) -> Result<View> {
    let mut asked = query.clone();
    match (store.mistake(), query.scope) {
        (Some(Mistake::PrefixIgnored), _) => asked.prefix.clear(),
        (Some(Mistake::WindowBeforePrefix), _) if query.window.is_some() => asked.prefix.clear(),
        (Some(Mistake::NewestFromTheWrongEnd), _) => {
            if let Some(Window::Newest { count, before: None }) = query.window {
                asked.window = Some(Window::Oldest { count });
            }
        }
        (Some(Mistake::WindowIgnoresBefore), _) => {
            if let Some(Window::Newest { count, .. }) = query.window {
                asked.window = Some(Window::Newest { count, before: None });
            }
        }
        (Some(Mistake::ChildrenIncludeGrandchildren), Scope::Children)
            if query.window.is_none() =>
        {
            asked.scope = Scope::Subtree;
            asked.prefix.clear();
        }
        (Some(Mistake::ListingMixesRevisions), Scope::Children | Scope::Subtree) => {
            return by_pages(store, query).await;
        }
        _ => {}
    }
    let mut view = store.honest_read(asked).await?;
    match store.mistake() {
        Some(Mistake::PathTakenForPattern) => matching(store, query, &mut view).await?,
        Some(Mistake::RangeEndIncludesSibling) => alike(store, query, &mut view).await?,
        Some(mistake) => bent(mistake, query, &mut view.nodes),
        None => {}
    }
    Ok(view)
}

/// Applies the mistakes that need no other call.
fn bent(mistake: Mistake, query: &Query, nodes: &mut Vec<Node>) {
    const PAGE: usize = 65_536;
    let children = query.scope == Scope::Children;
    match mistake {
        Mistake::ListingUnsorted if query.window.is_none() => {
            nodes.sort_by_key(|node| hash(&node.path));
        }
        Mistake::TreeLeavesOutItsRoot if query.scope == Scope::Subtree => {
            nodes.retain(|node| node.path != query.path);
        }
        Mistake::ChildrenIncludeGrandchildren if children => nodes.retain(|node| {
            let name = node.path.as_str().strip_prefix(query.path.as_str()).unwrap_or_default();
            let name = name.trim_start_matches('/');
            node.stat.is_some() && !name.is_empty() && name.starts_with(&query.prefix)
        }),
        Mistake::WindowUnsorted if query.window.is_some() => {
            nodes.sort_by(|a, b| a.path.cmp(&b.path));
        }
        Mistake::WindowBeforePrefix if query.window.is_some() => {
            nodes.retain(|node| node.path.name().starts_with(&query.prefix));
        }
        Mistake::ListingTruncated => nodes.truncate(PAGE),
        Mistake::TreeLeavesOutContainers if query.scope == Scope::Subtree => {
            nodes.retain(|node| node.stat.is_some());
        }
        Mistake::ListingLeavesOutContainers => nodes.retain(|node| node.stat.is_some()),
        Mistake::ListingTellsOtherSequence if children => {
            for (place, node) in (0..).zip(nodes) {
                node.sequence = node.sequence.and(Some(Sequence::new(place)));
            }
        }
        Mistake::OwnerUntold if children => {
            nodes
                .iter_mut()
                .filter_map(|node| node.stat.as_mut())
                .for_each(|stat| stat.owner = None);
        }
        _ => {}
    }
}

fn hash(path: &Path) -> u64 {
    path.as_str().bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)))
}

/// The first half from one read, the second half from a later read.
async fn by_pages(store: &WrongStore, query: &Query) -> Result<View> {
    let mut view = store.honest_read(query.clone()).await?;
    pause().await;
    let later = store.honest_read(query.clone()).await?;
    if let Some(middle) = view.nodes.get(view.nodes.len() / 2).map(|node| node.path.clone()) {
        view.nodes.retain(|node| node.path < middle);
        view.nodes.extend(later.nodes.into_iter().filter(|node| node.path >= middle));
    }
    Ok(view)
}

/// Adds the nodes below each path that matches the query's path as an SQL LIKE pattern.
async fn matching(store: &WrongStore, query: &Query, view: &mut View) -> Result<()> {
    let Some(parent) = query.path.parent().filter(|_| query.scope != Scope::Node) else {
        return Ok(());
    };
    let beside = store.honest_read(Query::subtree(parent)).await?;
    let found = beside.nodes.into_iter().filter(|node| {
        let above = match query.scope {
            Scope::Children => node.path.parent(),
            _ => node.path.ancestors().find(|above| is_like(above, &query.path)),
        };
        above.is_some_and(|above| above != query.path && is_like(&above, &query.path))
            && node.path.name().starts_with(&query.prefix)
    });
    view.nodes.extend(found);
    view.nodes.sort_by(|a, b| a.path.cmp(&b.path));
    view.nodes.dedup_by(|a, b| a.path == b.path);
    Ok(())
}

/// Returns `true` if SQL finds `path LIKE pattern`: case-insensitive, `_` is any letter and `%` any
/// text.
pub(super) fn is_like(path: &Path, pattern: &Path) -> bool {
    fn like(text: &[u8], pattern: &[u8]) -> bool {
        match (text, pattern) {
            (_, []) => text.is_empty(),
            (_, [b'%', rest @ ..]) => (0..=text.len()).any(|skip| like(&text[skip..], rest)),
            ([], _) => false,
            ([_, text @ ..], [b'_', rest @ ..]) => like(text, rest),
            ([letter, text @ ..], [wanted, rest @ ..]) => {
                letter.eq_ignore_ascii_case(wanted) && like(text, rest)
            }
        }
    }
    like(path.as_str().as_bytes(), pattern.as_str().as_bytes())
}

/// Adds paths that only start with the same text as the query's path.
async fn alike(store: &WrongStore, query: &Query, view: &mut View) -> Result<()> {
    let Some(parent) = query.path.parent().filter(|_| query.scope != Scope::Node) else {
        return Ok(());
    };
    let siblings = Query::children(parent).starting_with(query.path.name());
    let mut siblings = store.honest_read(siblings).await?;
    siblings.nodes.retain(|node| node.path != query.path && node.stat.is_some());
    view.nodes.append(&mut siblings.nodes);
    view.nodes.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(())
}
