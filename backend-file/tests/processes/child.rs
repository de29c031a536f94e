//! The processes of these tests: this program again, with a command.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use synod_core::error::{Effect, Result};
use synod_core::path::Path as NodePath;
use synod_core::store::{
    Backend as _, Expect, Lifetime, Query, SessionOptions, Status, Store, Txn,
};
use synod_file::{FileBackend, FileOptions};

use crate::history;

/// The first argument of a child.
pub(crate) const MARK: &str = "--as-a-child";

/// Another process, which is killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts a process with a command of [`main`].
    pub(crate) fn start(directory: &Path, command: &[&str]) -> Self {
        let mut program = Command::new(std::env::current_exe().expect("it runs"));
        program.arg(MARK).arg(directory).args(command);
        Self::spawn(program)
    }

    /// Starts a process whose files cannot be larger than this many blocks of 512 bytes.
    pub(crate) fn start_limited(directory: &Path, blocks: u32, command: &[&str]) -> Self {
        let mut shell = Command::new("sh");
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
        shell.args(["-c", &script, "sh"]);
        shell.arg(std::env::current_exe().expect("it runs"));
        shell.arg(MARK).arg(directory).args(command);
        Self::spawn(shell)
    }

    /// Starts a process by another program, which is given with its first arguments.
    pub(crate) fn start_by(program: &[&str], directory: &Path, command: &[&str]) -> Self {
        let mut other = Command::new(program[0]);
        other.args(&program[1..]).arg(std::env::current_exe().expect("it runs"));
        other.arg(MARK).arg(directory).args(command);
        Self::spawn(other)
    }

    fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program can be started");
        let output = child.stdout.take().expect("it is a pipe");
        Self { child, output: BufReader::new(output).lines() }
    }

    /// Waits for the next line of its output; `None` at the end.
    pub(crate) fn line(&mut self) -> Option<String> {
        self.output.next().map(|line| line.expect("text"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("small");
        kill_process(Pid::from_raw(id).expect("not zero"), signal).expect("it lives");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait()).is_ok();
    }
}

/// A session of this process.
pub(crate) async fn session(directory: &Path, ttl: Duration) -> Box<dyn Store> {
    opened(FileOptions::new(directory), ttl).await
}

async fn opened(options: FileOptions, ttl: Duration) -> Box<dyn Store> {
    let backend = FileBackend::new(options);
    backend.open(&SessionOptions::new(ttl)).await.expect("the directory can be opened")
}

pub(crate) fn node(text: &str) -> NodePath {
    NodePath::new(text).expect("valid")
}

/// Runs on a runtime of one thread.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

/// Runs the command of a child: the directory, its name, and its arguments.
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let directory = Path::new(words[0]);
    block_on(async {
        match &words[1..] {
            [how @ ("hold" | "linger" | "start"), path, ttl] => {
                let options = FileOptions::new(directory).linger(*how == "linger");
                hold(options, path, ttl.parse().expect("a number"), *how == "start").await;
            }
            ["ttl", path, ttl] => {
                let ttl = Duration::from_millis(ttl.parse().expect("a number"));
                let store = session(directory, Duration::from_secs(60)).await;
                let created = Txn::new().create(node(path), "", Lifetime::Ttl(ttl));
                assert!(store.commit(created).await.expect("answered").is_committed());
                report("created");
                store.close().await.expect("it ends");
            }
            ["count", name] => count(directory, name).await,
            ["answer", call, answer] => answer_calls(directory, call, answer).await,
            ["fill"] => fill(directory).await,
            ["history", steps, checkpoints @ ..] => {
                let numbers: Vec<u64> =
                    checkpoints.iter().map(|number| number.parse().expect("a number")).collect();
                history::run(directory, steps.parse().expect("a number"), &numbers).await;
                report("ended");
            }
            other => panic!("no command {other:?}"),
        }
    });
    ExitCode::SUCCESS
}

/// Prints a line for the parent of this process.
pub(crate) fn report(line: &str) {
    let mut output = std::io::stdout();
    writeln!(output, "{line}").and_then(|()| output.flush()).expect("its parent listens");
}

/// Holds an ephemeral node until its session is lost. If it starts a program, it reports its id.
async fn hold(options: FileOptions, path: &str, ttl: u64, starts: bool) {
    let store = opened(options, Duration::from_millis(ttl)).await;
    let held = Txn::new().create(node(path), "", Lifetime::Session);
    store.commit(held).await.and_then(synod_core::store::Outcome::required).expect("it is free");
    report("held");
    // It ends with the input of this process, which is its own, too.
    let start = || Command::new("cat").stdout(Stdio::null()).spawn().expect("cat is there");
    let mut program = starts.then(start);
    if let Some(program) = &program {
        report(&program.id().to_string());
    }
    let mut status = store.status();
    let lost = status.wait_for(Status::is_lost).await.expect("it is told").to_owned();
    report(&format!("lost {lost:?}"));
    if let Some(program) = &mut program {
        program.wait().expect("it was started");
    }
}

/// Adds one to `/sum` and to a node of its own, again and again, and reports each.
async fn count(directory: &Path, name: &str) {
    let store = session(directory, Duration::from_secs(60)).await;
    let own = node(&format!("/counts/{name}"));
    loop {
        match add_one(&*store, &own).await {
            Ok(Some(count)) => report(&count.to_string()),
            Ok(None) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Adds one to both. `None` if another was faster.
async fn add_one(store: &dyn Store, own: &NodePath) -> Result<Option<u64>> {
    let sum = node("/sum");
    let view = store.read(Query::nodes(sum.clone(), [own.clone()])).await?;
    let mut txn = Txn::new();
    let mut counted = 0;
    for path in [&sum, own] {
        txn = if let Some(found) = view.nodes.iter().find(|node| node.path == *path) {
            let text = std::str::from_utf8(&found.data).expect("a number");
            counted = text.parse::<u64>().expect("a number") + 1;
            let version = found.stat.expect("a node").version;
            txn.set(path.clone(), counted.to_string(), Expect::Version(version))
        } else {
            counted = 1;
            txn.create(path.clone(), "1", Lifetime::Persistent)
        };
    }
    Ok(store.commit(txn).await?.is_committed().then_some(counted))
}

/// Writes each number that it finds in one node into another.
async fn answer_calls(directory: &Path, call: &str, answer: &str) {
    let store = session(directory, Duration::from_secs(3_600)).await;
    let (_, mut calls) = store.watch(Query::node(node(call))).await.expect("answered");
    let mut answered = 0;
    loop {
        let called = read_number(&*store, call).await;
        if called > answered {
            put(&*store, answer, called).await;
            answered = called;
        } else {
            assert!(calls.next().await.is_some(), "the session is open");
        }
    }
}

/// Reads the number in a node: zero if it is missing.
pub(crate) async fn read_number(store: &dyn Store, path: &str) -> u64 {
    let view = store.read(Query::node(node(path))).await.expect("answered");
    let text = view.node().map(|node| String::from_utf8_lossy(&node.data).into_owned());
    text.map_or(0, |text| text.parse().expect("a number"))
}

/// Writes a number into a node, which is created if it is missing.
pub(crate) async fn put(store: &dyn Store, path: &str, number: u64) {
    let path = node(path);
    let set = Txn::new().set(path.clone(), number.to_string(), Expect::Any);
    if !store.commit(set).await.expect("answered").is_committed() {
        let created = Txn::new().create(path, number.to_string(), Lifetime::Persistent);
        assert!(store.commit(created).await.expect("answered").is_committed());
    }
}

/// Creates nodes of 100,000 bytes until that fails, and reports each, and the failure.
async fn fill(directory: &Path) {
    let store = session(directory, Duration::from_secs(60)).await;
    for number in 0.. {
        let path = node(&format!("/full/{number}"));
        let large = vec![7; 100_000];
        let created = Txn::new().create(path, large, Lifetime::Persistent);
        match store.commit(created).await {
            Ok(outcome) => assert!(outcome.is_committed()),
            Err(error) => {
                let effect = if error.effect() == Effect::None { "none" } else { "unknown" };
                return report(&format!("failed {effect} {error}"));
            }
        }
        report(&number.to_string());
    }
}
