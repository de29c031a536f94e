//! `ls`: the children of nodes.

use futures_util::future::try_join_all;
use synod::Path;
use synod::{Node, Query};

use crate::args::Common;
use crate::command::connect;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

/// Lists the children of each path.
pub(crate) async fn children(
    common: &Common,
    paths: &[Path],
    long: bool,
    data: bool,
) -> Result<(), Failure> {
    let client = connect(common).await?;
    let read = paths.iter().map(|path| {
        let query = Query::children(path);
        let query = if long || data || common.json { query } else { query.names_only() };
        client.read(query)
    });
    let views = Progress::waiting("reading", try_join_all(read)).await;
    client.close().await?;
    for (index, (path, view)) in paths.iter().zip(views?).enumerate() {
        if paths.len() > 1 && !common.json {
            let line = if index == 0 { "" } else { "\n" };
            output::line(&format!("{line}{path}:"))?;
        }
        for node in view.nodes {
            if common.json {
                output::object(&output::node(&node))?;
            } else {
                output::line(&described(&node, long, data))?;
            }
        }
    }
    Ok(())
}

fn described(node: &Node, long: bool, data: bool) -> String {
    let name = name(&node.path);
    let name = match &node.stat {
        Some(_) if data => format!("{name} = {}", output::on_one_line(&node.data)),
        _ => name,
    };
    let kind = output::kind(node.stat.as_ref());
    match &node.stat {
        _ if !long => name,
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
