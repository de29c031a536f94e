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
    // What waits for one event expects that it is the one: a look without another watch costs less.
    let (mut was_woken, first) = (false, observed(&query));
    loop {
        let seen = if was_woken && query.once {
            client.read(query.clone()).await.map(|view| (view, None))
        } else {
            client.watch(first.clone()).await.map(|(view, watch)| (view, Some(watch)))
        };
        was_woken = false;
        match seen {
            Ok((view, _)) if is(&view) => return Ok(()),
            Ok((_, watch)) => {
                patience.begin_anew();
                if let Some(watch) = watch {
                    woken(watch).await?;
                    mistake!(WakeIsLift: return Ok(()));
                    was_woken = true;
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
