//! The levels of isolation: each makes the checks that it promises, and no more.

use std::sync::atomic::{AtomicU32, Ordering};

use synod_core::error::{Error, ErrorKind};
use synod_core::path::Path;
use synod_core::store::Query;
use synod_recipes::transaction::Isolation;

use crate::door::{answer, failure};
use crate::recipe::transaction::{pair, read, store, stored, transaction, transfer};
use crate::world::World;

cases![
    "L-STM-4" catches [CheckIgnoresVersion] => a_mixture_is_committed_only_where_nothing_is_checked,
    "L-STM-4" breaks [TransactionMixesMoments] => what_was_only_read_is_confirmed_where_reads_are_repeatable,
    "L-STM-4 L-STM-6" breaks [TransactionMixesMoments] => a_run_reads_as_many_nodes_as_a_query_and_no_more,
    "L-STM-2 L-STM-6" breaks [TransactionMixesMoments] => what_only_earlier_runs_have_read_does_not_count,
    "L-STM-4" catches [CasIgnoresVersion] => what_is_written_blindly_is_unchanged_in_a_snapshot_only,
];

async fn a_mixture_is_committed_only_where_nothing_is_checked(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let ([a, b], sum) = (&pair(&world), &world.at("sum"));
    for (level, runs, result) in
        [(Isolation::RepeatableReads, 2, 100), (Isolation::ReadCommitted, 1, 120)]
    {
        store(&ann, sum, 0).await;
        store(&ann, a, 70).await;
        store(&ann, b, 30).await;
        let one = transaction(&world, &ann).isolation(level);
        let bobs = transaction(&world, &bob);
        let seen = AtomicU32::new(0);

        let (ann, bobs, seen_so_far) = (&ann, &bobs, &seen);
        let adding = one.run(|run| async move {
            let first = read(&run, a).await?;
            if seen_so_far.fetch_add(1, Ordering::Relaxed) == 0 {
                bobs.run(|run| async move { transfer(&run, [a, b], 20).await }).await?;
                // A value that was read stays the same in the transaction.
                assert_eq!(read(&run, a).await?, first, "{level:?}");
                // A read may lag at these levels, so another read waits for the written value.
                answer(ann.get(b).await);
            }
            let both = first + read(&run, b).await?;
            run.put_value(sum, &both)
        });
        answer(world.in_time("a sum", adding).await);

        assert_eq!(stored(ann, sum).await, result, "{level:?}");
        assert_eq!(seen.into_inner(), runs, "{level:?}");
    }
}

async fn what_was_only_read_is_confirmed_where_reads_are_repeatable(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let [a, b] = &pair(&world);
    for (level, runs, result) in
        [(Isolation::RepeatableReads, 2, 100), (Isolation::ReadCommitted, 1, 120)]
    {
        store(&ann, a, 70).await;
        store(&ann, b, 30).await;
        let one = transaction(&world, &ann).isolation(level);
        let bobs = transaction(&world, &bob);
        let seen = AtomicU32::new(0);

        let (ann, bobs, seen_so_far) = (&ann, &bobs, &seen);
        let adding = one.run(|run| async move {
            let first = read(&run, a).await?;
            if seen_so_far.fetch_add(1, Ordering::Relaxed) == 0 {
                bobs.run(|run| async move { transfer(&run, [a, b], 20).await }).await?;
                // A read may lag at these levels, so another read waits for the written value.
                answer(ann.get(b).await);
            }
            Ok::<_, Error>(first + read(&run, b).await?)
        });

        assert_eq!(answer(world.in_time("a sum", adding).await), result, "{level:?}");
        assert_eq!(seen.into_inner(), runs, "{level:?}");
    }
    // A single node is confirmed, too: its read may lag.
    store(&ann, a, 7).await;
    gate.blind_local_reads();
    let one = transaction(&world, &ann).isolation(Isolation::RepeatableReads);
    let number = one.run(|run| async move { read(&run, a).await });
    assert_eq!(answer(world.in_time("a number", number).await), 7);
}

async fn a_run_reads_as_many_nodes_as_a_query_and_no_more(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let place = |number: usize| world.at(&format!("n{number}"));
    let places: Vec<Path> = (0..=Query::MAX_NODES).map(place).collect();
    for (level, expected) in [
        (Isolation::SerializableSnapshot, 1),
        (Isolation::Serializable, 1),
        (Isolation::RepeatableReads, 2),
        (Isolation::ReadCommitted, 1),
    ] {
        store(&bob, &places[0], 1).await;
        let one = transaction(&world, &ann).isolation(level);
        let (mut runs, bob) = (0, &bob);
        let mut counts = async |places: &[Path], made: Option<&Path>| {
            let counting = one.run(|run| {
                runs += 1;
                let is_first = runs == 1;
                async move {
                    let mut found = 0;
                    for path in places {
                        found += u32::from(run.exists(path).await?);
                    }
                    if is_first {
                        store(bob, &places[0], 2).await;
                    }
                    made.map_or(Ok(()), |made| run.put(made, ""))?;
                    Ok::<_, Error>(found)
                }
            });
            world.in_time("a count", counting).await
        };

        let (most, more) = (&places[..Query::MAX_NODES], &places[..]);
        assert_eq!(answer(counts(most, None).await), 1, "{level:?}");
        if level == Isolation::ReadCommitted {
            // Nothing is checked at this level.
            let made = world.at("made");
            assert_eq!(answer(counts(more, Some(&made)).await), 1);
            assert!(answer(ann.exists(&made).await));
        } else {
            let error = failure(counts(more, None).await, "one node more");
            assert_eq!((error.kind(), error.has_unknown_effect()), (ErrorKind::TooLarge, false));
            assert_eq!(runs, expected + 1, "{level:?}");
        }
    }
}

async fn what_only_earlier_runs_have_read_does_not_count(world: World) {
    const NODES: usize = 60;
    let (ann, bob) = (world.client().await, world.client().await);
    let index = &world.at("index");
    for level in [Isolation::SerializableSnapshot, Isolation::Serializable] {
        store(&ann, index, 0).await;
        let one = transaction(&world, &ann).isolation(level);
        let (mut runs, ann, bob, world) = (0, &ann, &bob, &world);
        let reading = one.run(|run| {
            runs += 1;
            let round = runs;
            async move {
                let number = read(&run, index).await?;
                for node in 0..NODES {
                    if node + 1 == NODES && round < 4 {
                        store(bob, index, round).await;
                        // From now on every read of this session shows that write.
                        answer(ann.get(index).await);
                    }
                    assert!(!run.exists(&world.at(&format!("set{number}-{node}"))).await?);
                }
                Ok::<_, Error>(number)
            }
        });

        assert_eq!(answer(world.in_time("the last set", reading).await), 3, "{level:?}");
        assert_eq!(runs, 4, "{level:?}");
    }
}

async fn what_is_written_blindly_is_unchanged_in_a_snapshot_only(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [a, b] = &pair(&world);
    let levels = [(Isolation::SerializableSnapshot, 2), (Isolation::Serializable, 1)];
    // The written node is read only before its change, or never, or before and after it.
    let knows = [(true, false), (false, false), (true, true)];
    let all = levels.iter().flat_map(|level| knows.map(|known| (*level, known)));
    for ((level, expected), (before, after)) in all {
        store(&ann, a, 1).await;
        store(&ann, b, 1).await;
        let prefetched = before.then(|| b.clone());
        let one = transaction(&world, &ann).isolation(level).prefetch(prefetched);
        let mut runs = 0;

        let (ann, bob, another) = (&ann, &bob, &world.at("c"));
        let writing = one.run(|run| {
            runs += 1;
            let is_first = runs == 1;
            async move {
                let number = read(&run, a).await?;
                if is_first {
                    store(bob, b, 50).await;
                }
                if after {
                    // From now on every read of this session shows bob's write.
                    answer(ann.get(another).await);
                    assert!(!run.exists(another).await?);
                }
                run.put_value(b, &(number + 1))
            }
        });
        answer(world.in_time("a write", writing).await);

        assert_eq!(runs, expected, "{level:?}, known before {before} and after {after}");
        assert_eq!(stored(ann, b).await, 2, "{level:?}");
    }
}
