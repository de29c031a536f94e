//! [`Semaphore`]: so many at a time, in the order in which they came.

use std::num::NonZeroU32;

use bytes::Bytes;

use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::line::order::Room;
use crate::line::{Form, Line, posted};
use crate::path::Path;

pub use crate::line::permits::{Permit, Permits};

/// So many permits, shared by everybody who names the same path.
///
/// Of those who believe that they hold permits, all together never believe in more than there are, on the
/// assumption of [`Mutex`](crate::recipe::mutex::Mutex): no two clocks differ in rate by more than 1 %, and
/// nobody acts on a check that he made before he was paused. Permits are given in the order in which they
/// were asked for, all that one asks for at once or none; who asks for many is not passed by those who ask
/// for few.
///
/// *Not promised* is that nobody acts too late: for that there are [`Hold::txn`](crate::recipe::Hold::txn) and
/// [`Hold::token`](crate::recipe::Hold::token). When the number is made smaller nobody loses what he has; who comes
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
/// use synod_core::recipe::semaphore::Semaphore;
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

impl Semaphore {
    /// The semaphore at `path` of so many permits. Everybody must name the same number.
    pub fn new(client: &Client, path: Path, permits: NonZeroU32) -> Self {
        Self::of(client, path, Room::Permits(permits.get()))
    }

    /// The semaphore at `path` of as many permits as were set there. While none were, everybody waits.
    pub fn shared(client: &Client, path: Path) -> Self {
        Self::of(client, path, Room::Posted)
    }

    /// What [`inspect`](crate::recipe::inspect::inspect) shows of those who come through this.
    pub fn label(self, label: impl Into<Bytes>) -> Self {
        Self { line: self.line.labelled(label.into()) }
    }

    /// Waits for one permit.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::recipe::mutex::Mutex::lock).
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
    /// [`Invalid`](crate::error::ErrorKind::Invalid) for none, and for more than [`Semaphore::new`] was told that there are;
    /// otherwise as [`Semaphore::acquire`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing behind.
    pub async fn acquire_many(&self, permits: u32) -> Result<Permit> {
        let permits = self.some(permits)?;
        Ok(self.line.wanting(permits)?.enter().await?.hold(Permits(permits)))
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
        let entered = self.line.wanting(permits)?.try_enter().await?;
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
        posted::set(self.line.client(), self.line.dir(), permits).await
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
        match self.line.form().room {
            Room::Permits(permits) => Ok(permits),
            _ => posted::get(self.line.client(), self.line.dir()).await,
        }
    }

    /// At least one.
    fn some(&self, permits: u32) -> Result<NonZeroU32> {
        NonZeroU32::new(permits).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, "asking for permits")
                .at(self.line.dir())
                .because("there is at least one to ask for")
        })
    }

    fn of(client: &Client, path: Path, room: Room) -> Self {
        Self { line: Line::new(client, path, Form::permits("semaphore", 1, room)) }
    }
}
