//! [`Semaphore`]: a number of permits, granted in the order of the requests.

use std::num::NonZeroU32;

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::mutant::{self, Mutant};
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime, Outcome, Query, Txn, Why};

use crate::line::hold::Hold;
use crate::line::order::{Capacity, POSTED};
use crate::line::{Form, Line};

/// So many permits, shared by everybody who names the same path.
///
/// Of those who believe that they hold permits, all together never believe in more than there are, on the
/// assumption of [`Mutex`](crate::Mutex): no two clocks differ in rate by more than 1 %, and
/// nobody acts on a check that he made before he was paused. Permits are given in the order in which they
/// were asked for, all that one asks for at once or none; who asks for many is not passed by those who ask
/// for few.
///
/// *Not promised* is that nobody acts too late: for that there are [`Hold::txn`](crate::Hold::txn) and
/// [`Hold::token`](crate::Hold::token). When the number is made smaller nobody loses what he has; who comes
/// later waits until there is room.
///
/// # How many there are
///
/// Either everybody says the same number ([`Semaphore::new`]), or it is kept beside the tickets, where it can be
/// changed while the semaphore is used ([`Semaphore::shared`], [`Semaphore::set_permits`]).
///
/// # Others on the same path
///
/// Curator's `InterProcessSemaphoreV2`, with the lock that it takes around its leases taken, too: it counts whoever waits
/// among them as one who holds. The guide to the recipes has the few lines. By itself, nobody.
///
/// # Examples
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path::Path;
/// use std::num::NonZeroU32;
///
/// use synod_recipes::Semaphore;
///
/// # async fn example(client: Client) -> Result<()> {
/// let three = NonZeroU32::new(3).expect("not zero");
/// let semaphore = Semaphore::new(&client, Path::new("/pools/gpu")?, three);
/// let permit = semaphore.acquire().await?;
/// permit.release().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    /// As of who comes for one permit.
    line: Line,
}

/// Permits, held. See [`Hold`].
pub type Permit = Hold<Permits>;

/// How many permits are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permits(NonZeroU32);

/// The node that is written to change the limit.
const LIMIT: &str = "limit";

impl Semaphore {
    /// The semaphore at `path` of so many permits. Everybody must name the same number.
    pub fn new(client: &Client, path: impl Into<Path>, permits: NonZeroU32) -> Self {
        Self::of(client, path.into(), Capacity::Permits(permits.get()))
    }

    /// The semaphore at `path` of as many permits as were set there. While none were, everybody waits.
    pub fn shared(client: &Client, path: impl Into<Path>) -> Self {
        Self::of(client, path.into(), Capacity::Posted)
    }

    /// What [`inspect`](crate::inspect()) shows of those who come through this.
    pub fn label(self, label: impl Into<Bytes>) -> Self {
        Self { line: self.line.labelled(label.into()) }
    }

    /// Waits for one permit.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing behind.
    pub async fn acquire(&self) -> Result<Permit> {
        self.acquire_many(1).await
    }

    /// Waits for so many permits, all of them at once.
    ///
    /// # Errors
    ///
    /// [`Invalid`](synod_core::error::ErrorKind::Invalid) for none, and for more than [`Semaphore::new`] was told that there are;
    /// otherwise as [`Semaphore::acquire`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing behind.
    pub async fn acquire_many(&self, permits: u32) -> Result<Permit> {
        let permits = self.some(permits)?;
        Ok(self.wanting(permits)?.enter().await?.hold(Permits(permits)))
    }

    /// One permit, if it is free and nobody waits. Never waits.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing behind.
    pub async fn try_acquire(&self) -> Result<Option<Permit>> {
        self.try_acquire_many(1).await
    }

    /// So many permits, if they are free and nobody waits. Never waits.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire_many`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing behind.
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<Permit>> {
        let permits = self.some(permits)?;
        let entered = self.wanting(permits)?.try_enter().await?;
        Ok(entered.map(|ticket| ticket.hold(Permits(permits))))
    }

    /// Sets how many permits a [shared](Semaphore::shared) semaphore has, from now on. Nobody loses what he
    /// has.
    ///
    /// # Errors
    ///
    /// As every verb of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has set them or has not.
    pub async fn set_permits(&self, permits: u32) -> Result<()> {
        set_limit(self.line.client(), self.line.dir(), permits).await
    }

    /// How many permits there are, as far as is known.
    ///
    /// # Errors
    ///
    /// As every verb of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn permits(&self) -> Result<u32> {
        match self.line.form().capacity {
            Capacity::Permits(permits) => Ok(permits),
            _ => limit(self.line.client(), self.line.dir()).await,
        }
    }

    /// At least one.
    fn some(&self, permits: u32) -> Result<NonZeroU32> {
        NonZeroU32::new(permits).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, "asking for permits")
                .at(self.line.dir())
                .because("the number of permits must be at least one")
        })
    }

    /// The line, for tickets that want so many permits. An error if there can never be as many.
    fn wanting(&self, permits: NonZeroU32) -> Result<Line> {
        let Form { recipe, capacity, .. } = *self.line.form();
        if let Capacity::Permits(all) = capacity
            && permits.get() > all
            && !mutant::is(Mutant::ImpossibleAwaited)
        {
            return Err(Error::new(ErrorKind::Invalid, "asking for permits")
                .at(self.line.dir())
                .because(format!("{permits} permits of {all}: that would be waiting for ever")));
        }
        Ok(self.line.with_form(Form::permits(recipe, permits.get(), capacity)))
    }

    fn of(client: &Client, path: Path, capacity: Capacity) -> Self {
        Self { line: Line::new(client, path, Form::permits("semaphore", 1, capacity)) }
    }
}

impl Hold<Permits> {
    /// How many permits these are.
    pub fn permits(&self) -> NonZeroU32 {
        self.kind.0
    }
}

/// Sets how many permits there are: as the name of a node beside the tickets, so that one listing shows both.
async fn set_limit(client: &Client, dir: &Path, permits: u32) -> Result<()> {
    let node = dir.join(LIMIT)?;
    let new = permits.to_string();
    let posted = dir.join(&format!("{POSTED}{new}"))?;
    loop {
        let said = client.get(&node).await?;
        let posts = client.read(posts(dir)).await?.nodes;
        let agrees = said.as_ref().is_some_and(|node| node.data == new);
        if agrees && posts.iter().all(|node| node.path == posted) && !posts.is_empty() {
            return Ok(());
        }
        // Whoever changes it writes here, so that two do not do so at once.
        let mut txn = match said.map(|node| node.stat) {
            None => Txn::new().create(node.clone(), new.clone(), Lifetime::Persistent),
            Some(stat) => {
                let version = stat.map_or(Expect::Any, |stat| Expect::Version(stat.version));
                Txn::new().set(node.clone(), new.clone(), version)
            }
        };
        for post in posts.iter().filter(|node| node.path != posted) {
            txn = txn.delete(post.path.clone(), Expect::Any);
        }
        if posts.iter().all(|node| node.path != posted) {
            // A name tells the number in the same listing as it tells the tickets: of one moment.
            txn = txn.create(posted.clone(), "", Lifetime::Persistent);
        }
        match client.transaction(txn).await? {
            // Somebody else set them meanwhile.
            Outcome::Rejected(no) if no.why != Why::BelowEphemeral => {}
            outcome => return outcome.required().map(drop),
        }
    }
}

/// How many permits there are, as far as is known.
async fn limit(client: &Client, dir: &Path) -> Result<u32> {
    let view = client.read(posts(dir)).await?;
    let names = view.nodes.iter().filter_map(|node| node.path.name().strip_prefix(POSTED));
    // Of two, which cannot be, the one that harms less.
    Ok(names.filter_map(|permits| permits.parse().ok()).min().unwrap_or(0))
}

fn posts(dir: &Path) -> Query {
    Query::children(dir.clone()).starting_with(POSTED).names_only()
}
