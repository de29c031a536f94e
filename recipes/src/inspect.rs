//! Who holds what is at a path, and who waits for it.

use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;

use crate::line::contender::{Contender, contenders};
use crate::line::order::Capacity;

/// Everybody who stands in the line at `path`, in order: those who hold it, then those who wait. As it is at
/// one moment, by one question to the store.
///
/// Whoever is told as holding had it in the store at that moment, and all who were before him were gone: nobody can enter
/// beside him who is not told, too. It works for whatever stands in line: locks, semaphores, elections, also those of
/// other programs on the same path. [`Contender::since`] is when each came, and [`Contender::label`] what he said of himself.
///
/// *Not promised* is that it is still so when it is looked at, nor that who holds knows it already, or believes it still: he
/// may be on his way to hear of it, or cut off. Who must be the only one takes the lock.
///
/// # Errors
///
/// As every verb of a [`Client`].
///
/// # Cancel safety
///
/// Cancel safe: it only reads.
///
/// # Examples
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path::Path;
/// use synod_recipes::inspect;
///
/// # async fn example(client: Client) -> Result<()> {
/// let line = inspect(&client, Path::new("/locks/db")?).await?;
/// let (holding, waiting): (Vec<_>, Vec<_>) =
///     line.iter().partition(|one| one.holds == Some(true));
/// println!("{} in, {} waiting", holding.len(), waiting.len());
/// # Ok(())
/// # }
/// ```
pub async fn inspect(client: &Client, path: impl Into<Path>) -> Result<Vec<Contender>> {
    contenders(client, &path.into(), Capacity::One).await
}
