//! Waits: for a state of the store, for a change of a local copy, and with a time limit.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select, select_all};
use synod_core::client::{Client, ClientWatch};
use synod_core::clock::{self, Instant, sleep_until, timeout};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::retry::Delays;
use synod_core::store::{End, Event, Query, View};
use tracing::Instrument;
use tracing::field::{Empty, debug};

use crate::line::meter;
use crate::mirror::Mirror;
use crate::mutant::mistake;
use crate::support::retry::{OutageBackoff, call_delays};

/// Waits until a view of the store satisfies a condition, and continues during outages.
///
/// Only a view decides. An event, a lost session and an outage cause another read.
pub(crate) async fn until(
    client: &Client,
    query: Query,
    is_met: impl Fn(&View) -> bool,
) -> Result<()> {
    let mut backoff = OutageBackoff::new(client);
    let first = observed(&query);
    loop {
        match client.watch(first.clone()).await {
            Ok((view, _)) if is_met(&view) => return Ok(()),
            Ok((_, watch)) => {
                backoff.reset();
                next_event(watch).await?;
                mistake!(WakeIsLift: return Ok(()));
                // The single event is usually the awaited one, and a read without a watch costs
                // less.
                if query.once && client.read(query.clone()).await.is_ok_and(|view| is_met(&view)) {
                    return Ok(());
                }
            }
            Err(error) => backoff.wait(error).await?,
        }
    }
}

fn observed(query: &Query) -> Query {
    let query = query.clone();
    mistake!(LiftIsAnEvent: let query = crate::mutant::recipe::lasting(query));
    query
}

/// Waits for a reason to read again.
async fn next_event(mut watch: ClientWatch) -> Result<()> {
    let event = watch.next().await;
    mistake!(LiftIsAnEvent: let event = crate::mutant::recipe::change(event, &mut watch).await);
    match event {
        Some(Event::Ended(End::Failed(why))) => Err((*why).clone()),
        _ => Ok(()),
    }
}

/// Waits until another search may find something: on `news`, or at the time `until`.
///
/// Fails if one of the mirrors has a permanent failure.
pub(crate) async fn until_news(
    news: impl Future<Output = ()>,
    until: Option<Instant>,
    mirrors: impl IntoIterator<Item = &Mirror>,
) -> Result<()> {
    let reached = async {
        match until {
            Some(until) => sleep_until(until).await,
            None => pending().await,
        }
    };
    let failed = select_all(mirrors.into_iter().map(|mirror| Box::pin(mirror.failure())));
    let (news, reached) = (pin!(news), pin!(reached));
    match select(select(news, reached), failed).await {
        Either::Left(_) => Ok(()),
        Either::Right(((error, ..), _)) => Err(error),
    }
}

/// The waits of a call for items that the store lists but that it cannot try yet: they are not yet
/// reported to this process, or another task is trying them.
pub(crate) struct ReportWait<'a> {
    delays: Delays,
    doing: &'static str,
    path: &'a Path,
}

impl<'a> ReportWait<'a> {
    pub(crate) fn new(client: &Client, doing: &'static str, path: &'a Path) -> Self {
        Self { delays: call_delays(client), doing, path }
    }

    /// Waits as [`until_news`] does, but at most for the next delay of the call: an item that is
    /// removed before it was reported is never reported. Fails at the time limit of the call.
    pub(crate) async fn until_news(
        &mut self,
        news: impl Future<Output = ()>,
        until: Option<Instant>,
        mirrors: impl IntoIterator<Item = &Mirror>,
    ) -> Result<()> {
        let Some(delay) = self.delays.next() else {
            return Err(Error::new(ErrorKind::Unreachable, self.doing)
                .at(self.path)
                .because("there are items, but the store does not report them"));
        };
        let listed_again = clock::now() + delay;
        let until = until.map_or(listed_again, |until| until.min(listed_again));
        until_news(news, Some(until), mirrors).await
    }
}

/// Returns the result of `work`; `None` if it takes longer than `limit`.
///
/// It works with any wait of a recipe: for a lock, permits or leadership. At the limit the wait
/// ends: its ticket is removed in the background, and is not granted later.
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
/// use synod_recipes::within;
/// use synod_recipes::lock::RwLock;
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

/// The metrics and the span of a wait for an item of a queue.
pub(crate) struct ItemWait {
    /// The number of attempts to get an item.
    pub(crate) tries: u32,
}

impl ItemWait {
    /// Measures a wait, within a span.
    pub(crate) async fn measured<T>(
        recipe: &'static str,
        path: &Path,
        work: impl AsyncFnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let span = tracing::debug_span!("waiting", recipe, %path, waited = Empty, calls = Empty);
        let (since, mut wait) = (clock::now(), Self { tries: 0 });
        let _waiter = meter::Waiter::new(recipe);
        let result = work(&mut wait).instrument(span.clone()).await;
        let waited = clock::elapsed(since);
        span.record("waited", debug(waited));
        span.record("calls", wait.tries);
        if result.is_ok() {
            meter::granted(recipe, waited, wait.tries);
        }
        result
    }
}
