//! [`until`]: waits for a state of the store.

use std::pin::pin;

use futures_util::future::select;
use synod_core::client::{Client, ClientWatch, Connection};
use synod_core::clock::sleep;
use synod_core::error::Result;
use synod_core::retry::{Delays, Retry};
use synod_core::store::{End, Event, Query, View};

use crate::mutant::mistake;

/// Waits until a latest view is as it should be, however long the store does not answer.
///
/// Only a view decides. An event, a lost session or an outage causes the next look.
pub(crate) async fn until(client: &Client, query: Query, is: impl Fn(&View) -> bool) -> Result<()> {
    let mut delays = None;
    loop {
        match client.watch(observed(&query)).await {
            Ok((view, _)) if is(&view) => return Ok(()),
            Ok((_, watch)) => {
                delays = None;
                woken(watch).await?;
                mistake!(WakeIsLift: return Ok(()));
            }
            Err(error) if client.is_transient(&error) => {
                let delays = delays.get_or_insert_with(|| Retry::forever().delays(client.chance()));
                rest(client, delays).await;
            }
            Err(error) => return Err(error),
        }
    }
}

fn observed(query: &Query) -> Query {
    let query = query.clone();
    mistake!(LiftIsAnEvent: let query = crate::mutant::recipe::lasting(query));
    query
}

/// Waits before another try, or until the client is closed.
async fn rest(client: &Client, delays: &mut Delays) {
    let mut state = client.state();
    let closed = state.wait_for(|state| *state == Connection::Closed);
    let pause = sleep(delays.next().unwrap_or_default());
    let _either = select(pin!(pause), pin!(closed)).await;
}

/// Waits for a reason to look again.
async fn woken(mut watch: ClientWatch) -> Result<()> {
    let event = watch.next().await;
    mistake!(LiftIsAnEvent: let event = crate::mutant::recipe::change(event, &mut watch).await);
    match event {
        Some(Event::Ended(End::Failed(why))) => Err((*why).clone()),
        _ => Ok(()),
    }
}
