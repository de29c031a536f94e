//! The second part: a lock, whose holder fails.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select, try_join3};
use synod::lock::Mutex;
use tokio::time::sleep;

use crate::demo::program::Program;
use crate::failure::Failure;

const INTRODUCTION: &str = "\
2. A lock. Only one copy at a time may use the printer. The others wait in line, and the store
   notifies the next one.";

/// All three request the lock. The machine of `bob` fails while it has the lock.
pub(crate) async fn run(ann: &Program, bob: Program, cat: &Program) -> Result<(), Failure> {
    ann.teller.chapter(INTRODUCTION).await?;
    let (first, last) = (print(ann, Duration::ZERO), print(cat, Duration::from_millis(600)));
    try_join3(first, print_and_fail(bob), last).await.map(drop)
}

async fn print_and_fail(program: Program) -> Result<(), Failure> {
    let printing = pin!(print(&program, Duration::from_millis(300)));
    let power = pin!(sleep(Duration::from_millis(1_900)));
    match select(printing, power).await {
        Either::Left((ended, _)) => ended,
        // The machine fails before the lock is dropped: a crash does not release it.
        Either::Right(((), _printing)) => program.lose_power("bob cannot release the lock").await,
    }
}

/// Prints something, under the lock.
async fn print(program: &Program, after: Duration) -> Result<(), Failure> {
    sleep(after).await;
    let lock = Mutex::new(&program.client, synod::path!("/demo/printer")).label(program.name);
    program.tell("wants the lock")?;
    let held = lock.lock().await?;
    program.tell("has the lock, and prints")?;
    sleep(Duration::from_millis(1_200)).await;
    program.tell("releases the lock")?;
    Ok(held.release().await?)
}
