//! Texts and JSON that show a recipe which was found in a store.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde_json::{Value, json};
use synod::crew::{CrewSnapshot, TaskStatus};
use synod::queue::QueueStats;
use synod::schedule::ScheduleState;
use synod_view::item::{Contest, Item, ItemState};
use synod_view::recognition::Certainty;

use crate::command::contenders_shown as contenders;
use crate::output;

/// The summary of an item, in one line.
pub(super) fn summary(item: &Item) -> String {
    let likely = if item.certainty == Certainty::Likely { "likely " } else { "" };
    match &item.state {
        // The name of a ticket says what it is.
        ItemState::Contenders(_, contenders) => contenders::summary(contenders),
        ItemState::Queue { stats, .. } => format!("{likely}queue, {}", queue(stats)),
        ItemState::Crew { snapshot, masters } => {
            let master = if masters.is_empty() { ", no master" } else { "" };
            format!("{likely}crew, {}{master}", crew(snapshot))
        }
        ItemState::Schedule { state, leaders } => {
            let leader = if leaders.is_empty() { ", nobody runs it" } else { "" };
            let next = state.next.and_then(contenders::date).unwrap_or_else(|| "-".to_owned());
            format!("{likely}schedule, next {next}{leader}")
        }
        ItemState::Partition(holders) => {
            format!("{likely}partition, {}", number(holders.len(), "held item", "held items"))
        }
        ItemState::CountDown(parties) => {
            format!("{likely}count-down, {} came", number(*parties, "party", "parties"))
        }
        ItemState::DoubleBarrier { members, is_open } => {
            let open = if *is_open { "may enter" } else { "wait for more" };
            format!("{likely}double barrier, {} {open}", number(*members, "member", "members"))
        }
        ItemState::Group(members) => {
            format!("{likely}group, {}", number(members.len(), "member", "members"))
        }
        ItemState::Service(instances) => {
            format!("{likely}service, {}", number(instances.len(), "instance", "instances"))
        }
        ItemState::OtherQueue(kind, items) => {
            format!("{likely}{}, {}", kind.name(), number(*items, "item", "items"))
        }
        ItemState::Denied(_) => "not readable with these credentials".to_owned(),
        _ => "of a kind that this version does not know".to_owned(),
    }
}

fn number(count: usize, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// The counts that are not zero, or the first one.
fn counts(counts: &[(usize, &str)]) -> String {
    let some: Vec<_> = counts.iter().filter(|(count, _)| *count > 0).collect();
    let some = if some.is_empty() { counts.iter().take(1).collect() } else { some };
    let some = some.into_iter().map(|(count, what)| format!("{count} {what}"));
    some.collect::<Vec<_>>().join(", ")
}

fn queue(stats: &QueueStats) -> String {
    let counts = counts(&[
        (stats.ready, "ready"),
        (stats.delayed, "delayed"),
        (stats.claimed, "claimed"),
        (stats.dead, "dead"),
    ]);
    match stats.oldest.and_then(contenders::date) {
        Some(oldest) => format!("{counts}, the oldest since {oldest}"),
        None => counts,
    }
}

fn crew(snapshot: &CrewSnapshot) -> String {
    let [waiting, assigned, over] = tasks(snapshot);
    let paused = if snapshot.paused { "paused, " } else { "" };
    let workers = number(snapshot.workers.len(), "worker", "workers");
    let tasks = counts(&[(waiting, "waiting"), (assigned, "assigned"), (over, "over")]);
    format!("{paused}{workers}, tasks: {tasks}")
}

/// The numbers of the tasks that wait, that are assigned, and that are over.
fn tasks(snapshot: &CrewSnapshot) -> [usize; 3] {
    let mut tasks = [0; 3];
    for task in &snapshot.tasks {
        match task.status {
            TaskStatus::Waiting => tasks[0] += 1,
            TaskStatus::Assigned => tasks[1] += 1,
            _ => tasks[2] += 1,
        }
    }
    tasks
}

/// A summary, then a row for each contender, worker, member or instance.
pub(super) fn text(item: &Item) -> String {
    let head = format!("{}: {}", item.path, summary(item));
    let rows: Vec<String> = match &item.state {
        ItemState::Contenders(_, contenders) => return contenders::text_of(&item.path, contenders),
        ItemState::Queue { claims, .. } => claims
            .iter()
            .map(|(session, claimed)| format!("claims {claimed}  session {session}"))
            .collect(),
        ItemState::Crew { snapshot, masters } => {
            let masters = contenders::rows(masters);
            masters.into_iter().chain(workers(snapshot)).collect()
        }
        ItemState::Schedule { state, leaders } => {
            let mut rows = contenders::rows(leaders);
            rows.extend(state.last.as_ref().map(|last| {
                let ended = match (last.ended, &last.failure) {
                    (None, _) => "has not ended".to_owned(),
                    (Some(_), None) => "done".to_owned(),
                    (Some(_), Some(why)) => format!("failed: {}", why.escape_debug()),
                };
                let due = contenders::date(last.due).unwrap_or_else(|| "?".to_owned());
                format!("last {due}  by {}  {ended}", last.by.escape_debug())
            }));
            rows
        }
        ItemState::Partition(holders) => by_member(holders)
            .into_iter()
            .map(|(member, items)| {
                let items: Vec<_> = items.iter().map(|it| it.escape_debug().to_string()).collect();
                format!("{}  holds {}", member.escape_debug(), items.join(", "))
            })
            .collect(),
        ItemState::Group(members) => members
            .iter()
            .map(|one| {
                let data = output::glimpse(&one.data);
                format!("{}  session {}  {data}", one.name.escape_debug(), one.session)
            })
            .collect(),
        ItemState::Service(instances) => instances
            .iter()
            .map(|(one, session)| {
                let address = one.address.as_deref().unwrap_or("-").escape_debug();
                let port = one.port.or(one.ssl_port).map(|port| format!(":{port}"));
                let port = port.unwrap_or_default();
                format!("{}  {address}{port}  session {session}", one.id.escape_debug())
            })
            .collect(),
        _ => Vec::new(),
    };
    rows.iter().fold(head, |text, row| format!("{text}\n  {}", row.trim_end()))
}

fn workers(snapshot: &CrewSnapshot) -> impl Iterator<Item = String> + '_ {
    snapshot.workers.iter().map(|worker| {
        let has = |task: &&synod::crew::ShownTask| task.worker.as_ref() == Some(&worker.name);
        let has = snapshot.tasks.iter().filter(has).count();
        let drained = if worker.drained { "  drained" } else { "" };
        let label = worker.offers.label().unwrap_or("").escape_debug();
        format!("works  {}  {has} assigned{drained}  {label}", worker.name.escape_debug())
    })
}

fn by_member(holders: &BTreeMap<String, String>) -> BTreeMap<&str, Vec<&str>> {
    let mut by_member: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (item, member) in holders {
        by_member.entry(member).or_default().push(item);
    }
    by_member
}

/// The item as JSON: an object for each contender of a lock, of a semaphore or of an election, and
/// one for each other item.
pub(super) fn objects(item: &Item) -> Vec<Value> {
    let (path, is_certain) = (item.path.as_str(), item.certainty == Certainty::Certain);
    let own = |recipe: &str, facts: Value| {
        let mut object = json!({ "recipe": recipe, "path": path, "certain": is_certain });
        if let (Some(object), Value::Object(facts)) = (object.as_object_mut(), facts) {
            object.extend(facts);
        }
        vec![object]
    };
    let contenders = |all: &[synod::lock::Contender]| -> Vec<Value> {
        all.iter().map(|one| contenders::object(&item.path, one)).collect()
    };
    match &item.state {
        ItemState::Contenders(contest, all) => {
            let recipe = match contest {
                Contest::Semaphore => "semaphore",
                Contest::Election => "election",
                _ => "lock",
            };
            let mut all = contenders(all);
            for one in &mut all {
                one["recipe"] = recipe.into();
            }
            all
        }
        ItemState::Queue { stats, claims } => own("queue", queue_object(stats, claims)),
        ItemState::Crew { snapshot, masters } => {
            let [waiting, assigned, over] = tasks(snapshot);
            let workers = snapshot.workers.iter().map(|worker| worker.name.as_str());
            own(
                "crew",
                json!({
                    "paused": snapshot.paused,
                    "workers": workers.collect::<Vec<_>>(),
                    "waiting": waiting,
                    "assigned": assigned,
                    "over": over,
                    "masters": contenders(masters),
                }),
            )
        }
        ItemState::Schedule { state, leaders } => {
            let facts = json!({
                "timetable": state.timetable,
                "next": date(state.next),
                "succeeded": date(state.succeeded),
                "last": last_object(state),
                "leaders": contenders(leaders),
            });
            own("schedule", facts)
        }
        ItemState::Partition(holders) => own("partition", json!({ "holders": holders })),
        ItemState::CountDown(parties) => own("count_down", json!({ "parties": parties })),
        ItemState::DoubleBarrier { members, is_open } => {
            own("double_barrier", json!({ "members": members, "open": is_open }))
        }
        ItemState::Group(members) => {
            let member = |one: &synod::presence::Member| {
                let (key, data) = output::data(&one.data);
                json!({ "name": one.name, "session": one.session.to_string(), key: data })
            };
            own("group", json!({ "members": members.iter().map(member).collect::<Vec<_>>() }))
        }
        ItemState::Service(instances) => {
            let instance = |(one, session): &(synod::discovery::Instance<Value>, _)| {
                json!({
                    "id": one.id,
                    "address": one.address,
                    "port": one.port,
                    "session": synod::SessionId::to_string(session),
                })
            };
            let instances: Vec<_> = instances.iter().map(instance).collect();
            own("service", json!({ "instances": instances }))
        }
        ItemState::OtherQueue(kind, items) => {
            own("other_queue", json!({ "class": kind.name(), "items": items }))
        }
        ItemState::Denied(error) => own("unknown", json!({ "error": error.to_string() })),
        _ => own("unknown", json!({})),
    }
}

fn queue_object(stats: &QueueStats, claims: &BTreeMap<synod::SessionId, usize>) -> Value {
    let claims: BTreeMap<String, usize> =
        claims.iter().map(|(session, claimed)| (session.to_string(), *claimed)).collect();
    json!({
        "ready": stats.ready,
        "delayed": stats.delayed,
        "claimed": stats.claimed,
        "dead": stats.dead,
        "oldest": date(stats.oldest),
        "claims": claims,
    })
}

fn last_object(state: &ScheduleState) -> Option<Value> {
    state.last.as_ref().map(|last| {
        json!({
            "due": date(Some(last.due)),
            "attempt": last.attempt,
            "by": last.by,
            "begun": date(Some(last.begun)),
            "ended": date(last.ended),
            "failure": last.failure,
        })
    })
}

fn date(date: Option<SystemTime>) -> Option<String> {
    date.and_then(contenders::date)
}
