//! [`Trial`]: a way to use a recipe, in a case that is the same for all.

use std::any::Any;
use std::fmt::Display;
use std::panic::AssertUnwindSafe;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use synod_core::client::Client;
use synod_core::path::Path;
use synod_core::store::Query;
use synod_testkit::recipe::{Leaves, Row, Use, rows};

use crate::door::answer;
use crate::world::World;

/// A way to use a recipe, at its own path.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    pub(super) row: &'static Row,
    pub(super) it: &'static Use,
    pub(super) path: Path,
}

impl Trial {
    /// One trial for each way to use a recipe.
    pub(super) fn all(world: &World) -> impl Iterator<Item = Self> {
        let uses = rows().flat_map(|row| row.uses.iter().map(move |it| (row, it)));
        uses.map(|(row, it)| Self { row, it, path: world.at(&it.name.replace('/', "-")) })
    }

    /// One trial for each way that waits for other clients.
    pub(super) fn waiting(world: &World) -> impl Iterator<Item = Self> {
        Self::all(world).filter(|trial| trial.it.waits())
    }

    /// The same use at another path.
    pub(super) fn round(&self, round: usize) -> Self {
        let path = self.path.join(&format!("round-{round}")).expect("the name is valid");
        Self { path, ..self.clone() }
    }

    /// Waits until only the nodes that its recipe leaves exist.
    pub(super) async fn until_over(&self, world: &World, client: &Client) {
        let step = format!("{}: nothing is left", self.it.name);
        world.eventually(&step, async || self.leaves_nothing(client).await).await;
    }

    async fn leaves_nothing(&self, client: &Client) -> bool {
        let leaves = self.row.leaves;
        if leaves == Leaves::Nothing && answer(client.get(&self.path).await).is_some() {
            return false;
        }
        for dir in self.row.dirs(&self.path) {
            let below = answer(client.read(Query::children(&dir)).await).nodes;
            let owned = below.iter().any(|node| node.stat.is_some_and(|it| it.owner.is_some()));
            if owned || leaves != Leaves::Nodes && !below.is_empty() {
                return false;
            }
        }
        true
    }
}

/// Runs a check on each of these, all concurrently. A failure names all that failed.
pub(super) async fn each<F: Future<Output = ()>>(
    trials: impl Iterator<Item = Trial>,
    check: impl Fn(Trial) -> F,
) {
    all_hold(trials.map(|trial| (trial.it.name, check(trial)))).await;
}

/// Runs all checks concurrently. A failure names all that failed.
pub(super) async fn all_hold<N: Display, F: Future<Output = ()>>(
    checks: impl Iterator<Item = (N, F)>,
) {
    let checks = checks.map(|(name, check)| {
        let checked = AssertUnwindSafe(check).catch_unwind();
        async move { checked.await.err().map(|said| format!("{name} ({})", text_of(&*said))) }
    });
    let checks: FuturesUnordered<_> = checks.collect();
    let failed: Vec<_> = checks.filter_map(std::future::ready).collect().await;
    assert!(failed.is_empty(), "it is not so for {}", failed.join(", "));
}

/// The message of a panic.
fn text_of(said: &(dyn Any + Send)) -> &str {
    let text = said.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| said.downcast_ref::<&str>().copied()).unwrap_or("it is no text")
}
