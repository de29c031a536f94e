//! `mirror`: a subtree kept as files, for programs that read their configuration from files.

use std::pin::pin;

use serde_json::json;
use synod::Client;
use synod::Path;
use synod::cache::{Cache, Extent};
use tokio::time::timeout;

use crate::args::{Common, Mirror};
use crate::command::changes::{GRACE, complete, next_changes};
use crate::command::connect;
use crate::command::hold::FAREWELL;
use crate::failure::Failure;
use crate::files::{FileChange, Files, wanted};
use crate::output;
use crate::process::Job;
use crate::process::signals::Signals;

/// Keeps the files until a signal arrives. The client is closed in any case.
pub(crate) async fn run(common: &Common, mirror: Mirror) -> Result<(), Failure> {
    let files = Files::open(&mirror.directory, &mirror.path)?;
    let client = connect(common).await?;
    let kept = keep(common, &client, mirror, files).await;
    let _told = timeout(FAREWELL, client.close()).await.is_ok_and(|closed| closed.is_ok());
    kept
}

async fn keep(
    common: &Common,
    client: &Client,
    mirror: Mirror,
    files: Files,
) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let cache = Cache::start(client, Extent::subtree(&mirror.path));
    if !complete(&cache, &mut signals).await? {
        return Ok(());
    }
    let job = if mirror.command.is_empty() {
        None
    } else {
        let environment = vec![("SYNOD_DIRECTORY".into(), mirror.directory.clone().into())];
        let (command, grace) = (mirror.command, mirror.grace.unwrap_or(GRACE));
        Some(Job { command, environment, grace, input: None })
    };
    let mut keeper = FileKeeper { common, top: mirror.path, files, left_out: Vec::new() };
    let mut events = pin!(cache.events());
    loop {
        let (changed, mut code) = (keeper.update(&cache)?, 0);
        if let Some(job) = job.as_ref().filter(|_| changed) {
            // The signals of this loop stay pending, so that a signal that ends the command ends
            // this loop, too.
            code = job.clone().run(None, &mut Signals::listen()?).await?;
            if code != 0 {
                output::warning(&format!("the command ended with exit code {code}"));
            }
        }
        match code {
            0 if mirror.once => return Ok(()),
            code if mirror.once => return Err(Failure::Exit(code, None)),
            _ => {}
        }
        if !next_changes(&mut events, &mut signals).await? {
            return Ok(());
        }
    }
}

struct FileKeeper<'a> {
    common: &'a Common,
    top: Path,
    files: Files,
    /// The nodes that were reported to have no file.
    left_out: Vec<Path>,
}

impl FileKeeper<'_> {
    /// Updates the files to the content of the cache. Returns `true` if there was anything to
    /// change. A stale cache has the last known content: so the files stay during an outage.
    fn update(&mut self, cache: &Cache) -> Result<bool, Failure> {
        let (wanted, left_out) = wanted(cache.snapshot().iter(), &self.top);
        for path in left_out.iter().filter(|path| !self.left_out.contains(path)) {
            output::warning(&format!("{path} becomes no file: its name is that of another one"));
        }
        self.left_out = left_out;
        let done = self.files.update(&wanted)?;
        for change in &done {
            self.print(change)?;
        }
        Ok(!done.is_empty())
    }

    fn print(&self, change: &FileChange) -> Result<(), Failure> {
        let (what, file) = match change {
            FileChange::Written(file) => ("written", file),
            FileChange::Removed(file) => ("removed", file),
        };
        let file = file.display().to_string();
        if self.common.json {
            return Ok(output::object(&json!({ "event": what, "file": file }))?);
        }
        Ok(output::line(&format!("{what} {}", file.escape_debug()))?)
    }
}
