//! `crew work`: a worker that runs a command for each task.

use std::future::pending;
use std::pin::pin;

use futures_util::future::{Either, select};
use serde_json::json;
use synod::Client;
use synod::Path;
use synod::crew::{Assignment, Crew, CrewWorker};
use synod_core::random::Random;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use crate::args::Common;
use crate::args::crew::CrewWork;
use crate::command::hold::{FAREWELL, host};
use crate::command::{connect, refuse_memory};
use crate::failure::Failure;
use crate::output;
use crate::process::filter::Filter;
use crate::process::progress_file::ProgressFile;
use crate::process::session_files;
use crate::process::signals::{Caught, Signals};

/// The parts that each attempt of this worker needs.
struct Desk {
    json: bool,
    path: Path,
    filter: Filter,
    /// Names the files of attempts.
    random: Random,
    /// Sends the failure that ends the worker.
    broken: mpsc::UnboundedSender<Failure>,
}

/// An attempt that has begun. It was dropped if it is still open in the end.
struct Attempt<'a> {
    desk: &'a Desk,
    id: String,
    is_open: bool,
}

/// Works until a signal arrives, and then ends the current tasks. The client is closed in any case.
pub(crate) async fn run(common: &Common, path: &Path, asked: CrewWork) -> Result<(), Failure> {
    refuse_memory(common, "it has no other members")?;
    let client = connect(common).await?;
    let done = work(common, &client, path, asked).await;
    let _told = timeout(FAREWELL, client.close()).await.is_ok_and(|closed| closed.is_ok());
    done
}

async fn work(
    common: &Common,
    client: &Client,
    path: &Path,
    asked: CrewWork,
) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let crew = Crew::new(client, path).policy(asked.policy);
    let worker = CrewWorker::new().capacity(asked.capacity);
    let worker = worker.property("host", host()).property("pid", std::process::id().to_string());
    let worker = asked
        .properties
        .into_iter()
        .fold(worker, |worker, (name, value)| worker.property(name, value));
    let (broken, mut breaks) = mpsc::unbounded_channel();
    // A result of this size may still be too large, together with the data that the crew stores of
    // its task.
    let session = client.session().await?;
    let (max_output, session_files) = (session.info().limits.data, session_files(&session));
    let filter = Filter { command: asked.command, grace: asked.grace, max_output, session_files };
    let (json, random) = (common.json, client.random().clone());
    let desk = &Desk { json, path: path.clone(), filter, random, broken };
    let stop = Notify::new();
    let works = async {
        let run = |task| desk.attempt(task);
        if asked.no_lead {
            crew.work_until(worker, stop.notified(), run).await
        } else {
            crew.run_until(worker, stop.notified(), run).await
        }
    };
    let working = select(Box::pin(works), Box::pin(breaks.recv()));
    match select(working, pin!(until_ended(&mut signals, &stop))).await {
        Either::Left((Either::Left((ended, _)), _)) => Ok(ended?),
        Either::Left((Either::Right((broken, _)), _)) => Err(broken.unwrap_or(Failure::Told)),
        Either::Right((signal, _)) => Err(Failure::Exit(signal.exit_code(), None)),
    }
}

/// Stops the worker at the first signal. Returns the one at which it ends at once: the next, or any
/// other than those that ask for an orderly end.
async fn until_ended(signals: &mut Signals, stop: &Notify) -> Caught {
    let first = signals.fatal().await;
    if !matches!(first, Caught::Terminate | Caught::Interrupt | Caught::HangUp) {
        return first;
    }
    output::warning(
        "this worker ends its tasks and gets no others; a second signal ends it at once",
    );
    stop.notify_one();
    signals.fatal().await
}

impl Desk {
    async fn attempt(&self, task: Assignment) -> Result<Vec<u8>, String> {
        let mut attempt = Attempt { desk: self, id: task.id.clone(), is_open: true };
        self.print(&task.id, "begun", "");
        match self.filtered(&task).await {
            Ok(result) => {
                attempt.is_open = false;
                match &result {
                    Ok(output) => {
                        self.print(&attempt.id, "done", &format!("{} bytes", output.len()));
                    }
                    Err(why) => self.print(&attempt.id, "failed", why),
                }
                result
            }
            // The task did not cause this: it stays assigned until this worker has ended.
            Err(failure) => {
                let _ends = self.broken.send(failure).is_ok();
                pending().await
            }
        }
    }

    /// Runs the command for a task, and reports its progress meanwhile.
    async fn filtered(&self, task: &Assignment) -> Result<Result<Vec<u8>, String>, Failure> {
        let file = ProgressFile::create(&self.random.id()).map_err(|error| {
            Failure::plain(format!("the file for the progress of a task: {error}"))
        })?;
        let environment = [
            ("SYNOD_TASK", task.id.clone()),
            ("SYNOD_FAILED", task.failed.to_string()),
            ("SYNOD_PATH", self.path.as_str().to_owned()),
            ("SYNOD_PROGRESS", file.path().display().to_string()),
        ];
        let runs = pin!(self.filter.run(&task.data, &environment));
        let follows = pin!(file.follow(|line| task.report(line)));
        let ended = match select(runs, follows).await {
            Either::Left((ended, _)) => ended,
            Either::Right(((), _)) => pending().await,
        };
        if let Some(line) = file.last_line() {
            task.report(line);
        }
        ended
    }

    fn print(&self, id: &str, event: &str, detail: &str) {
        let printed = if self.json {
            output::object(&json!({ "task": id, "event": event, "detail": detail }))
        } else {
            output::line(format!("{event:<8}{}  {detail}", id.escape_debug()).trim_end())
        };
        if let Err(error) = printed {
            let _ends = self.broken.send(error.into()).is_ok();
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.desk.print(&self.id, "dropped", "");
        }
    }
}
