//! Mistakes about the age of an answer, and its completeness.

use std::time::Duration;

use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::{Detail, Freshness, Query, Scope, View};
use tokio::time::Instant;

use crate::wrong::mistake::Mistake;
use crate::wrong::shared::pause;
use crate::wrong::store::WrongStore;

pub(super) async fn read(store: &WrongStore, query: &Query) -> Result<Option<View>> {
    let one = query.scope == Scope::Node;
    let view = match store.mistake() {
        Some(Mistake::LatestLags) if one => store.honest_read(query.clone().local()).await,
        Some(Mistake::ListingLags) if !one => store.honest_read(query.clone().local()).await,
        Some(
            Mistake::LocalLagsOwnWrites | Mistake::LocalBehindLatest | Mistake::LocalBehindEvents,
        ) => cached(store, query).await,
        Some(Mistake::NodesReadOneByOne) if !query.more.is_empty() => {
            one_by_one(store, query).await
        }
        Some(Mistake::LocalGoesBack) => turned_back(store, query).await,
        Some(Mistake::LocalGoesBackAfterOutage) => forgetful(store, query).await,
        Some(Mistake::RevisionAhead) => {
            let view = store.honest_read(query.clone()).await?;
            pause().await;
            let later = store.honest_read(query.clone()).await?;
            Ok(View::new(later.revision, view.nodes))
        }
        Some(Mistake::NamesCarryData) => {
            let mut query = query.clone();
            query.detail = Detail::Data;
            store.honest_read(query).await
        }
        Some(Mistake::ProgressOfEachRequest) => {
            for read in [2, 1] {
                query.report(read, 1);
                pause().await;
            }
            store.honest_read(query.clone()).await
        }
        Some(Mistake::MissingIsError) if !one => found(store, query).await,
        Some(Mistake::EmptyIsAbsent) if one && query.detail == Detail::Data => {
            let mut view = store.honest_read(query.clone()).await?;
            view.nodes.retain(|node| !node.data.is_empty());
            Ok(view)
        }
        _ => return Ok(None),
    };
    view.map(Some)
}

/// Answers from a cache, whose answers are valid for some time.
async fn cached(store: &WrongStore, query: &Query) -> Result<View> {
    if query.freshness == Freshness::Latest {
        let view = store.honest_read(query.clone()).await?;
        if !store.makes(Mistake::LocalBehindLatest) {
            store.past.forget();
        }
        return Ok(view);
    }
    let key = format!("{query:?}");
    if let Some(view) = store.past.lock().views.remove(&key).and_then(|mut views| views.pop()) {
        return Ok(view);
    }
    let view = store.honest_read(query.clone()).await?;
    store.past.lock().views.insert(key, vec![view.clone()]);
    Ok(view)
}

/// Reads each of several nodes in a separate call.
async fn one_by_one(store: &WrongStore, query: &Query) -> Result<View> {
    let mut all = View::default();
    for path in query.nodes_asked() {
        let mut one = query.clone();
        (one.path, one.more) = (path.clone(), Vec::new());
        let view = store.honest_read(one).await?;
        all.revision = view.revision;
        all.nodes.extend(view.nodes);
        pause().await;
    }
    Ok(all)
}

/// Returns the first local answer again, at every third local read.
async fn turned_back(store: &WrongStore, query: &Query) -> Result<View> {
    let view = store.honest_read(query.clone()).await?;
    if query.freshness == Freshness::Latest {
        return Ok(view);
    }
    let mut past = store.past.lock();
    let views = past.views.entry(format!("{query:?}")).or_default();
    views.push(view.clone());
    if views.len() < 3 {
        return Ok(view);
    }
    let first = views.swap_remove(0);
    views.clear();
    Ok(first)
}

/// After a silence, a local read returns the answer before the last.
async fn forgetful(store: &WrongStore, query: &Query) -> Result<View> {
    let silence: Duration = store.info.ttl / 8;
    let view = store.honest_read(query.clone()).await?;
    let mut past = store.past.lock();
    let before = past.last_call.replace(Instant::now());
    let latest = query.freshness == Freshness::Latest;
    past.forgetful =
        !latest && (past.forgetful || before.is_some_and(|before| before.elapsed() >= silence));
    let forgetful = past.forgetful;
    let views = past.views.entry(format!("{:?} {}", query.scope, query.path)).or_default();
    if latest {
        views.push(view.clone());
    }
    let old = views.len().checked_sub(2).map(|index| views[index].clone());
    Ok(old.filter(|_| forgetful).unwrap_or(view))
}

async fn found(store: &WrongStore, query: &Query) -> Result<View> {
    let view = store.honest_read(query.clone()).await?;
    if view.nodes.is_empty() && !query.path.is_root() {
        let itself = store.honest_read(Query::node(&query.path).names_only()).await?;
        if itself.nodes.is_empty() {
            return Err(Error::new(ErrorKind::Backend, "read").at(&query.path).because("no node"));
        }
    }
    Ok(view)
}
