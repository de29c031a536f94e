//! Masters whose terms are shorter than the times that they count: retentions, deadlines, and
//! pauses after failures.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{Either, ready, select, try_join};
use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_recipes::crew::{Assignment, Crew, CrewWorker, NewTask, TaskEnd};

use crate::process::Process;

/// The property of the one worker that can do the second task.
const ABLE: (&str, &str) = ("is", "able");

/// Once everything is repaired, lets masters follow each other in short terms. The wall clocks have
/// to be right.
pub(super) async fn times_pass_in_short_terms(me: Process, dir: Path) -> Result<(), String> {
    for _ in 0..20 {
        // Some servers may be unreachable for ever.
        let Ok(client) = me.client().await else { continue };
        let crew = Crew::new(&client, dir.clone()).retention(me.ttl() * 4);
        let has_failed = AtomicBool::new(false);
        let worker = CrewWorker::new().property(ABLE.0, ABLE.1);
        let works = crew.work(worker, |task| ready(fails_once(task, &has_failed)));
        let leads = async {
            loop {
                if let Ok(led) = clock::timeout(me.ttl(), crew.lead()).await {
                    return led;
                }
            }
        };
        let serving = pin!(try_join(works, leads));
        let judged = pin!(clock::timeout(me.ttl() * 100, judge(&me, &client, &crew, &dir)));
        if let Either::Right((judged, _)) = Box::pin(select(serving, judged)).await {
            match judged {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(_unreachable)) => {}
                Err(_late) => return Err("no task ends under masters with short terms".to_owned()),
            }
        }
    }
    Ok(())
}

fn fails_once(task: Assignment, has_failed: &AtomicBool) -> Result<String, &'static str> {
    let is_first = task.id == "again" && !has_failed.swap(true, Ordering::Relaxed);
    if is_first { Err("on purpose") } else { Ok(task.id) }
}

async fn judge(me: &Process, client: &Client, crew: &Crew, dir: &Path) -> Result<()> {
    let long = me.ttl() * 4;
    crew.resume().await?;
    let late = NewTask::new("late").needs("is", "nowhere").deadline(long);
    let again = NewTask::new("again").needs(ABLE.0, ABLE.1).retries(1).backoff(long, long);
    let late = crew.submit("late", late).await?;
    let again = crew.submit("again", again).await?;
    let late = late.wait().await?;
    if late.as_ref().is_some_and(|end| *end != TaskEnd::Expired) {
        me.wrong("L-MW-16", || format!("a task that nobody can do ended as {late:?}"));
    }
    let again = again.wait().await?;
    if again.as_ref().is_some_and(|end| !matches!(end, TaskEnd::Done(_))) {
        me.wrong("L-MW-11", || format!("a task that may be tried again ended as {again:?}"));
    }
    // L-MW-9: more than one retention later. The dates of clocks at other rates differ a little.
    clock::sleep(long * 2).await;
    let tasks = dir.join("tasks")?;
    let left = client.children(&tasks).await?;
    let is_over = |data: &[u8]| !data.starts_with(b"{\"state\":\"open\"");
    if let Some(task) = left.iter().find(|node| node.stat.is_some() && is_over(&node.data)) {
        me.wrong("L-MW-9", || {
            format!("{} is kept by every master for the whole retention", task.path)
        });
    }
    Ok(())
}
