//! The work of one process, which ends only by a signal.

use std::convert::Infallible;
use std::io::Write as _;
use std::process::ExitCode;

use futures_util::future::try_join4;
use synod::crew::{Crew, CrewWorker};
use synod::lock::Mutex;
use synod::queue::Queue;
use synod::value::Counter;
use synod::{Client, ErrorKind, Expect, Lifetime, Path, Result, Txn, path};

/// The time to live of the sessions: a process that is stopped for longer loses its session.
pub(crate) const SESSION: &str = "1s";

/// Runs a process.
pub(crate) fn main(directory: &str, name: &str) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let worked = runtime.expect("a runtime").block_on(async {
        let client = connect(directory).await?;
        let lock = again(|| locked(&client, name));
        let counter = again(|| counted(&client));
        let queue = again(|| delivered(&client));
        let crew = again(|| worked(&client));
        try_join4(lock, counter, queue, crew).await.map(drop)
    });
    panic!("it works until it is killed: {worked:?}")
}

pub(crate) async fn connect(directory: &str) -> Result<Client> {
    synod::connect(&format!("file://{directory}?session={SESSION}")).await
}

fn report(act: &str) {
    let mut output = std::io::stdout();
    writeln!(output, "{act}").and_then(|()| output.flush()).expect("its parent listens");
}

/// Repeats work, also after the loss of a session, and when a process that is stopped in its turn
/// to write lets nobody else write.
async fn again<F: Future<Output = Result<()>>>(work: impl Fn() -> F) -> Result<()> {
    loop {
        match work().await {
            Err(error) if error.kind() == ErrorKind::SessionLost => report("lost"),
            Err(error) if error.kind() == ErrorKind::Unreachable => report("unanswered"),
            done => done?,
        }
    }
}

/// Under the lock, adds one to a sum and to a number of this process, without a check of their
/// versions: a second holder would destroy an addition of the first.
async fn locked(client: &Client, name: &str) -> Result<()> {
    let (sum, own) = (path!("/sum"), path!("/numbers").join(name)?);
    let guard = Mutex::new(client, path!("/lock")).lock().await?;
    let mut txn = guard.txn();
    for node in [sum, own] {
        txn = match client.get(&node).await? {
            Some(found) => {
                let number: u64 = String::from_utf8_lossy(&found.data).parse().expect("a number");
                txn.set(node, (number + 1).to_string(), Expect::Any)
            }
            None => txn.create(node, "1", Lifetime::Persistent),
        };
    }
    if client.commit(txn).await?.is_committed() {
        report("locked");
    }
    guard.release().await
}

async fn counted(client: &Client) -> Result<()> {
    Counter::new(client, path!("/counter")).increment().await?;
    report("counted");
    Ok(())
}

/// Takes an item, and writes a node for it together with the acknowledgement.
async fn delivered(client: &Client) -> Result<()> {
    let queue: Queue<u64> = Queue::new(client, path!("/queue"));
    let delivery = queue.claim().await?;
    let done: Path = path!("/delivered").join(&delivery.item().to_string())?;
    let once = Txn::new().create(done, "", Lifetime::Persistent);
    assert!(delivery.ack_with(once).await?.is_committed(), "an item was delivered twice");
    report("delivered");
    Ok(())
}

/// Works for the crew, and stands for its master.
async fn worked(client: &Client) -> Result<()> {
    let crew = Crew::new(client, path!("/crew"));
    crew.run_until(CrewWorker::new(), std::future::pending(), |task| async move {
        report("worked");
        Ok::<_, Infallible>(task.data.clone())
    })
    .await
}
