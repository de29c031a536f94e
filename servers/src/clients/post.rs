//! The context of a part that a process takes in a queue or a crew: [`Post`].

use std::time::Duration;

use synod_core::client::Client;
use synod_core::error;
use synod_core::path::Path;
use synod_core::random::Random;
use tokio::time::sleep;

use crate::clients::deed::{Deed, Effect, Part};
use crate::clients::entry::What;
use crate::clients::holder::Lapse;
use crate::clients::report::report;
use synod_testkit::history::Value;

/// One part of a process.
#[derive(Clone)]
pub(crate) struct Post {
    pub(crate) p: usize,
    pub(crate) lapse: Option<Lapse>,
    pub(crate) part: Part,
    pub(crate) path: Path,
    /// The first of its items or tasks, and their number.
    pub(crate) first: Value,
    pub(crate) count: u64,
    pub(crate) client: Client,
    pub(crate) random: Random,
}

impl Post {
    /// Returns its items or tasks.
    pub(crate) fn all(&self) -> impl Iterator<Item = Value> + use<> {
        self.first..self.first + self.count
    }

    pub(crate) fn report(&self, deed: Deed) {
        report(self.p, None, None, What::Deed { deed });
    }

    /// Pauses for a random time below this number of milliseconds.
    pub(crate) async fn pause(&self, below: u64) {
        sleep(Duration::from_millis(self.random.below(below))).await;
    }

    /// Returns `true` if every client makes this mistake.
    pub(crate) fn makes(&self, lapse: Lapse) -> bool {
        self.lapse == Some(lapse)
    }
}

/// Returns the effect of a request, given its result.
pub(crate) fn effect<T>(result: &error::Result<T>) -> Effect {
    match result.as_ref().map_err(error::Error::effect) {
        Ok(_) => Effect::Done,
        Err(error::Effect::None) => Effect::None,
        Err(error::Effect::Unknown) => Effect::Unknown,
    }
}
