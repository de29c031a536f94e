//! `acl`: the access lists of nodes.

use serde_json::json;
use synod::{Client, Path};

use crate::access::Lists;
use crate::args::Common;
use crate::args::acl::AclAction;
use crate::command::{connect, expected};
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

pub(crate) async fn run(common: &Common, action: &AclAction) -> Result<(), Failure> {
    if let AclAction::Set { list, .. } = action {
        Lists::check(list).map_err(Failure::plain)?;
    }
    let client = connect(common).await?;
    let done = act(common, &client, action).await;
    client.close().await?;
    done
}

async fn act(common: &Common, client: &Client, action: &AclAction) -> Result<(), Failure> {
    let lists = Lists::of(client);
    match action {
        AclAction::Get { path } => {
            let found = lists.get(path).await?;
            let Some((acl, version)) = found else { return Err(nothing(path)) };
            if common.json {
                let list = json!({ "acl": acl, "path": path.as_str(), "version": version });
                return Ok(output::object(&list)?);
            }
            Ok(output::line(&acl)?)
        }
        AclAction::Set { path, list, version, recursive: false } => {
            let version = lists.set(path, list, expected(*version)).await?;
            if common.json {
                output::object(&json!({ "path": path.as_str(), "version": version }))?;
            }
            Ok(())
        }
        AclAction::Set { path, list, .. } => {
            let set = Progress::waiting("setting access lists", lists.set_recursive(path, list));
            let nodes = set.await?;
            if nodes == 0 {
                return Err(nothing(path));
            }
            if common.json {
                return Ok(output::object(&json!({ "nodes": nodes, "path": path.as_str() }))?);
            }
            Ok(output::line(&format!("{nodes} nodes"))?)
        }
    }
}

fn nothing(path: &Path) -> Failure {
    Failure::NotThere(format!("there is nothing at {path}"))
}
