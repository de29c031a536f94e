//! Writes that are repeated after a lost answer, and applied exactly once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{join, join_all};
use synod_core::client::{Client, ExactlyOnceClient};
use synod_core::error::{Effect, Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{
    Backend, Expect, Lifetime, Outcome, Query, RejectReason, SessionInfo, SessionOptions, Status,
    Store, Txn, View, Watch,
};
use synod_testkit::fault::{Cue, Site, Verb};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::door::gate::Way;
use crate::door::{answer, done, failure};
use crate::world::World;

cases![
    "D-ONCE L-OUT-2" catches [CasNeverMatches] => a_write_is_done_once_whatever_is_lost,
    "D-ONCE L-OUT-3" breaks [AmbiguousRepeated] => a_delayed_request_is_not_applied_after_its_retry,
    "D-ONCE L-OUT-1" breaks [AmbiguousRepeated] => a_write_that_lost_a_race_is_void,
    "D-ONCE L-KV-7" catches [CreateOverwrites] => of_many_creates_without_an_answer_one_succeeds,
    "D-ONCE L-OUT-5 L-OUT-6" needs [Expiry] breaks [DeadlineIgnored] => a_write_that_cannot_be_resolved_is_unknown,
    "D-ONCE L-X-11" catches [NoImplicitParents] => a_write_id_goes_with_its_write,
];

/// The faults after which a caller does not know the effect of its write.
const DOUBTS: [Site; 3] = [Site::RequestLost, Site::ReplyLost, Site::AppliedLate];

impl World {
    /// The exactly-once writes of a client, with the write ids below the directory of the case.
    fn once<'a>(&self, client: &'a Client) -> ExactlyOnceClient<'a> {
        client.exactly_once().write_ids_at(self.at("ids"))
    }
}

async fn a_write_is_done_once_whatever_is_lost(world: World) {
    let (client, plan) = world.scripted([]).await;
    let (bob, once) = (world.bob().await, world.once(&client));
    // The answers to the first two requests.
    let lose = |site| {
        for n in 1..=2 {
            plan.cue(Cue::new(site).of(Verb::Commit).nth(n));
        }
    };
    for (number, site) in DOUBTS.into_iter().enumerate() {
        let a = world.at(&format!("n{number}"));

        lose(site);
        let made = done(once.create(&a, "1", Lifetime::Persistent).await);
        let node = bob.get(&a).await.expect("it was created");
        assert_eq!((made.stat, node.stat.map(|stat| stat.owner)), (node.stat, Some(None)));

        lose(site);
        let version = node.stat.expect("a stat").version;
        let set = done(once.set(&a, "2", Expect::Version(version)).await);
        let node = bob.get(&a).await.expect("it was created");
        assert_eq!((set.stat, node.data.as_ref()), (node.stat, b"2".as_ref()), "{site:?}");

        lose(site);
        let put = answer(once.put(&a, "3").await);
        let node = bob.get(&a).await.expect("it was created");
        assert_eq!((put.stat, node.data.as_ref()), (node.stat, b"3".as_ref()), "{site:?}");

        lose(site);
        let gone = answer(once.delete(&a, Expect::Any).await);
        assert!(gone.is_committed() && !bob.exists(&a).await, "{site:?}");

        // The set of a put is rejected, as there is no node.
        lose(site);
        let put = answer(once.put(&a, "4").await);
        assert_eq!(put.stat, bob.get(&a).await.expect("it was put").stat, "{site:?}");
        assert_eq!(plan.pending(), 0, "{site:?}: every fault took place");
    }
}

/// A store whose next transaction is delayed until the test lets it arrive; other calls of its
/// session are not delayed. Its caller gets an error with an unknown effect.
#[derive(Clone, Debug)]
struct Delaying<T> {
    inner: T,
    delayed: Arc<Mutex<Delayed>>,
}

#[derive(Debug, Default)]
struct Delayed {
    is_armed: bool,
    request: Option<(Arc<dyn Store>, Txn)>,
}

impl Delaying<Arc<dyn Backend>> {
    fn new(backend: impl Backend) -> Self {
        Self { inner: Arc::new(backend), delayed: Arc::default() }
    }

    /// Delays the next transaction.
    fn arm(&self) {
        self.delayed.lock().unwrap_or_else(PoisonError::into_inner).is_armed = true;
    }

    /// Lets the delayed transaction arrive.
    async fn arrive(&self) -> Result<Outcome> {
        let request = self.delayed.lock().unwrap_or_else(PoisonError::into_inner).request.take();
        let (store, txn) = request.expect("a transaction was delayed");
        store.commit(txn).await
    }
}

#[async_trait]
impl Backend for Delaying<Arc<dyn Backend>> {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        let inner: Arc<dyn Store> = Arc::from(self.inner.open(options).await?);
        Ok(Box::new(Delaying { inner, delayed: self.delayed.clone() }))
    }
}

#[async_trait]
impl Store for Delaying<Arc<dyn Store>> {
    fn session(&self) -> &SessionInfo {
        self.inner.session()
    }

    fn status(&self) -> watch::Receiver<Status> {
        self.inner.status()
    }

    async fn read(&self, query: Query) -> Result<View> {
        self.inner.read(query).await
    }

    async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        self.inner.watch(query).await
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        {
            let mut delayed = self.delayed.lock().unwrap_or_else(PoisonError::into_inner);
            if std::mem::take(&mut delayed.is_armed) {
                delayed.request = Some((self.inner.clone(), txn));
                return Err(Error::new(ErrorKind::Unreachable, "commit").with_unknown_effect());
            }
        }
        self.inner.commit(txn).await
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

/// A write whose first request is delayed.
#[derive(Clone, Copy, Debug)]
enum Late {
    Create,
    Set,
    Put,
    Delete,
}

impl Late {
    async fn send(self, once: &ExactlyOnceClient<'_>, at: &Path) -> Result<()> {
        match self {
            Self::Create => once.create(at, "late", Lifetime::Persistent).await?.required()?,
            Self::Set => once.set(at, "late", Expect::Any).await?.required()?,
            Self::Put => once.put(at, "late").await?,
            Self::Delete => return once.delete(at, Expect::Any).await?.required(),
        };
        Ok(())
    }
}

async fn a_delayed_request_is_not_applied_after_its_retry(world: World) {
    let store = Delaying::new(world.gate());
    let client = world.client_on(store.clone(), world.options()).await;
    let (bob, once) = (world.bob().await, world.once(&client));
    for late in [Late::Create, Late::Set, Late::Put, Late::Delete] {
        let a = world.at(&format!("{late:?}"));
        if !matches!(late, Late::Create) {
            bob.create(&a, "old").await;
        }
        store.arm();

        answer(late.send(&once, &a).await);

        // Another client continues from there, with the same versions as before.
        if bob.exists(&a).await {
            bob.delete(&a).await;
        }
        if !matches!(late, Late::Create) {
            bob.create(&a, "bob").await;
        }
        // A client that does not expect the delayed request removes its write id in the meantime.
        sleep(world.brief()).await;
        assert!(!answer(store.arrive().await).is_committed(), "{late:?}");
        let expected = (!matches!(late, Late::Create)).then_some("bob");
        assert_eq!(bob.text(&a).await.as_deref(), expected, "{late:?}");
    }
}

async fn a_write_that_lost_a_race_is_void(world: World) {
    let (gate, bob, a) = (world.gate(), world.bob().await, world.at("a"));
    let old = bob.create(&a, "old").await;
    let store = Delaying::new(gate.clone());
    let client = world.client_on(store.clone(), world.options()).await;
    let once = world.once(&client);
    store.arm();
    // The retry waits for this gate.
    gate.set(Way::Shut);

    let meddling = async {
        gate.called(Verb::Commit, 1).await;
        bob.delete(&a).await;
        gate.set(Way::Open);
    };
    let writing = once.set(&a, "late", Expect::Version(old.version));
    let (written, ()) = world.in_time("a write in a race", join(writing, meddling)).await;

    let Outcome::Rejected(no) = answer(written) else { panic!("there was no node") };
    assert_eq!((no.index, no.path, no.reason), (0, a.clone(), RejectReason::Missing));
    // The new node may have the expected version.
    bob.create(&a, "new").await;
    assert!(!answer(store.arrive().await).is_committed(), "it is void");
    assert_eq!(bob.text(&a).await.as_deref(), Some("new"));
}

async fn of_many_creates_without_an_answer_one_succeeds(world: World) {
    const CLIENTS: usize = 5;
    let (a, bob) = (world.at("a"), world.bob().await);
    let lost = |number: usize| {
        let site = if number.is_multiple_of(2) { Site::ReplyLost } else { Site::RequestLost };
        Cue::new(site).of(Verb::Commit)
    };
    let clients = join_all((0..CLIENTS).map(|number| world.scripted([lost(number)]))).await;

    // All have the same data, so the data does not identify the writer.
    let creating = clients.iter().map(async |(client, _plan)| {
        let created = world.once(client).create(&a, "data", Lifetime::Persistent).await;
        answer(created).ok()
    });
    let created = world.in_time("the creates", join_all(creating)).await;

    let created: Vec<_> = created.into_iter().flatten().collect();
    assert_eq!(created.len(), 1, "exactly one created it");
    let node = bob.get(&a).await.expect("one created it");
    assert!(created[0].stat.is_none_or(|stat| Some(stat) == node.stat), "and it is this one");
}

async fn a_write_that_cannot_be_resolved_is_unknown(world: World) {
    let bob = world.bob().await;
    for expires in [false, true] {
        let (gate, a) = (world.gate(), world.at(&format!("{expires}")));
        let limit = if expires { world.profile.patience / 2 } else { world.brief() };
        let options = world.options().timeout(limit);
        let lost = Cue::new(Site::ReplyLost).of(Verb::Commit);
        let (client, plan) = world.scripted_on(gate.clone(), options, [lost]).await;
        let session = answer(client.session().await);

        let ending = async {
            gate.answered(Verb::Commit, 1).await;
            gate.set(Way::Shut);
            if expires {
                world.expire(session.info().id).await;
            }
        };
        let once = world.once(&client);
        let writing = join(once.create(&a, "", Lifetime::Persistent), ending);
        let (written, ()) = world.in_time("a write without an answer", writing).await;

        let error = failure(written, "a write without an answer");
        let kind = if expires { ErrorKind::SessionLost } else { ErrorKind::Unreachable };
        assert_eq!((error.kind(), error.effect()), (kind, Effect::Unknown), "{error}");
        assert_eq!((error.path(), plan.pending()), (Some(&a), 0), "{error}");
        assert!(bob.exists(&a).await, "it happened");
    }
}

async fn a_write_id_goes_with_its_write(world: World) {
    let (client, bob) = (world.client().await, world.bob().await);
    let (a, ids, once) = (world.at("a"), world.at("ids"), world.once(&client));
    done(once.create(&a, "1", Lifetime::Session).await);
    assert!(!answer(once.create(&a, "2", Lifetime::Persistent).await).is_committed());
    assert!(!answer(once.set(&world.at("b"), "", Expect::Any).await).is_committed());
    answer(once.put(&a, "3").await);
    assert!(answer(once.delete(&a, Expect::Any).await).is_committed());
    let none = async || bob.names(&ids).await.is_empty();
    world.eventually("the write ids are gone", none).await;

    // A write id at or below the node would block the write, or the removal of the node.
    for at in [&ids, &world.dir] {
        for error in [
            failure(once.create(at, "", Lifetime::Persistent).await.map(drop), "create"),
            failure(once.put(at, "").await.map(drop), "put"),
            failure(once.delete(at, Expect::Any).await.map(drop), "delete"),
        ] {
            assert_eq!((error.kind(), error.path()), (ErrorKind::Invalid, Some(at)), "{error}");
        }
    }
    // Nothing can be created below an ephemeral node.
    done(client.create(&ids, "", Lifetime::Session).await);
    let error = failure(once.put(&a, "").await, "a put without a write id");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Refused, Effect::None), "{error}");
    assert!(error.detail().is_some_and(|text| text.contains(ids.as_str())), "{error}");
    assert!(!bob.exists(&a).await, "nothing was written");
    // With the longest duration there is no deadline.
    let patient = world.options().timeout(Duration::MAX);
    let patient = world.client_on(world.harness.backend(), patient).await;
    let once = patient.exactly_once().write_ids_at(world.at("more/ids"));
    answer(once.put(&a, "4").await);
    assert_eq!(bob.text(&a).await.as_deref(), Some("4"));
}
