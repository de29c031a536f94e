//! `watch`: every change of a node as it happens.

use serde_json::{Value, json};
use synod::Client;
use synod::{Change, Event, Kind, Query};
#[cfg(unix)]
use tokio::time::timeout;

use crate::args::{Common, Watch};
#[cfg(unix)]
use crate::command::hold::FAREWELL;
#[cfg(unix)]
use crate::command::watch_command;
use crate::command::{Interrupts, connect};
use crate::failure::Failure;
use crate::output;

pub(crate) async fn run(common: &Common, watch: Watch) -> Result<(), Failure> {
    let client = connect(common).await?;
    #[cfg(unix)]
    if !watch.command.is_empty() {
        let done = watch_command::run(common, &client, watch).await;
        // The result of the runs counts, and the session expires in any case.
        let _told = timeout(FAREWELL, client.close()).await.is_ok_and(|closed| closed.is_ok());
        return done;
    }
    let query = match (watch.children, watch.subtree) {
        (true, _) => Query::children(&watch.path),
        (_, true) => Query::subtree(&watch.path),
        _ => Query::node(&watch.path),
    };
    print(common, &client, query, watch.count).await?;
    Ok(client.close().await?)
}

/// Prints the nodes that are there, then each change.
async fn print(
    common: &Common,
    client: &Client,
    query: Query,
    count: Option<usize>,
) -> Result<(), Failure> {
    let mut interrupts = Interrupts::listen();
    let (view, mut watch) = client.watch(query).await?;
    for node in view.nodes {
        let change = Change::new(node.path.clone(), Kind::Created).with_node(node);
        print_report(common, "found", &change)?;
    }
    let mut left = count.unwrap_or(usize::MAX);
    while left > 0 {
        match interrupts.until(watch.next()).await {
            Some(Some(Event::Changed(mut change))) => {
                if change.node.is_none() && matches!(change.kind, Kind::Created | Kind::Updated) {
                    // Not every store sends the data with the event. The data that is read now may
                    // be newer than the change.
                    change.node = client.get(&change.path).await?;
                }
                print_report(common, verb(change.kind), &change)?;
            }
            Some(Some(Event::Resync)) => resync(common)?,
            Some(Some(Event::Ended(_)) | None) => {
                return Err(Failure::plain("the watch ended; try again"));
            }
            None => break,
        }
        left -= 1;
    }
    Ok(())
}

fn verb(kind: Kind) -> &'static str {
    match kind {
        Kind::Created => "created",
        Kind::Updated => "updated",
        Kind::Deleted => "deleted",
        _ => "children",
    }
}

fn print_report(common: &Common, verb: &str, change: &Change) -> Result<(), Failure> {
    if common.json {
        let revision = change.revision.map(synod::Revision::get);
        let mut told = json!({ "event": verb, "path": change.path.as_str(), "revision": revision });
        if let (Some(node), Value::Object(told)) = (&change.node, &mut told) {
            let (key, data) = output::data(&node.data);
            told.insert(key.into(), data);
        }
        return Ok(output::object(&told)?);
    }
    let data = change.node.as_ref().map(|node| output::glimpse(&node.data)).unwrap_or_default();
    Ok(output::line(format!("{verb:<8} {}  {data}", change.path).trim_end())?)
}

fn resync(common: &Common) -> Result<(), Failure> {
    if common.json {
        return Ok(output::object(&json!({ "event": "resync" }))?);
    }
    Ok(output::line("resync   changes may have been missed here")?)
}
