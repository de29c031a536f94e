//! `get`, `set`, `put`, `delete`: single nodes.

use std::collections::BTreeMap;

use serde_json::json;
use synod::Result as StoreResult;
use synod::{Client, Node, OpResult, Path, Query};

use crate::args::Common;
use crate::command::{connect, expected, given};
use crate::failure::Failure;
use crate::output;

/// Prints the nodes that are there, in the given order, and fails if one is not.
pub(crate) async fn get(common: &Common, paths: &[Path], raw: bool) -> Result<(), Failure> {
    let client = connect(common).await?;
    let nodes = read(&client, paths).await;
    client.close().await?;
    let nodes = nodes?;
    let mut missing = Vec::new();
    for path in paths {
        let Some(node) = nodes.get(path) else {
            missing.push(path.to_string());
            continue;
        };
        if common.json {
            output::object(&output::node(node))?;
            continue;
        }
        if paths.len() > 1 && !raw {
            output::line(&format!("{path}"))?;
        }
        output::content(&node.data, raw)?;
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::NotThere(format!("there is no node at {}", missing.join(", "))))
}

async fn read(client: &Client, paths: &[Path]) -> StoreResult<BTreeMap<Path, Node>> {
    let nodes = match paths {
        [] => Vec::new(),
        [path] => client.get(path).await?.into_iter().collect(),
        [first, more @ ..] => client.read(Query::nodes(first, more.iter().cloned())).await?.nodes,
    };
    let nodes = nodes.into_iter().filter(|node| node.stat.is_some());
    Ok(nodes.map(|node| (node.path.clone(), node)).collect())
}

pub(crate) async fn set(
    common: &Common,
    path: &Path,
    data: &str,
    version: Option<u64>,
) -> Result<(), Failure> {
    let data = given(data)?;
    let client = connect(common).await?;
    let done = client.set(path, data, expected(version)).await;
    client.close().await?;
    written(common, &Failure::unless_applied(done?)?)
}

pub(crate) async fn put(common: &Common, path: &Path, data: &str) -> Result<(), Failure> {
    let data = given(data)?;
    let client = connect(common).await?;
    let done = client.put(path, data).await;
    client.close().await?;
    written(common, &done?)
}

/// Shows the facts of a node that was written, as JSON.
fn written(common: &Common, done: &OpResult) -> Result<(), Failure> {
    if common.json {
        let mut object = done.stat.as_ref().map(output::facts).unwrap_or_default();
        object.insert("path".into(), done.path.as_str().into());
        output::object(&object.into())?;
    }
    Ok(())
}

pub(crate) async fn delete(
    common: &Common,
    path: &Path,
    version: Option<u64>,
) -> Result<(), Failure> {
    let client = connect(common).await?;
    let done = client.delete(path, expected(version)).await;
    client.close().await?;
    Failure::unless_applied(done?)?;
    if common.json {
        output::object(&json!({ "deleted": path.as_str() }))?;
    }
    Ok(())
}
