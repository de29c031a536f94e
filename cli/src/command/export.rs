//! `export`: a node and everything below it, as lines of JSON.

use std::io::{self, BufWriter, Write};

use futures_util::future::{OptionFuture, try_join_all};
use synod::{Client, Node, Path};

use crate::access::Lists;
use crate::args::Common;
use crate::args::copy::Export;
use crate::command::connect;
use crate::export_format::{write_footer, write_header, write_node};
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;
use crate::walk::PersistentNodes;

/// The number of nodes whose access lists are read at once.
const AT_ONCE: usize = 32;

pub(crate) async fn run(common: &Common, export: &Export) -> Result<(), Failure> {
    let client = connect(common).await?;
    let exported = write(&client, &export.path, export.acl, io::stdout()).await;
    client.close().await?;
    warn_of_ephemeral(exported?);
    Ok(())
}

pub(crate) fn warn_of_ephemeral(count: u64) {
    if count > 0 {
        output::warning(&format!("ephemeral nodes, which are left out: {count}"));
    }
}

/// Writes the nodes. Returns the number of ephemeral nodes.
pub(crate) async fn write(
    client: &Client,
    path: &Path,
    with_acl: bool,
    to: impl Write,
) -> Result<u64, Failure> {
    let mut nodes = PersistentNodes::new(client.session().await?, path);
    let lists = with_acl.then(|| Lists::of(client));
    let (mut out, mut count) = (BufWriter::new(to), 0);
    let progress = Progress::new("exporting", None);
    loop {
        let some = next(&mut nodes, if with_acl { AT_ONCE } else { 1 }).await?;
        if some.is_empty() {
            break;
        }
        let lists = some.iter().map(async |node| {
            let list = OptionFuture::from(lists.as_ref().map(|lists| lists.to_keep(&node.path)));
            list.await.transpose().map(Option::flatten)
        });
        let lists = try_join_all(lists).await?;
        if count == 0 {
            write_header(&mut out, path)?;
        }
        for (node, list) in some.iter().zip(lists) {
            write_node(&mut out, node, list.as_deref())?;
            count += 1;
            progress.advance(1);
        }
    }
    if count == 0 {
        if nodes.ephemeral() == 0 && !path.is_root() {
            return Err(Failure::NotThere(format!("there is nothing at {path}")));
        }
        write_header(&mut out, path)?;
    }
    write_footer(&mut out, count, nodes.ephemeral())?;
    out.flush()?;
    Ok(nodes.ephemeral())
}

/// The next nodes, none at the end.
async fn next(nodes: &mut PersistentNodes, max: usize) -> Result<Vec<Node>, Failure> {
    let mut some = Vec::new();
    while some.len() < max
        && let Some(node) = nodes.next().await?
    {
        some.push(node);
    }
    Ok(some)
}
