//! What every guard can do, for all recipes: check itself in a transaction, report its loss, and be
//! listed.

use std::future::pending;
use std::num::NonZeroU32;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use synod_core::client::Client;
use synod_core::error::{ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime, Txn};
use synod_recipes::{
    Election, Held, LeaderLatch, LeaderSelector, MultiLock, Mutex, Owner, PassingMutex,
    ReentrantMutex, RwLock, Semaphore, Term, Token, UnfairLock,
};
use tokio::sync::oneshot;

use crate::door::{answer, failure};
use crate::recipe::{Waiting, line};
use crate::world::World;

cases![
    "L-MX-5 L-EL-10" breaks [TxnUnguarded] => a_transaction_under_any_guard_needs_what_it_stands_for,
    "L-MX-5 L-EL-10 L-KV-9" breaks [TxnUnguarded] => a_transaction_under_several_guards_needs_each_of_them,
    "L-MX-1 L-EL-2 L-EL-7" breaks [RemovalUnnoticed] => any_guard_is_notified_when_its_ticket_is_deleted,
    "L-MX-8" breaks [SinceUntold] => any_holder_is_listed_with_its_token_and_label,
];

/// The label of every guard.
const LABEL: &str = "ann";

/// How a guard ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// It is released.
    Back,
    /// It is lost, and so is the work under it.
    Lost,
}

/// A guard, of any recipe.
struct Guard {
    recipe: &'static str,
    path: Path,
    token: Token,
    txns: [Txn; 2],
    end: Box<dyn FnOnce(End) -> BoxFuture<'static, Result<()>> + Send>,
}

impl Guard {
    fn of(recipe: &'static str, guard: impl Held + 'static) -> Self {
        let (path, token, txns) = (guard.path().clone(), guard.token(), [guard.txn(), guard.txn()]);
        let end = |end| async move {
            if end == End::Back {
                return guard.release().await;
            }
            loses(&guard).await
        };
        Self { recipe, path, token, txns, end: Box::new(|how| end(how).boxed()) }
    }
}

/// The result of work under the guard that never ends by itself, once the guard is lost.
async fn loses(held: &impl Held) -> Result<()> {
    let stopped = held.run(pending()).await;
    held.lost().await;
    assert!(!held.is_held(), "it is lost");
    stopped
}

/// One guard of each recipe, each at a path of its own.
async fn all(world: &World, client: &Client) -> Vec<Guard> {
    let at = |name| world.at(name);
    let mutex = |name| Mutex::new(client, at(name)).label(LABEL);
    let lock = |name| RwLock::new(client, at(name)).label(LABEL);
    let semaphore = Semaphore::new(client, at("semaphore"), NonZeroU32::MIN).label(LABEL);
    let unfair = UnfairLock::new(client, at("unfair")).label(LABEL);
    let passing = PassingMutex::new(client, at("passing"), NonZeroU32::MIN).label(LABEL);
    let election = Election::new(client, at("election"));
    let writing = answer(lock("downgraded").write().await);
    let mut all = vec![
        Guard::of("mutex", answer(mutex("mutex").lock().await)),
        Guard::of("try_lock", answer(mutex("try").try_lock().await).expect("free")),
        Guard::of("read", answer(lock("rwlock").read().await)),
        Guard::of("write", answer(lock("write").write().await)),
        Guard::of("downgraded", answer(writing.downgrade().await)),
        Guard::of("semaphore", answer(semaphore.acquire().await)),
        Guard::of("unfair", answer(unfair.lock().await)),
        Guard::of("passing", answer(passing.lock().await)),
        Guard::of("election", answer(election.campaign(LABEL).await)),
    ];
    all.push(reentrant(world, client).await);
    all.push(multi(world, client).await);
    all.push(latch(world, client).await);
    all.push(selector(world, client).await);
    all
}

async fn reentrant(world: &World, client: &Client) -> Guard {
    let mutex = ReentrantMutex::new(client, world.at("reentrant")).label(LABEL);
    let me = Owner::new();
    let (outer, inner) = (answer(mutex.lock(&me).await), answer(mutex.lock(&me).await));
    let (path, token, txns) = (inner.path().clone(), inner.token(), [outer.txn(), inner.txn()]);
    let end = |end| async move {
        if end == End::Back {
            outer.release().await?;
            return inner.release().await;
        }
        loses(&inner).await.inspect_err(|_| assert!(!outer.is_held()))
    };
    Guard { recipe: "reentrant", path, token, txns, end: Box::new(|how| end(how).boxed()) }
}

async fn multi(world: &World, client: &Client) -> Guard {
    let several = MultiLock::new(client, [world.at("multi/a"), world.at("multi/b")]);
    let guard = answer(answer(several).label(LABEL).lock().await);
    let (second, txns) = (&guard.holds()[1], [guard.txn(), guard.txn()]);
    let (path, token) = (second.path().clone(), second.token());
    let end = |end| async move {
        if end == End::Back {
            return guard.release().await;
        }
        let stopped = guard.run(pending()).await;
        guard.lost().await;
        assert!(!guard.is_held(), "one is lost");
        stopped
    };
    Guard { recipe: "multi", path, token, txns, end: Box::new(|how| end(how).boxed()) }
}

async fn latch(world: &World, client: &Client) -> Guard {
    let latch = LeaderLatch::new(client, world.at("latch")).label(LABEL);
    let candidacy = answer(latch.join().await);
    let lead = answer(candidacy.leading().await);
    let (path, token, txns) = (lead.path().clone(), lead.token(), [lead.txn(), lead.txn()]);
    let end = |end| async move {
        if end == End::Back {
            return candidacy.close().await;
        }
        loses(&*lead).await
    };
    Guard { recipe: "latch", path, token, txns, end: Box::new(|how| end(how).boxed()) }
}

async fn selector(world: &World, client: &Client) -> Guard {
    let selector = LeaderSelector::new(client, world.at("selector")).label(LABEL);
    let ((tell, told), (stop, stopped)) = (oneshot::channel(), oneshot::channel::<()>());
    let leading = Waiting::new(async move {
        let work = async |lead| {
            let _heard = tell.send(lead).is_ok();
            let _stops = stopped.await;
        };
        selector.lead(work).await
    });
    let lead = told.await.expect("there is no other candidate");
    let (path, token, txns) = (lead.path().clone(), lead.token(), [lead.txn(), lead.txn()]);
    let end = |end| async move {
        let Waiting { told, _task } = leading;
        if end == End::Lost {
            let lost = loses(&*lead).await;
            assert_eq!(answer(told.await.expect("it does not panic")), Term::Lost);
            return lost;
        }
        let _told = stop.send(()).is_ok();
        told.await.expect("it does not panic").map(|term| assert_eq!(term, Term::Done(())))
    };
    Guard { recipe: "selector", path, token, txns, end: Box::new(|how| end(how).boxed()) }
}

async fn a_transaction_under_any_guard_needs_what_it_stands_for(world: World) {
    let client = world.client().await;
    for guard in all(&world, &client).await {
        let (recipe, data) = (guard.recipe, world.at(&format!("data-{}", guard.recipe)));
        answer(answer(client.create(&data, "0", Lifetime::Persistent).await).required());
        let [good, late] = guard.txns.map(|txn| txn.set(data.clone(), "1", Expect::Any));

        let written = answer(client.transaction(good).await);
        assert!(written.committed().is_some(), "{recipe}: it is held");
        answer(world.in_time("the end of a guard", (guard.end)(End::Back)).await);
        let refused = answer(client.transaction(late).await);

        assert!(refused.rejected().is_some(), "{recipe}: it was given back");
    }
}

async fn a_transaction_under_several_guards_needs_each_of_them(world: World) {
    let (ann, bob, eve) = (world.client().await, world.client().await, world.client().await);
    let data = world.at("data");
    answer(ann.put(&data, "0").await);
    let lock = answer(Mutex::new(&ann, world.at("mutex")).lock().await);
    // Of another session of the same process.
    let read = answer(RwLock::new(&bob, world.at("rwlock")).read().await);
    let lead = answer(Election::new(&ann, world.at("election")).campaign(LABEL).await);
    let write = |data: &Path, to: &'static str| {
        let txn = lock.txn().under(&read).under(&lead);
        assert_eq!(txn.ops.len(), 3, "one check each");
        txn.set(data, to, Expect::Any)
    };

    let all = answer(ann.transaction(write(&data, "1")).await);
    assert!(all.committed().is_some(), "all are held");
    let removed = answer(eve.delete(read.path(), Expect::Any).await);
    assert!(removed.committed().is_some(), "it has a ticket");
    let late = answer(ann.transaction(write(&data, "2")).await);

    let rejected = late.rejected().expect("one of them is lost");
    assert_eq!((rejected.index, &rejected.path), (1, read.path()));
    assert_eq!(answer(ann.get(&data).await).expect("it was put").data, "1");
    let rest = Txn::new().under(&lock).under(&lead).set(&data, "3", Expect::Any);
    assert!(answer(ann.transaction(rest).await).committed().is_some(), "the others are held");
}

async fn any_guard_is_notified_when_its_ticket_is_deleted(world: World) {
    let (client, eve) = (world.client().await, world.client().await);
    for guard in all(&world, &client).await {
        let (recipe, data) = (guard.recipe, world.at(&format!("data-{}", guard.recipe)));

        let removed = answer(eve.delete(&guard.path, Expect::Any).await);
        assert!(removed.committed().is_some(), "{recipe} has a ticket");

        let [late, _] = guard.txns.map(|txn| txn.create(data.clone(), "", Lifetime::Persistent));
        assert!(answer(client.transaction(late).await).rejected().is_some(), "{recipe}");
        let lost = world.in_time("word of the loss", (guard.end)(End::Lost)).await;
        let error = failure(lost, "work under what is lost");
        assert_eq!(error.kind(), ErrorKind::SessionLost);
        assert!(!error.to_string().contains("under a lock"), "{recipe}: {error}");
    }
}

async fn any_holder_is_listed_with_its_token_and_label(world: World) {
    let (client, eve) = (world.client().await, world.client().await);
    for guard in all(&world, &client).await {
        let (recipe, dir) = (guard.recipe, guard.path.parent().expect("it stands in a line"));

        let told = line(&eve, &dir).await;

        let [one] = &told[..] else { panic!("{recipe}: {told:?}") };
        assert_eq!((&one.path, one.token), (&guard.path, guard.token), "{recipe}");
        assert_eq!((one.holds, one.since.is_some()), (Some(true), true), "{recipe}");
        assert_eq!(one.label, LABEL, "{recipe}");
        assert_eq!(one.owner, Some(answer(client.session().await).info().id), "{recipe}");
        answer(world.in_time("the end of a guard", (guard.end)(End::Back)).await);
        assert_eq!(line(&eve, &dir).await, [], "{recipe}: it was given back");
    }
}
