//! The arguments of crews.

use std::convert::Infallible;
use std::fmt::Display;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_recipes::crew::{
    Assignment, Crew, CrewPolicy, CrewWorker, NewTask, ShownWorker, TaskEnd,
};

use crate::recipe::edge::{Takes, accepted, first, ignore_panic, later, positive, text, to};

pub(crate) const CREW: Takes = Takes {
    texts: &[
        first("submit", |client, path, name| {
            Box::pin(async move {
                let crew = Crew::new(&client, path);
                done(does(&crew, &name, "x", worker()).await?, "x")
            })
        }),
        first("task", |client, path, name| {
            Box::pin(async move { Crew::new(&client, path).task(&name)?.status().await.map(drop) })
        }),
        first("drain", |client, path, worker| {
            Box::pin(async move { Crew::new(&client, path).drain(&worker).await.map(drop) })
        }),
        first("undrain", |client, path, worker| {
            Box::pin(async move { Crew::new(&client, path).undrain(&worker).await.map(drop) })
        }),
        first("property", |client, path, name| {
            Box::pin(async move {
                let policy = CrewPolicy::property(&name);
                let crew = Crew::new(&client, path).policy(policy);
                let task = NewTask::new("x").prefers(&name, &name);
                done(does(&crew, &id(&client), task, worker().property(&name, &name)).await?, "x")
            })
        }),
        first("needs", |client, path, name| {
            Box::pin(async move {
                let (crew, task) = (Crew::new(&client, path), NewTask::new("x").needs(&name, ""));
                done(does(&crew, &id(&client), task, worker().property(&name, "")).await?, "x")
            })
        }),
        first("prefers", |client, path, name| {
            Box::pin(async move {
                let (crew, task) = (Crew::new(&client, path), NewTask::new("x").prefers(&name, ""));
                done(does(&crew, &id(&client), task, worker()).await?, "x")
            })
        }),
        later("labelled", |client, path, label| {
            Box::pin(async move {
                let crew = Crew::new(&client, path);
                let work = |task: Assignment| async move { Ok::<_, Infallible>(task.data) };
                let works = pin!(crew.work(worker().labelled(&label), work));
                let is_registered = pin!(async {
                    let is_shown = |one: &ShownWorker| one.offers.label() == Some(&*label);
                    while !accepted(crew.snapshot()).await?.workers.iter().any(is_shown) {
                        sleep(Duration::from_millis(1)).await;
                    }
                    Ok(())
                });
                match select(works, is_registered).await {
                    Either::Left((ended, _)) => ended.map(|never| match never {}),
                    Either::Right((registered, _)) => registered,
                }
            })
        }),
        later("report", |client, path, progress| {
            Box::pin(async move {
                let crew = Crew::new(&client, path);
                let work = |task: Assignment| {
                    task.report(&progress);
                    async move { Ok::<_, Infallible>(task.data) }
                };
                done(ends(&crew, &id(&client), "x", worker(), work).await?, "x")
            })
        }),
    ],
    data: &[
        first("new", |client, path, data| {
            Box::pin(async move {
                let crew = Crew::new(&client, path);
                done(does(&crew, &id(&client), data.clone(), worker()).await?, data)
            })
        }),
        first("needs", |client, path, data| {
            Box::pin(async move {
                let crew = Crew::new(&client, path);
                let task = NewTask::new("x").needs("a", text(&data));
                let needs = crew.submit(&id(&client), task).await?;
                // No worker has the task, and it blocks no other task.
                done(does(&crew, &id(&client), "x", worker()).await?, "x")?;
                accepted(needs.cancel()).await.map(drop)
            })
        }),
        first("prefers", |client, path, data| {
            Box::pin(async move {
                let crew = Crew::new(&client, path);
                let task = NewTask::new("x").prefers("a", text(&data));
                done(does(&crew, &id(&client), task, worker()).await?, "x")
            })
        }),
        later("work", |client, path, result| {
            Box::pin(async move {
                let crew = Crew::new(&client, path);
                let work = |_task| async { Ok::<_, Infallible>(result.clone()) };
                match ends(&crew, &id(&client), "x", worker(), work).await? {
                    // Data that is too large to be stored is a failure of the task.
                    Some(TaskEnd::Failed(_)) => {
                        Err(Error::new(ErrorKind::TooLarge, "storing a result"))
                    }
                    end => done(end, result.clone()),
                }
            })
        }),
    ],
    numbers: &[
        first("priority", |client, path, priority| {
            Box::pin(async move {
                let (crew, task) =
                    (Crew::new(&client, path), NewTask::new("x").priority(to(priority)?));
                done(does(&crew, &id(&client), task, worker()).await?, "x")
            })
        }),
        first("retries", |client, path, retries| {
            Box::pin(async move {
                let (crew, task) =
                    (Crew::new(&client, path), NewTask::new("x").retries(to(retries)?));
                done(does(&crew, &id(&client), task, worker()).await?, "x")
            })
        }),
        first("capacity", |client, path, tasks| {
            Box::pin(async move {
                let worker = worker().capacity(positive(tasks)?);
                done(does(&Crew::new(&client, path), &id(&client), "x", worker).await?, "x")
            })
        }),
    ],
    times: &[
        first("deadline", |client, path, time| {
            Box::pin(async move {
                let (crew, task) = (Crew::new(&client, path), NewTask::new("x").deadline(time));
                match does(&crew, &id(&client), task, worker()).await? {
                    Some(TaskEnd::Expired) if time < Duration::from_secs(60) => Ok(()),
                    end => done(end, "x"),
                }
            })
        }),
        first("retention", |client, path, retention| {
            Box::pin(async move {
                let crew = Crew::new(&client, path).retention(retention);
                match does(&crew, &id(&client), "x", worker()).await? {
                    // It may be removed immediately.
                    None if retention < Duration::from_secs(60) => Ok(()),
                    end => done(end, "x"),
                }
            })
        }),
        first("attempt_timeout", |client, path, limit| {
            Box::pin(async move {
                // Work without a wait cannot be late.
                let task = NewTask::new("x").attempt_timeout(limit);
                done(does(&Crew::new(&client, path), &id(&client), task, worker()).await?, "x")
            })
        }),
        first("backoff", |client, path, pause| {
            Box::pin(async move {
                let task = NewTask::new("x").retries(1).backoff(pause, pause);
                done(does(&Crew::new(&client, path), &id(&client), task, worker()).await?, "x")
            })
        }),
    ],
    functions: &[
        later("work", |client, path, trap| {
            Box::pin(async move {
                let crew = Crew::new(&client, path);
                let work = |task: Assignment| {
                    trap.spring();
                    async move { Ok::<_, Infallible>(task.data) }
                };
                let task = || NewTask::new("x").retries(1);
                ignore_panic(ends(&crew, &id(&client), task(), worker(), work)).await;
                done(ends(&crew, &id(&client), task(), worker(), work).await?, "x")
            })
        }),
        later("work_until", |client, path, trap| {
            Box::pin(async move {
                let crew = Crew::new(&client, path);
                let task = crew.submit(&id(&client), NewTask::new("x").retries(1)).await?;
                let run = |task: Assignment| {
                    trap.spring();
                    async move { Ok::<_, Infallible>(task.data) }
                };
                let is_over = async {
                    let _is_over = task.wait().await.is_ok();
                };
                let works = pin!(crew.work_until(worker(), is_over, run));
                match select(works, pin!(crew.lead())).await {
                    Either::Left((stopped, _)) => stopped?,
                    Either::Right((ended, _)) => match ended? {},
                }
                done(accepted(task.wait()).await?, "x")
            })
        }),
        later("run_until", |client, path, trap| {
            Box::pin(async move {
                let crew = Crew::new(&client, path);
                let task = crew.submit(&id(&client), NewTask::new("x").retries(1)).await?;
                let run = |task: Assignment| {
                    trap.spring();
                    async move { Ok::<_, Infallible>(task.data) }
                };
                let is_over = async {
                    let _is_over = task.wait().await.is_ok();
                };
                crew.run_until(worker(), is_over, run).await?;
                done(accepted(task.wait()).await?, "x")
            })
        }),
        later("chosen", |client, path, trap| {
            Box::pin(async move {
                let policy = CrewPolicy::chosen(move |_task, _workers| {
                    trap.spring();
                    Some(0)
                });
                let crew = Crew::new(&client, path).policy(policy);
                ignore_panic(does(&crew, &id(&client), "x", worker())).await;
                done(does(&crew, &id(&client), "x", worker()).await?, "x")
            })
        }),
    ],
    ..Takes::NONE
};

/// An id that no other task has.
fn id(client: &Client) -> String {
    client.random().id()
}

fn worker() -> CrewWorker {
    CrewWorker::new()
}

fn done(end: Option<TaskEnd>, result: impl Into<Bytes>) -> Result<()> {
    match end {
        Some(TaskEnd::Done(data)) if data == result.into() => Ok(()),
        _ => Err(Error::new(ErrorKind::Backend, "doing a task")),
    }
}

/// Submits a task that returns its data, and is the master and the worker of the crew.
async fn does(
    crew: &Crew,
    id: &str,
    task: impl Into<NewTask>,
    worker: CrewWorker,
) -> Result<Option<TaskEnd>> {
    let work = |task: Assignment| async move { Ok::<_, Infallible>(task.data) };
    ends(crew, id, task, worker, work).await
}

/// Submits a task, and is the master and the worker of the crew. Returns the end of the task.
async fn ends<F, T, E>(
    crew: &Crew,
    id: &str,
    task: impl Into<NewTask>,
    worker: CrewWorker,
    work: impl Fn(Assignment) -> F,
) -> Result<Option<TaskEnd>>
where
    F: Future<Output = Result<T, E>>,
    T: Into<Bytes>,
    E: Display,
{
    let task = crew.submit(id, task).await?;
    let (works, leads) = (pin!(crew.work(worker, work)), pin!(crew.lead()));
    let ended = match select(pin!(task.wait()), select(works, leads)).await {
        Either::Left((end, _)) => end,
        Either::Right((Either::Left((ended, _)) | Either::Right((ended, _)), _)) => {
            ended.map(|never| match never {})
        }
    };
    accepted(async { ended }).await
}
