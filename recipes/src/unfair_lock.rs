//! [`UnfairLock`]: a lock without a line, for what is seldom wanted by two at once.

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::clock::sleep;
use synod_core::error::Result;
use synod_core::mutant::{self, Mutant};
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::store::Query;

use crate::line::hold::Hold;
use crate::line::{Form, Line};

/// A lock that is given to whoever comes at the right moment, shared by everybody who names the same path.
///
/// It excludes like a [`Mutex`](crate::Mutex), on the same assumption, and may be used on the same path
/// with it. Whoever has it has the one node there is: those who wait have none, and cost the store nothing but
/// a watch. When it becomes free each of them waits for a while of his own before he tries, and for longer
/// ones the more often he was late, so that they do not all come at once.
///
/// *Not promised* is any order, nor that somebody who waits gets it while others come and go.
///
/// # Examples
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path::Path;
/// use synod_recipes::UnfairLock;
///
/// # async fn example(client: Client) -> Result<()> {
/// let lock = UnfairLock::new(&client, Path::new("/locks/compaction")?);
/// let guard = lock.lock().await?;
/// guard.release().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct UnfairLock {
    line: Line,
}

/// The lock, held. See [`Hold`].
pub type UnfairGuard = Hold;

impl UnfairLock {
    /// The lock at `path`.
    pub fn new(client: &Client, path: impl Into<Path>) -> Self {
        Self { line: Line::new(client, path.into(), Form::alone("unfair_lock", "lock-")) }
    }

    /// What [`inspect`](crate::inspect()) shows of those who lock through this.
    pub fn label(self, label: impl Into<Bytes>) -> Self {
        Self { line: self.line.labelled(label.into()) }
    }

    /// Waits for the lock.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing behind.
    pub async fn lock(&self) -> Result<UnfairGuard> {
        let (mut delays, mut seen) = (None, None);
        loop {
            let ahead = match seen.take() {
                Some(ahead) => ahead,
                None => match self.attempt().await? {
                    Ok(guard) => return Ok(guard),
                    Err(ahead) => ahead,
                },
            };
            self.until_gone(&ahead).await?;
            let session = self.line.client().session().await?;
            let delays = delays.get_or_insert_with(|| Retry::contended().delays(session.chance()));
            sleep(delays.next().unwrap_or_default()).await;
            // Who looks before he tries does not disturb whoever was quicker.
            seen = self.line.first().await?;
        }
    }

    /// The lock, if nobody has it. Never waits.
    ///
    /// # Errors
    ///
    /// As [`UnfairLock::lock`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing behind.
    pub async fn try_lock(&self) -> Result<Option<UnfairGuard>> {
        Ok(self.line.try_enter().await?.map(|ticket| ticket.hold(())))
    }

    /// The lock, or whoever has it.
    async fn attempt(&self) -> Result<Result<UnfairGuard, Path>> {
        let mut ticket = self.line.enqueue().await?;
        match ticket.blocked_by().await? {
            Some(ahead) if !mutant::is(Mutant::UnfairUnlooked) => {
                ticket.leave().await;
                Ok(Err(ahead))
            }
            _ => Ok(Ok(ticket.hold(()))),
        }
    }

    async fn until_gone(&self, holder: &Path) -> Result<()> {
        let holder = Query::until_gone(holder.clone());
        let (view, mut watch) = self.line.client().watch(holder).await?;
        if view.node().is_some() {
            let _look_again = watch.next().await;
        }
        Ok(())
    }
}
