//! Re-entrant locks, and requests to release a lock.

use futures_util::future::join;
use synod_core::error::ErrorKind;
use synod_recipes::lock::{Mutex, Owner, ReentrantMutex, request_release};
use synod_testkit::fault::Verb;

use crate::door::{answer, failure};
use crate::recipe::{Waiting, line};
use crate::world::World;

cases![
    "L-MX-13 L-MX-1" breaks [OwnersMixedUp] => an_owner_enters_again_and_others_wait,
    "L-MX-13 L-MX-2" needs [Expiry] breaks [ReentersLost] => an_owner_that_lost_the_lock_does_not_acquire_it_again,
    "L-MX-13 L-X-1" breaks [DroppedTicketStays] => two_tasks_with_one_owner_acquire_together,
    "L-MX-13 L-X-7 L-MX-9" breaks [OwnersMixedUp] => an_owner_tries_and_enters_again_and_others_do_not,
    "L-MX-7" breaks [QuestionUnheard] => a_holder_that_is_asked_back_is_notified_and_decides,
];

async fn an_owner_enters_again_and_others_wait(world: World) {
    let client = world.client().await;
    let mutex = ReentrantMutex::new(&client, world.at("lock"));
    let (me, you) = (Owner::new(), Owner::new());
    let outer = answer(mutex.lock(&me).await);
    let inner = answer(world.in_time("entering again", mutex.lock(&me)).await);
    assert_eq!(inner.guard().token(), outer.guard().token());
    assert_eq!(line(&client, &world.at("lock")).await.len(), 1);
    let other = mutex.clone();
    let mut waits = Waiting::new(async move { other.lock(&you).await });
    waits.waits_for(world.brief(), "another owner has it").await;

    answer(outer.release().await);
    assert_eq!(inner.count(), 1);
    waits.waits_for(world.brief(), "another owner has it once more").await;
    assert!(inner.guard().is_held());
    answer(inner.release().await);

    let guard = waits.gets(&world, "the lock").await;
    answer(guard.release().await);
    world.left_alone(&client, &world.at("lock")).await;
}

async fn an_owner_that_lost_the_lock_does_not_acquire_it_again(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let mutex = ReentrantMutex::new(&ann, world.at("lock"));
    let me = Owner::new();
    let stale = answer(mutex.lock(&me).await);
    let lock = Mutex::new(&bob, world.at("lock"));
    let waits = Waiting::new(async move { lock.lock().await });
    world.stand(&bob, &world.at("lock"), 2).await;

    world.expire(answer(ann.session().await).info().id).await;

    let theirs = waits.gets(&world, "the lock of a session that expired").await;
    world.in_time("word of the loss", stale.guard().lost()).await;
    let again = world.in_time("a refusal", mutex.lock(&me)).await;
    assert_eq!(failure(again, "entering a lost lock again").kind(), ErrorKind::SessionLost);
    let released = failure(stale.release().await, "the release of a lost lock");
    assert_eq!(released.kind(), ErrorKind::SessionLost);
    assert!(theirs.is_held());
    answer(theirs.release().await);
    let anew = answer(world.in_time("the lock, anew", mutex.lock(&me)).await);
    assert!(anew.guard().is_held());
}

async fn two_tasks_with_one_owner_acquire_together(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let mutex = ReentrantMutex::new(&ann, world.at("lock"));
    let (me, held) = (Owner::new(), answer(Mutex::new(&bob, world.at("lock")).lock().await));
    let (gives_up, owner) = (mutex.clone(), me.clone());
    let gives_up = Waiting::new(async move { gives_up.lock(&owner).await });
    world.stand(&bob, &world.at("lock"), 2).await;
    let both = async { join(mutex.lock(&me), mutex.lock(&me)).await };
    let entering = async {
        // The first waiter is dropped, and another one sends the request instead.
        let first = line(&bob, &world.at("lock")).await.pop().expect("bob waits");
        drop(gives_up);
        let gone =
            async || line(&bob, &world.at("lock")).await.iter().all(|one| one.path != first.path);
        world.eventually("the ticket of the waiter that gave up is gone", gone).await;
        answer(held.release().await);
    };

    let ((first, second), ()) = world.in_time("both enter", Box::pin(join(both, entering))).await;

    let (first, second) = (answer(first), answer(second));
    assert_eq!((first.count(), first.guard().token()), (2, second.guard().token()));
    drop((first, second));
    world.left_alone(&bob, &world.at("lock")).await;
}

async fn an_owner_tries_and_enters_again_and_others_do_not(world: World) {
    let (gate, ann) = (world.gate(), world.client().await);
    let bob = world.client_on(gate.clone(), world.options()).await;
    let counts = || [Verb::Commit, Verb::Read, Verb::Watch].map(|verb| gate.count(verb));
    let (theirs, mutex) =
        (Mutex::new(&ann, world.at("lock")), ReentrantMutex::new(&bob, world.at("lock")));
    let (me, you) = (Owner::new(), Owner::new());
    let held = answer(theirs.lock().await);

    assert!(answer(mutex.try_lock(&me).await).is_none(), "ann has it");
    assert_eq!(counts(), [0, 1, 0], "commits, reads, observes");
    assert_eq!(line(&ann, &world.at("lock")).await.len(), 1);

    answer(held.release().await);
    let outer = answer(mutex.try_lock(&me).await).expect("it is free");
    let before = counts();
    let inner = answer(mutex.try_lock(&me).await).expect("this owner has it");
    assert_eq!((inner.count(), inner.guard().token()), (2, outer.guard().token()));
    assert_eq!(counts(), before, "the store is not asked");
    assert!(answer(mutex.try_lock(&you).await).is_none(), "another owner has it");
    answer(outer.release().await);
    assert!(answer(mutex.try_lock(&you).await).is_none(), "another owner has it once more");
    answer(inner.release().await);

    let guard = answer(mutex.try_lock(&you).await).expect("it is free");
    answer(guard.release().await);
    world.left_alone(&ann, &world.at("lock")).await;
}

async fn a_holder_that_is_asked_back_is_notified_and_decides(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let guard = answer(Mutex::new(&ann, world.at("lock")).label("__REVOKE__").lock().await);
    let ticket = guard.path().clone();
    let mut hears = Waiting::new(async move {
        guard.release_requested().await?;
        Ok(guard)
    });
    hears.waits_for(world.brief(), "there is no request").await;

    assert!(answer(request_release(&bob, &ticket).await), "ann has it");

    let guard = hears.gets(&world, "the question").await;
    assert!(guard.is_held(), "it is for her to decide");
    answer(guard.release().await);
    assert!(!answer(request_release(&bob, &ticket).await), "it is free");
}
