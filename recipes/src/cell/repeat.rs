//! [`repeat`]: repeats a request that does no harm if it is applied again.

use synod_core::client::Client;
use synod_core::clock::{self, sleep};
use synod_core::error::{ErrorKind, Result};
use synod_core::retry::Retry;

/// Repeats a request whose answer is lost, until a call would have failed. What it asks for must be the same state
/// however often it is applied.
pub(crate) async fn repeat<T, F>(client: &Client, mut request: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut delays = Retry::forever().delays(client.chance());
    let start = clock::now();
    loop {
        match request().await {
            Err(error)
                if error.is_ambiguous()
                    && error.kind() == ErrorKind::Unreachable
                    && clock::elapsed(start) < client.time_limit() =>
            {
                sleep(delays.next().unwrap_or_default()).await;
            }
            answer => return answer,
        }
    }
}
