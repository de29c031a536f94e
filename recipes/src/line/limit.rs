//! [`within`]: a wait for no longer than a limit.

use std::time::Duration;

use synod_core::clock::timeout;
use synod_core::error::Result;

/// Returns the result of `work` within `limit`; `None` if that was too short.
///
/// For any wait of a recipe: a lock, permits, the lead. When the time is up, the wait ends: its ticket is removed in
/// the background, and is not granted later.
///
/// # Errors
///
/// The error of `work`.
///
/// # Cancel safety
///
/// As cancel safe as `work`.
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path;
/// use synod_recipes::{RwLock, within};
///
/// # async fn example(client: Client) -> Result<()> {
/// let table = RwLock::new(&client, path!("/locks/table"));
/// match within(Duration::from_secs(5), table.write()).await? {
///     Some(guard) => guard.release().await,
///     None => Ok(println!("the table is in use")),
/// }
/// # }
/// ```
pub async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T>>,
) -> Result<Option<T>> {
    timeout(limit, work).await.ok().transpose()
}
