//! [`until`]: waits for a state of the store.

use synod_core::client::{Client, ClientWatch};
use synod_core::error::Result;
use synod_core::store::{End, Event, Query, View};

use crate::cell::patience::Patience;
use crate::mutant::mistake;

/// Waits until a latest view is as it should be, however long the store does not answer.
///
/// Only a view decides. An event, a lost session or an outage causes the next look.
pub(crate) async fn until(client: &Client, query: Query, is: impl Fn(&View) -> bool) -> Result<()> {
    let mut patience = Patience::new(client);
    let first = observed(&query);
    loop {
        match client.watch(first.clone()).await {
            Ok((view, _)) if is(&view) => return Ok(()),
            Ok((_, watch)) => {
                patience.begin_anew();
                woken(watch).await?;
                mistake!(WakeIsLift: return Ok(()));
                // The one event is mostly the awaited one: a look without another watch costs less.
                if query.once && client.read(query.clone()).await.is_ok_and(|view| is(&view)) {
                    return Ok(());
                }
            }
            Err(error) => patience.rest(error).await?,
        }
    }
}

fn observed(query: &Query) -> Query {
    let query = query.clone();
    mistake!(LiftIsAnEvent: let query = crate::mutant::recipe::lasting(query));
    query
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
