//! [`repeat`]: repeats a request that does no harm if it is applied again.

use synod_core::client::Client;
use synod_core::clock::sleep;
use synod_core::error::{ErrorKind, Result};
use synod_core::retry::Retry;

/// Repeats a request whose answer is lost, until a call would have failed. What it asks for must be the same state
/// however often it is applied.
pub(crate) async fn repeat<T, F>(client: &Client, mut request: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut delays = Retry::until_elapsed(client.time_limit()).delays(client.chance());
    loop {
        let error = match request().await {
            Err(error) if error.is_ambiguous() && error.kind() == ErrorKind::Unreachable => error,
            answer => return answer,
        };
        let Some(delay) = delays.next() else { return Err(error) };
        sleep(delay).await;
    }
}
