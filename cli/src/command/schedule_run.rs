//! `schedule run`: runs a command at each date, while this process leads.

use std::ffi::OsString;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::select;
use serde_json::json;
use synod::Client;
use synod::Held as _;
use synod::Path;
use synod::schedule::{Schedule, ScheduledRun, Timetable};
use tokio::time::timeout;

use crate::args::Common;
use crate::args::schedule::{ScheduleDates, ScheduleRun};
use crate::command::consume::{Broken, until_stopped};
use crate::command::hold::{FAREWELL, grace, whoami};
use crate::command::{connect, refuse_memory};
use crate::failure::Failure;
use crate::output;
use crate::process::signals::Signals;
use crate::process::{End, Job};
use crate::time::date;

/// Runs the command until a signal, or until no date is left. The client is closed in any case.
pub(crate) async fn run(common: &Common, path: &Path, asked: ScheduleRun) -> Result<(), Failure> {
    refuse_memory(common, "no other machine has the schedule")?;
    let timetable = timetable(asked.dates, asked.zone)?;
    let client = connect(common).await?;
    let label = asked.label.unwrap_or_else(whoami);
    let schedule = Schedule::new(&client, path, timetable).label(label);
    let schedule = schedule.attempts(asked.attempts, asked.pause).catch_up(asked.catch_up);
    let schedule = match asked.start_within {
        Some(limit) => schedule.start_within(limit),
        None => schedule,
    };
    let runs = async {
        let grace = grace(&client, asked.grace).await?;
        let runs = Runs { common, client: &client, path, command: asked.command, grace };
        runs.all(&schedule).await
    };
    let done = Box::pin(runs).await;
    let _told = timeout(FAREWELL, client.close()).await.is_ok_and(|closed| closed.is_ok());
    done
}

fn timetable(dates: ScheduleDates, zone: Option<String>) -> Result<Timetable, Failure> {
    Ok(match (dates.every, dates.cron, dates.at, zone) {
        (Some(period), ..) => Timetable::every(period),
        (_, Some(expression), _, Some(zone)) => Timetable::cron_in(&expression, &zone)?,
        (_, Some(expression), ..) => Timetable::cron(&expression)?,
        (_, _, Some(date), _) => Timetable::at(date),
        // The arguments require one of them.
        _ => {
            return Err(Failure::plain(
                "a schedule needs dates; say --every, --cron or --at".to_owned(),
            ));
        }
    })
}

/// Runs the command at one date after the other.
struct Runs<'a> {
    common: &'a Common,
    client: &'a Client,
    path: &'a Path,
    command: Vec<OsString>,
    grace: Duration,
}

impl Runs<'_> {
    async fn all(&self, schedule: &Schedule) -> Result<(), Failure> {
        let (broken, mut signals) = (Broken::default(), Signals::listen()?);
        let stop = async {
            let _either = select(pin!(until_stopped(&mut signals)), pin!(broken.happened())).await;
        };
        let work = async |run: ScheduledRun| match self.run(&run).await {
            Ok(ended) => ended,
            Err(failure) => {
                broken.by(failure);
                Err("it was not run".to_owned())
            }
        };
        let done = schedule.run_until(stop, work).await;
        broken.failure().map_or(Ok(()), Err)?;
        Ok(done?)
    }

    /// Runs the command for a date. The inner error is the reason for its failure.
    async fn run(&self, run: &ScheduledRun) -> Result<Result<(), String>, Failure> {
        let job = Job {
            command: self.command.clone(),
            environment: self.environment(run),
            grace: self.grace,
            input: Some(Vec::new()),
        };
        let ended = job.run_while(self.client, run, &mut Signals::listen()?).await?;
        let due = date(run.due);
        if self.common.json {
            let code = if let End::Exited(code) = ended { Some(code) } else { None };
            output::object(&json!({ "due": due, "attempt": run.attempt, "code": code }))?;
        }
        let why = match ended {
            End::Exited(0) => return Ok(Ok(())),
            End::Exited(code) => format!("the command ended with {code}"),
            // Another process continues, unless the lead was only in doubt.
            End::Lost => "the lead was lost before the command ended".to_owned(),
        };
        output::warning(&format!("{due}: {why}"));
        Ok(Err(why))
    }

    fn environment(&self, run: &ScheduledRun) -> Vec<(OsString, OsString)> {
        let pairs = [
            ("SYNOD_PATH", self.path.to_string()),
            ("SYNOD_DUE", date(run.due)),
            ("SYNOD_ATTEMPT", run.attempt.to_string()),
            ("SYNOD_TOKEN", run.token().to_string()),
        ];
        pairs.map(|(name, value)| (name.into(), value.into())).into()
    }
}
