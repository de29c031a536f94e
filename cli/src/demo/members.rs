//! The first part: which programs run.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use synod::Event;
use synod::Path;
use synod::{Lifetime, Query, Txn};
use tokio::time::sleep;

use crate::demo::program::Program;
use crate::failure::Failure;

const INTRODUCTION: &str = "\
1. Members. Each copy writes its name below /demo/members, as a node that lasts as long as its session:
   the store removes it 1.5 s after the last heartbeat. ann watches the list.";

/// All three join. The machine of `bob` fails.
pub(crate) async fn run(
    ann: &Program,
    bob: Program,
    cat: &Program,
    ttl: Duration,
) -> Result<(), Failure> {
    ann.teller.chapter(INTRODUCTION).await?;
    let group = &Path::new("/demo/members")?;
    let directed = async move {
        for program in [ann, &bob, cat] {
            join(program, group).await?;
            sleep(Duration::from_millis(500)).await;
        }
        sleep(Duration::from_millis(500)).await;
        bob.lose_power("bob cannot report that it ends").await?;
        drop(bob);
        sleep(ttl + Duration::from_millis(300)).await;
        Ok(())
    };
    match select(pin!(watch(ann, group)), pin!(directed)).await {
        Either::Left((ended, _)) | Either::Right((ended, _)) => ended,
    }
}

async fn join(program: &Program, group: &Path) -> Result<(), Failure> {
    program.tell("joins")?;
    let node = group.join(program.name)?;
    let session = program.client.session().await?;
    let joined = session.commit(Txn::new().create(&node, "", Lifetime::Session)).await?;
    joined.ok().map(drop).ok_or_else(|| Failure::plain("the name is taken"))
}

/// Prints the list at each change.
async fn watch(program: &Program, group: &Path) -> Result<(), Failure> {
    let group = Query::children(group).names_only();
    let (mut view, mut watch) = program.client.watch(group.clone()).await?;
    let mut seen = Vec::new();
    loop {
        let names = view.nodes.iter().map(|node| node.path.name().to_owned());
        let names = names.collect::<Vec<_>>();
        if names != seen {
            program.teller.tell(program.name, "sees", Some(&names))?;
            seen = names;
        }
        let Some(Event::Changed(_) | Event::Resync) = watch.next().await else { return Ok(()) };
        // Events are hints only: the group is what the next read returns.
        view = program.client.read(group.clone()).await?;
    }
}
