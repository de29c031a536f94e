//! `watch -- COMMAND`: runs a command for each node that changes.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::poll_immediate;
use serde_json::json;
use synod::Client;
use synod::Path;
use synod::cache::{Cache, Extent};
use synod::{Node, Stat};

use crate::args::{Common, Watch};
use crate::command::changes::{GRACE, complete, next_changes};
use crate::failure::Failure;
use crate::output;
use crate::process::Job;
use crate::process::signals::Signals;

/// Runs the command for each node, and for each change, until a signal arrives.
pub(super) async fn run(common: &Common, client: &Client, watch: Watch) -> Result<(), Failure> {
    let mut signals = Signals::fatal_only()?;
    let extent = match (watch.children, watch.subtree) {
        (true, _) => Extent::children(&watch.path),
        (_, true) => Extent::subtree(&watch.path),
        _ => Extent::node(&watch.path),
    };
    let cache = Cache::start(client, extent);
    if !complete(&cache, &mut signals).await? {
        return Ok(());
    }
    let grace = watch.grace.unwrap_or(GRACE);
    let mut runs = Runs { common, command: watch.command, grace, last_failure: 0 };
    let mut states = States::default();
    let mut left = watch.count.unwrap_or(usize::MAX);
    let mut events = pin!(cache.events());
    let mut is_start = true;
    loop {
        for path in states.pending(cache.snapshot().iter()) {
            // The node may have changed again during the last run.
            let node = cache.get(&path);
            let Some(event) = states.record(&path, node.as_ref()) else { continue };
            if !is_start && left == 0 {
                break;
            }
            let event = if is_start { FOUND } else { event };
            runs.run(event, &path, node).await?;
            left -= usize::from(!is_start);
            // The signal was passed on to the command, and stays pending here.
            if poll_immediate(pin!(signals.fatal())).await.is_some() {
                return Ok(());
            }
        }
        is_start = false;
        if left == 0 {
            return runs.result();
        }
        if !next_changes(&mut events, &mut signals).await? {
            return Ok(());
        }
    }
}

/// The event of a node that is there at the start.
const FOUND: &str = "found";

/// The state of each node for which the command ran last.
#[derive(Debug, Default)]
struct States(BTreeMap<Path, Stat>);

impl States {
    /// The nodes that differ from their last state: first those that were deleted, children before
    /// parents, then the others in the order of their changes.
    fn pending<'a>(&self, nodes: impl Iterator<Item = &'a Node>) -> Vec<Path> {
        let (mut there, mut changed) = (BTreeSet::new(), Vec::new());
        for node in nodes {
            there.insert(&node.path);
            if let Some(stat) =
                node.stat.filter(|stat| self.event(&node.path, Some(*stat)).is_some())
            {
                changed.push((stat.modified, &node.path));
            }
        }
        changed.sort();
        let deleted = self.0.keys().rev().filter(|path| !there.contains(path));
        deleted.chain(changed.into_iter().map(|(_, path)| path)).cloned().collect()
    }

    /// The change from the last state of a node to this one; `None` if there is none.
    fn event(&self, path: &Path, now: Option<Stat>) -> Option<&'static str> {
        match (self.0.get(path), now) {
            (None, None) => None,
            (Some(_), None) => Some("deleted"),
            (Some(last), Some(now)) if last.created == now.created => {
                (last.modified != now.modified).then_some("updated")
            }
            (_, Some(_)) => Some("created"),
        }
    }

    /// Replaces the last state of a node. Returns the change.
    fn record(&mut self, path: &Path, node: Option<&Node>) -> Option<&'static str> {
        let stat = node.and_then(|node| node.stat);
        let event = self.event(path, stat);
        match stat {
            Some(stat) => drop(self.0.insert(path.clone(), stat)),
            None => drop(self.0.remove(path)),
        }
        event
    }
}

/// Runs the command for one change after the other.
struct Runs<'a> {
    common: &'a Common,
    command: Vec<OsString>,
    grace: Duration,
    /// The exit code of the last run that failed, or 0.
    last_failure: u8,
}

impl Runs<'_> {
    async fn run(&mut self, event: &str, path: &Path, node: Option<Node>) -> Result<(), Failure> {
        let version = node.as_ref().and_then(|node| node.stat).map(|stat| stat.version.get());
        let environment = [
            ("SYNOD_PATH", path.as_str().to_owned()),
            ("SYNOD_EVENT", event.to_owned()),
            ("SYNOD_VERSION", version.map(|version| version.to_string()).unwrap_or_default()),
        ];
        let job = Job {
            command: self.command.clone(),
            environment: environment.map(|(name, value)| (name.into(), value.into())).into(),
            grace: self.grace,
            input: Some(node.map(|node| node.data.to_vec()).unwrap_or_default()),
        };
        let code = job.run(None, &mut Signals::listen()?).await?;
        if code != 0 {
            self.last_failure = code;
            output::warning(&format!("{path}: the command ended with exit code {code}"));
        }
        if self.common.json {
            output::object(&json!({
                "event": event, "path": path.as_str(), "version": version, "code": code,
            }))?;
        }
        Ok(())
    }

    fn result(&self) -> Result<(), Failure> {
        match self.last_failure {
            0 => Ok(()),
            code => Err(Failure::Exit(code, None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use synod::{Revision, Version};

    use super::*;

    fn node(path: &str, created: u64, modified: u64) -> Node {
        let (created, modified) = (Revision::new(created), Revision::new(modified));
        let stat = Stat::new(created, modified, Version::new(modified.get()), None);
        Node::new(Path::new(path).expect("valid")).with_stat(stat)
    }

    /// The changes that these nodes are, which are recorded.
    fn changes(states: &mut States, nodes: &[Node]) -> Vec<String> {
        let pending = states.pending(nodes.iter());
        let record = |path: Path| {
            let now = nodes.iter().find(|node| node.path == path);
            states.record(&path, now).map(|event| format!("{event} {path}"))
        };
        pending.into_iter().filter_map(record).collect()
    }

    #[test]
    fn a_node_that_differs_from_its_last_run_is_a_change() {
        let mut states = States::default();
        assert_eq!(changes(&mut states, &[]), [""; 0]);
        let first = [node("/a", 5, 5), node("/b", 2, 4), node("/b/c", 3, 3)];
        assert_eq!(changes(&mut states, &first), ["created /b/c", "created /b", "created /a"]);
        assert_eq!(changes(&mut states, &first), [""; 0]);
        let next = [node("/a", 6, 6)];
        // It was deleted and created again.
        assert_eq!(changes(&mut states, &next), ["deleted /b/c", "deleted /b", "created /a"]);
        assert_eq!(changes(&mut states, &[node("/a", 6, 7)]), ["updated /a"]);
        assert_eq!(changes(&mut states, &[]), ["deleted /a"]);
        assert!(states.0.is_empty());
    }
}
