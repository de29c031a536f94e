//! `delete --recursive`: a node and everything below it.

use serde_json::json;
use synod::{Client, Deletion, Path};
use tokio::sync::watch;

use crate::args::Common;
use crate::command::connect;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

pub(crate) async fn tree(common: &Common, path: &Path) -> Result<(), Failure> {
    let client = connect(common).await?;
    let deleted = remove(&client, path).await;
    client.close().await?;
    let deleted = deleted?;
    if deleted == 0 {
        return Err(Failure::NotThere(format!("there is nothing at {path}")));
    }
    if common.json {
        output::object(&json!({ "deleted": path.as_str(), "nodes": deleted }))?;
    }
    Ok(())
}

/// Removes a node and everything below it, and returns the number of removed nodes.
pub(crate) async fn remove(client: &Client, path: &Path) -> Result<usize, Failure> {
    let (progress, deletion) = watch::channel(Deletion::default());
    let work = client.delete_recursive_with(path, |deletion| {
        progress.send_replace(deletion);
    });
    Ok(Progress::deleting(deletion, work).await?)
}
