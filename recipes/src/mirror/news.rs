//! [`until_news`]: the wait of a task that has found nothing in mirrors.

use std::future::pending;
use std::pin::pin;

use futures_util::future::{Either, select, select_all};
use synod_core::clock::{Instant, sleep_until};
use synod_core::error::Result;

use crate::mirror::Mirror;

/// Waits until another look may find something: there is `news`, or it is this time. An error if one of the mirrors will not be
/// complete by itself.
pub(crate) async fn until_news(
    news: impl Future<Output = ()>,
    until: Option<Instant>,
    mirrors: impl IntoIterator<Item = &Mirror>,
) -> Result<()> {
    let rested = async {
        match until {
            Some(until) => sleep_until(until).await,
            None => pending().await,
        }
    };
    let failed = select_all(mirrors.into_iter().map(|mirror| Box::pin(mirror.failure())));
    let (news, rested) = (pin!(news), pin!(rested));
    match select(select(news, rested), failed).await {
        Either::Left(_) => Ok(()),
        Either::Right(((error, ..), _)) => Err(error),
    }
}
