//! `demo`: three programs share a list of members, a lock and tasks, while machines and a network
//! fail.

use std::time::Duration;

use synod::Config;
use synod::mem::MemBackend;
use synod::path;
use tokio::time::timeout;

use crate::args::Common;
use crate::command::{delete, until_interrupted};
use crate::demo::board::Board;
use crate::demo::program::Program;
use crate::demo::teller::Teller;
use crate::failure::Failure;
use crate::settings::Settings;

mod board;
mod crew;
mod lock;
mod members;
mod program;
mod teller;

/// Time that a session outlives its last heartbeat.
const TTL: Duration = Duration::from_millis(1_500);

/// The time limit for the removal of the remaining nodes when the demo ends early.
const LEAVING: Duration = Duration::from_secs(10);

const INTRODUCTION: &str = "\
ann, bob and cat are three copies of one program, on three machines. They have to agree: which copies
run, which one may use a printer, which one assigns the work. A small server that all of them can reach
keeps the answers. Here that store is the memory of this process; elsewhere it is ZooKeeper or etcd,
and the program is the same. The demo takes seventeen seconds.";

const ON_SERVER: &str = "\
ann, bob and cat are three copies of one program, with connections of their own. A lost one
is missed when its session ends, after some seconds. What the demo writes it removes.";

const END: &str = "
Everything that the three copies wrote belonged to a session, and was removed with it. To go on:

    docs/recipes.md    locks, elections and permits, each with an example
    docs/guide.md      a service, from its configuration to its shutdown";

pub(crate) async fn run(common: &Common) -> Result<(), Failure> {
    let teller = Teller::new(common.json);
    let settings = Settings::if_named(common)?;
    match settings.as_ref().filter(|settings| !settings.url().starts_with("mem:")) {
        Some(settings) => Box::pin(on_server(common, &settings.config()?, &teller)).await,
        None => in_memory(common, &teller).await,
    }
}

async fn in_memory(common: &Common, teller: &Teller) -> Result<(), Failure> {
    teller.say(INTRODUCTION)?;
    let store = MemBackend::new();
    let start = |name| Program::start(name, &store, TTL, teller);
    let (ann, bob, cat) = (start("ann").await?, start("bob").await?, start("cat").await?);

    members::run(&ann, bob, &cat, TTL).await?;
    let bob = start("bob").await?;
    lock::run(&ann, bob, &cat).await?;
    let (programs, dan) = ([ann, start("bob").await?, cat], start("dan").await?);
    crew::run("3. ", programs, &dan, &path!("/demo/crew"), Board::new(common.json)).await?;

    dan.end().await?;
    let left = store.census();
    teller.say("")?;
    teller.tell(
        "store",
        &format!(
            "has {} nodes, {} sessions and {} watches left",
            left.nodes, left.sessions, left.watches
        ),
        None,
    )?;
    teller.say(END)
}

/// Shows the events that do not need a separate store: only programs of the demo fail.
async fn on_server(common: &Common, config: &Config, teller: &Teller) -> Result<(), Failure> {
    teller.say(ON_SERVER)?;
    let start = |name| Program::connect(name, config, teller);
    let programs = [start("ann").await?, start("bob").await?, start("cat").await?];
    let dan = start("dan").await?;
    let path = path!("/synod-demo").join(&dan.client.random().id())?;
    let shown = crew::run("", programs, &dan, &path, Board::new(common.json));
    let shown = Box::pin(until_interrupted(shown)).await;
    let shown = shown.unwrap_or_else(|| Err(Failure::plain("interrupted")));
    if shown.is_err() {
        // No node may be left, even if the output is closed.
        let removing = delete::remove(&dan.client, &path);
        let _removed = timeout(LEAVING, removing).await.is_ok_and(|removed| removed.is_ok());
    }
    let ended = dan.end().await;
    shown.and(ended)?;
    teller.say(END)
}
