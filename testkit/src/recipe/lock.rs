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
use synod_recipes::lock::{
    CohortMutex, MultiGuard, MultiLock, Mutex, Owner, ReentrantGuard, ReentrantMutex, RwLock,
    Semaphore, UnfairLock,
};

use crate::edges;
use crate::recipe::edge::Takes;
use crate::recipe::proof::{Proof, held};
use crate::recipe::row::{Kind, Leaves, Part, Row, made};
use crate::recipe::usage::{Act, Call, LABEL, Use};

pub(super) const KIND: Kind = Kind {
    rows: &[MUTEX, RW_LOCK, SEMAPHORE, REENTRANT_MUTEX, COHORT_MUTEX, UNFAIR_LOCK, MULTI_LOCK],
    laws: &[
        ("L-MX-1", "no two contenders believe at the same time that they hold the lock"),
        (
            "L-MX-2",
            "the lock is granted to the first ticket only, by a fresh read, in a session that certainly lives",
        ),
        ("L-MX-3", "tokens increase in the order of grants, even if the directory is deleted"),
        (
            "L-MX-4",
            "a system that rejects lower tokens applies the writes of each holder without others in between",
        ),
        (
            "L-MX-5",
            "a guarded transaction is applied only while its guard is held, whatever the clocks do",
        ),
        ("L-MX-6", "when the session of a holder is lost, a waiter is granted the lock"),
        ("L-MX-7", "every waiter that waits long enough is granted the lock"),
        ("L-MX-8", "the lock is granted in the order of the requests"),
        ("L-MX-9", "a contender that ended leaves no node in the wait queue"),
        ("L-MX-10", "a waiter with a timeout returns in time, and is not granted the lock later"),
        ("L-MX-11", "a release removes its own ticket and no other"),
        ("L-MX-12", "two tasks of one process exclude each other"),
        (
            "L-MX-13",
            "an owner may acquire the lock again, until all its guards are released; no other owner may",
        ),
        ("L-MX-14", "a release notifies few waiters, independently of their number"),
        ("L-MX-15", "a failed release continues until the ticket is removed"),
        ("L-MX-16", "a dropped guard releases what it held"),
        (
            "L-MX-17",
            "locks of other programs on the same path exclude ours, and ours theirs, in order",
        ),
        ("L-MX-18", "foreign nodes in the directory are neither granted the lock nor waited for"),
        ("L-RW-1", "a writer holds the lock alone; a reader shares it with readers only"),
        ("L-RW-2", "a reader waits for all earlier writers, a writer for all earlier contenders"),
        ("L-RW-3", "a reader waits for an earlier writer that itself waits"),
        ("L-RW-4", "no other writer is granted the lock during a downgrade"),
        ("L-RW-5", "an upgrade from a read guard to a write guard is rejected"),
        ("L-RW-6", "a writer is granted the lock when the last earlier reader releases it"),
        ("L-RW-7", "the mode of a ticket is not derived from its label"),
        ("L-RW-8", "the token of a writer is larger than all earlier tokens"),
        ("L-SEM-1", "the number of held permits never exceeds the limit"),
        ("L-SEM-2", "a new limit applies to every later grant"),
        ("L-SEM-3", "a request for several permits gets all or none"),
        ("L-SEM-4", "a failed request holds no permit"),
        ("L-SEM-5", "the permits of a lost session are free"),
        ("L-SEM-6", "a request for many permits is not overtaken by later requests for few"),
        ("L-SEM-7", "a request for more permits than the limit is rejected without a wait"),
        (
            "L-SEM-8",
            "a request that requires the same limit fails while an earlier one has another limit",
        ),
    ],
    kept: &[
        ("a_use_dropped_at_any_await_leaves_nothing", "L-MX-9"),
        ("a_wait_dropped_at_any_await_leaves_nothing", "L-MX-9"),
        ("a_wait_that_was_given_up_leaves_no_watch", "L-MX-10"),
        ("a_process_that_ends_at_any_call_is_outlived", "L-MX-6 L-SEM-5 L-RW-6"),
        ("what_a_lost_session_held_is_granted_to_the_next", "L-MX-6 L-MX-3 L-MX-5 L-SEM-5 L-RW-6"),
        ("a_wait_goes_on_in_the_next_session", "L-MX-2 L-MX-7"),
        ("a_wait_whose_way_was_cleared_while_it_had_no_session_ends", "L-MX-7"),
        ("a_wait_ends_when_its_client_is_closed", "L-MX-9"),
        ("a_use_without_answers_from_any_call_on_fails_in_time", "L-MX-10"),
        ("a_foreign_node_next_to_it_is_ignored", "L-MX-18"),
    ],
};

/// The common parts of recipes with tickets in one directory.
const LINE: Row = Row {
    name: "",
    module: "",
    cases: "",
    stair: Some("line"),
    make: |_, _| made(()),
    shown: "",
    leaves: Leaves::Nothing,
    dirs: &[""],
    takes: Takes::NONE,
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

const MUTEX: Row = Row {
    name: "Mutex",
    module: "mutex",
    cases: "mutex",
    make: |client, path| made(mutex(&client, &path)),
    shown: "Mutex { line: /shown }",
    takes: edges::lock::MUTEX,
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

const RW_LOCK: Row = Row {
    name: "RwLock",
    module: "rwlock",
    cases: "rwlock",
    make: |client, path| made(rwlock(&client, &path)),
    shown: "RwLock { reading: /shown, writing: /shown }",
    takes: edges::lock::RW_LOCK,
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

const SEMAPHORE: Row = Row {
    name: "Semaphore",
    module: "semaphore",
    cases: "semaphore",
    make: |client, path| made(semaphore(&client, &path)),
    shown: "Semaphore { line: /shown }",
    takes: edges::lock::SEMAPHORE,
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

/// All permits, requested together.
const TWO: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

fn semaphore(client: &Client, path: &Path) -> Semaphore {
    Semaphore::new(client, path, TWO).label(LABEL)
}

const UNFAIR_LOCK: Row = Row {
    name: "UnfairLock",
    module: "unfair_lock",
    make: |client, path| made(unfair(&client, &path)),
    shown: "UnfairLock { line: /shown }",
    takes: edges::lock::UNFAIR_LOCK,
    uses: &[exclusive("unfair_lock", |client, path| {
        held(async move { unfair(&client, &path).lock().await })
    })],
    cases: "cohort_mutex",
    workloads: Part::Has(&["unfair"]),
    ..LINE
};

fn unfair(client: &Client, path: &Path) -> UnfairLock {
    UnfairLock::new(client, path).label(LABEL)
}

const COHORT_MUTEX: Row = Row {
    name: "CohortMutex",
    module: "cohort_mutex",
    cases: "cohort_mutex",
    make: |client, path| made(passing(&client, &path)),
    shown: "CohortMutex { line: /shown, max_passes: 1, here: Handover { .. } }",
    takes: edges::lock::COHORT_MUTEX,
    uses: &[exclusive("cohort_mutex", |client, path| {
        held(async move { passing(&client, &path).lock().await })
    })],
    workloads: Part::Has(&["passing"]),
    bench: Part::Has(&["LockTasks"]),
    ..LINE
};

fn passing(client: &Client, path: &Path) -> CohortMutex {
    CohortMutex::new(client, path, NonZeroU32::MIN).label(LABEL)
}

const REENTRANT_MUTEX: Row = Row {
    name: "ReentrantMutex",
    module: "reentrant_mutex",
    cases: "reentrant_mutex",
    make: |client, path| made(reentrant(&client, &path)),
    shown: "ReentrantMutex { line: /shown, owners: Owners { .. } }",
    takes: edges::lock::REENTRANT_MUTEX,
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

/// The guards of an owner that acquired a lock twice.
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

const MULTI_LOCK: Row = Row {
    name: "MultiLock",
    module: "multi_lock",
    cases: "multi_lock",
    make: |client, path| made(multi(&client, &path).expect("two paths")),
    shown: "MultiLock { lines: [/shown/a, /shown/b] }",
    dirs: &["a", "b"],
    takes: edges::lock::MULTI_LOCK,
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
    Ok(MultiLock::new(client, [path.join("b")?, path.join("a")?]).label(LABEL))
}

/// The guards of several locks.
#[derive(Debug)]
struct Several(MultiGuard);

impl Proof for Several {
    fn guard(&self) -> &dyn Held {
        &self.0.guards()[1]
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
