//! `create`: makes a node.

use synod::Client;
use synod::{Lifetime, OpResult};

use crate::args::{Common, Create};
use crate::command::{Interrupts, connect, given};
use crate::failure::Failure;
use crate::output;

pub(crate) async fn run(common: &Common, create: Create) -> Result<(), Failure> {
    let data = given(&create.data)?;
    let client = connect(common).await?;
    // Before the node exists, because the node has to be removed.
    let mut interrupts = create.ephemeral.then(Interrupts::listen);
    let made = make(&client, &create, data).await;
    let held = match (&made, &mut interrupts) {
        (Ok(done), None) => print(common, done),
        (Ok(done), Some(interrupts)) => match print(common, done) {
            Ok(()) => hold(&client, interrupts).await,
            failed => failed,
        },
        (Err(_), _) => Ok(()),
    };
    // Also if the output is closed: the end of the session removes an ephemeral node.
    let closed = client.close().await;
    made?;
    held?;
    Ok(closed?)
}

async fn make(client: &Client, create: &Create, data: Vec<u8>) -> Result<OpResult, Failure> {
    let lifetime = match create.ttl {
        Some(ttl) => Lifetime::Ttl(ttl),
        None if create.ephemeral => Lifetime::Session,
        None => Lifetime::Persistent,
    };
    Ok(if create.sequential {
        client.create_sequential(&create.path, data, lifetime).await?.required()?
    } else {
        client.create(&create.path, data, lifetime).await?.required()?
    })
}

/// Keeps the session, and with it the node, until the session is lost or this process is
/// interrupted.
async fn hold(client: &Client, interrupts: &mut Interrupts) -> Result<(), Failure> {
    let session = client.session().await?;
    match interrupts.until(session.lost()).await {
        Some(why) => Err(Failure::plain(format!("the node is gone: {why}"))),
        None => Ok(()),
    }
}

fn print(common: &Common, done: &OpResult) -> Result<(), Failure> {
    if !common.json {
        return Ok(output::line(done.path.as_str())?);
    }
    let mut object = done.stat.as_ref().map(output::facts).unwrap_or_default();
    object.insert("path".into(), done.path.as_str().into());
    if let Some(sequence) = done.sequence {
        object.insert("sequence".into(), sequence.get().into());
    }
    Ok(output::object(&object.into())?)
}
