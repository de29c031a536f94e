//! The parts of recipes that are neither queues nor crews: [`add`], [`reside`], [`share`] and
//! [`meet`].

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{Either, select};
use synod_core::error::Result;
use synod_core::path::Path;
use synod_recipes::barrier::DoubleBarrier;
use synod_recipes::cache::{Cache, Extent};
use synod_recipes::discovery::{Discovery, Instance};
use synod_recipes::partition::{Partition, Share, ShareChange};
use synod_recipes::presence::Group;
use synod_recipes::transaction::{Attempt, Transaction};
use synod_recipes::value::AtomicValue;
use tokio::time::sleep;

use crate::clients::deed::{Deed, Effect};
use crate::clients::entry::now;
use crate::clients::post::{Post, effect};
use crate::clients::report::{GLANCE, GLANCES};
use synod_testkit::history::Value;

/// The total number of units.
pub(crate) const UNITS: Value = 1 << 20;
/// The maximum pause between two additions, in milliseconds.
const REST: u64 = 300;
/// The maximum time inside a barrier, in milliseconds.
const STAY: u64 = 200;
/// The pause after a failure.
const AFTER: Duration = Duration::from_millis(100);
/// The service of all residents.
const SERVICE: &str = "web";

/// Adds to a counter and moves units, alternately.
pub(crate) async fn add(post: &Post) -> Result<()> {
    let count = AtomicValue::<Value>::new(&post.client, post.path.join("count")?);
    let transfers = Transaction::new(&post.client, post.path.join("marks")?);
    let [from, to] = [post.path.join("from")?, post.path.join("to")?];
    for _ in post.all() {
        post.report(Deed::Adds);
        let added =
            effect(&count.update(|number: Option<Value>| number.unwrap_or_default() + 1).await);
        post.report(Deed::Added { effect: added });
        post.report(Deed::Moves);
        let moved = transfers.run(|attempt| move_one(attempt, &from, &to)).await;
        post.report(Deed::Moved { effect: effect(&moved) });
        if [added, effect(&moved)] != [Effect::Done; 2] {
            sleep(AFTER).await;
        }
        post.pause(REST).await;
    }
    post.report(Deed::Rests);
    Ok(())
}

async fn move_one(attempt: Attempt, from: &Path, to: &Path) -> Result<()> {
    let left: Value = attempt.get_value(from).await?.unwrap_or(UNITS);
    let moved: Value = attempt.get_value(to).await?.unwrap_or_default();
    attempt.put_value(from, &left.saturating_sub(1))?;
    attempt.put_value(to, &(moved + 1))
}

/// Joins a group and registers an instance, and reports the members that its copies of both show.
pub(crate) async fn reside(post: &Post) -> Result<()> {
    let (members, services) = (post.path.join("members")?, post.path.join("services")?);
    let (group, discovery) =
        (Group::new(&post.client, members.clone()), Discovery::<()>::new(&post.client, services));
    let name = post.p.to_string();
    // The node of an earlier session of this process counts as its own.
    let _membership = until_ok(|| group.join_as(&name, "")).await;
    let instance = || Instance::new(SERVICE, "localhost").id(&name);
    let _registration = until_ok(|| discovery.register(instance())).await;
    let cache = Cache::start(&post.client, Extent::children(&members));
    let service = until_ok(|| discovery.open(SERVICE)).await;
    let mut reported = None;
    loop {
        let snapshot = cache.snapshot();
        let in_group: BTreeSet<String> =
            snapshot.children(&members).iter().map(|node| node.path.name().to_owned()).collect();
        let view = service.view();
        let registered = view.endpoints.iter().map(|it| it.instance.id.clone()).collect();
        if snapshot.state().is_live() && in_group == registered {
            let mut who: Vec<Value> = in_group.iter().filter_map(|it| it.parse().ok()).collect();
            who.sort_unstable();
            if reported.as_ref() != Some(&who) {
                post.report(Deed::Sees { who: who.clone() });
                reported = Some(who);
            }
        }
        sleep(GLANCE * GLANCES).await;
    }
}

/// Retries a call until it succeeds, and returns its result.
async fn until_ok<T, F: Future<Output = Result<T>>>(mut call: impl FnMut() -> F) -> T {
    loop {
        match call().await {
            Ok(found) => return found,
            Err(_) => sleep(AFTER).await,
        }
    }
}

/// Joins a partition, and reports the items that it holds.
pub(crate) async fn share(post: &Post) -> Result<()> {
    let items: Vec<String> = post.all().map(|item| item.to_string()).collect();
    let partition = Partition::new(
        &post.client,
        post.path.join("partition")?,
        items.iter().map(String::as_str),
    );
    let name = post.p.to_string();
    let share = until_ok(|| partition.join(&name)).await;
    let believing = believe(post, &share);
    let giving = async {
        let mut changes = pin!(share.changes());
        while let Some(change) = changes.next().await {
            match change {
                ShareChange::Release(items) => {
                    report_each(post, &items, |item| Deed::Releases { item });
                    let _may_fail = share.release(&items).await.is_ok();
                }
                ShareChange::Lost(items) => {
                    report_each(post, &items, |item| Deed::Loses { item });
                }
                _ => {}
            }
        }
    };
    match select(pin!(believing), pin!(giving)).await {
        Either::Left(((), _)) | Either::Right(((), _)) => Ok(()),
    }
}

fn report_each(post: &Post, items: &BTreeSet<String>, deed: impl Fn(Value) -> Deed) {
    for item in items.iter().filter_map(|item| item.parse().ok()) {
        post.report(deed(item));
    }
}

async fn believe(post: &Post, share: &Share) {
    let mut since: BTreeMap<Value, u64> = BTreeMap::new();
    let mut looks = 0_u32;
    loop {
        for item in post.all() {
            let asked = now();
            if !share.is_held(&item.to_string()) {
                since.remove(&item);
                continue;
            }
            let is_new = !since.contains_key(&item);
            let since = *since.entry(item).or_insert_with(now);
            if is_new || looks.is_multiple_of(GLANCES) {
                post.report(Deed::Shares { item, since, certain: asked });
            }
        }
        looks = looks.wrapping_add(1);
        sleep(GLANCE).await;
    }
}

/// Enters and leaves a double barrier of `parties` members repeatedly.
pub(crate) async fn meet(post: &Post) -> Result<()> {
    let parties =
        u32::try_from(post.count).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
    let barrier = DoubleBarrier::new(&post.client, post.path.join("barrier")?, parties);
    loop {
        post.report(Deed::Enters);
        let Ok(inside) = barrier.enter().await else {
            sleep(AFTER).await;
            continue;
        };
        post.report(Deed::Entered);
        post.pause(STAY).await;
        post.report(Deed::Leaves);
        if inside.leave().await.is_err() {
            sleep(AFTER).await;
        }
    }
}
