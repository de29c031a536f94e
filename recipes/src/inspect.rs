//! [`inspect`]: the holders and the waiters at a path.

use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;

use crate::line::contender::{Contender, contenders};
use crate::line::marks::Capacity;

/// All contenders in the line at `path`, in order: the holders, then the waiters. As of one moment, by one call to
/// the store.
///
/// A contender that is returned as a holder had the grant in the store at that moment, and all earlier contenders
/// that exclude it were gone: every client that can hold together with it is returned, too. It works for every
/// line: those of locks, semaphores and elections, also with tickets of other programs on the same path.
/// [`Contender::since`] is the time of each request, and [`Contender::label`] is the label of each ticket.
///
/// *Not promised*: that the result is still true when it is used, that a holder knows of its grant already, or that it
/// still believes in it: its notification may be on the way, or it may be disconnected. For exclusion, acquire the
/// lock.
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
