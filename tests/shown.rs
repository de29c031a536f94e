//! The debug output of recipes and their guards.

use std::fmt::Debug;
use std::num::{NonZeroU32, NonZeroU64};

use synod::Path;
use synod::recipe::{
    AtomicValue, Barrier, CountDown, Counter, Election, Ids, LeaderLatch, LeaderSelector,
    MultiLock, Mutex, Owner, PassingMutex, ReentrantMutex, RwLock, Semaphore, SharedCount,
    SharedValue, UnfairLock,
};

fn path(name: &str) -> Path {
    Path::new(&format!("/{name}")).expect("valid")
}

#[tokio::test(start_paused = true)]
async fn a_recipe_is_shown_by_its_path_and_without_its_label() {
    const SAID: &str = "said-of-myself";
    let client = &synod::connect("mem://shown").await.expect("memory is always there");
    let one = NonZeroU32::MIN;
    let mutex = Mutex::new(client, path("mutex")).label(SAID);
    let rwlock = RwLock::new(client, path("rwlock")).label(SAID);
    let semaphore = Semaphore::new(client, path("semaphore"), one).label(SAID);
    let unfair = UnfairLock::new(client, path("unfair")).label(SAID);
    let passing = PassingMutex::new(client, path("passing"), one).label(SAID);
    let reentrant = ReentrantMutex::new(client, path("reentrant")).label(SAID);
    let multi = MultiLock::new(client, [path("b"), path("a")]).expect("two of them").label(SAID);
    let election = Election::new(client, path("election"));
    let latch = LeaderLatch::new(client, path("latch")).label(SAID);
    let selector = LeaderSelector::new(client, path("selector")).label(SAID);

    // Tickets and guards are not shown as a part of their recipe.
    let ticket = mutex.enqueue().await.expect("free");
    let passed = passing.lock().await.expect("free");
    let entered = reentrant.lock(&Owner::new()).await.expect("free");
    let leader = election.campaign(SAID).await.expect("free");

    let recipes: [(&dyn Debug, &str); 10] = [
        (&mutex, "Mutex { line: /mutex }"),
        (&rwlock, "RwLock { reading: /rwlock, writing: /rwlock }"),
        (&semaphore, "Semaphore { line: /semaphore }"),
        (&unfair, "UnfairLock { line: /unfair }"),
        (&passing, "PassingMutex { line: /passing, most: 1, here: Handover { .. } }"),
        (&reentrant, "ReentrantMutex { line: /reentrant, owners: Owners { .. } }"),
        (&multi, "MultiLock { lines: [/a, /b] }"),
        (&election, "Election { line: /election }"),
        (&latch, "LeaderLatch { line: /latch }"),
        (&selector, "LeaderSelector { line: /selector, interrupts: 0 }"),
    ];
    for (recipe, shown) in recipes {
        assert_eq!(format!("{recipe:?}"), shown);
    }
    // The value itself is the application's.
    let counter = Counter::new(client, path("counter"));
    let value = AtomicValue::<String>::new(client, path("value"));
    value.set(&SAID.to_owned()).await.expect("memory answers");
    let shared = SharedValue::open(client, path("shared"), &SAID.to_owned()).await;
    let count = SharedCount::open(client, path("count"), 7).await.expect("memory answers");
    let shared = shared.expect("memory answers");
    assert_eq!(format!("{shared:?}"), "SharedValue { cell: /shared, .. }");
    assert_eq!(format!("{count:?}"), "SharedCount { cell: /count, .. }");
    let ids = Ids::new(client, path("ids"), NonZeroU64::MIN);
    assert_eq!(format!("{counter:?}"), "Counter { cell: /counter, .. }");
    assert_eq!(format!("{value:?}"), "AtomicValue { cell: /value, .. }");
    assert_eq!(format!("{ids:?}"), "Ids { cell: /ids, block: 1, .. }");
    let latch = CountDown::new(client, path("latch"), one);
    for shown in [format!("{:?}", Barrier::new(client, path("barrier"))), format!("{latch:?}")] {
        assert!(shown.contains("path: /") && shown.len() < 400, "{shown}");
    }
    let proofs: [&dyn Debug; 4] = [&ticket, &passed, &entered, &leader];
    for shown in proofs.map(|proof| format!("{proof:?}")) {
        assert!(!shown.contains(SAID) && shown.len() < 400, "{shown}");
    }
}
