//! The rows of the locks.

use std::future::pending;
use std::num::NonZeroU32;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::held::Held;
use synod_core::path::Path;
use synod_core::store::Txn;
use synod_recipes::{
    MultiGuard, MultiLock, Mutex, Owner, PassingMutex, ReentrantGuard, ReentrantMutex, RwLock,
    Semaphore, UnfairLock,
};

use crate::recipe::proof::{Proof, held};
use crate::recipe::row::{Leaves, Part, Row, made};
use crate::recipe::usage::{Act, Call, LABEL, Use};

/// What holds for a recipe with tickets in one directory.
const LINE: Row = Row {
    name: "",
    module: "",
    cases: "",
    stair: Some("line"),
    make: |_, _| made(()),
    shown: "",
    leaves: Leaves::Nothing,
    dirs: &[""],
    uses: &[],
    workloads: Part::Has(&[]),
    faults: Part::None("its tickets are those of `Mutex`"),
    interop: Part::None("no other library has it; its tickets are those of `Mutex`"),
    bench: Part::None("its calls are those of `Mutex`"),
    family: Some("locks"),
};

const fn exclusive(name: &'static str, take: Call<Box<dyn Proof>>) -> Use {
    Use { name, act: Act::Hold { take, rival: take, measured: true }, outlasts: false }
}

pub(super) const MUTEX: Row = Row {
    name: "Mutex",
    module: "mutex",
    cases: "mutex",
    make: |client, path| made(mutex(&client, &path)),
    shown: "Mutex { line: /shown }",
    uses: &[
        exclusive("mutex", |client, path| held(async move { mutex(&client, &path).lock().await })),
        Use {
            name: "mutex/enqueue",
            act: Act::Hold {
                take: |client, path| {
                    held(async move { mutex(&client, &path).enqueue().await?.wait().await })
                },
                rival: |client, path| held(async move { mutex(&client, &path).lock().await }),
                measured: false,
            },
            outlasts: false,
        },
    ],
    workloads: Part::Has(&["mutex", "revocable"]),
    faults: Part::Has(&["Mutex"]),
    interop: Part::Has(&[
        "a_mutex_is_shared_in_order",
        "a_holder_that_dies_is_succeeded",
        "a_lock_is_asked_back",
    ]),
    bench: Part::Has(&["Lock", "LockContended", "Drain"]),
    ..LINE
};

fn mutex(client: &Client, path: &Path) -> Mutex {
    Mutex::new(client, path).label(LABEL)
}

pub(super) const RW_LOCK: Row = Row {
    name: "RwLock",
    module: "rwlock",
    cases: "rwlock",
    make: |client, path| made(rwlock(&client, &path)),
    shown: "RwLock { reading: /shown, writing: /shown }",
    uses: &[
        Use {
            name: "rwlock_read",
            act: Act::Hold { take: READ, rival: WRITE, measured: true },
            outlasts: false,
        },
        Use {
            name: "rwlock_write",
            act: Act::Hold { take: WRITE, rival: READ, measured: true },
            outlasts: false,
        },
        Use {
            name: "rwlock/downgraded",
            act: Act::Hold {
                take: |client, path| {
                    held(async move { rwlock(&client, &path).write().await?.downgrade().await })
                },
                rival: READ,
                measured: false,
            },
            outlasts: false,
        },
    ],
    workloads: Part::Has(&["rwlock"]),
    faults: Part::Has(&["RwLock"]),
    interop: Part::Has(&[
        "a_read_write_lock_is_shared",
        "a_writer_that_downgrades_keeps_its_place",
        "a_writer_that_dies_is_succeeded",
    ]),
    bench: Part::Has(&["ReadWrite"]),
    ..LINE
};

const READ: Call<Box<dyn Proof>> =
    |client, path| held(async move { rwlock(&client, &path).read().await });
const WRITE: Call<Box<dyn Proof>> =
    |client, path| held(async move { rwlock(&client, &path).write().await });

fn rwlock(client: &Client, path: &Path) -> RwLock {
    RwLock::new(client, path).label(LABEL)
}

pub(super) const SEMAPHORE: Row = Row {
    name: "Semaphore",
    module: "semaphore",
    cases: "semaphore",
    make: |client, path| made(semaphore(&client, &path)),
    shown: "Semaphore { line: /shown }",
    uses: &[exclusive("semaphore", |client, path| {
        held(async move { semaphore(&client, &path).acquire_many(TWO.get()).await })
    })],
    workloads: Part::Has(&["semaphore"]),
    faults: Part::Has(&["Semaphore"]),
    interop: Part::Has(&[
        "a_semaphore_is_shared_in_order",
        "a_holder_that_dies_with_a_permit_frees_it",
    ]),
    bench: Part::Has(&["Semaphore"]),
    ..LINE
};

/// All permits, which are requested at once.
const TWO: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

fn semaphore(client: &Client, path: &Path) -> Semaphore {
    Semaphore::new(client, path, TWO).label(LABEL)
}

pub(super) const UNFAIR_LOCK: Row = Row {
    name: "UnfairLock",
    module: "unfair_lock",
    make: |client, path| made(unfair(&client, &path)),
    shown: "UnfairLock { line: /shown }",
    uses: &[exclusive("unfair_lock", |client, path| {
        held(async move { unfair(&client, &path).lock().await })
    })],
    cases: "passing_mutex",
    workloads: Part::Has(&["unfair"]),
    ..LINE
};

fn unfair(client: &Client, path: &Path) -> UnfairLock {
    UnfairLock::new(client, path).label(LABEL)
}

pub(super) const PASSING_MUTEX: Row = Row {
    name: "PassingMutex",
    module: "passing_mutex",
    cases: "passing_mutex",
    make: |client, path| made(passing(&client, &path)),
    shown: "PassingMutex { line: /shown, most: 1, here: Handover { .. } }",
    uses: &[exclusive("passing_mutex", |client, path| {
        held(async move { passing(&client, &path).lock().await })
    })],
    workloads: Part::Has(&["passing"]),
    bench: Part::Has(&["LockTasks"]),
    ..LINE
};

fn passing(client: &Client, path: &Path) -> PassingMutex {
    PassingMutex::new(client, path, NonZeroU32::MIN).label(LABEL)
}

pub(super) const REENTRANT_MUTEX: Row = Row {
    name: "ReentrantMutex",
    module: "reentrant_mutex",
    cases: "reentrant_mutex",
    make: |client, path| made(reentrant(&client, &path)),
    shown: "ReentrantMutex { line: /shown, owners: Owners { .. } }",
    uses: &[exclusive("reentrant_mutex", |client, path| {
        async move {
            let (mutex, owner) = (reentrant(&client, &path), Owner::new());
            let (outer, inner) = (mutex.lock(&owner).await?, mutex.lock(&owner).await?);
            Ok(Box::new(Twice { outer, inner }) as Box<dyn Proof>)
        }
        .boxed()
    })],
    workloads: Part::Has(&["reentrant"]),
    ..LINE
};

fn reentrant(client: &Client, path: &Path) -> ReentrantMutex {
    ReentrantMutex::new(client, path).label(LABEL)
}

/// What an owner holds that acquired a lock twice.
#[derive(Debug)]
struct Twice {
    outer: ReentrantGuard,
    inner: ReentrantGuard,
}

impl Proof for Twice {
    fn guard(&self) -> &dyn Held {
        &self.inner
    }

    fn is_held(&self) -> bool {
        self.outer.is_held() && self.inner.is_held()
    }

    fn txn(&self) -> Txn {
        self.outer.txn()
    }

    fn work(&mut self) -> BoxFuture<'_, Result<()>> {
        self.inner.run(pending()).boxed()
    }

    fn release(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async {
            let outer = self.outer.release().await;
            self.inner.release().await.and(outer)
        }
        .boxed()
    }
}

pub(super) const MULTI_LOCK: Row = Row {
    name: "MultiLock",
    module: "multi_lock",
    cases: "multi_lock",
    make: |client, path| made(multi(&client, &path).expect("two paths")),
    shown: "MultiLock { lines: [/shown/a, /shown/b] }",
    dirs: &["a", "b"],
    uses: &[exclusive("multi_lock", |client, path| {
        async move {
            let guard = multi(&client, &path)?.lock().await?;
            Ok(Box::new(Several(guard)) as Box<dyn Proof>)
        }
        .boxed()
    })],
    workloads: Part::Has(&["multi"]),
    ..LINE
};

fn multi(client: &Client, path: &Path) -> Result<MultiLock> {
    let both = ["b", "a"].map(|name| path.join(name).expect("the names are valid"));
    Ok(MultiLock::new(client, both)?.label(LABEL))
}

/// What is held of several locks.
#[derive(Debug)]
struct Several(MultiGuard);

impl Proof for Several {
    fn guard(&self) -> &dyn Held {
        &self.0.holds()[1]
    }

    fn is_held(&self) -> bool {
        self.0.is_held()
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        self.0.lost().boxed()
    }

    fn txn(&self) -> Txn {
        self.0.txn()
    }

    fn work(&mut self) -> BoxFuture<'_, Result<()>> {
        self.0.run(pending()).boxed()
    }

    fn release(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.0.release().boxed()
    }
}
