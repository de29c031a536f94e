//! `demo`: three programs share a list of members, a lock and a leader, while machines and a network fail.

use std::time::Duration;

use synod::mem::MemBackend;

use crate::args::Common;
use crate::demo::program::Program;
use crate::demo::teller::Teller;
use crate::failure::Failure;

mod leader;
mod lock;
mod members;
mod program;
mod teller;

/// How long a session outlives its last heartbeat.
const TTL: Duration = Duration::from_millis(1_500);

const INTRODUCTION: &str = "\
ann, bob and cat are three copies of one program, on three machines. They have to agree: which copies
run, which one may use a printer, which one is in charge. A small server that all of them can reach
keeps the answers. Here that store is the memory of this process; elsewhere it is ZooKeeper or etcd,
and the program is the same. The demo takes fifteen seconds.";

const END: &str = "
Everything that the three copies wrote belonged to a session, and was removed with it. To go on:

    docs/recipes.md    locks, elections and permits, each with an example
    docs/guide.md      a service, from its configuration to its shutdown";

pub(crate) async fn run(common: &Common) -> Result<(), Failure> {
    let teller = Teller::new(common.json);
    teller.say(INTRODUCTION)?;
    let store = MemBackend::new();
    let start = |name| Program::start(name, &store, TTL, &teller);
    let (ann, bob, cat) = (start("ann").await?, start("bob").await?, start("cat").await?);

    members::run(&ann, bob, &cat, TTL).await?;
    let bob = start("bob").await?;
    lock::run(&ann, bob, &cat).await?;
    let bob = start("bob").await?;
    leader::run([&ann, &bob, &cat], TTL).await?;

    for program in [ann, bob, cat] {
        program.end().await?;
    }
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
