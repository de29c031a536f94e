//! The leader selector: work that is done only while leading.

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::store::Expect;
use synod_recipes::election::{LeaderSelector, Term};
use synod_testkit::fault::Verb;
use tokio::sync::{Notify, mpsc};

use crate::door::answer;
use crate::door::gate::Way;
use crate::recipe::{Waiting, line};
use crate::world::World;

cases![
    "L-EL-7 L-EL-5" breaks [WorkOutlivesLead] => work_is_dropped_before_the_next_term_begins_here,
    "L-EL-7 L-EL-5" needs [Expiry] breaks [WorkOutlivesLead] => an_expired_session_ends_the_work_and_starts_a_new_campaign,
    "L-EL-5 L-MX-2" needs [Expiry] breaks [RequeuesTwice TokenIsSequence] => a_waiting_candidate_whose_session_is_lost_campaigns_again,
    "L-EL-7" breaks [RequeuesTwice] => a_candidate_that_campaigns_again_has_one_ticket,
    "L-EL-7 L-EL-4" breaks [DroppedTicketStays] => an_interruption_ends_the_term_it_meets_and_no_other,
    "L-EL-7" breaks [DroppedTicketStays] => an_interruption_meets_a_leader_that_does_not_know_it_yet,
    "L-EL-7" breaks [InterruptByOldLook] => an_interruption_meets_a_leader_whose_draw_is_not_answered_yet,
    "L-EL-5" breaks [OutageEndsIt] => leading_goes_on_after_an_outage_that_is_longer_than_a_call_may_take,
    "L-EL-7 L-OUT-7" breaks [LeadKeptAfterWork] => an_error_of_the_work_is_returned_and_the_lead_released,
];

fn selector(world: &World, client: &Client, label: &'static str) -> LeaderSelector {
    LeaderSelector::new(client, world.at("select")).label(label)
}

/// Work that is counted while it runs, and never completes.
struct Working(Arc<AtomicUsize>);

impl Working {
    fn begin(at_work: &Arc<AtomicUsize>) -> Self {
        assert_eq!(at_work.fetch_add(1, Ordering::SeqCst), 0, "the last term is not over");
        Self(at_work.clone())
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Leads repeatedly in a separate task, and reports each term as it begins.
fn keeps_leading(selector: LeaderSelector) -> (Waiting<()>, mpsc::UnboundedReceiver<u64>) {
    let (tell, told) = mpsc::unbounded_channel();
    let at_work = Arc::new(AtomicUsize::new(0));
    let leading = Waiting::new(async move {
        let work = |lead: synod_recipes::election::Leadership| {
            let (tell, at_work) = (tell.clone(), at_work.clone());
            async move {
                let _working = Working::begin(&at_work);
                assert!(lead.is_held());
                let _heard = tell.send(lead.token().revision().get()).is_ok();
                std::future::pending::<ControlFlow<()>>().await
            }
        };
        selector.keep_leading(work).await
    });
    (leading, told)
}

async fn work_is_dropped_before_the_next_term_begins_here(world: World) {
    let (ann, eve) = (world.client().await, world.client().await);
    let (_leading, mut terms) = keeps_leading(selector(&world, &ann, "ann"));
    let mut last = 0;
    for _ in 0..4 {
        let term = world.in_time("the next term", terms.recv()).await.expect("she stands on");
        assert!(term > last);
        last = term;
        let all = line(&eve, &world.at("select")).await;
        assert!(answer(eve.delete(&all[0].path, Expect::Any).await).is_committed());
    }
}

async fn an_expired_session_ends_the_work_and_starts_a_new_campaign(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let (_leading, mut terms) = keeps_leading(selector(&world, &ann, "ann"));
    let first = world.in_time("the lead", terms.recv()).await.expect("she stands on");

    world.expire(answer(ann.session().await).info().id).await;

    let again = world.in_time("the lead", terms.recv()).await.expect("she stands on");
    assert!(again > first);
    let leader = answer(selector(&world, &bob, "").leader().await).expect("she leads");
    assert_eq!((leader.label.as_ref(), leader.token.revision().get()), (&b"ann"[..], again));
}

async fn a_waiting_candidate_whose_session_is_lost_campaigns_again(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let (first, mut terms) = keeps_leading(selector(&world, &ann, "ann"));
    let led = world.in_time("the lead", terms.recv()).await.expect("she stands on");
    let (_leading, mut next) = keeps_leading(selector(&world, &bob, "bob"));
    world.stand(&ann, &world.at("select"), 2).await;

    let session = answer(bob.session().await);
    world.expire(session.info().id).await;
    world.in_time("the loss", session.lost()).await;
    drop(first);

    let term = world.in_time("the lead", next.recv()).await.expect("it is still a candidate");
    assert!(term > led);
}

async fn a_candidate_that_campaigns_again_has_one_ticket(world: World) {
    const TERMS: usize = 5;
    let (ann, eve) = (world.client().await, world.client().await);
    let selector = selector(&world, &ann, "ann");
    let mut terms = 0;
    let (eve, dir) = (&eve, world.at("select"));
    let work = |_lead| {
        terms += 1;
        let (dir, term) = (dir.clone(), terms);
        async move {
            assert_eq!(line(eve, &dir).await.len(), 1, "she stands once");
            if term < TERMS { ControlFlow::Continue(()) } else { ControlFlow::Break(term) }
        }
    };

    let done = answer(world.in_time("the last term", selector.keep_leading(work)).await);

    assert_eq!(done, TERMS);
    world.left_alone(eve, &dir).await;
}

async fn an_interruption_ends_the_term_it_meets_and_no_other(world: World) {
    let (gate, bob) = (world.gate(), world.client().await);
    let ann = world.client_on(gate.clone(), world.options()).await;
    let selector = selector(&world, &ann, "ann");
    // Without a leader, nothing is interrupted.
    selector.interrupt();
    let (_leading, mut terms) = keeps_leading(selector.clone());
    let first = world.in_time("the lead", terms.recv()).await.expect("it is still a candidate");
    let (next, mut his) = keeps_leading(LeaderSelector::new(&bob, world.at("select")));
    world.stand(&ann, &world.at("select"), 2).await;
    let watched = gate.count(Verb::Watch);

    selector.interrupt();

    let second = world
        .in_time("the lead of the candidate that was interrupted", his.recv())
        .await
        .expect("it is a candidate");
    assert!(second > first);
    world.stand(&bob, &world.at("select"), 2).await;
    // Ann waits, and is not interrupted while waiting: it checks whether it leads, and waits on.
    let place = line(&bob, &world.at("select")).await[1].token.revision().get();
    world.in_time("her wait", gate.answered(Verb::Watch, watched + 1)).await;
    for _ in 0..2 {
        // The second read is the first read of the continued wait: the check has had its effect.
        let looked = gate.count(Verb::Read);
        selector.interrupt();
        world.in_time("her wait after a look", gate.answered(Verb::Read, looked + 2)).await;
    }
    drop(next);
    let third = world.in_time("the lead", terms.recv()).await.expect("she stands on");
    assert!(third > second);
    assert_eq!(third, place, "her term was over before it began");
    let all = line(&bob, &world.at("select")).await;
    let stayed: Vec<_> = all.iter().map(|one| one.token.revision().get()).collect();
    assert_eq!(stayed, [third], "she leads on");
    assert!(terms.try_recv().is_err(), "there was another term");
}

async fn an_interruption_meets_a_leader_that_does_not_know_it_yet(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let dir = world.at("select");
    let (leading, mut terms) = keeps_leading(selector(&world, &ann, "ann"));
    world.in_time("the lead", terms.recv()).await.expect("she stands");
    let his = selector(&world, &bob, "bob");
    let begun = AtomicUsize::new(0);
    let mut lead = pin!(his.lead(|_lead| async {
        begun.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<()>().await;
    }));
    let comes = pin!(world.stand(&ann, &dir, 2));
    let waits = matches!(select(lead.as_mut(), comes).await, Either::Right(_));
    assert!(waits, "she leads");
    // Bob is the first in the queue while no task waits for the lead.
    drop(leading);
    world.stand(&ann, &dir, 1).await;

    his.interrupt();

    let term = answer(world.in_time("the end of what does not begin", lead).await);
    assert_eq!(term, Term::Interrupted);
    assert_eq!(begun.load(Ordering::SeqCst), 0, "the work of a term that was interrupted before");
    world.left_alone(&ann, &dir).await;
}

async fn an_interruption_meets_a_leader_whose_draw_is_not_answered_yet(world: World) {
    let (ann, gate) = (world.client().await, world.gate());
    let bob = world.client_on(gate.clone(), world.unhurried()).await;
    let dir = world.at("select");
    let (leading, mut terms) = keeps_leading(selector(&world, &ann, "ann"));
    world.in_time("the lead", terms.recv()).await.expect("she stands");
    let his = selector(&world, &bob, "bob");
    let begun = AtomicUsize::new(0);
    gate.set(Way::Holding);
    let mut lead = pin!(his.lead(|_lead| async {
        begun.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<()>().await;
    }));
    // The answer to the create shows that ann is before bob. Ann leaves before the answer arrives.
    let drawn = pin!(gate.held(1));
    let waits = matches!(select(lead.as_mut(), drawn).await, Either::Right(_));
    assert!(waits, "the draw is answered");
    drop(leading);
    world.stand(&ann, &dir, 1).await;

    his.interrupt();
    gate.set(Way::Open);

    let term = answer(world.in_time("the end of what does not begin", lead).await);
    assert_eq!(term, Term::Interrupted);
    assert_eq!(begun.load(Ordering::SeqCst), 0, "the work of a term that was interrupted before");
    world.left_alone(&ann, &dir).await;
}

async fn leading_goes_on_after_an_outage_that_is_longer_than_a_call_may_take(world: World) {
    let (gate, limit) = (world.gate(), world.brief());
    let ann = world.client_on(gate.clone(), world.options().timeout(limit)).await;
    gate.set(Way::Shut);
    let (mut leading, mut terms) = keeps_leading(selector(&world, &ann, "ann"));
    leading.waits_for(limit * 3, "the store does not answer").await;

    gate.set(Way::Open);

    world.in_time("the lead", terms.recv()).await.expect("she stands on");
}

async fn an_error_of_the_work_is_returned_and_the_lead_released(world: World) {
    let (ann, bob) = (world.client().await, world.client().await);
    let (begun, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let leading = {
        let (selector, begun, end) = (selector(&world, &ann, "ann"), begun.clone(), end.clone());
        Waiting::new(async move {
            let work = |_lead| async move {
                begun.notify_one();
                end.notified().await;
                Err::<(), _>("the disk is full")
            };
            selector.lead(work).await
        })
    };
    world.in_time("the beginning of the work", begun.notified()).await;
    end.notify_one();

    let term = leading.gets(&world, "the end of the work").await;

    assert_eq!(term, Term::Done(Err("the disk is full")));
    world.left_alone(&bob, &world.at("select")).await;
}
