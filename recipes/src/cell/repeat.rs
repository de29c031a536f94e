//! [`repeat`]: repeats a request that does no harm if it is applied again.

use synod_core::client::Client;
use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::retry::Retry;

/// Repeats a request whose answer is lost, in the next session if it has to, until a call would have failed. What it asks
/// for must be the same state however often it is applied.
pub(crate) async fn repeat<T, F>(client: &Client, request: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    repeat_while(client, |error| client.is_transient(error), request).await
}

/// [`repeat`] for a request of one session, which is not repeated once that is lost.
pub(crate) async fn repeat_in_session<T, F>(
    client: &Client,
    request: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    repeat_while(client, |error| error.kind() == ErrorKind::Unreachable, request).await
}

async fn repeat_while<T, F>(
    client: &Client,
    may_succeed: impl Fn(&Error) -> bool,
    mut request: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut delays = Retry::until_elapsed(client.time_limit()).delays(client.chance());
    let mut in_doubt = false;
    loop {
        let error = match request().await {
            Err(error) => error,
            done => return done,
        };
        // That a later request did nothing says nothing of an earlier one.
        in_doubt |= error.is_ambiguous();
        if !in_doubt {
            return Err(error);
        }
        let delay = if may_succeed(&error) { delays.next() } else { None };
        let Some(delay) = delay else { return Err(error.with_unknown_effect()) };
        sleep(delay).await;
    }
}
