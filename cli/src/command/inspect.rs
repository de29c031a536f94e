//! `inspect`: lists holders and waiters, and the state of other recipes, at a path or below it.

use synod::Path;
use synod::lock::{Contender, inspect};
use synod::{Client, Query};
use synod_view::item::Item;
use synod_view::survey::Survey;

use crate::args::Common;
use crate::command::contenders_shown::{object, text_of};
use crate::command::{connect, item_shown};
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

/// Limit of the nodes that are searched for recipes if there is none at the path itself.
const NEARBY: usize = 1_000;

/// Limit of the recipes below a path that are named if there is none at the path itself.
const NAMED: usize = 20;

pub(crate) async fn run(common: &Common, path: &Path) -> Result<(), Failure> {
    let client = connect(common).await?;
    let found = Progress::waiting("reading", look(&client, path)).await;
    client.close().await?;
    match found? {
        Found::Contenders(line) if common.json => print(common, path, &line),
        Found::Contenders(line) => Ok(output::line(&text_of(path, &line))?),
        Found::Item(item) => print_item(common, &item),
        _ if common.json => Ok(()),
        Found::Free => Ok(output::line(&format!("{path}: free"))?),
        Found::Nothing => Ok(output::line(&format!(
            "{path}: free; nothing is at this path now, nor below it: is it spelled right?"
        ))?),
        Found::Below { items, more } => {
            let more = if more { ", and more: see inspect -r" } else { "" };
            let items = items.join(", ");
            Ok(output::line(&format!("{path}: no lock is here; below: {items}{more}"))?)
        }
    }
}

/// The state of a path.
enum Found {
    Contenders(Vec<Contender>),
    /// Another recipe is at the path.
    Item(Box<Item>),
    /// Nobody holds or waits here, nor below.
    Free,
    /// There is no node at the path or below it. A store may keep the directory of a lock that was
    /// used before.
    Nothing,
    /// The path is a directory of recipes, with their summaries.
    Below {
        items: Vec<String>,
        more: bool,
    },
}

async fn look(client: &Client, path: &Path) -> Result<Found, Failure> {
    let line = inspect(client, path).await?;
    if !line.is_empty() {
        return Ok(Found::Contenders(line));
    }
    if client.read(Query::children(path).names_only()).await?.nodes.is_empty() {
        let is_there = client.exists(path).await?;
        return Ok(if is_there { Found::Free } else { Found::Nothing });
    }
    let (mut survey, mut items) = (Survey::new(client, path, NEARBY).await?, Vec::new());
    while let Some(item) = survey.next().await? {
        if item.path == *path {
            return Ok(Found::Item(Box::new(item)));
        }
        if items.len() == NAMED {
            return Ok(Found::Below { items, more: true });
        }
        let below = item.path.relative_to(path).map(|below| below.to_string());
        let below = below.as_deref().map_or("/", |below| below.trim_start_matches('/'));
        items.push(format!("{below} ({})", item_shown::summary(&item)));
    }
    let more = survey.is_cut();
    Ok(if items.is_empty() && !more { Found::Free } else { Found::Below { items, more } })
}

/// `inspect -r`: prints each recipe as it is found.
pub(crate) async fn below(common: &Common, path: &Path, limit: usize) -> Result<(), Failure> {
    let client = connect(common).await?;
    let printed = print_below(common, &client, path, limit).await;
    client.close().await?;
    printed
}

async fn print_below(
    common: &Common,
    client: &Client,
    path: &Path,
    limit: usize,
) -> Result<(), Failure> {
    let (mut survey, mut is_free) = (Survey::new(client, path, limit).await?, true);
    while let Some(item) = Progress::waiting("searching", survey.next()).await? {
        is_free = false;
        print_item(common, &item)?;
    }
    if survey.is_cut() {
        output::warning(&format!(
            "{limit} nodes were searched, and there are more; say --limit N for more of them"
        ));
    } else if is_free && !common.json {
        output::line(&format!("{path}: nobody holds or waits here, nor below"))?;
    }
    Ok(())
}

fn print_item(common: &Common, item: &Item) -> Result<(), Failure> {
    if !common.json {
        return Ok(output::line(&item_shown::text(item))?);
    }
    for object in item_shown::objects(item) {
        output::object(&object)?;
    }
    Ok(())
}

/// Prints the contenders at a path.
fn print(common: &Common, path: &Path, line: &[Contender]) -> Result<(), Failure> {
    if !common.json {
        return Ok(output::line(&text_of(path, line))?);
    }
    for one in line {
        output::object(&object(path, one))?;
    }
    Ok(())
}
