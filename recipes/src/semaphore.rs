//! [`Semaphore`]: a number of permits, granted in the order of the requests.

use std::num::NonZeroU32;

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{Expect, Lifetime, Outcome, Query, RejectReason, Txn};

use crate::line::hold::guard;
use crate::line::order::POSTED;
use crate::line::ticket_name::Capacity;
use crate::line::{Form, Line};
use crate::mutant::mistake;

#[cfg_attr(not(doctest), doc = include_str!("../docs/semaphore.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/locks.md"))]
#[derive(Clone, Debug)]
pub struct Semaphore {
    /// The queue, for tickets of one permit.
    line: Line,
}

guard! {
    /// A guard of one permit of a [`Semaphore`], or of several.
    Permit(NonZeroU32)
}

/// The node that is written to change the limit.
const LIMIT: &str = "limit";

impl Semaphore {
    /// The semaphore at `path` with a limit of `permits`. All clients must pass the same limit. If
    /// they do not, each request observes the smallest limit among itself and the requests before
    /// it.
    pub fn new(client: &Client, path: impl Into<Path>, permits: NonZeroU32) -> Self {
        Self::of(client, path.into(), Capacity::Permits(permits.get()))
    }

    /// The semaphore at `path` with the limit that was set there. Until a limit is set, every
    /// request waits.
    pub fn shared(client: &Client, path: impl Into<Path>) -> Self {
        Self::of(client, path.into(), Capacity::Posted)
    }

    /// Sets the label of the tickets that this handle creates: [`inspect`](crate::lock::inspect())
    /// shows it.
    pub fn label(self, label: impl Into<Bytes>) -> Self {
        Self { line: self.line.labelled(label.into()) }
    }

    /// Makes a request fail as [`Refused`](ErrorKind::Refused), without a wait, while an earlier
    /// holder or waiter uses another limit, or another limit [was set](Semaphore::set_permits). The
    /// error names both limits, and the other ticket with its session. A later request with
    /// another limit does not disturb this one. Each request costs one more read.
    pub fn require_same_limit(self) -> Self {
        Self { line: self.line.requiring_same_limit() }
    }

    /// Waits for one permit.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::lock::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing in the store.
    pub async fn acquire(&self) -> Result<Permit> {
        self.acquire_many(1).await
    }

    /// Waits for this number of permits, all of them together.
    ///
    /// # Errors
    ///
    /// [`Invalid`](synod_core::error::ErrorKind::Invalid) for zero permits, and for more than the
    /// limit of [`Semaphore::new`]; otherwise as [`Semaphore::acquire`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing in the store.
    pub async fn acquire_many(&self, permits: u32) -> Result<Permit> {
        let permits = self.some(permits)?;
        Ok(Permit(self.wanting(permits)?.enter().await?.hold(permits)))
    }

    /// Acquires one permit, if it is free and there is no waiter. Never waits.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing in the store.
    pub async fn try_acquire(&self) -> Result<Option<Permit>> {
        self.try_acquire_many(1).await
    }

    /// Acquires this number of permits, if they are free and there is no waiter. Never waits.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire_many`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing in the store.
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<Permit>> {
        let permits = self.some(permits)?;
        let entered = self.wanting(permits)?.try_enter().await?;
        Ok(entered.map(|ticket| Permit(ticket.hold(permits))))
    }

    /// Sets the limit of a [shared](Semaphore::shared) semaphore. All holders keep their permits.
    ///
    /// # Errors
    ///
    /// The errors common to all calls of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not have set the limit.
    pub async fn set_permits(&self, permits: u32) -> Result<()> {
        set_limit(self.line.client(), self.line.dir(), permits).await
    }

    /// The limit. Zero for a [shared](Semaphore::shared) semaphore whose limit was never set.
    ///
    /// # Errors
    ///
    /// The errors common to all calls of a [`Client`].
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

    /// The number, if it is at least one.
    fn some(&self, permits: u32) -> Result<NonZeroU32> {
        NonZeroU32::new(permits).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, "acquiring permits")
                .at(self.line.dir())
                .because("the number of permits must be at least one")
        })
    }

    /// The queue, for tickets of this number of permits. An error if the limit is fixed, and lower.
    fn wanting(&self, permits: NonZeroU32) -> Result<Line> {
        let Form { recipe, capacity, .. } = *self.line.form();
        let line = self.line.with_form(Form::permits(recipe, permits.get(), capacity));
        mistake!(ImpossibleAwaited: return Ok(line));
        if let Capacity::Permits(all) = capacity
            && permits.get() > all
        {
            return Err(Error::new(ErrorKind::Invalid, "acquiring permits")
                .at(self.line.dir())
                .because(format!("{permits} permits of {all} would never be granted")));
        }
        Ok(line)
    }

    fn of(client: &Client, path: Path, capacity: Capacity) -> Self {
        Self { line: Line::new(client, path, Form::permits("semaphore", 1, capacity)) }
    }
}

impl Permit {
    /// The number of permits.
    pub fn permits(&self) -> NonZeroU32 {
        self.0.kind
    }
}

/// Sets the limit, as the name of a node in the directory of the tickets, so that one listing shows
/// both.
async fn set_limit(client: &Client, dir: &Path, permits: u32) -> Result<()> {
    let node = dir.join(LIMIT)?;
    let new = permits.to_string();
    let posted = dir.join(&format!("{POSTED}{new}"))?;
    loop {
        let current = client.get(&node).await?;
        let posts = client.read(posts(dir)).await?.nodes;
        let agrees = current.as_ref().is_some_and(|node| node.data == new);
        if agrees && posts.iter().all(|node| node.path == posted) && !posts.is_empty() {
            return Ok(());
        }
        // Every change writes this node, so that concurrent changes conflict.
        let mut txn = match current.map(|node| node.stat) {
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
            // The limit is in a name, so one listing is a consistent snapshot of it and the
            // tickets.
            txn = txn.create(posted.clone(), "", Lifetime::Persistent);
        }
        match client.commit(txn).await? {
            // Another client has set the limit in the meantime.
            Outcome::Rejected(no) if no.reason != RejectReason::BelowEphemeral => {}
            outcome => return outcome.required().map(drop),
        }
    }
}

/// The limit in the directory, or zero.
async fn limit(client: &Client, dir: &Path) -> Result<u32> {
    let view = client.read(posts(dir)).await?;
    let names = view.nodes.iter().filter_map(|node| node.path.name().strip_prefix(POSTED));
    // There should be only one. If there are two, the lower number is the safer choice.
    Ok(names.filter_map(|permits| permits.parse().ok()).min().unwrap_or(0))
}

fn posts(dir: &Path) -> Query {
    Query::children(dir.clone()).starting_with(POSTED).names_only()
}
