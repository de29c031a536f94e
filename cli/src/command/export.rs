//! `export`: a node and everything below it, as lines of JSON.

use std::io::{self, BufWriter, Write as _};

use synod::{Client, Path};

use crate::args::Common;
use crate::command::connect;
use crate::export_format::{write_footer, write_header, write_node};
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;
use crate::walk::PersistentNodes;

pub(crate) async fn run(common: &Common, path: &Path) -> Result<(), Failure> {
    let client = connect(common).await?;
    let exported = print(&client, path).await;
    client.close().await?;
    let ephemeral = exported?;
    if ephemeral > 0 {
        output::warning(&format!("ephemeral nodes, which are left out: {ephemeral}"));
    }
    Ok(())
}

/// Prints the nodes. Returns the number of ephemeral nodes.
async fn print(client: &Client, path: &Path) -> Result<u64, Failure> {
    let mut nodes = PersistentNodes::new(client.session().await?, path);
    let (mut out, mut count) = (BufWriter::new(io::stdout()), 0);
    let progress = Progress::new("exporting", None);
    while let Some(node) = nodes.next().await? {
        if count == 0 {
            write_header(&mut out, path)?;
        }
        write_node(&mut out, &node)?;
        count += 1;
        progress.advance(1);
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
