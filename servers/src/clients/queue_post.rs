//! The parts of a queue: [`produce`], [`consume`] and [`take`].

use std::time::Duration;

use synod_core::error::Result;
use synod_core::held::Held as _;
use synod_core::path::Path;
use synod_core::store::{Lifetime, Txn};
use synod_recipes::queue::{Delivery, PutOptions, Queue};
use tokio::time::sleep;

use crate::clients::deed::{Deed, Effect};
use crate::clients::entry::now;
use crate::clients::holder::Lapse;
use crate::clients::post::{Post, effect};
use crate::clients::report::{GLANCE, GLANCES};
use synod_testkit::history::Value;

/// The maximum pause between two puts, in milliseconds.
const REST: u64 = 400;
/// The maximum duration of the work on an item, in milliseconds.
const STAY: u64 = 120;
/// The pause after a failure.
const AFTER: Duration = Duration::from_millis(100);

/// Puts items. Each third one has an id.
pub(crate) async fn produce(post: &Post) -> Result<()> {
    let queue = Queue::<Value>::new(&post.client, post.path.clone());
    for item in post.all() {
        post.report(Deed::Puts { item });
        let mut put = put(&queue, item).await;
        if put == Effect::Unknown && post.makes(Lapse::PutsAgain) {
            put = self::put(&queue, item).await;
        }
        post.report(Deed::Put { item, effect: put });
        post.pause(REST).await;
    }
    post.report(Deed::Rests);
    Ok(())
}

async fn put(queue: &Queue<Value>, item: Value) -> Effect {
    let options = PutOptions::default();
    let options = if item.is_multiple_of(3) { options.id(item.to_string()) } else { options };
    match queue.put_with(&item, options).await {
        Ok(false) => Effect::None,
        other => effect(&other),
    }
}

/// Takes items, one after the other.
pub(crate) async fn take(post: &Post) -> Result<()> {
    let queue = Queue::<Value>::new(&post.client, post.path.clone());
    loop {
        post.report(Deed::Takes);
        let taken = queue.take().await;
        let effect = effect(&taken);
        post.report(Deed::Took { item: taken.ok(), effect });
        if effect == Effect::Done {
            post.pause(STAY).await;
        } else {
            sleep(AFTER).await;
        }
    }
}

/// Claims items, one after the other, and works on them.
pub(crate) async fn consume(post: &Post) -> Result<()> {
    let queue = Queue::<Value>::new(&post.client, post.path.clone());
    loop {
        match queue.claim().await {
            Ok(delivery) => works(post, delivery).await,
            Err(_nothing_was_claimed) => sleep(AFTER).await,
        }
    }
}

async fn works(post: &Post, delivery: Delivery<Value>) {
    let (item, token) = (*delivery.item(), delivery.token().revision().get());
    holds(post, &delivery).await;
    let way = post.random.below(10);
    if way < 2 {
        post.report(Deed::Returns { item });
        if way == 0 {
            let _may_fail = delivery.put_back().await.is_ok();
        }
        return;
    }
    let with = way < 6;
    post.report(Deed::Acks { item, token, with });
    let acked = if with {
        acks_with(post, delivery, node(&post.path, item, token)).await
    } else {
        effect(&delivery.ack().await)
    };
    post.report(Deed::Acked { item, token, with, effect: acked });
}

/// Checks repeatedly for a while that it holds the item, and reports that.
async fn holds(post: &Post, delivery: &Delivery<Value>) {
    let (item, token) = (*delivery.item(), delivery.token().revision().get());
    let end = now() + post.random.below(STAY) * 1_000_000;
    let (mut first, mut certain, mut looks) = (None, 0, 0);
    loop {
        let asked = now();
        let remembered = first.is_some() && post.makes(Lapse::RemembersYes);
        let is_held = remembered || delivery.is_held();
        if is_held {
            certain = asked;
            first = first.or_else(|| Some((asked, now())));
        }
        let is_over = !is_held || now() > end;
        if let Some((asked, since)) = first
            && (is_over || looks % GLANCES == 0)
        {
            post.report(Deed::Holds { item, token, asked, since, certain });
        }
        if is_over {
            return;
        }
        looks += 1;
        sleep(GLANCE).await;
    }
}

/// Acknowledges an item, and writes the effect of the work on it.
async fn acks_with(post: &Post, delivery: Delivery<Value>, node: Path) -> Effect {
    let txn = Txn::new().create(node, delivery.item().to_string(), Lifetime::Persistent);
    if post.makes(Lapse::WritesFirst) {
        let _written = post.client.commit(txn).await.is_ok();
        return effect(&delivery.ack().await);
    }
    match delivery.ack_with(txn).await {
        Ok(outcome) if outcome.rejected().is_some() => Effect::None,
        other => effect(&other),
    }
}

/// Returns the node that is the effect of the work on an item. Each delivery has another one.
fn node(queue: &Path, item: Value, token: u64) -> Path {
    let done = queue.join("done").and_then(|done| done.join(&format!("{item}-{token}")));
    done.expect("it is short")
}
