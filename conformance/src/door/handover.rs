//! A session that one client hands over to the next.

use synod_core::client::{Client, ClientOptions};
use synod_core::error::ErrorKind;
use synod_core::store::{Lifetime, Query, SessionEnd, SessionHandover};
use synod_recipes::election::Election;
use synod_recipes::lock::Mutex;

use crate::door::{answer, done, failure};
use crate::recipe::{Waiting, line};
use crate::world::World;

cases![
    "L-SES-19 L-SES-7" breaks [ClosesByForgetting] => a_session_is_handed_over_with_its_nodes,
    "L-SES-19 L-SES-7" breaks [ClosesByForgetting] => a_session_that_was_handed_over_is_resumed_once,
    "L-SES-20 L-MX-3 L-MX-16" breaks [DroppedTicketStays] => a_lock_is_resumed_with_its_token,
    "L-SES-20 L-MX-16" breaks [DroppedTicketStays] => a_lead_is_resumed_and_its_candidacies_are_removed,
];

/// Hands the session of a client over, as the text that the next process reads. `None` if the store
/// does not support that: then the call changes nothing.
async fn handed_over(world: &World, client: &Client) -> Option<SessionHandover> {
    let session = answer(client.session().await);
    match world.in_time("a handover", client.hand_over()).await {
        Ok(handover) => {
            assert_eq!(session.lost().await, SessionEnd::HandedOver);
            assert!(!session.is_certain() && client.is_closed());
            let read = failure(client.get(&world.at("a")).await, "a read of a closed client");
            assert_eq!(read.kind(), ErrorKind::SessionLost);
            Some(answer(handover.to_text().parse()))
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(session.is_certain() && !client.is_closed());
            done(client.create(&world.at("unchanged"), "", Lifetime::Session).await);
            None
        }
    }
}

impl World {
    fn resuming(&self, session: &SessionHandover) -> ClientOptions {
        self.unhurried().resume(session.clone())
    }

    async fn resumed(&self, session: &SessionHandover) -> Client {
        self.client_on(self.harness.backend(), self.resuming(session)).await
    }

    async fn not_resumed(&self, session: &SessionHandover) -> ErrorKind {
        let opening = Client::open(self.harness.backend(), self.resuming(session));
        let opened = self.in_time("a session that cannot be resumed", opening).await;
        failure(opened, "a session that cannot be resumed").kind()
    }
}

async fn a_session_is_handed_over_with_its_nodes(world: World) {
    let (ann, bob, a) = (world.unhurried_client().await, world.bob().await, world.at("a"));
    let ann = answer(ann.namespace(&world.dir));
    let inner = "/a".parse().expect("a path");
    done(ann.create(&inner, "old", Lifetime::Session).await);
    let id = answer(ann.session().await).info().id;
    let Some(handover) = handed_over(&world, &ann).await else { return };
    assert_eq!(handover.session(), id);
    answer(world.in_time("a second close", ann.close()).await);
    drop(ann);
    assert_eq!(bob.text(&a).await.as_deref(), Some("old"));

    let next = world.resumed(&handover).await;

    let session = answer(next.session().await);
    assert_eq!(session.info().id, id);
    assert!(session.is_certain() && session.resumed_at().is_some());
    let stat = bob.get(&a).await.and_then(|node| node.stat).expect("it is there");
    assert_eq!(stat.owner, Some(id));
    // The next client is served like any other.
    let (_view, mut watch) = answer(next.watch(Query::node(a.clone())).await);
    bob.set(&a, "new").await;
    world.in_time("an event in the resumed session", watch.next()).await;
    assert_eq!(answer(next.get(&a).await).expect("it is there").data, "new");
    // It is handed over again, without the former claim, and then it ends with its client.
    let first = handover;
    let handover = handed_over(&world, &next).await.expect("as before");
    assert_eq!(bob.names(&world.at("synod-handover")).await, [""; 0]);
    let last = world.resumed(&handover).await;
    assert_eq!(world.not_resumed(&first).await, ErrorKind::SessionLost);
    assert!(bob.exists(&a).await);
    answer(last.close().await);
    assert!(!bob.exists(&a).await);
}

async fn a_session_that_was_handed_over_is_resumed_once(world: World) {
    let (ann, bob, a) = (world.unhurried_client().await, world.bob().await, world.at("a"));
    done(ann.create(&a, "", Lifetime::Session).await);
    let Some(handover) = handed_over(&world, &ann).await else { return };

    let next = world.resumed(&handover).await;

    assert_eq!(world.not_resumed(&handover).await, ErrorKind::Refused);
    assert!(bob.exists(&a).await);
    let session = answer(next.session().await);
    let certain = async || session.is_certain();
    world.eventually("the session of the first is certain", certain).await;
    assert!(answer(next.get(&a).await).is_some());
    answer(next.close().await);
    assert!(!bob.exists(&a).await);
    assert_eq!(world.not_resumed(&handover).await, ErrorKind::SessionLost);
    let lazy = world.resuming(&handover).lazy(true);
    assert_eq!(failure(lazy.validate(), "a lazy client").kind(), ErrorKind::Invalid);
}

async fn a_lock_is_resumed_with_its_token(world: World) {
    let (ann, bob) = (world.unhurried_client().await, world.unhurried_client().await);
    let lock = |client: &Client| Mutex::new(client, world.at("lock"));
    assert!(answer(lock(&ann).resume().await).is_none(), "its own session");
    let guard = answer(lock(&ann).lock().await);
    assert!(answer(lock(&ann).resume().await).is_none(), "its own guard");
    let theirs = lock(&bob);
    let mut waits = Waiting::new(async move { theirs.lock().await });
    world.stand(&bob, &world.at("lock"), 2).await;
    let token = guard.token();
    let Some(handover) = handed_over(&world, &ann).await else { return };
    assert!(!guard.is_held());
    drop(guard);
    waits.waits_for(world.brief(), "the lock is handed over").await;

    let next = world.resumed(&handover).await;

    let guard = answer(lock(&next).resume().await).expect("ann held it");
    assert!(guard.is_held());
    assert_eq!(guard.token(), token);
    assert!(answer(lock(&next).resume().await).is_none(), "each guard once");
    let under = guard.txn().create(world.at("under"), "", Lifetime::Persistent);
    answer(answer(next.commit(under).await).required());
    waits.waits_for(world.brief(), "the lock is resumed").await;
    drop(guard);
    let theirs = waits.gets(&world, "the lock that was released").await;
    assert!(theirs.token() > token);
}

async fn a_lead_is_resumed_and_its_candidacies_are_removed(world: World) {
    let (ann, bob) = (world.unhurried_client().await, world.unhurried_client().await);
    let election = |client: &Client| Election::new(client, world.at("lead"));
    let lead = answer(election(&ann).campaign("ann").await);
    let second = election(&ann);
    let second = Waiting::new(async move { second.campaign("of no use").await });
    world.stand(&bob, &world.at("lead"), 2).await;
    let theirs = election(&bob);
    let waits = Waiting::new(async move { theirs.campaign("bob").await });
    world.stand(&bob, &world.at("lead"), 3).await;
    let token = lead.token();
    let Some(handover) = handed_over(&world, &ann).await else { return };
    drop((lead, second));
    assert_eq!(line(&bob, &world.at("lead")).await.len(), 3);

    let next = world.resumed(&handover).await;

    let lead = answer(election(&next).resume().await).expect("ann led");
    assert_eq!(lead.token(), token);
    let candidates = answer(election(&bob).candidates().await);
    assert_eq!(candidates.len(), 2, "nobody waits for the other ticket of the session");
    assert_eq!(candidates[0].label, "ann");
    answer(lead.proclaim("again").await);
    let leader = answer(election(&bob).leader().await).expect("there is one");
    assert_eq!((leader.label.as_ref(), leader.token), (&b"again"[..], token));
    drop(lead);
    let _theirs = waits.gets(&world, "the lead that was dropped").await;
}
