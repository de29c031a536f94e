//! [`CountDown`]: a latch that opens when all parties have counted down.

use std::num::NonZeroU32;

use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::name::Name;
use synod_core::path::Path;
use synod_core::store::{Query, View};

use crate::layout::barrier::PARTY;
use crate::mutant::mistake;
use crate::support::barrier_change::{BarrierChange, create_once};
use crate::support::wait::until;

#[cfg_attr(not(doctest), doc = include_str!("../docs/count_down.md"))]
#[derive(Clone, Debug)]
pub struct CountDown {
    client: Client,
    path: Path,
    parties: NonZeroU32,
}

impl CountDown {
    /// Creates the latch at `path` for this number of parties. All clients must pass the same
    /// number.
    pub fn new(client: &Client, path: impl Into<Path>, parties: NonZeroU32) -> Self {
        Self { client: client.clone(), path: path.into(), parties }
    }

    /// Counts a party, and returns the effect of the call. Once this returns without an error, the
    /// party is counted. Counting a party again has no effect.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](synod_core::error::ErrorKind::Invalid) if the name is empty or too
    /// long, and the errors that are common to all calls: see [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not have counted the party.
    pub async fn count_down(&self, party: &str) -> Result<BarrierChange> {
        let name = Name::encode(party)?;
        mistake!(CountsEachTry: let name = Name::encode(&self.client.random().id())?);
        let node = self.path.join(&format!("{PARTY}{name}"))?;
        create_once(&self.client, &node).await
    }

    /// Returns the number of parties that have not counted down yet.
    ///
    /// # Errors
    ///
    /// The errors that are common to all calls: see [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn remaining(&self) -> Result<u32> {
        Ok(remaining(self.parties, &self.client.read(self.query()).await?))
    }

    /// Waits until all parties have counted down. Returns immediately if they have.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`](synod_core::error::ErrorKind::SessionLost) once the client is
    /// closed, and the error of the store if it refuses the read. An outage is not an error: the
    /// wait continues.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn wait(&self) -> Result<()> {
        let parties = self.parties;
        // Boxed, so that the future of a caller with many waits stays small.
        Box::pin(until(&self.client, self.query(), |view| remaining(parties, view) == 0)).await
    }

    fn query(&self) -> Query {
        let query = Query::children(&self.path).names_only().starting_with(PARTY);
        mistake!(StrangersCount: let query = Query::children(&self.path).names_only());
        query
    }
}

/// Returns the number of parties that are missing in a view of the counted parties.
fn remaining(parties: NonZeroU32, view: &View) -> u32 {
    let counted = u32::try_from(view.nodes.len()).unwrap_or(u32::MAX);
    parties.get().saturating_sub(counted)
}
