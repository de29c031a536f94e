//! `ls`: the children of a node.

use synod::Path;
use synod::{Node, Query};

use crate::args::Common;
use crate::command::connect;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

pub(crate) async fn children(common: &Common, path: &Path, long: bool) -> Result<(), Failure> {
    let client = connect(common).await?;
    let query = Query::children(path);
    let query = if long || common.json { query } else { query.names_only() };
    let view = Progress::waiting("reading", client.read(query)).await;
    client.close().await?;
    for node in view?.nodes {
        if common.json {
            output::object(&output::node(&node))?;
        } else if long {
            output::line(&described(&node))?;
        } else {
            output::line(&name(&node.path))?;
        }
    }
    Ok(())
}

fn described(node: &Node) -> String {
    let name = name(&node.path);
    let kind = output::kind(node.stat.as_ref());
    match &node.stat {
        None => format!("{kind:<10} {:>8} {:>8}  {name}", "-", "-"),
        Some(stat) => {
            format!("{kind:<10} {:>8} {:>8}  {name}", stat.version.get(), node.data.len())
        }
    }
}

/// The last segment, with control characters escaped for a terminal.
pub(crate) fn name(path: &Path) -> String {
    let shown = path.to_string();
    shown.rsplit_once('/').map_or(shown.clone(), |(_, name)| name.to_owned())
}
