//! Transactions: committed exactly once if nothing interferes, and never on a mixture of two
//! snapshots.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::join;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::store::{Expect, Lifetime, Query, Txn};
use synod_recipes::transaction::{Attempt, Isolation, Transaction};
use synod_testkit::cancel::cancel_at_every_await;
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::gate::Way;
use crate::door::{answer, failure};
use crate::recipe::Waiting;
use crate::world::{World, dropped_enough};

cases![
    "L-STM-1" catches [CheckIgnoresVersion] => of_two_that_read_what_the_other_writes_one_runs_again,
    "L-STM-1" catches [CheckIgnoresVersion] => whatever_happens_to_what_is_read_the_function_runs_again,
    "L-STM-1 L-STM-2" catches [NodesReadOneByOne] => transfers_at_the_same_time_keep_the_sum,
    "L-STM-2" breaks [TransactionMixesMoments] => no_run_goes_on_with_two_moments,
    "L-STM-3" breaks [TransactionRunsAgain] => a_transaction_whose_answer_is_lost_is_committed_once,
    "L-STM-3" breaks [TransactionRunsAgain] => a_transaction_that_was_replaced_before_its_answer_is_committed_once,
    "L-STM-3 L-OUT-3" needs [Expiry] breaks [TransactionRunsAgain] => a_transaction_in_doubt_when_its_session_is_lost_has_an_unknown_effect,
    "L-STM-3 D-NEXT" breaks [LossEndsChange] => a_transaction_that_was_not_sent_is_committed_in_the_next_session,
    "L-STM-5 L-X-7" catches [RejectionNotLooked] => a_transaction_is_a_read_and_a_write,
    "L-STM-6" catches [EphemeralMayHaveChildren] => what_the_store_never_takes_is_an_error,
    "L-STM-6" catches [SizeUnchecked] => what_is_too_large_is_refused_before_it_is_sent,
    "L-STM-1" catches [CreateOverwrites] => a_node_is_created_by_one_of_many,
    "L-X-1 L-STM-3 L-STM-7 L-X-5" breaks [TransactionMarkStays] => a_transaction_dropped_at_any_await_leaves_nothing_but_its_result,
];

pub(super) fn transaction(world: &World, client: &Client) -> Transaction {
    Transaction::new(client, world.at("marks"))
}

pub(super) fn pair(world: &World) -> [Path; 2] {
    ["a", "b"].map(|name| world.at(name))
}

pub(super) async fn store(client: &Client, path: &Path, number: i64) {
    answer(client.put_value(path, &number).await);
}

pub(super) async fn stored(client: &Client, path: &Path) -> i64 {
    answer(client.get_value(path).await).expect("there is a number").value
}

pub(super) async fn read(run: &Attempt, path: &Path) -> Result<i64> {
    Ok(run.get_value(path).await?.unwrap_or_default())
}

/// Moves an amount.
pub(super) async fn transfer(run: &Attempt, [from, to]: [&Path; 2], amount: i64) -> Result<()> {
    let (left, right) = (read(run, from).await?, read(run, to).await?);
    run.put_value(from, &(left - amount))?;
    run.put_value(to, &(right + amount))
}

async fn of_two_that_read_what_the_other_writes_one_runs_again(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [a, b] = &pair(&world);
    // Subtracts one, as long as there are two.
    let take = async |run: &Attempt, mine: &Path| {
        if read(run, a).await? + read(run, b).await? == 2 {
            run.put_value(mine, &0)?;
        }
        Ok::<_, Error>(())
    };
    for level in
        [Isolation::SerializableSnapshot, Isolation::Serializable, Isolation::RepeatableReads]
    {
        store(&ann, a, 1).await;
        store(&ann, b, 1).await;
        let [anns, bobs] = [&ann, &bob].map(|it| transaction(&world, it).isolation(level));
        let mut runs = 0;

        let (take, bobs) = (&take, &bobs);
        let taking = anns.run(|run| {
            runs += 1;
            let is_first = runs == 1;
            async move {
                take(&run, a).await?;
                if is_first {
                    bobs.run(|run| async move { take(&run, b).await }).await?;
                }
                Ok::<_, Error>(())
            }
        });
        answer(world.in_time("both", taking).await);

        assert_eq!((stored(&ann, a).await, stored(&ann, b).await), (1, 0), "{level:?}");
        assert_eq!(runs, 2, "{level:?}");
    }
}

async fn whatever_happens_to_what_is_read_the_function_runs_again(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [a, b] = &pair(&world);
    store(&ann, b, 0).await;
    // The number in the first read, and in the second. A missing number counts as 0.
    for (first, then) in [(Some(1), Some(2)), (Some(1), None), (None, Some(1))] {
        let make = async |number: Option<i64>| match number {
            Some(number) => store(&bob, a, number).await,
            None => drop(answer(bob.delete(a, Expect::Any).await)),
        };
        make(first).await;
        let (make, mut runs) = (&make, 0);

        // A snapshot would also read the nodes that it writes, and find the change before its
        // commit.
        let copying = transaction(&world, &ann).isolation(Isolation::Serializable);
        let copying = copying.run(|run| {
            runs += 1;
            let is_first = runs == 1;
            async move {
                let number = read(&run, a).await?;
                if is_first {
                    make(then).await;
                }
                run.put_value(b, &number)?;
                Ok::<_, Error>(())
            }
        });
        answer(world.in_time("the copy", copying).await);

        assert_eq!((stored(&ann, b).await, runs), (then.unwrap_or(0), 2), "{first:?} to {then:?}");
    }
}

async fn transfers_at_the_same_time_keep_the_sum(world: World) {
    const CLIENTS: i64 = 3;
    const ROUNDS: i64 = 8;
    let all: Arc<[Path]> = (0..3).map(|number| world.at(&format!("n{number}"))).collect();
    let keeper = world.client().await;
    for path in all.iter() {
        store(&keeper, path, 100).await;
    }
    let mut moving = Vec::new();
    for client in 0..CLIENTS {
        let one = transaction(&world, &world.hesitant().await).prefetch(all.to_vec());
        let all = all.clone();
        moving.push(Waiting::new(async move {
            for round in 0..ROUNDS {
                let place = usize::try_from(client + round).expect("few");
                let ends = [&all[place % 3], &all[(place + 1) % 3]];
                let all = &all;
                one.run(|run| async move {
                    let mut sum = 0;
                    for path in all.iter() {
                        sum += read(&run, path).await?;
                    }
                    assert_eq!(sum, 300, "a run saw two moments");
                    transfer(&run, ends, 1).await
                })
                .await?;
            }
            Ok(())
        }));
    }
    for one in moving {
        one.gets(&world, "all of its transfers").await;
    }
    let mut sum = 0;
    for path in all.iter() {
        sum += stored(&keeper, path).await;
    }
    assert_eq!(sum, 300);
}

async fn no_run_goes_on_with_two_moments(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let [a, b] = &pair(&world);
    for level in [Isolation::SerializableSnapshot, Isolation::Serializable] {
        store(&ann, a, 70).await;
        store(&ann, b, 30).await;
        let [anns, bobs] = [&ann, &bob].map(|it| transaction(&world, it).isolation(level));
        let mut runs = 0;

        let (ann, bobs) = (&ann, &bobs);
        let sum = anns.run(|run| {
            runs += 1;
            let is_first = runs == 1;
            async move {
                let first = read(&run, a).await?;
                if is_first {
                    bobs.run(|run| async move { transfer(&run, [a, b], 20).await }).await?;
                    // From now on every read of this session shows the transfer.
                    answer(ann.get(a).await);
                }
                let sum = first + read(&run, b).await?;
                assert_eq!(sum, 100, "{level:?}: a run saw two moments");
                Ok::<_, Error>(sum)
            }
        });

        assert_eq!(answer(world.in_time("a sum", sum).await), 100);
        assert_eq!(runs, 2, "{level:?}: the first run is given up");
    }
}

/// Adds one to both.
async fn add(one: &Transaction, [a, b]: &[Path; 2]) -> Result<i64> {
    one.run(|run| async move {
        let number = read(&run, a).await? + 1;
        run.put_value(a, &number)?;
        run.put_value(b, &number)?;
        Ok::<_, Error>(number)
    })
    .await
}

async fn a_transaction_whose_answer_is_lost_is_committed_once(world: World) {
    for site in [Site::ReplyLost, Site::RequestLost, Site::AppliedLate, Site::Unsent] {
        let (client, plan) = world.scripted([]).await;
        let both = [0, 1].map(|number| world.at(&format!("{site:?}-{number}")));
        for path in &both {
            store(&client, path, 0).await;
        }
        let one = transaction(&world, &client);
        assert_eq!(answer(add(&one, &both).await), 1);

        for round in 2..6 {
            plan.cue(Cue::new(site).of(Verb::Set));
            let added = answer(world.in_time("an addition", add(&one, &both)).await);
            assert_eq!(added, round, "{site:?}");
        }

        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
        for path in &both {
            assert_eq!(stored(&client, path).await, 5, "{site:?}");
        }
    }
}

async fn a_transaction_that_was_replaced_before_its_answer_is_committed_once(world: World) {
    for site in [Site::ReplyLost, Site::RequestLost] {
        let (client, plan) = world.scripted([]).await;
        let (mine, bob) = (transaction(&world, &client), world.client().await);
        let both = pair(&world);
        for path in &both {
            store(&bob, path, 0).await;
        }
        answer(add(&mine, &both).await);
        // The second request waits until another client has written.
        plan.cue(Cue::new(site).of(Verb::Set));
        plan.cue(Cue::new(Site::RequestSlow).of(Verb::Set).nth(2).lasting(world.brief()));
        let (adding, places) = (mine.clone(), both.clone());
        let adding = Waiting::new(async move { add(&adding, &places).await });
        let fired = async || plan.pending() < 2;
        world.eventually("the answer is lost", fired).await;
        answer(add(&transaction(&world, &bob), &both).await);

        let _added = adding.gets(&world, "its addition").await;

        assert_eq!(stored(&bob, &both[0]).await, 3, "{site:?}");
        assert_eq!(stored(&bob, &both[1]).await, 3, "{site:?}");
    }
}

async fn a_transaction_in_doubt_when_its_session_is_lost_has_an_unknown_effect(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let client = world.client_on(gate.clone(), world.options()).await;
    let (one, both) = (transaction(&world, &client), pair(&world));
    for path in &both {
        store(&bob, path, 0).await;
    }
    answer(add(&one, &both).await);
    let sent = gate.count(Verb::Commit);
    gate.hold_behind(Some((Verb::Commit, sent)));
    let (adding, places) = (one.clone(), both.clone());
    let adding = Waiting::new(async move { Ok(add(&adding, &places).await) });
    gate.held(1).await;

    let first = answer(client.session().await);
    world.expire(first.info().id).await;
    world.in_time("the loss", first.lost()).await;
    gate.hold_behind(None);

    let failed = failure(adding.gets(&world, "its answer").await, "a transaction in doubt");
    assert!(failed.has_unknown_effect(), "{failed}");
    assert_eq!(stored(&bob, &both[1]).await, 2, "it was committed once");
    let next = world.in_time("a transaction in the next session", add(&one, &both));
    assert_eq!(answer(next.await), 3);
}

async fn a_transaction_that_was_not_sent_is_committed_in_the_next_session(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    gate.may_lose();
    let client = world.client_on(gate.clone(), world.options()).await;
    // At this level nothing is read between the function and the commit.
    let one = transaction(&world, &client).isolation(Isolation::Serializable);
    let both = pair(&world);
    for path in &both {
        store(&bob, path, 0).await;
    }
    answer(add(&one, &both).await);
    let first = answer(client.session().await);
    let sent = gate.count(Verb::Commit);
    let (adding, [a, b], shut) = (one.clone(), both.clone(), gate.clone());
    let adding = Waiting::new(async move {
        let (a, b, shut, mut runs) = (&a, &b, &shut, 0);
        adding
            .run(|run| {
                runs += 1;
                let is_first = runs == 1;
                async move {
                    let number = read(&run, a).await? + 1;
                    run.put_value(a, &number)?;
                    run.put_value(b, &number)?;
                    if is_first {
                        shut.set(Way::Silent);
                    }
                    Ok::<_, Error>(number)
                }
            })
            .await
    });
    gate.called(Verb::Commit, sent + 1).await;
    // Another thread may be between the count and the gate.
    tokio::time::sleep(world.brief()).await;
    // The client cannot know that its request never arrives. Another client replaces the values
    // that the request would have replaced.
    answer(add(&transaction(&world, &bob), &both).await);

    // The sent request stays unanswered.
    gate.set(Way::Open);
    gate.lose();
    world.in_time("the loss", first.lost()).await;

    // The write id still exists, and shows that nothing was committed.
    assert_eq!(adding.gets(&world, "its addition").await, 3);
    assert_eq!(stored(&bob, &both[1]).await, 3);
}

async fn a_transaction_is_a_read_and_a_write(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let client = world.client_on(gate.clone(), world.options()).await;
    let counts = || [Verb::Commit, Verb::Read, Verb::Watch].map(|verb| gate.count(verb));
    let all: Vec<Path> = (0..4).map(|number| world.at(&format!("n{number}"))).collect();
    for path in &all {
        store(&bob, path, 0).await;
    }
    let one = transaction(&world, &client).prefetch(all.clone());
    let (places, bob) = (&all, &bob);
    let add = async |mut disturbed: bool| {
        one.run(|run| {
            let disturb = std::mem::take(&mut disturbed);
            async move {
                for path in places {
                    let number = read(&run, path).await?;
                    run.put_value(path, &(number + 1))?;
                }
                if disturb {
                    store(bob, &places[3], 10).await;
                }
                Ok::<_, Error>(())
            }
        })
        .await
    };

    answer(add(false).await);
    assert_eq!(counts(), [2, 1, 0], "commits, reads, observes of the first, with its mark");
    answer(add(false).await);
    assert_eq!(counts(), [3, 2, 0], "commits, reads, observes");
    answer(add(true).await);
    assert_eq!(counts(), [5, 3, 0], "a rejection shows all that the next run reads");

    // A transaction that only reads writes nothing, even if its reads are of several snapshots.
    let sum = async |level: Isolation| {
        let reading = one.clone().isolation(level);
        let summed = reading.run(|run| async move {
            let mut sum = 0;
            for path in places {
                sum += read(&run, path).await?;
            }
            Ok::<_, Error>(sum)
        });
        answer(summed.await)
    };
    for level in [Isolation::SerializableSnapshot, Isolation::Serializable] {
        let [_, reads, _] = counts();
        assert_eq!(sum(level).await, 20);
        assert_eq!(counts(), [5, reads + 1, 0], "{level:?}");
    }
    for (level, checks) in [(Isolation::RepeatableReads, 1), (Isolation::ReadCommitted, 0)] {
        let [_, reads, _] = counts();
        assert_eq!(sum(level).await, 20);
        assert_eq!(counts(), [5, reads + 4 + checks, 0], "{level:?}");
    }
}

async fn what_the_store_never_takes_is_an_error(world: World) {
    let client = world.client().await;
    let session = answer(client.session().await);
    let one = transaction(&world, &client);
    let [a, dir, inside] = ["a", "dir", "dir/inside"].map(|name| world.at(name));
    store(&client, &a, 1).await;
    store(&client, &inside, 1).await;
    let (ephemeral, below) = (world.at("e"), world.at("e/below"));
    let txn = Txn::new().create(&ephemeral, "", Lifetime::Session);
    answer(answer(session.commit(txn).await).required());
    let (a, client) = (&a, &client);
    let refused = async |path: &Path, run: &dyn Fn(&Attempt) -> Result<()>| {
        let running = one.run(|attempt| async move {
            let number = read(&attempt, a).await?;
            attempt.put_value(a, &(number + 1))?;
            run(&attempt)
        });
        let error = failure(world.in_time("a refusal", running).await, "what is refused");
        let said = (error.kind(), error.has_unknown_effect(), error.path().cloned());
        assert_eq!(said, (ErrorKind::Refused, false, Some(path.clone())), "{error}");
    };

    refused(&below, &|run| run.put(&below, "")).await;
    refused(&dir, &|run| run.put(&dir, "")).await;
    let parent = world.at("p");
    store(client, &parent, 1).await;
    store(client, &world.at("p/child"), 1).await;
    refused(&parent, &|run| run.delete(&parent)).await;

    // The error of the function, and one attempt too few.
    let own = one.run(|run| async move {
        run.put_value(a, &9)?;
        Err::<(), _>(Error::new(ErrorKind::Invalid, "thinking again"))
    });
    assert_eq!(failure(own.await, "its own error").kind(), ErrorKind::Invalid);
    let hasty = one.clone().retry(Retry::Never);
    let disturbed = hasty.run(|run| async move {
        let number = read(&run, a).await?;
        store(client, a, 1).await;
        run.put_value(a, &(number + 1))
    });
    assert_eq!(failure(disturbed.await, "a lost race").kind(), ErrorKind::Refused);
    assert_eq!(stored(client, a).await, 1, "nothing was written");
    // A limit beyond the range of the clock.
    let (patient, mut runs) = (one.clone().retry(Retry::until_elapsed(Duration::MAX)), 0);
    let disturbed = patient.run(|run| {
        runs += 1;
        let is_first = runs == 1;
        async move {
            let number = read(&run, a).await?;
            if is_first {
                store(client, a, 1).await;
            }
            run.put_value(a, &(number + 1))
        }
    });
    answer(world.in_time("a race that is lost once", disturbed).await);
    assert_eq!((stored(client, a).await, runs), (2, 2));
}

async fn what_is_too_large_is_refused_before_it_is_sent(world: World) {
    let gate = world.gate();
    let client = world.client_on(gate.clone(), world.options()).await;
    let one = transaction(&world, &client);
    let limits = answer(client.session().await).info().limits.clone();
    let place = &|number: usize| world.at(&format!("n{number}"));
    answer(one.run(|run| async move { run.put(&place(0), "") }).await);
    let sent = gate.count(Verb::Commit);

    let limits = &limits;
    let many = one.run(|run| async move {
        (0..=limits.operations).try_for_each(|number| run.put(&place(number), ""))
    });
    assert_eq!(failure(many.await, "many").kind(), ErrorKind::TooLarge);
    let data = &vec![0_u8; limits.data + 1];
    let large = one.run(|run| async move { run.put(&place(0), data.clone()) });
    assert_eq!(failure(large.await, "large").kind(), ErrorKind::TooLarge);
    let made = one.run(|run| async move { run.create(&place(1), data.clone()).await });
    assert_eq!(failure(made.await, "large").kind(), ErrorKind::TooLarge);
    let wide = one.clone().prefetch((0..=Query::MAX_NODES).map(place));
    let wide = wide.run(|run| async move { run.get(&place(0)).await.map(drop) });
    assert_eq!(failure(wide.await, "wide").kind(), ErrorKind::TooLarge);

    // The store rejects the call first, so the call is counted, but nothing is written.
    assert!(gate.count(Verb::Commit) <= sent + 1);
    let session = answer(client.session().await);
    assert!(!session.is_lost(), "it was not sent");
    assert!(!answer(client.exists(&place(1)).await));
    let data = &data[1..];
    answer(one.run(|run| async move { run.put(&place(1), data.to_vec()) }).await);
    assert_eq!(answer(client.get(&place(1)).await).map(|node| node.data.len()), Some(limits.data));
}

async fn a_node_is_created_by_one_of_many(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let node = &world.at("n");
    for level in [Isolation::SerializableSnapshot, Isolation::ReadCommitted] {
        let [anns, bobs] = [&ann, &bob].map(|it| transaction(&world, it).isolation(level));
        let create = async |one: &Transaction, data: &'static str, then: Option<&Transaction>| {
            let mut runs = 0;
            let creating = one.run(|run| {
                runs += 1;
                let other = then.filter(|_| runs == 1);
                async move {
                    let created = run.create(node, data).await?;
                    if let Some(other) = other {
                        other.run(|run| async move { run.create(node, "other").await }).await?;
                    }
                    Ok::<_, Error>(created)
                }
            });
            answer(creating.await)
        };

        assert!(!create(&anns, "late", Some(&bobs)).await, "{level:?}: bob was faster");
        assert!(!create(&anns, "late", None).await);
        assert_eq!(answer(ann.get(node).await).expect("it exists").data, "other");

        let deleting = anns.run(|run| async move {
            assert!(run.exists(node).await?);
            run.delete(node)?;
            assert!(!run.exists(node).await?, "a run reads what it has written");
            run.delete(&node.join("absent")?)
        });
        answer(deleting.await);
        assert!(!answer(bob.exists(node).await));
        assert!(create(&anns, "again", None).await);
        answer(answer(bob.delete(node, Expect::Any).await).required());
    }
}

async fn a_transaction_dropped_at_any_await_leaves_nothing_but_its_result(world: World) {
    let (client, other) = (world.hesitant().await, world.client().await);
    let both = pair(&world);
    for path in &both {
        store(&other, path, 0).await;
    }
    let calls = AtomicU32::new(0);

    let drops = cancel_at_every_await(async || {
        // A new value each time, so that each has to create and to remove a write id.
        let one = transaction(&world, &client);
        calls.fetch_add(1, Ordering::Relaxed);
        answer(add(&one, &both).await);
    });
    dropped_enough(drops.await, 0);

    let marks = Query::children(world.at("marks")).names_only();
    let alone = async || answer(client.read(marks.clone()).await).nodes.is_empty();
    world.eventually("no mark is left", alone).await;
    let (one, two) = join(stored(&other, &both[0]), stored(&other, &both[1])).await;
    assert_eq!(one, two, "a transaction is whole");
    assert!((1..=i64::from(calls.into_inner())).contains(&one), "{one}");
}
