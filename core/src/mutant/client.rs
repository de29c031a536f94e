//! Wrong algorithms of clients.

use crate::client::Client;
use crate::error::Result;
use crate::store::Query;
use crate::task;

/// Observes the query of a watch once more, as long as the session lives, without a reader.
pub(crate) async fn watch_and_forget(client: &Client, query: &Query) -> Result<()> {
    let session = client.session().await?;
    let (_view, forgotten) = session.watch(query.clone()).await?;
    task::spawn(async move {
        let _kept = forgotten;
        session.lost().await;
    })
    .let_go();
    Ok(())
}
