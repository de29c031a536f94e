//! The changes of a subtree, for a command that runs until a signal arrives.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, poll_immediate, select};
use futures_util::{Stream, StreamExt as _};
use synod::cache::{Cache, CacheEvent};

use crate::failure::Failure;
use crate::process::signals::Signals;
use crate::progress::Progress;

/// Time that the command of a change may take to end.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// Waits until the whole content was read. Returns `false` if a signal arrives before.
pub(super) async fn complete(cache: &Cache, signals: &mut Signals) -> Result<bool, Failure> {
    let reading = pin!(Progress::reading("reading", cache.progress(), cache.complete()));
    match select(reading, pin!(signals.fatal())).await {
        Either::Left((complete, _)) => Ok(complete.map(|()| true)?),
        Either::Right(_) => Ok(false),
    }
}

/// Waits for the next change, and takes all that have arrived. Returns `false` if a signal arrives
/// before. Signals come first: one may have arrived while a command ran.
pub(super) async fn next_changes(
    events: &mut (impl Stream<Item = CacheEvent> + Unpin),
    signals: &mut Signals,
) -> Result<bool, Failure> {
    match select(pin!(signals.fatal()), events.next()).await {
        Either::Left(_) => return Ok(false),
        Either::Right((Some(_), _)) => {}
        Either::Right((None, _)) => {
            return Err(Failure::plain("the client is closed; try again"));
        }
    }
    while let Some(Some(_)) = poll_immediate(events.next()).await {}
    Ok(true)
}
