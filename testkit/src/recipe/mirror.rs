//! The rows of the recipes that keep a local copy.

use std::fmt::Debug;

use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_recipes::cache::{Cache, Watched};
use synod_recipes::partition::HashRing;

use crate::edges;
use crate::recipe::row::{Kind, Leaves, Part, Row};
use crate::recipe::usage::{Act, Use};

pub(super) const KIND: Kind = Kind {
    rows: &[CACHE, WATCHED, HASH_RING],
    laws: &[
        (
            "L-CA-1",
            "a cache has the content of the store, some time after the last change and the last outage",
        ),
        ("L-CA-2", "the view of a path in a cache never goes back"),
        (
            "L-CA-3",
            "the events of a cache turn an empty map into its content, and each event is consistent with those before it",
        ),
        (
            "L-CA-4",
            "a cache reports once after its start and after each outage that it is complete, and then is",
        ),
        ("L-CA-5", "a cache that may miss changes reports it, and keeps its content"),
        (
            "L-CA-6",
            "a slow reader of a cache needs limited memory, eventually has the content, and blocks no other reader",
        ),
        (
            "L-CA-7",
            "a watched value is the last one that could be read, and tells whether the store still has it",
        ),
        ("L-CA-8", "while a cache loads, it reports the number of nodes read and the number known"),
        ("L-CA-9", "the events of a path are in the order of its writes"),
        (
            "L-CA-10",
            "a cache reports nothing after its end, and every waiter is notified of the end",
        ),
        ("L-CA-11", "a cache has one watch, and no watch or task after its end"),
        (
            "L-CA-12",
            "a filter or a reader of a cache that is slow, panics, or calls the cache blocks and fails no other reader",
        ),
        (
            "L-CA-13",
            "a cache of values decodes each version of a node once, and a node that is no value affects no other",
        ),
        (
            "L-HR-1",
            "after any fault every client finds the same member for a key, given the same members",
        ),
        ("L-HR-2", "when a member joins or leaves, only its own keys change their owner"),
        ("L-HR-3", "a ring whose group may have changed reports it, and keeps the last members"),
        ("L-HR-4", "the shares of the keys follow the weights in the data of the members"),
    ],
    kept: &[],
};

const CACHE: Row = Row {
    name: "Cache",
    module: "cache",
    cases: "cache",
    stair: Some("mirror"),
    make: |client, path| {
        Box::pin(async move {
            let cache = Cache::start(&client, path);
            Ok(Box::new(cache) as Box<dyn Debug + Send>)
        })
    },
    shown: "Cache { mirror: /shown, .. }",
    leaves: Leaves::Nothing,
    dirs: &[""],
    takes: edges::mirror::CACHE,
    uses: &[Use {
        name: "cache",
        act: Act::Change {
            change: |client, path| Box::pin(async move { opens_twice(&client, &path).await }),
            measured: false,
        },
        outlasts: true,
    }],
    workloads: Part::Has(&["cache"]),
    faults: Part::None("its processes hold nothing; the simulator has the same faults"),
    interop: Part::None("it stores nothing, and reads what any program has written"),
    bench: Part::None("a read of it is one of a map; the loads of large trees are in its page"),
    family: Some("mirrors"),
};

async fn opens_twice(client: &Client, path: &Path) -> Result<()> {
    for _ in 0..2 {
        let cache = Cache::open(client, path).await?;
        if cache.get(path).is_some() {
            return Err(Error::new(ErrorKind::Backend, "reading a cache").at(path));
        }
    }
    Ok(())
}

const WATCHED: Row = Row {
    name: "Watched",
    module: "watched",
    cases: "watched",
    make: |client, path| {
        Box::pin(async move {
            let watched = Watched::<u64>::open(&client, path).await?;
            Ok(Box::new(watched) as Box<dyn Debug + Send>)
        })
    },
    shown: "Watched { mirror: /shown, .. }",
    takes: edges::mirror::WATCHED,
    uses: &[Use {
        name: "watched",
        act: Act::Change {
            change: |client, path| {
                Box::pin(async move { Watched::<u64>::open(&client, path).await.map(drop) })
            },
            measured: false,
        },
        outlasts: true,
    }],
    bench: Part::None("a read of it is one of memory"),
    ..CACHE
};

const HASH_RING: Row = Row {
    name: "HashRing",
    module: "hash_ring",
    cases: "hash_ring",
    make: |client, path| {
        Box::pin(async move {
            let ring = HashRing::open(&client, path).await?;
            Ok(Box::new(ring) as Box<dyn Debug + Send>)
        })
    },
    shown: "HashRing { mirror: /shown, .. }",
    takes: edges::mirror::HASH_RING,
    uses: &[Use {
        name: "hash_ring",
        act: Act::Change {
            change: |client, path| {
                Box::pin(async move { HashRing::open(&client, path).await.map(drop) })
            },
            measured: false,
        },
        outlasts: true,
    }],
    workloads: Part::Has(&["hash_ring"]),
    bench: Part::None("a question to it is a search in memory"),
    ..CACHE
};
