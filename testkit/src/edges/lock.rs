//! The arguments of the locks.

use futures_util::future::join;
use synod_recipes::lock::{
    CohortMutex, MultiLock, Mutex, Owner, ReentrantMutex, RwLock, Semaphore, UnfairLock,
};

use crate::recipe::edge::{
    Takes, accepted, first, grant_and_release, later, positive, to, within_a_while,
};

pub(crate) const MUTEX: Takes = Takes {
    data: &[first("label", |client, path, label| {
        Box::pin(
            async move { grant_and_release(Mutex::new(&client, path).label(label).lock()).await },
        )
    })],
    times: &[first("lock_within", |client, path, limit| {
        Box::pin(async move {
            let mutex = Mutex::new(&client, path);
            let held = mutex.lock_within(limit).await?;
            Box::pin(within_a_while(mutex.lock_within(limit))).await?;
            match held {
                Some(guard) => accepted(guard.release()).await,
                None => Ok(()),
            }
        })
    })],
    ..Takes::NONE
};

pub(crate) const RW_LOCK: Takes = Takes {
    data: &[first("label", |client, path, label| {
        Box::pin(async move {
            let lock = RwLock::new(&client, path).label(label);
            let guard = lock.write().await?;
            accepted(async { guard.downgrade().await?.release().await }).await?;
            accepted(grant_and_release(lock.read())).await
        })
    })],
    ..Takes::NONE
};

pub(crate) const SEMAPHORE: Takes = Takes {
    data: &[first("label", |client, path, label| {
        Box::pin(async move {
            let permits = positive(1)?;
            grant_and_release(Semaphore::new(&client, path, permits).label(label).acquire()).await
        })
    })],
    numbers: &[
        first("new", |client, path, permits| {
            Box::pin(async move {
                grant_and_release(Semaphore::new(&client, path, positive(permits)?).acquire()).await
            })
        }),
        first("acquire_many", |client, path, permits| {
            Box::pin(async move {
                let semaphore = Semaphore::new(&client, path, positive(u32::MAX.into())?);
                grant_and_release(semaphore.acquire_many(to(permits)?)).await
            })
        }),
        first("try_acquire_many", |client, path, permits| {
            Box::pin(async move {
                let semaphore = Semaphore::new(&client, path, positive(1)?);
                match semaphore.try_acquire_many(to(permits)?).await? {
                    Some(permit) => accepted(permit.release()).await,
                    None => Ok(()),
                }
            })
        }),
        first("set_permits", |client, path, permits| {
            Box::pin(async move {
                let semaphore = Semaphore::shared(&client, path);
                semaphore.set_permits(to(permits)?).await?;
                match permits {
                    0 => within_a_while(semaphore.acquire()).await.map(drop),
                    _ => accepted(grant_and_release(semaphore.acquire())).await,
                }
            })
        }),
    ],
    ..Takes::NONE
};

pub(crate) const UNFAIR_LOCK: Takes = Takes {
    data: &[first("label", |client, path, label| {
        Box::pin(async move {
            grant_and_release(UnfairLock::new(&client, path).label(label).lock()).await
        })
    })],
    ..Takes::NONE
};

pub(crate) const COHORT_MUTEX: Takes = Takes {
    data: &[first("label", |client, path, label| {
        Box::pin(async move {
            grant_and_release(CohortMutex::new(&client, path, positive(1)?).label(label).lock())
                .await
        })
    })],
    numbers: &[first("new", |client, path, turns| {
        Box::pin(async move {
            let mutex = CohortMutex::new(&client, path, positive(turns)?);
            let guard = mutex.lock().await?;
            // The first one passes the lock on to the second one.
            let second = mutex.lock();
            let (released, second) = join(guard.release(), second).await;
            accepted(async { released.and(second)?.release().await }).await
        })
    })],
    ..Takes::NONE
};

pub(crate) const REENTRANT_MUTEX: Takes = Takes {
    data: &[first("label", |client, path, label| {
        Box::pin(async move {
            let (mutex, owner) = (ReentrantMutex::new(&client, path).label(label), Owner::new());
            let outer = mutex.lock(&owner).await?;
            accepted(grant_and_release(mutex.lock(&owner))).await?;
            accepted(outer.release()).await
        })
    })],
    ..Takes::NONE
};

pub(crate) const MULTI_LOCK: Takes = Takes {
    data: &[later("label", |client, path, label| {
        Box::pin(async move {
            let both = [path.join("a")?, path.join("b")?];
            let guard = MultiLock::new(&client, both).label(label).lock().await?;
            accepted(guard.release()).await
        })
    })],
    ..Takes::NONE
};
