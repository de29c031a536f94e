//! The arguments of the recipes that keep a local copy.

use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_recipes::cache::{Cache, Extent, TypedCache, Watched};
use synod_recipes::partition::HashRing;
use synod_recipes::presence::Group;

use crate::recipe::edge::{Takes, Trap, accepted, check, first, ignore_panic, later, to};

pub(crate) const CACHE: Takes = Takes {
    numbers: &[first("depth", |client, path, levels| {
        Box::pin(async move {
            let below = path.join("a")?.join("b")?;
            let cache = Cache::open(&client, Extent::subtree(&path).depth(to(levels)?)).await?;
            client.put(&below, "").await?;
            let cache = (cache, accepted(Cache::open(&client, &path)).await?).1;
            check(cache.get(&below).is_some(), "reading a cache", &path)
        })
    })],
    functions: &[
        later("filtered", |client, path, trap| {
            Box::pin(async move {
                client.put(&path.join("a")?, "").await?;
                let filtered = |trap: Trap| {
                    Extent::subtree(&path).filtered(move |_path| {
                        trap.spring();
                        true
                    })
                };
                ignore_panic(opened(&client, filtered(trap))).await;
                opened(&client, filtered(Trap::disarmed())).await
            })
        }),
        later("open_with", |client, path, trap| {
            Box::pin(async move {
                client.put(&path, "1").await?;
                let parse = move |_data: &[u8]| {
                    trap.spring();
                    Ok::<_, Error>(1)
                };
                let cache = TypedCache::open_with(&client, &path, parse).await?;
                let _panicked = cache.get(&path).is_some_and(|value| value.is_err());
                let cache =
                    TypedCache::open_with(&client, &path, |_data| Ok::<_, Error>(1)).await?;
                check(cache.get(&path).is_some_and(|value| value.is_ok()), "reading a cache", &path)
            })
        }),
    ],
    ..Takes::NONE
};

/// Opens a cache that requires its node.
async fn opened(client: &Client, extent: Extent) -> Result<()> {
    let cache = Cache::open(client, extent).await?;
    if cache.snapshot().is_empty() {
        return Err(Error::new(ErrorKind::Backend, "reading a cache"));
    }
    Ok(())
}

pub(crate) const WATCHED: Takes = Takes {
    functions: &[later("open_with", |client, path, trap| {
        Box::pin(async move {
            client.put(&path, "1").await?;
            let parse = move |_data: &[u8]| {
                trap.spring();
                Ok::<_, Error>(1)
            };
            ignore_panic(Watched::open_with(&client, &path, parse.clone())).await;
            Watched::open_with(&client, &path, parse).await.map(drop)
        })
    })],
    ..Takes::NONE
};

pub(crate) const HASH_RING: Takes = Takes {
    numbers: &[later("owners", |client, path, count| {
        Box::pin(async move {
            let (count, member) = (to(count)?, Group::new(&client, &path).join("").await?);
            let ring = HashRing::open(&client, &path).await?;
            let owners = ring.owners("key", count);
            check(owners.len() == count.min(1), "finding the members of a key", &path)?;
            accepted(member.leave()).await
        })
    })],
    functions: &[later("open_weighted", |client, path, trap| {
        Box::pin(async move {
            let member = Group::new(&client, &path).join("").await?;
            let weigh = move |_data: &[u8]| {
                trap.spring();
                1
            };
            ignore_panic(HashRing::open_weighted(&client, &path, weigh.clone())).await;
            let ring = HashRing::open_weighted(&client, &path, weigh).await?;
            check(ring.owner("key").is_some(), "finding the member of a key", &path)?;
            accepted(member.leave()).await
        })
    })],
    ..Takes::NONE
};
