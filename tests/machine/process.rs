//! [`Process`]: another process of the test.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use crate::MARK;

/// A process that reports each act by a line. It is killed when this is dropped.
pub(crate) struct Process {
    pub(crate) name: String,
    child: Child,
    lines: Receiver<String>,
    /// The number of reports of each act.
    pub(crate) acts: BTreeMap<String, u64>,
}

impl Process {
    pub(crate) fn start(directory: &Path, name: String) -> Self {
        let mut program = Command::new(std::env::current_exe().expect("it runs"));
        program.args([MARK, directory.to_str().expect("text"), &name]);
        let mut child = program.stdout(Stdio::piped()).spawn().expect("it can be started");
        let output = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let (sender, lines) = channel();
        // Ends with the process.
        std::thread::spawn(move || {
            for line in output.lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { name, child, lines, acts: BTreeMap::new() }
    }

    /// Waits until it has reported an act.
    pub(crate) fn wait(&mut self) {
        let line = self.lines.recv().unwrap_or_else(|_| panic!("{} has ended", self.name));
        *self.acts.entry(line).or_default() += 1;
    }

    /// Sends a signal by its name, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill is there").success(), "{name}");
    }

    /// Kills it, and counts its last reports.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it is a child");
        self.child.wait().expect("it was killed");
        while let Ok(line) = self.lines.recv() {
            *self.acts.entry(line).or_default() += 1;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait()).is_ok();
    }
}
