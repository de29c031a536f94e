//! The arguments of queues.

use std::num::NonZeroUsize;
use std::time::Duration;

use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_recipes::queue::{CompatQueue, ItemPlace, PutOptions, Queue, QueueLayout};
use tokio::sync::Notify;

use crate::recipe::edge::{
    Takes, accepted, check, first, ignore_panic, later, positive, text, to, within_a_while,
};

pub(crate) const QUEUE: Takes = Takes {
    texts: &[
        first("id", |client, path, id| {
            Box::pin(async move {
                let queue = Queue::new(&client, &path);
                let options = || PutOptions::default().id(&id);
                queue.put_with(&1, options()).await?;
                accepted(deliver_again(&queue, Some(&id), &path)).await?;
                // Its id is free again.
                let is_new = accepted(queue.put_with(&2, options())).await?;
                check(is_new, "using an id again", &path)?;
                check(accepted(queue.take()).await? == 2, "taking an item", &path)
            })
        }),
        later("fail", |client, path, reason| {
            Box::pin(async move {
                let queue = Queue::<u64>::new(&client, &path);
                queue.put(&1).await?;
                let delivery = accepted(queue.claim()).await?;
                accepted(delivery.fail(reason, Duration::ZERO)).await?;
                let items = accepted(queue.items()).await?;
                check(items.len() == 1 && items[0].reason().is_some(), "failing an item", &path)?;
                check(accepted(queue.take()).await? == 1, "taking an item", &path)
            })
        }),
        later("reject", |client, path, reason| {
            Box::pin(async move {
                let queue = Queue::<u64>::new(&client, &path);
                queue.put(&1).await?;
                accepted(accepted(queue.claim()).await?.reject(reason)).await?;
                let dead = accepted(queue.dead()).await?;
                check(dead.len() == 1 && dead[0].reason().is_some(), "rejecting an item", &path)?;
                check(accepted(queue.remove(&dead[0])).await?, "removing a dead letter", &path)
            })
        }),
    ],
    data: &[
        later("put", |client, path, data| {
            Box::pin(async move {
                let queue = Queue::new(&client, &path);
                queue.put(&text(&data)).await?;
                accepted(queue.claim()).await?.put_back().await?;
                let taken = accepted(queue.take()).await?;
                check(taken == text(&data), "taking an item", &path)
            })
        }),
        later("put_many", |client, path, data| {
            Box::pin(async move {
                let queue = Queue::new_bytes(&client, &path);
                queue.put_many(&["".into(), data.clone()]).await?;
                accepted(queue.take()).await?;
                let taken = accepted(queue.take()).await?;
                check(taken == data, "taking an item", &path)
            })
        }),
        later("put_in_batches", |client, path, data| {
            Box::pin(async move {
                let (queue, items) = (Queue::new_bytes(&client, &path), ["".into(), data]);
                queue.put_in_batches(&items).put().await?;
                accepted(queue.take()).await?;
                let taken = accepted(queue.take()).await?;
                check(taken == items[1], "taking an item", &path)
            })
        }),
        later("change", |client, path, data| {
            Box::pin(async move {
                let queue = Queue::new(&client, &path);
                queue.put(&String::new()).await?;
                let item = queue.items().await?.remove(0);
                let changed = queue.change(&item, &text(&data)).await;
                accepted(queue.take()).await?;
                changed.map(drop)
            })
        }),
    ],
    numbers: &[
        first("priority", |client, path, priority| {
            Box::pin(async move {
                let queue = Queue::new(&client, &path);
                queue.put_with(&1, PutOptions::default().priority(to(priority)?)).await?;
                accepted(deliver_again(&queue, None, &path)).await
            })
        }),
        first("max_deliveries", |client, path, times| {
            Box::pin(async move {
                let queue = Queue::new(&client, &path).max_deliveries(positive(times)?);
                queue.put(&1).await?;
                check(accepted(queue.take()).await? == 1, "taking an item", &path)
            })
        }),
        first("capacity", |client, path, items| {
            Box::pin(async move {
                let queue = Queue::new(&client, &path).capacity(some(items)?);
                queue.put(&1).await?;
                accepted(deliver_again(&queue, None, &path)).await
            })
        }),
        later("take_many", |client, path, most| {
            Box::pin(async move {
                let (queue, most) = (Queue::new(&client, &path), some(most)?);
                queue.put_many(&[1, 2, 3]).await?;
                let mut taken = queue.take_many(most).await?;
                while taken.len() < 3 {
                    taken.extend(accepted(queue.take_many(most)).await?);
                }
                check(taken == [1, 2, 3], "taking items", &path)
            })
        }),
        later("consume", |client, path, most| {
            Box::pin(async move {
                let (queue, most) = (Queue::new(&client, &path), some(most)?);
                queue.put(&1).await?;
                let done = Notify::new();
                let work = async |_item| {
                    done.notify_one();
                    Ok::<_, Error>(())
                };
                queue.consume(most, done.notified(), work).await?;
                check(accepted(queue.len()).await? == 0, "consuming an item", &path)
            })
        }),
    ],
    times: &[
        first("after", |client, path, after| {
            Box::pin(async move {
                let queue = Queue::new(&client, &path);
                queue.put_with(&1, PutOptions::default().after(after)).await?;
                deliver_after(&queue, after, &path).await
            })
        }),
        later("put_back_after", |client, path, after| {
            Box::pin(async move {
                let queue = Queue::new(&client, &path);
                queue.put(&1).await?;
                let put_back = queue.claim().await?.put_back_after(after).await;
                match put_back {
                    Ok(()) => deliver_after(&queue, after, &path).await,
                    // Its claim was dropped.
                    Err(error) => accepted(queue.take()).await.and(Err(error)),
                }
            })
        }),
        later("fail", |client, path, after| {
            Box::pin(async move {
                let queue = Queue::new(&client, &path);
                queue.put(&1).await?;
                let failed = queue.claim().await?.fail("on purpose", after).await;
                match failed {
                    Ok(()) => deliver_after(&queue, after, &path).await,
                    // Its claim was dropped.
                    Err(error) => accepted(queue.take()).await.and(Err(error)),
                }
            })
        }),
        later("backoff", |client, path, pause| {
            Box::pin(async move {
                let queue = Queue::new(&client, &path).backoff(pause, pause);
                queue.put(&1).await?;
                let failed = Notify::new();
                let work = async |_item| {
                    failed.notify_one();
                    Err::<(), _>("on purpose")
                };
                accepted(queue.consume(NonZeroUsize::MIN, failed.notified(), work)).await?;
                let items = queue.items().await?;
                check(items.len() == 1, "putting an item off", &path)?;
                check(accepted(queue.remove(&items[0])).await?, "removing an item", &path)
            })
        }),
    ],
    values: &[
        first("put", |client, path, value| {
            Box::pin(async move {
                let queue = Queue::new(&client, path);
                queue.put(&value).await?;
                take_another(&queue).await
            })
        }),
        first("put_with", |client, path, value| {
            Box::pin(async move {
                let queue = Queue::new(&client, path);
                queue.put_with(&value, PutOptions::default().id("one")).await?;
                take_another(&queue).await
            })
        }),
        first("try_put", |client, path, value| {
            Box::pin(async move {
                let queue = Queue::new(&client, path);
                queue.try_put(&value, PutOptions::default()).await?;
                take_another(&queue).await
            })
        }),
        first("put_many", |client, path, value| {
            Box::pin(async move {
                let queue = Queue::new(&client, path);
                queue.put_many(&[value, value]).await?;
                take_another(&queue).await
            })
        }),
        first("put_in_batches", |client, path, value| {
            Box::pin(async move {
                let queue = Queue::new(&client, path);
                queue.put_in_batches(&[value, value]).put().await?;
                take_another(&queue).await
            })
        }),
        later("change", |client, path, value| {
            Box::pin(async move {
                let queue = Queue::new(&client, path);
                queue.put(&0.5).await?;
                let item = queue.items().await?.remove(0);
                queue.change(&item, &value).await?;
                take_another(&queue).await
            })
        }),
    ],
    functions: &[later("consume", |client, path, trap| {
        Box::pin(async move {
            let queue = Queue::new(&client, &path);
            queue.put(&1).await?;
            let done = Notify::new();
            let consumes = || {
                let work = async |_item| {
                    trap.spring();
                    done.notify_one();
                    Ok::<_, Error>(())
                };
                queue.consume(NonZeroUsize::MIN, done.notified(), work)
            };
            ignore_panic(consumes()).await;
            // If the panic has ended it, the item is delivered again.
            if queue.len().await? > 0 {
                consumes().await?;
            }
            check(queue.len().await? == 0, "consuming an item", &path)
        })
    })],
};

fn some(number: i128) -> Result<NonZeroUsize> {
    let zero = || Error::new(ErrorKind::Invalid, "passing a zero");
    NonZeroUsize::new(to(number)?).ok_or_else(zero)
}

/// Claims the only item, puts it back, puts it back with a delay, and takes it.
async fn deliver_again(queue: &Queue<u64>, id: Option<&str>, path: &Path) -> Result<()> {
    let delivery = queue.claim().await?;
    check(delivery.id().as_deref() == id, "reading the id of an item", path)?;
    delivery.put_back().await?;
    queue.claim().await?.put_back_after(Duration::from_millis(1)).await?;
    check(queue.take().await? == 1, "taking an item", path)
}

/// Delivers the only item after this time: immediately, or not during this test.
async fn deliver_after(queue: &Queue<u64>, after: Duration, path: &Path) -> Result<()> {
    if after < LONG {
        return check(accepted(queue.take()).await? == 1, "taking an item", path);
    }
    let early = accepted(within_a_while(queue.take())).await?;
    check(early.is_none(), "delivering an item in its time", path)?;
    // Other tasks run.
    for item in accepted(queue.items()).await? {
        accepted(queue.remove(&item)).await?;
    }
    Ok(())
}

/// A time longer than any test.
const LONG: Duration = Duration::from_secs(60);

/// Takes or buries the stored item, which may be unreadable, and takes the next one.
async fn take_another(queue: &Queue<f64>) -> Result<()> {
    accepted(queue.put(&1.5)).await?;
    loop {
        match accepted(queue.take()).await {
            Ok(1.5) => return Ok(()),
            Err(error) if error.kind() != ErrorKind::Corrupt => return Err(error),
            _ => {}
        }
    }
}

pub(crate) const COMPAT_QUEUE: Takes = Takes {
    data: &[
        later("put", |client, path, data| {
            Box::pin(async move {
                let queue = CompatQueue::new(&client, &path, QueueLayout::KazooLocking);
                queue.put(data.clone()).await?;
                check(accepted(queue.take()).await? == [data], "taking an item", &path)
            })
        }),
        later("put_at", |client, path, data| {
            Box::pin(async move {
                let queue = CompatQueue::new(&client, &path, QueueLayout::CuratorItems);
                queue.put_at(&["".into(), data.clone()], ItemPlace::default()).await?;
                check(accepted(queue.take()).await? == ["".into(), data], "taking items", &path)
            })
        }),
    ],
    numbers: &[
        later("priority", |client, path, priority| {
            Box::pin(async move {
                let place = ItemPlace::default().priority(to(priority)?);
                placed(&client, &path.join("curator")?, QueueLayout::CuratorPriority, place).await
            })
        }),
        later("priority", |client, path, priority| {
            Box::pin(async move {
                let place = ItemPlace::default().priority(to(priority)?);
                placed(&client, &path.join("kazoo")?, QueueLayout::KazooLocking, place).await
            })
        }),
    ],
    times: &[first("after", |client, path, after| {
        Box::pin(async move {
            let queue = CompatQueue::new(&client, &path, QueueLayout::CuratorDelay);
            queue.put_at(&["x".into()], ItemPlace::default().after(after)).await?;
            if after < LONG {
                return check(accepted(queue.take()).await? == ["x"], "taking an item", &path);
            }
            let early = accepted(within_a_while(queue.take())).await?;
            check(early.is_none(), "delivering an item in its time", &path)?;
            // A later item that is due does not wait for this one.
            queue.put("y").await?;
            let taken = accepted(queue.take()).await?;
            check(!taken.is_empty(), "taking an item", &path)
        })
    })],
    ..Takes::NONE
};

/// Puts an item into a queue, and takes it.
async fn placed(client: &Client, path: &Path, layout: QueueLayout, place: ItemPlace) -> Result<()> {
    let queue = CompatQueue::new(client, path, layout);
    queue.put_at(&["x".into()], place).await?;
    check(accepted(queue.take()).await? == ["x"], "taking an item", path)
}
