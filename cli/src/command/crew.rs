//! `crew`: submits tasks, shows them and their workers, and does them.

use serde_json::{Value, json};
use synod::Client;
use synod::Path;
use synod::crew::{
    Crew, CrewTask, NewTask, ShownTask, ShownWorker, TaskEnd, TaskHistory, TaskStatus,
};

use crate::args::Common;
use crate::args::crew::{CrewAction, CrewSubmit};
use crate::command::crew_shown::{attempt_line, attempt_object, object, shown, text};
#[cfg(unix)]
use crate::command::crew_work;
use crate::command::{connect, given, until_interrupted};
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

pub(crate) async fn run(common: &Common, path: &Path, action: CrewAction) -> Result<(), Failure> {
    #[cfg(unix)]
    let action = match action {
        CrewAction::Work(asked) => return crew_work::run(common, path, asked).await,
        other => other,
    };
    let data = match &action {
        // Before a session is opened: nothing would keep the session alive during this read.
        CrewAction::Submit(asked) => given(asked.data.as_deref().unwrap_or("-"))?,
        _ => Vec::new(),
    };
    let client = connect(common).await?;
    let done = ask(common, &client, path, action, data).await;
    client.close().await?;
    done
}

async fn ask(
    common: &Common,
    client: &Client,
    path: &Path,
    action: CrewAction,
    data: Vec<u8>,
) -> Result<(), Failure> {
    let crew = Crew::new(client, path);
    match action {
        CrewAction::Submit(asked) => submit(common, client, &crew, asked, data).await,
        CrewAction::Status { id, follow } => {
            let task = crew.task(&id)?;
            let is_there = status(common, &task, follow).await?;
            if is_there { Ok(()) } else { Err(no_task(path, &task)) }
        }
        CrewAction::Cancel { id } => {
            let task = crew.task(&id)?;
            let end = task.cancel().await?.ok_or_else(|| no_task(path, &task))?;
            print(common, &task, &TaskStatus::Over(end))
        }
        CrewAction::List => list(common, &crew).await,
        CrewAction::Drain { worker } => {
            let drained = Progress::waiting("draining", crew.drain(&worker)).await?;
            if drained { Ok(()) } else { Err(no_worker(path, &worker)) }
        }
        CrewAction::Undrain { worker } => {
            let undrained = Progress::waiting("undraining", crew.undrain(&worker)).await?;
            if undrained { Ok(()) } else { Err(no_worker(path, &worker)) }
        }
        CrewAction::Pause => Ok(crew.pause().await?),
        CrewAction::Resume => Ok(crew.resume().await?),
        #[cfg(unix)]
        CrewAction::Work(_) => Ok(()),
    }
}

async fn submit(
    common: &Common,
    client: &Client,
    crew: &Crew,
    asked: CrewSubmit,
    data: Vec<u8>,
) -> Result<(), Failure> {
    let id = asked.id.unwrap_or_else(|| client.random().id());
    let new = NewTask::new(data).priority(asked.priority).retries(asked.retries);
    let new = asked.needs.into_iter().fold(new, |new, (name, value)| new.needs(name, value));
    let new = asked.prefers.into_iter().fold(new, |new, (name, value)| new.prefers(name, value));
    let new = asked.deadline.into_iter().fold(new, NewTask::deadline);
    let new = asked.attempt_timeout.into_iter().fold(new, NewTask::attempt_timeout);
    let task = Progress::waiting("submitting", crew.submit(&id, new)).await?;
    if !asked.wait {
        return if common.json {
            Ok(output::object(&json!({ "task": task.id() }))?)
        } else {
            Ok(output::line(&task.id())?)
        };
    }
    match until_interrupted(Progress::waiting("waiting", task.wait())).await.transpose()? {
        None => Err(Failure::plain(format!(
            "interrupted before the task was over; `status {id}` shows it, and submitting it again under \
             that id waits for it"
        ))),
        Some(None) => {
            Err(Failure::plain(format!("the task {id} was removed before this read its result")))
        }
        Some(Some(end)) => finish(common, &task, end),
    }
}

/// Prints a task; or, until it is over, each change of it. Returns `false` if there is no such
/// task.
async fn status(common: &Common, task: &CrewTask, follow: bool) -> Result<bool, Failure> {
    if !follow {
        let found = task.history().await?;
        return found
            .map(|history| print_history(common, task, &history))
            .transpose()
            .map(|it| it.is_some());
    }
    let (mut follower, mut is_there) = (task.follow(), false);
    while let Some(history) = Progress::waiting("following", follower.next()).await? {
        is_there = true;
        print_history(common, task, &history)?;
    }
    Ok(is_there)
}

fn print_history(common: &Common, task: &CrewTask, history: &TaskHistory) -> Result<(), Failure> {
    if common.json {
        let mut object = object(&task.id(), &history.status);
        object["attempts"] = history.attempts.iter().map(attempt_object).collect();
        object["earlier"] = history.earlier.into();
        return Ok(output::object(&object)?);
    }
    output::line(&text(&history.status))?;
    if history.earlier > 0 {
        output::line(&format!("{} earlier attempts", history.earlier))?;
    }
    for attempt in &history.attempts {
        output::line(&attempt_line(attempt))?;
    }
    Ok(())
}

/// Prints the result of a task. If it has none, this command fails.
fn finish(common: &Common, task: &CrewTask, end: TaskEnd) -> Result<(), Failure> {
    if common.json {
        let is_done = matches!(end, TaskEnd::Done(_));
        output::object(&object(&task.id(), &TaskStatus::Over(end)))?;
        return if is_done { Ok(()) } else { Err(Failure::Told) };
    }
    match end {
        TaskEnd::Done(result) => Ok(output::result(&result)?),
        TaskEnd::Failed(why) => {
            Err(Failure::plain(format!("the task {} failed: {why}", task.id())))
        }
        TaskEnd::Cancelled => Err(Failure::plain(format!("the task {} was cancelled", task.id()))),
        TaskEnd::Expired => {
            Err(Failure::plain(format!("the task {} was not over by its deadline", task.id())))
        }
    }
}

async fn list(common: &Common, crew: &Crew) -> Result<(), Failure> {
    let snapshot = Progress::waiting("reading", crew.snapshot()).await?;
    if common.json {
        output::object(&json!({ "paused": snapshot.paused }))?;
        for worker in &snapshot.workers {
            output::object(&worker_object(worker))?;
        }
        for task in &snapshot.tasks {
            output::object(&task_object(task))?;
        }
        return Ok(());
    }
    if snapshot.paused {
        output::line("paused")?;
    }
    for worker in &snapshot.workers {
        output::line(&worker_line(worker))?;
    }
    for task in &snapshot.tasks {
        let worker = task.worker.as_ref().map(|name| format!("  {name}")).unwrap_or_default();
        output::line(&format!("task    {}  {}{worker}", shown(&task.id), text(&task.status)))?;
    }
    Ok(())
}

fn print(common: &Common, task: &CrewTask, status: &TaskStatus) -> Result<(), Failure> {
    if common.json {
        return Ok(output::object(&object(&task.id(), status))?);
    }
    Ok(output::line(&text(status))?)
}

fn no_worker(path: &Path, worker: &str) -> Failure {
    Failure::NotThere(format!("there is no worker {worker:?} in {path}; `list` has their names"))
}

fn no_task(path: &Path, task: &CrewTask) -> Failure {
    Failure::NotThere(format!(
        "there is no task {:?} in {path}: it was never submitted, or was over and is no longer kept",
        task.id()
    ))
}

fn task_object(task: &ShownTask) -> Value {
    let mut object = object(&task.id, &task.status);
    object["worker"] = task.worker.as_deref().into();
    object["attempts"] = task.attempts.iter().map(attempt_object).collect();
    object["earlier"] = task.earlier.into();
    object
}

fn worker_object(worker: &ShownWorker) -> Value {
    json!({
        "worker": worker.name,
        "capacity": worker.offers.tasks_at_once(),
        "properties": worker.offers.properties(),
        "drained": worker.drained,
    })
}

fn worker_line(worker: &ShownWorker) -> String {
    let properties = worker.offers.properties().iter();
    let properties: Vec<_> =
        properties.map(|(name, value)| format!("{}={}", shown(name), shown(value))).collect();
    let drained = if worker.drained { "  drained" } else { "" };
    format!(
        "worker  {}  {} at once  {}{drained}",
        worker.name,
        worker.offers.tasks_at_once(),
        properties.join(" ")
    )
}
