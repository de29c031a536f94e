//! [`PassingMutex`]: a mutex that tasks of one process pass on among themselves.

use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;

use crate::client::Client;
use crate::error::Result;
use crate::line::relay::{self, Here};
use crate::line::{Form, Line};
use crate::path::Path;

pub use crate::line::relay::PassingGuard;

/// A [`Mutex`](crate::recipe::mutex::Mutex) that goes from task to task of this process without asking the store, a bounded
/// number of times in a row; then whoever else waits for it has his turn.
///
/// It excludes like a `Mutex`, on the same assumption, and may be used on the same path with it. Each who has it
/// has a token of his own, larger than those before: the ticket's revision, and behind it how often the
/// ticket was passed on. A system outside that compares tokens has to compare both.
///
/// A guard that made a transaction is not passed on: the transaction checks the ticket, and a late one would
/// happen under the next who has it. *Not promised* is the order in which tasks of several processes came; those
/// of one have it in theirs.
///
/// # Examples
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path::Path;
/// use std::num::NonZeroU32;
///
/// use synod_core::recipe::passing::PassingMutex;
///
/// # async fn example(client: Client) -> Result<()> {
/// let ten = NonZeroU32::new(10).expect("not zero");
/// let mutex = PassingMutex::new(&client, Path::new("/locks/journal")?, ten);
/// // Tasks that are to pass it on share it: clones are the same one.
/// let guard = mutex.clone().lock().await?;
/// guard.release().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PassingMutex {
    line: Line,
    most: u32,
    here: Arc<Here>,
}

impl PassingMutex {
    /// The lock at `path`, passed on up to `most` times in a row.
    pub fn new(client: &Client, path: Path, most: NonZeroU32) -> Self {
        let line = Line::new(client, path, Form::alone("passing mutex", "lock-").renewing());
        Self { line, most: most.get(), here: Arc::default() }
    }

    /// What [`inspect`](crate::recipe::inspect::inspect) shows of those who lock through this.
    pub fn label(self, label: impl Into<Bytes>) -> Self {
        Self { line: self.line.labelled(label.into()), ..self }
    }

    /// Waits for the lock.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::recipe::mutex::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing behind.
    pub async fn lock(&self) -> Result<PassingGuard> {
        relay::enter(&self.line, &self.here, self.most).await
    }
}
