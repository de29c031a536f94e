//! How soon a change is heard of.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, join, select};
use synod::store::{Event, Expect, Query, Store, Txn};
use tokio::time::{Instant, interval};

use crate::ours::{DATA, node};
use crate::spread::Spread;

/// How often a change is made and heard of.
const ROUNDS: usize = 2_000;
/// How many other writes begin at once, every so many milliseconds: a thousand in a second.
const OTHERS: (u64, u64) = (10, 10);

/// Changes a node, again and again: how many milliseconds pass until who watches it from another
/// session hears of it, and until who made it is answered. `other` writes something that concerns
/// nobody, a thousand times in a second; quiet without.
///
/// # Panics
///
/// If the store does not do what it should.
pub async fn heard<F: Future<Output = ()>>(
    (writer, reader): (&dyn Store, &dyn Store),
    other: Option<impl Fn(u64) -> F>,
) -> (Spread, Spread) {
    let writing = async {
        let Some(other) = other else { return std::future::pending().await };
        let mut ticks = interval(Duration::from_millis(OTHERS.0));
        for round in 0_u64.. {
            ticks.tick().await;
            let all = (0..OTHERS.1).map(|number| other(round * OTHERS.1 + number));
            futures_util::future::join_all(all).await;
        }
    };
    match select(pin!(changes(writer, reader)), pin!(writing)).await {
        Either::Left((spreads, _)) => spreads,
        Either::Right(_) => unreachable!("nobody writes for so long"),
    }
}

async fn changes(writer: &dyn Store, reader: &dyn Store) -> (Spread, Spread) {
    let observed = reader.observe(Query::node(node(0))).await;
    let (_view, mut watch) = observed.expect("the server answers");
    let (mut told, mut answered) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let setting = async {
            let set = writer.commit(Txn::new().set(node(0), DATA, Expect::Any)).await;
            let _done = set.expect("the server answers").required().expect("it was made");
            began.elapsed()
        };
        let hearing = async {
            let told = watch.next().await;
            assert!(matches!(told, Some(Event::Changed(_))), "{told:?}");
            began.elapsed()
        };
        let (set, hear) = join(setting, hearing).await;
        answered.push(set.as_secs_f64() * 1_000.0);
        told.push(hear.as_secs_f64() * 1_000.0);
    }
    (Spread::of(told), Spread::of(answered))
}
