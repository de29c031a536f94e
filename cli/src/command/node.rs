//! `get`, `set`, `put`, `delete`: one node.

use serde_json::json;
use synod::{OpResult, Path};

use crate::args::Common;
use crate::command::{connect, expected, given};
use crate::failure::Failure;
use crate::output;

pub(crate) async fn get(common: &Common, path: &Path, raw: bool) -> Result<(), Failure> {
    let client = connect(common).await?;
    let node = client.get(path).await?;
    client.close().await?;
    let node = node.ok_or_else(|| Failure::NotThere(format!("there is no node at {path}")))?;
    if common.json {
        return Ok(output::object(&output::node(&node))?);
    }
    Ok(output::content(&node.data, raw)?)
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
