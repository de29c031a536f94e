//! [`troubles_of`]: what is wrong with a recipe, worst first. Pure.

use std::time::{Duration, SystemTime};

use synod_core::path::Path;
use synod_recipes::crew::{CrewSnapshot, TaskStatus};
use synod_recipes::lock::Contender;
use synod_recipes::queue::QueueStats;
use synod_recipes::schedule::ScheduleState;

use crate::item::{Item, ItemState};
use crate::recognition::Certainty;

/// Something that an operator should look at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trouble {
    /// The severity.
    pub severity: Severity,
    /// The rule that found it.
    pub rule: Rule,
    /// The path of the recipe.
    pub path: Path,
    /// The description of the trouble, in a sentence.
    pub text: String,
    /// A command of `synod` that shows more or helps, without the store.
    pub command: String,
}

/// The severity of a [`Trouble`]: the worst is the smallest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "programs that sort by it must know each")]
pub enum Severity {
    /// Work stands still.
    Stuck,
    /// Work was given up, or is slow.
    Warning,
}

/// The rule by which a [`Trouble`] was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// A contender has waited for long.
    WaitsLong,
    /// Items of a queue have waited for long.
    QueueOld,
    /// A queue has dead letters.
    DeadLetters,
    /// Tasks of a crew wait, and it has no master.
    NoMaster,
    /// Tasks of a crew wait, and it has no worker that takes them.
    NoWorker,
    /// Tasks of a crew wait, and it is paused.
    Paused,
    /// The date of a schedule has passed, and nobody runs it.
    NotRun,
    /// The last run of a schedule failed.
    RunFailed,
}

/// The times after which something is a trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Thresholds {
    /// The time for which a contender may wait: ten minutes by default.
    pub waits: Duration,
    /// The time for which an item of a queue may wait: ten minutes by default.
    pub queued: Duration,
    /// The delay that a schedule may have: one minute by default.
    pub late: Duration,
}

impl Default for Thresholds {
    fn default() -> Self {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        Self { waits: minutes(10), queued: minutes(10), late: minutes(1) }
    }
}

impl Rule {
    /// Its name, for tools.
    pub fn name(self) -> &'static str {
        match self {
            Self::WaitsLong => "waits-long",
            Self::QueueOld => "queue-old",
            Self::DeadLetters => "dead-letters",
            Self::NoMaster => "no-master",
            Self::NoWorker => "no-worker",
            Self::Paused => "paused",
            Self::NotRun => "not-run",
            Self::RunFailed => "run-failed",
        }
    }

    fn severity(self) -> Severity {
        match self {
            Self::DeadLetters | Self::QueueOld | Self::RunFailed => Severity::Warning,
            Self::WaitsLong | Self::NoMaster | Self::NoWorker | Self::Paused | Self::NotRun => {
                Severity::Stuck
            }
        }
    }
}

/// The troubles of a recipe at this date, worst first. What is only [likely](Certainty::Likely) to
/// be a recipe has none.
///
/// The times come from the clocks of the processes that wrote them, and are compared with `now`.
pub fn troubles_of(item: &Item, now: SystemTime, thresholds: &Thresholds) -> Vec<Trouble> {
    if item.certainty == Certainty::Likely {
        return Vec::new();
    }
    let found = match &item.state {
        ItemState::Contenders(_, line) => of_contenders(item, line, now, thresholds),
        ItemState::Queue { stats, .. } => of_queue(item, stats, now, thresholds),
        ItemState::Crew { snapshot, masters } => of_crew(item, snapshot, masters),
        ItemState::Schedule { state, leaders } => {
            of_schedule(item, state, leaders, now, thresholds)
        }
        _ => Vec::new(),
    };
    let mut found: Vec<Trouble> = found
        .into_iter()
        .map(|(rule, text, command)| {
            let (severity, path) = (rule.severity(), item.path.clone());
            Trouble { severity, rule, path, text, command }
        })
        .collect();
    found.sort_by_key(|trouble| (trouble.severity, trouble.rule));
    found
}

type Found = Vec<(Rule, String, String)>;

/// The time since a date; `None` if the date is in the future.
fn age(now: SystemTime, date: Option<SystemTime>) -> Option<Duration> {
    now.duration_since(date?).ok()
}

/// A duration for people, in its largest units.
fn shown(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn of_contenders(item: &Item, line: &[Contender], now: SystemTime, limits: &Thresholds) -> Found {
    let waits = || line.iter().filter(|one| one.holds == Some(false));
    let oldest = waits().filter_map(|one| age(now, one.since)).max();
    let Some(oldest) = oldest.filter(|oldest| *oldest >= limits.waits) else { return Vec::new() };
    let text = match waits().count() {
        1 => format!("1 has waited for {}", shown(oldest)),
        count => format!("{count} wait, the oldest for {}", shown(oldest)),
    };
    vec![(Rule::WaitsLong, text, format!("inspect {}", item.path))]
}

fn of_queue(item: &Item, stats: &QueueStats, now: SystemTime, limits: &Thresholds) -> Found {
    let mut found = Vec::new();
    if let Some(oldest) = age(now, stats.oldest).filter(|oldest| *oldest >= limits.queued) {
        let text = format!("{} ready, the oldest for {}", stats.ready, shown(oldest));
        found.push((Rule::QueueOld, text, format!("queue {} list", item.path)));
    }
    if stats.dead > 0 {
        let letters = if stats.dead == 1 { "letter" } else { "letters" };
        let text = format!("{} dead {letters}", stats.dead);
        found.push((Rule::DeadLetters, text, format!("queue {} dead", item.path)));
    }
    found
}

fn of_crew(item: &Item, snapshot: &CrewSnapshot, masters: &[Contender]) -> Found {
    let is_waiting =
        |task: &&synod_recipes::crew::ShownTask| matches!(task.status, TaskStatus::Waiting);
    let waiting = snapshot.tasks.iter().filter(is_waiting).count();
    if waiting == 0 {
        return Vec::new();
    }
    let tasks =
        if waiting == 1 { "1 task waits".to_owned() } else { format!("{waiting} tasks wait") };
    let mut found = Vec::new();
    if masters.is_empty() {
        let text = format!("{tasks}, and there is no master");
        found.push((Rule::NoMaster, text, format!("crew {} list", item.path)));
    }
    if snapshot.workers.iter().all(|worker| worker.drained) {
        let workers = match snapshot.workers.len() {
            0 => "there is no worker",
            _ => "every worker is drained",
        };
        let text = format!("{tasks}, and {workers}");
        found.push((Rule::NoWorker, text, format!("crew {} list", item.path)));
    }
    if snapshot.paused {
        let text = format!("{tasks}, and the crew is paused");
        found.push((Rule::Paused, text, format!("crew {} resume", item.path)));
    }
    found
}

fn of_schedule(
    item: &Item,
    state: &ScheduleState,
    leaders: &[Contender],
    now: SystemTime,
    limits: &Thresholds,
) -> Found {
    let (mut found, show) = (Vec::new(), format!("schedule {} show", item.path));
    let late = age(now, state.next).filter(|late| *late >= limits.late);
    if let (Some(late), true) = (late, leaders.is_empty()) {
        let text = format!("its date has passed for {}, and nobody runs it", shown(late));
        found.push((Rule::NotRun, text, show.clone()));
    }
    if let Some(why) = state.last.as_ref().and_then(|last| last.failure.as_ref()) {
        found.push((Rule::RunFailed, format!("the last run failed: {why}"), show));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_shown_in_its_largest_units() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (3_599, "59 min"),
            (3_600, "1 h 0 min"),
            (172_799, "47 h 59 min"),
            (172_800, "2 days"),
        ] {
            assert_eq!(shown(Duration::from_secs(seconds)), text);
        }
    }
}
