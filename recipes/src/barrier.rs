//! [`Barrier`]: no waiter passes while it is set.

use std::pin::pin;

use futures_util::future::select;
use synod_core::client::{Client, ClientWatch, Connection};
use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::retry::{Delays, Retry};
use synod_core::store::{End, Event, Expect, Outcome, Query, Why};

use crate::mutant::mistake;

/// A barrier that all clients of the same path share: while it is set, all that wait for it wait.
///
/// A wait returns only if the barrier was absent at a moment during the call, as the store showed it in an answer that was
/// not older than the question: an event or a lost session lets no waiter pass. It continues as long as it takes, across
/// sessions and outages. Every waiter is woken when the barrier is lifted, also if it is set again at once; it passes if it
/// finds the barrier absent then, and waits again otherwise.
///
/// A barrier belongs to no client: it stays set when the client that set it ends.
///
/// *Not promised*: that every waiter passes when the barrier is lifted and set again before the waiter has looked.
///
/// # Others on the same path
///
/// On ZooKeeper, Curator's `DistributedBarrier` and kazoo's `Barrier`.
///
/// # Examples
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path::Path;
/// use synod_recipes::Barrier;
///
/// # async fn example(client: Client) -> Result<()> {
/// let barrier = Barrier::new(&client, Path::new("/maintenance")?);
/// barrier.set().await?;
/// // Every client that calls `wait` now waits.
/// barrier.lift().await?;
/// barrier.wait().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Barrier {
    client: Client,
    path: Path,
}

impl Barrier {
    /// The barrier at `path`.
    pub fn new(client: &Client, path: impl Into<Path>) -> Self {
        Self { client: client.clone(), path: path.into() }
    }

    /// Sets the barrier, if it is not set: when this returned without an error, no later wait returns before it is
    /// lifted.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Refused`] if the path is a directory, and as every verb of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has set the barrier or has not.
    pub async fn set(&self) -> Result<()> {
        let mut delays = self.delays();
        // What is repeated ends with the barrier set, however often it is applied.
        loop {
            match self.client.put(&self.path, "").await {
                Err(error) if may_repeat(&error) => sleep(delays.next().unwrap_or_default()).await,
                set => return set.map(drop),
            }
        }
    }

    /// Lifts the barrier, if it is set: all that wait for it may pass.
    ///
    /// If the answer is lost, the request is sent again. A barrier that another client sets meanwhile may then be lifted,
    /// too, before this returns.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Refused`] if there are nodes below it, and as every verb of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has lifted the barrier or has not.
    pub async fn lift(&self) -> Result<()> {
        let mut delays = self.delays();
        loop {
            match self.client.delete(&self.path, Expect::Any).await {
                Err(error) if may_repeat(&error) => sleep(delays.next().unwrap_or_default()).await,
                Ok(Outcome::Rejected(no)) if no.why == Why::Missing => return Ok(()),
                lifted => return lifted?.required(),
            }
        }
    }

    /// Whether the barrier is set.
    ///
    /// # Errors
    ///
    /// As every verb of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn is_set(&self) -> Result<bool> {
        self.client.exists(&self.path).await
    }

    /// Waits until the barrier is not set. Returns at once if it is not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`] once the client is closed, and what the store says if it refuses to be read. An outage
    /// is no error: the wait continues.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn wait(&self) -> Result<()> {
        let mut delays = None;
        loop {
            match self.client.watch(self.query()).await {
                Ok((view, _)) if view.node().is_none() => return Ok(()),
                Ok((_, watch)) => {
                    delays = None;
                    woken(watch).await?;
                    mistake!(WakeIsLift: return Ok(()));
                }
                Err(error) if self.may_pass(&error) => {
                    let delays = delays.get_or_insert_with(|| self.delays());
                    self.rest(delays).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn query(&self) -> Query {
        let query = Query::until_gone(&self.path);
        mistake!(LiftIsAnEvent: let query = Query::node(&self.path));
        query
    }

    /// Whether a later try may succeed.
    fn may_pass(&self, error: &Error) -> bool {
        let passes = matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::SessionLost);
        passes && !self.client.is_closed()
    }

    /// Waits before another try, or until the client is closed.
    async fn rest(&self, delays: &mut Delays) {
        let mut state = self.client.state();
        let closed = state.wait_for(|state| *state == Connection::Closed);
        let pause = sleep(delays.next().unwrap_or_default());
        let _either = select(pin!(pause), pin!(closed)).await;
    }

    fn delays(&self) -> Delays {
        Retry::forever().delays(self.client.chance())
    }
}

/// Whether it may have been applied, and does no harm if it is applied again.
fn may_repeat(error: &Error) -> bool {
    error.is_ambiguous() && error.kind() == ErrorKind::Unreachable
}

/// Waits for a reason to look again.
async fn woken(mut watch: ClientWatch) -> Result<()> {
    let event = watch.next().await;
    mistake!(LiftIsAnEvent: let event = crate::mutant::recipe::lift(event, &mut watch).await);
    match event {
        Some(Event::Ended(End::Failed(why))) => Err((*why).clone()),
        _ => Ok(()),
    }
}
