//! [`repeat`]: repeats a request that does no harm if it is applied again.

use synod_core::client::Client;
use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::retry::Retry;

/// What came of one attempt at a change for which other clients may be faster.
pub(crate) enum Race<T> {
    Won(T),
    /// The error is that of the whole if there is no time for another attempt.
    Lost(Error),
}

/// Repeats a request whose answer is lost, in the next session if it has to, until a call would have failed. What it asks
/// for must be the same state however often it is applied.
pub(crate) async fn repeat<T, F>(client: &Client, mut request: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    repeat_race(client, || done(request())).await
}

/// [`repeat`] for what is tried again, too, when another client was faster.
pub(crate) async fn repeat_race<T, F>(client: &Client, attempt: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Race<T>>>,
{
    repeat_while(client, |error| client.is_transient(error), attempt).await
}

/// [`repeat`] for a request of one session, which is not repeated once that is lost.
pub(crate) async fn repeat_in_session<T, F>(
    client: &Client,
    mut request: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let unreachable = |error: &Error| error.kind() == ErrorKind::Unreachable;
    repeat_while(client, unreachable, || done(request())).await
}

async fn done<T>(request: impl Future<Output = Result<T>>) -> Result<Race<T>> {
    request.await.map(Race::Won)
}

async fn repeat_while<T, F>(
    client: &Client,
    may_succeed: impl Fn(&Error) -> bool,
    mut attempt: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = Result<Race<T>>>,
{
    let mut delays = Retry::until_elapsed(client.timeout()).delays(client.random());
    let mut in_doubt = false;
    loop {
        let (error, again) = match attempt().await {
            Ok(Race::Won(done)) => return Ok(done),
            Ok(Race::Lost(error)) => (error, true),
            Err(error) => {
                // That a later request did nothing says nothing of an earlier one.
                in_doubt |= error.has_unknown_effect();
                let again = in_doubt && may_succeed(&error);
                (error, again)
            }
        };
        let delay = if again { delays.next() } else { None };
        let Some(delay) = delay else {
            return Err(if in_doubt { error.with_unknown_effect() } else { error });
        };
        sleep(delay).await;
    }
}
