//! `counter`, `barrier` and `semaphore`: numbers and flags that programs share.

use std::time::Duration;

use serde_json::json;
use synod::Path;
use synod::barrier::Barrier;
use synod::lock::Semaphore;
use synod::value::Counter;
use synod::within;
use synod::{Client, Error};

use crate::args::Common;
use crate::args::value::{BarrierAction, CounterAction, SemaphoreAction};
use crate::command::{connect, until_interrupted};
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

/// The exit code if a wait reaches its time limit, the same as that of `lock`.
const TOO_LONG: u8 = 75;

pub(crate) async fn counter(
    common: &Common,
    path: &Path,
    action: CounterAction,
) -> Result<(), Failure> {
    let client = connect(common).await?;
    let counter = Counter::new(&client, path);
    let changed = Progress::waiting("counting", change(&counter, action)).await;
    client.close().await?;
    let (before, number) = changed?;
    if common.json {
        return Ok(output::object(
            &json!({ "path": path.as_str(), "before": before, "value": number }),
        )?);
    }
    Ok(output::line(&number.to_string())?)
}

/// The number before, if it was changed and is known, and the number now.
async fn change(counter: &Counter, action: CounterAction) -> Result<(Option<i64>, i64), Error> {
    match action {
        CounterAction::Get => Ok((None, counter.get().await?)),
        CounterAction::Add { number } => {
            let update = counter.add(number).await?;
            Ok((Some(update.before), update.after))
        }
        CounterAction::Set { number } => {
            counter.set(number).await?;
            Ok((None, number))
        }
    }
}

pub(crate) async fn barrier(
    common: &Common,
    path: &Path,
    action: BarrierAction,
) -> Result<(), Failure> {
    let client = connect(common).await?;
    let barrier = Barrier::new(&client, path);
    let is_set = match action {
        BarrierAction::Set => barrier.set().await.map(|_change| true),
        BarrierAction::Lift => barrier.lift().await.map(|_change| false),
        BarrierAction::Wait { timeout } => {
            return wait(common, &client, &barrier, path, timeout).await;
        }
    };
    client.close().await?;
    print(common, path, is_set?)
}

async fn wait(
    common: &Common,
    client: &Client,
    barrier: &Barrier,
    path: &Path,
    timeout: Option<Duration>,
) -> Result<(), Failure> {
    let limited = async {
        match timeout {
            Some(limit) => within(limit, barrier.wait()).await,
            None => barrier.wait().await.map(Some),
        }
    };
    let waited = until_interrupted(Progress::waiting("waiting", limited)).await;
    client.close().await?;
    match waited.transpose()? {
        None => Err(Failure::plain("interrupted before the barrier was lifted")),
        Some(Some(())) => print(common, path, false),
        Some(None) => Err(Failure::Exit(TOO_LONG, Some(format!("{path} is still set")))),
    }
}

/// Prints the state as JSON, if that is requested. Otherwise the exit code is enough.
fn print(common: &Common, path: &Path, is_set: bool) -> Result<(), Failure> {
    if common.json {
        output::object(&json!({ "path": path.as_str(), "set": is_set }))?;
    }
    Ok(())
}

pub(crate) async fn semaphore(
    common: &Common,
    path: &Path,
    action: SemaphoreAction,
) -> Result<(), Failure> {
    let client = connect(common).await?;
    let semaphore = Semaphore::shared(&client, path);
    let permits = match action {
        SemaphoreAction::Get => semaphore.permits().await,
        SemaphoreAction::Set { permits } => semaphore.set_permits(permits).await.map(|()| permits),
    };
    client.close().await?;
    let permits = permits?;
    if common.json {
        return Ok(output::object(&json!({ "path": path.as_str(), "permits": permits }))?);
    }
    Ok(output::line(&permits.to_string())?)
}
