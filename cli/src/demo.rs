//! `demo`: a small cluster in one process that shows how sessions live and expire.

use std::time::Duration;

use futures_util::future::{join, join_all};
use synod::mem::{MemBackend, Weather};
use synod::path::Path;
use synod::store::SessionOptions;
use synod::{Client, ClientOptions};
use tokio::time::sleep;

use crate::args::Common;
use crate::demo::member::Member;
use crate::demo::teller::Teller;
use crate::failure::Failure;

mod member;
mod teller;

/// How long a session outlives its last heartbeat.
const TTL: Duration = Duration::from_millis(1_500);

const INTRODUCTION: &str = "\
Three members join /demo/group, in one process, on a store in memory. Each is an ephemeral node
that the member's session keeps alive for 1.5 s after its last sign of life. Every member watches
the group; what you see in [brackets] is the group as that member sees it.
";

pub(crate) async fn run(common: &Common) -> Result<(), Failure> {
    let teller = Teller::new(common.json);
    teller.say(INTRODUCTION)?;
    let (backend, group) = (MemBackend::new(), Path::new("/demo/group")?);
    let mut members = Vec::new();
    for name in ["ann", "bob", "cat"] {
        let options = ClientOptions::default().session(SessionOptions::new(TTL));
        let client = Client::open(backend.clone(), options).await?;
        members.push(Member::new(name, client, group.clone(), teller.clone()));
    }
    let lives = join_all(members.iter().map(Member::live));
    let (ends, directed) = join(lives, direct(&members, &backend, &teller)).await;
    ends.into_iter().collect::<Result<(), Failure>>()?;
    directed?;
    let left = backend.census();
    teller.tell(
        "store",
        &format!(
            "has {} nodes, {} sessions and {} watches left",
            left.nodes, left.sessions, left.watches
        ),
        None,
    )
}

/// The events of the demo, in order.
async fn direct(members: &[Member], backend: &MemBackend, teller: &Teller) -> Result<(), Failure> {
    let [ann, bob, cat] = members else { return Err(Failure::plain("the demo has three members")) };
    for member in members {
        member.come();
        sleep(Duration::from_millis(400)).await;
    }

    sleep(Duration::from_millis(600)).await;
    teller.tell("store", "ends bob's session, as if it had not heard of bob for too long", None)?;
    backend.expire(bob.session().await?);

    sleep(Duration::from_millis(1_500)).await;
    teller.tell("network", "cuts cat off, for less time than a session lives", None)?;
    let id = cat.session().await?;
    backend.set_weather(id, Weather::CUT);
    sleep(TTL * 2 / 3).await;
    teller.tell("network", "lets cat through again", None)?;
    backend.set_weather(id, Weather::CLEAR);

    sleep(Duration::from_millis(1_500)).await;
    teller.tell("network", "cuts this session of ann's off for good", None)?;
    backend.set_weather(ann.session().await?, Weather::CUT);
    sleep(TTL * 2).await;

    for member in members {
        member.leave().await?;
        sleep(Duration::from_millis(300)).await;
    }
    Ok(())
}
