//! `top`: what is wrong with the recipes below a path, and the state of each.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use serde_json::json;
use synod::{Client, Path};
use synod_core::clock;
use synod_view::item::Item;
use synod_view::survey::Survey;
use synod_view::trouble::{Severity, Thresholds, Trouble, troubles_of};

use crate::args::Common;
use crate::command::{connect, item_shown};
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

/// Moves the cursor of a terminal to its first place, and clears it.
const CLEAR: &[u8] = b"\x1b[H\x1b[2J";

/// Looks once, or again and again after a pause of `every`.
pub(crate) async fn run(
    common: &Common,
    path: &Path,
    every: Option<Duration>,
    limit: usize,
) -> Result<(), Failure> {
    let client = connect(common).await?;
    let shown = show(common, &client, path, every, limit).await;
    client.close().await?;
    shown
}

async fn show(
    common: &Common,
    client: &Client,
    path: &Path,
    every: Option<Duration>,
    limit: usize,
) -> Result<(), Failure> {
    loop {
        let board = Progress::waiting("searching", Board::read(client, path, limit)).await?;
        if every.is_some() && !common.json && io::stdout().is_terminal() {
            output::bytes(CLEAR)?;
        }
        let printed = if common.json { board.print_json() } else { board.print(path) };
        printed?;
        if board.is_cut {
            output::warning(&format!(
                "{limit} nodes were searched, and there are more; say --limit N for more of them"
            ));
        }
        let Some(every) = every else { return Ok(()) };
        tokio::time::sleep(every).await;
    }
}

/// The recipes below a path, and what is wrong with them.
struct Board {
    troubles: Vec<Trouble>,
    items: Vec<Item>,
    is_cut: bool,
}

impl Board {
    async fn read(client: &Client, path: &Path, limit: usize) -> Result<Self, Failure> {
        let (mut survey, mut items) = (Survey::new(client, path, limit).await?, Vec::new());
        while let Some(item) = survey.next().await? {
            items.push(item);
        }
        let (now, thresholds) = (clock::date(), Thresholds::default());
        let found = items.iter().flat_map(|item| troubles_of(item, now, &thresholds));
        let mut troubles: Vec<Trouble> = found.collect();
        // The order of the paths stays within each severity.
        troubles.sort_by_key(|trouble| trouble.severity);
        Ok(Self { troubles, items, is_cut: survey.is_cut() })
    }

    fn print(&self, path: &Path) -> Result<(), Failure> {
        let recipes = match self.items.len() {
            1 => "1 recipe".to_owned(),
            count => format!("{count} recipes"),
        };
        let troubles = match self.troubles.len() {
            0 => "no trouble".to_owned(),
            1 => "1 trouble".to_owned(),
            count => format!("{count} troubles"),
        };
        output::line(&format!("{path}: {recipes}, {troubles}"))?;
        for trouble in &self.troubles {
            let Trouble { path, text, command, .. } = trouble;
            let sign = if trouble.severity == Severity::Stuck { "!!" } else { " !" };
            let text = text.escape_debug();
            output::line(&format!("{sign} {path}: {text}  (synod {})", command.escape_debug()))?;
        }
        for item in &self.items {
            output::line(&format!("   {}: {}", item.path, item_shown::summary(item)))?;
        }
        Ok(())
    }

    fn print_json(&self) -> Result<(), Failure> {
        for trouble in &self.troubles {
            output::object(&json!({
                "trouble": trouble.rule.name(),
                "severity": if trouble.severity == Severity::Stuck { "stuck" } else { "warning" },
                "path": trouble.path.as_str(),
                "text": trouble.text,
                "command": format!("synod {}", trouble.command),
            }))?;
        }
        for object in self.items.iter().flat_map(item_shown::objects) {
            output::object(&object)?;
        }
        Ok(())
    }
}
