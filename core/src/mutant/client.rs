//! Wrong algorithms of clients.

use bytes::Bytes;

use crate::client::Client;
use crate::error::Result;
use crate::path::Path;
use crate::session::Session;
use crate::session::deadline::Deadline;
use crate::store::{Done, Lifetime, Query, Txn};
use crate::task;

/// Watches what a watch covers once more, for as long as the session lives, without a reader.
pub(crate) async fn watch_and_forget(client: &Client, query: &Query) -> Result<()> {
    let session = client.session().await?;
    let (_view, forgotten) = session.observe(query.clone()).await?;
    task::spawn(async move {
        let _kept = forgotten;
        session.lost().await;
    })
    .let_go();
    Ok(())
}

/// Creates a node, and takes a node that exists for what it created.
pub(crate) async fn create(
    session: &Session,
    path: &Path,
    data: &Bytes,
    by: Deadline,
) -> Result<Done> {
    let create = Txn::new().create(path, data.clone(), Lifetime::Persistent);
    let _either_way = session.commit_by(create, by).await?;
    Ok(Done::new(path.clone()))
}
