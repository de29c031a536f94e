//! The read-write lock: many readers or one writer, in order.

use std::sync::Arc;

use synod_core::client::Client;
use synod_core::error::ErrorKind;
use synod_core::store::{Expect, Lifetime, Txn};
use synod_recipes::Token;
use synod_recipes::lock::{ReadGuard, RwLock, WriteGuard};
use synod_testkit::cancel::stop_at;
use synod_testkit::fault::Verb;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::door::{answer, failure};
use crate::recipe::{Waiting, line};
use crate::world::World;

cases![
    "L-RW-1 L-RW-2 L-RW-5" breaks [WriterPassesReaders] => readers_share_and_a_writer_is_alone,
    "L-RW-3 L-RW-2" breaks [ReaderPassesWriters] => a_reader_waits_for_a_waiting_writer,
    "L-RW-6 L-RW-1" breaks [PredecessorGoneIsTurn] => a_writer_waits_for_the_last_reader,
    "L-RW-1 L-RW-8" breaks [PredecessorGoneIsTurn WriterPassesReaders] => a_crowd_of_readers_and_writers_keeps_apart,
    "L-RW-4 L-RW-1" breaks [DowngradeQueuesAnew] => a_writer_that_downgrades_keeps_its_place,
    "L-RW-4 L-RW-2" breaks [WriterPassesReaders] => a_writer_that_downgrades_admits_readers,
    "L-MX-5 L-RW-4" breaks [WriterForEver] => a_transaction_of_a_writer_is_rejected_after_its_downgrade,
    "L-RW-7" breaks [LabelIsMode] => the_mode_of_a_ticket_is_not_taken_from_its_label,
    "L-MX-14 L-RW-2" breaks [WatchesFirst] => readers_are_woken_by_the_nearest_writer_alone,
    "L-MX-7 L-MX-9" breaks [RemovalUnnoticed] => a_reader_whose_ticket_is_deleted_takes_another,
    "L-X-7" breaks [LookIgnored] => a_free_read_write_lock_is_one_call,
];

fn lock(world: &World, client: &Client) -> RwLock {
    RwLock::new(client, world.at("lock"))
}

async fn reader(world: &World, client: &Client, count: usize) -> Waiting<ReadGuard> {
    let lock = lock(world, client);
    let waiting = Waiting::new(async move { lock.read().await });
    world.stand(client, &world.at("lock"), count).await;
    waiting
}

async fn writer(world: &World, client: &Client, count: usize) -> Waiting<WriteGuard> {
    let lock = lock(world, client);
    let waiting = Waiting::new(async move { lock.write().await });
    world.stand(client, &world.at("lock"), count).await;
    waiting
}

async fn readers_share_and_a_writer_is_alone(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let first = answer(lock(&world, &ann).read().await);
    let second = answer(lock(&world, &bob).try_read().await).expect("readers share");
    assert!(answer(lock(&world, &bob).try_write().await).is_none(), "two are reading");

    let refused = failure(first.upgrade(), "a reader that asks to write");
    assert_eq!(refused.kind(), ErrorKind::Refused);

    answer(first.release().await);
    assert!(answer(lock(&world, &bob).try_write().await).is_none(), "one is reading");
    answer(second.release().await);
    let writing = answer(lock(&world, &bob).try_write().await).expect("there is no reader");
    assert!(answer(lock(&world, &ann).try_read().await).is_none(), "one is writing");
    assert!(answer(lock(&world, &ann).try_write().await).is_none(), "one is writing");
    answer(writing.release().await);
    world.left_alone(&ann, &world.at("lock")).await;
}

async fn a_reader_waits_for_a_waiting_writer(world: World) {
    let (ann, bob, eve) = (world.client().await, world.client().await, world.client().await);
    let reading = answer(lock(&world, &ann).read().await);
    let mut writes = writer(&world, &bob, 2).await;
    assert!(answer(lock(&world, &eve).try_read().await).is_none(), "a writer waits");
    let mut reads = reader(&world, &eve, 3).await;
    reads.waits_for(world.brief(), "a writer waits").await;
    writes.waits_for(world.brief(), "ann reads").await;

    answer(reading.release().await);

    let writing = writes.gets(&world, "the lock to write").await;
    reads.waits_for(world.brief(), "bob writes").await;
    answer(writing.release().await);
    let _reading = reads.gets(&world, "the lock to read").await;
}

async fn a_writer_waits_for_the_last_reader(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    for last in 0..3 {
        let mut readers = Vec::new();
        for _ in 0..3 {
            readers.push(answer(lock(&world, &ann).read().await));
        }
        let mut writes = writer(&world, &bob, 4).await;
        let stays = readers.remove(last);
        // The nearest reader first, which is the watched predecessor.
        for gone in readers.into_iter().rev() {
            answer(gone.release().await);
            writes.waits_for(world.brief() / 2, "one reads").await;
        }
        assert!(stays.is_held());
        answer(stays.release().await);
        answer(writes.gets(&world, "the lock to write").await.release().await);
    }
}

/// The largest token so far.
#[derive(Debug, Default)]
struct Highest(std::sync::Mutex<Option<Token>>);

impl Highest {
    fn swap(&self, token: Option<Token>) -> Option<Token> {
        std::mem::replace(&mut *self.0.lock().expect("no thread panicked"), token)
    }

    fn raise(&self, token: Option<Token>) {
        let mut highest = self.0.lock().expect("no thread panicked");
        *highest = (*highest).max(token);
    }
}

async fn a_crowd_of_readers_and_writers_keeps_apart(world: World) {
    const CROWD: usize = 8;
    const ROUNDS: usize = 5;
    const ALL: u32 = 100;
    let room = Arc::new(Semaphore::new(ALL as usize));
    let highest = Arc::new(Highest::default());
    let mut all = Vec::new();
    for number in 0..CROWD {
        let (client, room, highest) = (world.client().await, room.clone(), highest.clone());
        let (lock, random) = (lock(&world, &client), world.random.fork(number as u64));
        all.push(Waiting::new(async move {
            for _ in 0..ROUNDS {
                match random.below(3) {
                    0 => {
                        let guard = lock.write().await?;
                        let _alone = room.try_acquire_many(ALL).expect("there is no other holder");
                        let token = Some(guard.token());
                        assert!(token > highest.swap(token), "a writer's token is larger");
                    }
                    1 => {
                        let guard = lock.read().await?;
                        let _shared = room.try_acquire().expect("no writer is in");
                        highest.raise(Some(guard.token()));
                        tokio::task::yield_now().await;
                    }
                    _ => drop(stop_at(1, lock.read()).await.transpose()?),
                }
            }
            Ok(())
        }));
    }
    for one in all {
        one.gets(&world, "the lock, in the end").await;
    }
}

async fn a_writer_that_downgrades_keeps_its_place(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let writing = answer(lock(&world, &ann).write().await);
    let token = writing.token();
    let mut writes = writer(&world, &bob, 2).await;

    let reading = answer(writing.downgrade().await);

    writes.waits_for(world.brief(), "ann reads").await;
    assert!(reading.is_held());
    assert_eq!(reading.token(), token);
    answer(reading.release().await);
    let writing = writes.gets(&world, "the lock to write").await;
    assert!(writing.token() > token);
}

async fn a_writer_that_downgrades_admits_readers(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let writing = answer(lock(&world, &ann).label("ann").write().await);
    let reads = reader(&world, &bob, 2).await;
    let mut writes = writer(&world, &bob, 3).await;

    let reading = answer(writing.downgrade().await);

    let other = reads.gets(&world, "the lock to read").await;
    writes.waits_for(world.brief(), "two are reading").await;
    let holding = line(&ann, &world.at("lock")).await;
    let holding: Vec<_> = holding.iter().map(|one| one.holds == Some(true)).collect();
    assert_eq!(holding, [true, true, false]);
    answer(reading.release().await);
    answer(other.release().await);
    let writing = writes.gets(&world, "the lock to write").await;
    assert!(answer(lock(&world, &ann).try_read().await).is_none(), "bob writes");
    let _reading = answer(writing.downgrade().await);
    let _other = answer(lock(&world, &ann).try_read().await).expect("readers share");
    assert!(answer(lock(&world, &ann).try_write().await).is_none(), "two are reading");
}

async fn a_transaction_of_a_writer_is_rejected_after_its_downgrade(world: World) {
    let client = world.client().await;
    let data = world.at("data");
    answer(client.create(&data, "", Lifetime::Persistent).await).ok().expect("it is new");
    let writes = async |txn: Txn| {
        let txn = txn.set(data.clone(), "x", Expect::Any);
        answer(client.commit(txn).await).is_committed()
    };
    let writing = answer(lock(&world, &client).write().await);
    assert!(writes(writing.txn()).await, "it is held");
    let late = writing.txn();

    let reading = answer(writing.downgrade().await);
    let other = answer(lock(&world, &client).try_read().await).expect("readers share");

    assert!(!writes(late).await, "others are reading");
    assert!(writes(reading.txn()).await, "it is held");
    answer(other.release().await);
    let late = reading.txn();
    answer(reading.release().await);
    assert!(!writes(late).await, "it was given back");
}

async fn the_mode_of_a_ticket_is_not_taken_from_its_label(world: World) {
    let client = world.client().await;
    let at = world.at("__READ__/read-/__WRIT__");
    let mode = |label: &'static str| RwLock::new(&client, at.clone()).label(label);

    let writing = answer(mode("__READ__").write().await);
    assert!(answer(mode("__READ__").try_read().await).is_none(), "one is writing");
    let late = timeout(world.brief(), mode("__READ__").read()).await;
    assert!(late.is_err(), "one is writing");
    answer(writing.release().await);

    let _reading = answer(mode("__WRIT__").read().await);
    let _other = answer(mode("__WRIT__").try_read().await).expect("readers share");
}

async fn readers_are_woken_by_the_nearest_writer_alone(world: World) {
    const READERS: usize = 5;
    let (ann, gate) = (world.client().await, world.gate());
    let bob = world.client_on(gate.clone(), world.unhurried()).await;
    let first = answer(lock(&world, &ann).write().await);
    let second = writer(&world, &ann, 2).await;
    let mut readers = Vec::new();
    for number in 0..READERS {
        readers.push(reader(&world, &bob, 3 + number).await);
        world.in_time("bob's watch", gate.called(Verb::Watch, number + 1)).await;
    }
    let before = gate.count(Verb::Read);

    answer(first.release().await);
    let second = second.gets(&world, "the lock to write").await;

    for one in &mut readers {
        one.waits_for(world.brief() / 4, "a writer is in").await;
    }
    // The only reads are those that the case itself made through the gate to see the tickets.
    assert_eq!(
        gate.count(Verb::Read),
        before,
        "no waiter sent a request, because none could be granted"
    );
    answer(second.release().await);
    for one in readers {
        let _reading = one.gets(&world, "the lock to read").await;
    }
}

async fn a_reader_whose_ticket_is_deleted_takes_another(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let writing = answer(lock(&world, &ann).write().await);
    let mut reads = reader(&world, &bob, 2).await;
    let first = line(&ann, &world.at("lock")).await.pop().expect("bob waits");

    let removed = answer(ann.delete(&first.path, Expect::Any).await);

    assert!(removed.is_committed());
    let again = async || {
        let last = line(&ann, &world.at("lock")).await.pop();
        last.is_some_and(|last| last.token > first.token)
    };
    world.eventually("bob has a new ticket", again).await;
    reads.waits_for(world.brief(), "ann writes").await;
    answer(writing.release().await);
    let reading = reads.gets(&world, "the lock").await;
    assert!(reading.token() > first.token);
}

async fn a_free_read_write_lock_is_one_call(world: World) {
    let gate = world.gate();
    let client = world.client_on(gate.clone(), world.options()).await;
    let counts = || [Verb::Commit, Verb::Read, Verb::Watch].map(|verb| gate.count(verb));
    let lock = lock(&world, &client);

    let first = answer(lock.read().await);
    let second = answer(lock.read().await);
    assert_eq!(counts(), [2, 0, 0], "commits, reads, observes");
    answer(first.release().await);
    answer(second.release().await);
    let writing = answer(lock.write().await);
    assert_eq!(counts(), [5, 0, 0], "commits, reads, observes");
    answer(answer(writing.downgrade().await).release().await);
    assert_eq!(counts(), [7, 0, 0], "commits, reads, observes");
}
