//! `queue`: puts, takes and lists the items of a queue.

use std::io::{self, ErrorKind};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde_json::{Value, json};
use synod::Client;
use synod::Path;
use synod::clock;
use synod::queue::{Delivery, FailedDelivery, PutOptions, Queue, QueueStats, QueuedItem};
use synod::within;

use crate::args::Common;
use crate::args::queue::{Put, QueueAction, Take};
use crate::command::{connect, given, refuse_memory, until_interrupted};
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

/// The exit code where there is no item.
const NO_ITEM: u8 = 75;

pub(crate) async fn run(common: &Common, path: &Path, action: QueueAction) -> Result<(), Failure> {
    refuse_memory(common, "no other process gets its items")?;
    // Before there is a session, which would have to be kept alive meanwhile.
    let data = match &action {
        QueueAction::Put(put) => given(&put.data)?,
        _ => Vec::new(),
    };
    let client = connect(common).await?;
    let done = run_open(common, &client, path, action, data).await;
    let closed = client.close().await;
    done?;
    Ok(closed?)
}

async fn run_open(
    common: &Common,
    client: &Client,
    path: &Path,
    action: QueueAction,
    data: Vec<u8>,
) -> Result<(), Failure> {
    let queue = Queue::new_bytes(client, path);
    match action {
        QueueAction::Put(options) => put(common, &queue, path, options, data.into()).await,
        QueueAction::Take(options) => take(common, &queue, path, options).await,
        QueueAction::List => print(common, &Progress::waiting("reading", queue.items()).await?),
        QueueAction::Dead => print(common, &Progress::waiting("reading", queue.dead()).await?),
        QueueAction::Stats => {
            let stats = Progress::waiting("reading", queue.stats()).await?;
            Ok(print_stats(common, path, &stats)?)
        }
        QueueAction::Revive { names, all } => {
            let dead = queue.dead().await?;
            let chosen = if all { dead } else { chosen(dead, &names)? };
            for item in &chosen {
                if !queue.revive(item).await? {
                    output::warning(&format!(
                        "{} is no dead letter any more, or an item has its id",
                        shown(item.name())
                    ));
                }
            }
            Ok(())
        }
        QueueAction::Remove { names } => {
            let all = [queue.items().await?, queue.dead().await?].concat();
            for item in &chosen(all, &names)? {
                if !queue.remove(item).await? {
                    output::warning(&format!(
                        "{} is not there any more, or is a dead letter by now",
                        shown(item.name())
                    ));
                }
            }
            Ok(())
        }
        #[cfg(unix)]
        QueueAction::Consume(consume) => {
            crate::command::consume::run(common, client, &queue, path, consume).await
        }
    }
}

async fn put(
    common: &Common,
    queue: &Queue<Bytes>,
    path: &Path,
    put: Put,
    data: Bytes,
) -> Result<(), Failure> {
    let mut options = PutOptions::default();
    if let Some(id) = &put.id {
        options = options.id(id);
    }
    if let Some(priority) = put.priority {
        options = options.priority(priority);
    }
    if let Some(delay) = put.delay {
        options = options.after(delay);
    }
    let is_put = Progress::waiting("putting", queue.put_with(&data, options)).await?;
    if common.json {
        output::object(&json!({ "path": path.as_str(), "id": put.id, "put": is_put }))?;
    } else if !is_put {
        output::warning("an item of this id is in the queue already");
    }
    Ok(())
}

async fn take(
    common: &Common,
    queue: &Queue<Bytes>,
    path: &Path,
    take: Take,
) -> Result<(), Failure> {
    let claiming = async {
        match take.timeout {
            _ if take.no_wait => queue.try_claim().await,
            Some(limit) => within(limit, queue.claim()).await,
            None => queue.claim().await.map(Some),
        }
    };
    let Some(claimed) = until_interrupted(Progress::waiting("waiting", claiming)).await else {
        return Err(Failure::plain("interrupted before there was an item"));
    };
    let Some(delivery) = claimed? else {
        return Err(Failure::Exit(NO_ITEM, Some(format!("there is no item in {path}"))));
    };
    let printed = if common.json {
        output::object(&taken(&delivery))
    } else {
        output::content(delivery.item(), take.raw)
    };
    match printed {
        Ok(()) => Ok(delivery.ack().await?),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            let why = "the reader of the output has ended, and the item is put back";
            Err(Failure::plain(why))
        }
        Err(error) => Err(error.into()),
    }
}

/// The items of these names or ids.
fn chosen(
    all: Vec<QueuedItem<Bytes>>,
    names: &[String],
) -> Result<Vec<QueuedItem<Bytes>>, Failure> {
    let is = |item: &QueuedItem<Bytes>, name: &String| {
        item.name() == name || item.id().as_ref() == Some(name)
    };
    if let Some(missing) = names.iter().find(|name| !all.iter().any(|item| is(item, name))) {
        let text =
            format!("there is no {} here; a name changes with each delivery", shown(missing));
        return Err(Failure::NotThere(text));
    }
    Ok(all.into_iter().filter(|item| names.iter().any(|name| is(item, name))).collect())
}

/// Escapes control characters for a terminal.
fn shown(text: &str) -> String {
    text.escape_debug().to_string()
}

fn print(common: &Common, items: &[QueuedItem<Bytes>]) -> Result<(), Failure> {
    let width = items.iter().map(|item| shown(&label(item)).chars().count()).max().unwrap_or(0);
    for item in items {
        if common.json {
            output::object(&object(item))?;
        } else {
            output::line(text(item, width).trim_end())?;
            // The line has the reason of the last failure.
            let earlier = item.failures().split_last().map_or(&[][..], |(_last, earlier)| earlier);
            for FailedDelivery { delivered, date, reason, .. } in earlier {
                let failed = ago(Some(*date));
                output::line(&format!("  delivery {delivered} failed {failed}: {reason:?}"))?;
            }
        }
    }
    Ok(())
}

fn print_stats(common: &Common, path: &Path, stats: &QueueStats) -> io::Result<()> {
    let QueueStats { ready, delayed, claimed, dead, oldest, .. } = *stats;
    if common.json {
        return output::object(&json!({
            "path": path.as_str(),
            "ready": ready,
            "delayed": delayed,
            "claimed": claimed,
            "dead": dead,
            "oldest": oldest.map(date),
        }));
    }
    let oldest = oldest.map(|date| format!(" (the oldest put {})", ago(Some(date))));
    let oldest = oldest.unwrap_or_default();
    output::line(&format!(
        "{ready} ready{oldest}, {delayed} delayed, {claimed} claimed, {dead} dead"
    ))
}

/// The id, or the name if the item has no id.
fn label(item: &QueuedItem<Bytes>) -> String {
    item.id().unwrap_or_else(|| item.name().to_owned())
}

fn text(item: &QueuedItem<Bytes>, width: usize) -> String {
    let state = match item.claim() {
        Some(claim) => format!("claimed {} by session {}", ago(claim.since), claim.session),
        None => match item.not_before().filter(|date| *date > clock::date()) {
            Some(date) => format!("not before {}", humantime::format_rfc3339_seconds(date)),
            None => format!("put {}", ago(item.since())),
        },
    };
    let times = match item.delivered() {
        0 => String::new(),
        1 => ", delivered once".to_owned(),
        times => format!(", delivered {times} times"),
    };
    let (label, priority) = (shown(&label(item)), item.priority());
    let reason = item.reason().map(|reason| format!("{reason:?}, ")).unwrap_or_default();
    let data = output::glimpse(item.data());
    format!("{label:<width$}  priority {priority}, {reason}{state}{times}  {data}")
}

/// Returns the time since the date, to the second.
fn ago(date: Option<SystemTime>) -> String {
    let age = date.and_then(|date| clock::date().duration_since(date).ok());
    let age = age.map(|age| humantime::format_duration(Duration::from_secs(age.as_secs())));
    age.map_or_else(|| "some time ago".to_owned(), |age| format!("{age} ago"))
}

fn date(date: SystemTime) -> String {
    humantime::format_rfc3339_millis(date).to_string()
}

fn object(item: &QueuedItem<Bytes>) -> Value {
    let mut object = json!({
        "name": item.name(),
        "id": item.id(),
        "priority": item.priority(),
        "delivered": item.delivered(),
        "not_before": item.not_before().map(date),
        "since": item.since().map(date),
        "claimed_by": item.claim().map(|claim| claim.session.to_string()),
        "claimed_since": item.claim().and_then(|claim| claim.since).map(date),
        "reason": item.reason(),
        "failures": item.failures().iter().map(failure).collect::<Vec<_>>(),
    });
    add_data(&mut object, item.data());
    object
}

fn failure(failure: &FailedDelivery) -> Value {
    json!({
        "delivered": failure.delivered,
        "date": date(failure.date),
        "reason": failure.reason,
    })
}

fn taken(delivery: &Delivery<Bytes>) -> Value {
    let mut object = json!({
        "id": delivery.id(),
        "priority": delivery.priority(),
        "delivered": delivery.delivered(),
    });
    add_data(&mut object, delivery.item());
    object
}

fn add_data(object: &mut Value, data: &[u8]) {
    let (key, data) = output::data(data);
    if let Value::Object(object) = object {
        object.insert(key.into(), data);
    }
}
