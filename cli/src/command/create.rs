//! `create`: makes a node.

use synod::client::Client;
use synod::store::{Done, Lifetime};

use crate::args::{Common, Create};
use crate::command::{connect, given, until_interrupted};
use crate::failure::Failure;
use crate::output;

pub(crate) async fn run(common: &Common, create: Create) -> Result<(), Failure> {
    let data = given(&create.data)?;
    let client = connect(common).await?;
    let made = make(&client, &create, data).await;
    if let Ok(done) = &made {
        print(common, done)?;
        if create.ephemeral {
            hold(&client).await?;
        }
    }
    client.close().await?;
    made.map(drop)
}

async fn make(client: &Client, create: &Create, data: Vec<u8>) -> Result<Done, Failure> {
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

/// Keeps the session, and with it the node, until the session is lost or Ctrl-C is pressed.
async fn hold(client: &Client) -> Result<(), Failure> {
    let session = client.session().await?;
    match until_interrupted(session.lost()).await {
        None => Ok(()),
        Some(why) => Err(Failure::plain(format!("the node is gone: {why}"))),
    }
}

fn print(common: &Common, done: &Done) -> Result<(), Failure> {
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
