//! The lease: a right that outlives its session.

use std::time::{Duration, SystemTime};

use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::ErrorKind;
use synod_recipes::lock::{Lease, LeaseTerm};
use synod_testkit::fault::{Cue, Site, Verb};

use crate::door::{answer, failure};
use crate::recipe::Waiting;
use crate::world::World;

cases![
    "L-LS-1 L-LS-3" breaks [LeaseTakenEarly] => a_term_outlives_its_session_and_is_extended_by_its_holder,
    "L-LS-1 L-LS-2" breaks [LeaseTakenEarly] => a_released_lease_is_taken_with_a_higher_number,
    "L-LS-1 L-LS-2 L-X-4" catches [CasIgnoresVersion] => one_of_many_takes_a_lease,
    "L-LS-1 L-LS-2 L-CNT-3" breaks [LeaseTakenEarly] => a_lease_whose_answer_is_lost_is_taken_once,
    "L-LS-1 L-CNT-5" breaks [LeaseTakenEarly] => a_stored_term_ends_at_its_date_and_the_margin,
];

const HOUR: Duration = Duration::from_secs(60 * 60);

fn lease(world: &World, client: &Client, holder: &str) -> Lease {
    Lease::new(client, world.at("lease"), HOUR).holder(holder)
}

/// Takes a lease that is free, or extends its term.
async fn taken(lease: &Lease) -> LeaseTerm {
    answer(lease.try_acquire().await).expect("it is free")
}

async fn a_term_outlives_its_session_and_is_extended_by_its_holder(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let first = taken(&lease(&world, &ann, "ann")).await;
    assert_eq!((first.holder.as_str(), first.number), ("ann", 1));
    assert!(first.until == first.since + HOUR, "{first:?}");
    answer(ann.close().await);

    let others = lease(&world, &bob, "bob");
    assert_eq!(answer(others.try_acquire().await), Err(first.clone()));
    assert_eq!(answer(others.current().await), Some(first.clone()));
    assert!(!answer(others.release().await), "it is not his");

    let next = world.client().await;
    let extended = taken(&lease(&world, &next, "ann")).await;
    assert!(extended.number == 1 && extended.until >= first.until, "{extended:?}");
    let random = Lease::new(&next, world.at("lease"), HOUR);
    assert_eq!(answer(random.try_acquire().await), Err(extended));
}

async fn a_released_lease_is_taken_with_a_higher_number(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let holders = [lease(&world, &ann, "ann"), lease(&world, &bob, "bob")];
    for number in 1..=6 {
        let [own, other] =
            if number % 3 == 0 { [&holders[0], &holders[1]] } else { [&holders[1], &holders[0]] };
        assert_eq!(answer(own.current().await), None);
        assert!(!answer(own.release().await), "there is none");
        let term = taken(own).await;
        assert_eq!(term.number, number);
        assert_eq!(answer(other.try_acquire().await), Err(term));
        assert!(answer(own.release().await));
    }
}

async fn one_of_many_takes_a_lease(world: World) {
    const HOLDERS: usize = 12;
    const ROUNDS: u64 = 3;
    for number in 1..=ROUNDS {
        let mut trying = Vec::new();
        for _ in 0..HOLDERS {
            let lease = Lease::new(&world.hesitant().await, world.at("lease"), HOUR);
            trying.push(Waiting::new(async move {
                let term = lease.try_acquire().await?;
                Ok((term, lease))
            }));
        }
        let mut holders = Vec::new();
        for one in trying {
            let (term, lease) = one.gets(&world, "an answer").await;
            if let Ok(term) = term {
                holders.push((term, lease));
            }
        }
        let [(term, lease)] = &holders[..] else { panic!("{} hold it", holders.len()) };
        assert_eq!(term.number, number);
        assert!(answer(lease.release().await));
    }
}

async fn a_lease_whose_answer_is_lost_is_taken_once(world: World) {
    let (client, plan) = world.scripted([]).await;
    let own = lease(&world, &client, "ann");
    let others = lease(&world, &world.client().await, "bob");
    for (number, site) in (2..).zip([Site::ReplyLost, Site::RequestLost, Site::AppliedLate]) {
        taken(&own).await;
        assert!(answer(own.release().await));
        plan.cue(Cue::new(site).of(Verb::Set));
        let term = world.in_time("the lease", taken(&own)).await;
        assert_eq!(plan.pending(), 0, "{site:?} did not fire");
        assert_eq!(term.number, 2 * (number - 1), "{site:?}");
        assert_eq!(answer(others.try_acquire().await), Err(term), "{site:?}");
        assert!(answer(own.release().await));
    }
}

async fn a_stored_term_ends_at_its_date_and_the_margin(world: World) {
    let (client, at) = (world.client().await, world.at("lease"));
    let now = clock::date().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let store = async |until: Duration| {
        let (since, until) = ((until.saturating_sub(HOUR)).as_millis(), until.as_millis());
        let term = format!(r#"{{"holder":"cid","since":{since},"until":{until},"number":7}}"#);
        answer(client.put(&at, term).await);
    };
    let own = || lease(&world, &client, "ann");

    store(now + HOUR).await;
    let theirs = answer(own().try_acquire().await).expect_err("another holds it");
    assert_eq!((theirs.holder.as_str(), theirs.number), ("cid", 7));

    store(now.saturating_sub(HOUR)).await;
    assert_eq!(answer(own().current().await), None);
    let cautious = own().clock_margin(HOUR * 2);
    assert!(answer(cautious.try_acquire().await).is_err(), "its clock may be ahead");
    assert_eq!(taken(&own().clock_margin(HOUR / 2)).await.number, 8);

    // A term of no length has ended already.
    assert!(answer(own().release().await));
    let short = Lease::new(&client, &at, Duration::ZERO).holder("ann");
    taken(&short).await;
    let aligned = own().holder("bob").aligned();
    let term = taken(&aligned).await;
    let until = term.until.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    assert_eq!(until.as_millis() % HOUR.as_millis(), 0, "{term:?}");
    assert!(term.until > term.since && term.until <= term.since + HOUR, "{term:?}");

    for bytes in ["", "7", r#"{"holder":"cid"}"#] {
        answer(client.put(&at, bytes).await);
        for error in [
            failure(own().try_acquire().await, "what is no lease"),
            failure(own().current().await, "what is no lease"),
        ] {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{bytes}");
        }
    }
}
