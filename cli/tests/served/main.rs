//! Runs the command with the arguments that a user types, on real servers.

#![cfg(unix)]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use synod_servers::etcd::Cluster;
use synod_servers::required;
use synod_servers::zookeeper::{Ensemble, TICK};
use synod_testkit::limit::{at_limit, limited, waits_for};

mod access;
mod cookbook;
mod copy;
mod crew;
mod end;
mod hold;
mod interrupt;
mod queue;
mod schedule;
mod shared;
mod status;
mod watch;

static ZOOKEEPER: LazyLock<Result<Server, String>> =
    LazyLock::new(|| Ensemble::start(1).map(Server::ZooKeeper));
static ETCD: LazyLock<Result<Server, String>> =
    LazyLock::new(|| Cluster::start(1).map(Server::Etcd));

/// Number of checks of a condition before the test fails.
const LOOKS: usize = 3_000;

/// The time limit of one scene, for slow machines. A scene that hangs ends together with the
/// process that it waits for.
const LIMIT: Duration = Duration::from_secs(600);

/// A running store.
pub(crate) enum Server {
    ZooKeeper(Ensemble),
    Etcd(Cluster),
}

impl Server {
    pub(crate) fn url(&self) -> String {
        match self {
            Self::ZooKeeper(servers) => {
                let (address, tick) = (servers.addresses()[0], TICK.as_millis());
                format!("zk://{address}?acl=open&session=2s&tick={tick}ms")
            }
            Self::Etcd(servers) => format!("etcd://{}?session=2s", servers.addresses()[0]),
        }
    }

    /// Another server of the same kind.
    pub(crate) fn another(&self) -> Self {
        let another = match self {
            Self::ZooKeeper(_) => Ensemble::start(1).map(Self::ZooKeeper),
            Self::Etcd(_) => Cluster::start(1).map(Self::Etcd),
        };
        another.expect("there is one already")
    }

    pub(crate) fn kill(&mut self) {
        let killed = match self {
            Self::ZooKeeper(servers) => servers.kill(0),
            Self::Etcd(servers) => servers.kill(0),
        };
        killed.expect("it runs");
    }

    /// Starts it again, after it was killed.
    pub(crate) fn restart(&mut self) {
        let started = match self {
            Self::ZooKeeper(servers) => servers.restart(0),
            Self::Etcd(servers) => servers.restart(0),
        };
        started.expect("it was started before");
    }

    pub(crate) fn synod(&self, arguments: &[&str]) -> Command {
        // The parent of the tests may ignore signals, as `nohup` does, and children inherit that.
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_synod")]);
        command.env("SYNOD_STORE", self.url()).env_remove("SYNOD_PROFILE").args(arguments);
        command
    }

    pub(crate) fn output(&self, arguments: &[&str]) -> Output {
        let mut command = self.synod(arguments);
        let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = piped.spawn().expect("it starts");
        let _leash = Leash::of(&child, &command);
        waits_for(format_args!("the end of synod {arguments:?}"));
        child.wait_with_output().expect("it was started")
    }

    /// The exit code of a command that runs to its end.
    pub(crate) fn code(&self, arguments: &[&str]) -> Option<i32> {
        self.output(arguments).status.code()
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// A running command, which is killed when this is dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
    said: Option<BufReader<std::process::ChildStdout>>,
    _leash: Leash,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let leash = Leash::of(&child, command);
        let said = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, said: Some(said), _leash: leash }
    }

    /// The next line of its output; empty at the end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        waits_for(format_args!("a line of process {}", self.child.id()));
        let said = self.said.as_mut().expect("it is read");
        said.read_line(&mut line).expect("text");
        line.trim().to_owned()
    }

    /// Closes its output: it can no longer print.
    pub(crate) fn stop_reading(&mut self) {
        drop(self.said.take());
    }

    /// The next line of its output, as a number.
    pub(crate) fn number(&mut self) -> u32 {
        self.line().parse().expect("a number")
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(name, self.child.id());
    }

    pub(crate) fn ends_with(mut self, code: i32) {
        drop(self.child.stdin.take());
        waits_for(format_args!("the end of process {}, with code {code}", self.child.id()));
        let status = self.child.wait().expect("it was started");
        assert_eq!(status.code(), Some(code), "{status:?}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait()).is_ok();
    }
}

/// Kills a process if its scene reaches the limit while this exists. A call that waits for the
/// process then returns.
pub(crate) struct Leash(Arc<AtomicU32>);

/// The commands that had ended by themselves before their scenes reached the limit.
static ENDED: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn ended() -> MutexGuard<'static, Vec<String>> {
    ENDED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Leash {
    pub(crate) fn of(child: &Child, command: &Command) -> Self {
        let id = Arc::new(AtomicU32::new(child.id()));
        let (held, command) = (id.clone(), format!("{:?}", command.get_args().collect::<Vec<_>>()));
        at_limit(move || match held.load(Ordering::SeqCst) {
            GONE => {}
            id if runs(id) => signal("KILL", id),
            _ => ended().push(command),
        });
        Self(id)
    }
}

/// Replaces the id of a process that ended: the system may have reused the id.
const GONE: u32 = 0;

impl Drop for Leash {
    fn drop(&mut self) {
        self.0.store(GONE, Ordering::SeqCst);
    }
}

pub(crate) fn signal(name: &str, process: u32) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(process.to_string()).status();
    assert!(sent.expect("kill is there").success(), "no process {process}");
}

/// Returns `true` if a process runs and is not a zombie.
pub(crate) fn runs(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = status.rsplit_once(')').map(|(_, rest)| rest.trim_start().chars().next());
    !matches!(state, None | Some(None | Some('Z' | 'X')))
}

pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    waits_for(what);
    for _ in 0..LOOKS {
        if holds() {
            return;
        }
        sleep(Duration::from_millis(20));
    }
    // As waits elsewhere: what only took too long is repeated when the machine is less busy.
    panic!("{what}: not so within {LOOKS} looks");
}

/// The name of a scene, and its function.
type Scene = (&'static str, fn(&Server));

type Stand = &'static LazyLock<Result<Server, String>>;

/// The scenes on one of the servers.
fn trials(name: &str, compiled: bool, server: Stand) -> Vec<Trial> {
    let missing = if compiled {
        server.as_ref().err().cloned()
    } else {
        Some(format!("{name} is not compiled in"))
    };
    let trial = |(scene, play): &Scene| {
        let play = *play;
        let trial = Trial::test(format!("{name}::{scene}"), move || {
            let server = server.as_ref().map_err(Clone::clone)?;
            limited(LIMIT, move || play(server))
                .map_err(|why| Failed::from(format!("{why}; by then had ended: {:?}", ended())))
        });
        match &missing {
            Some(why) if !required() || !compiled => {
                trial.with_ignored_flag(true).with_kind(why.clone())
            }
            _ => trial,
        }
    };
    [
        access::SCENES,
        hold::SCENES,
        end::SCENES,
        interrupt::SCENES,
        queue::SCENES,
        crew::SCENES,
        schedule::SCENES,
        watch::SCENES,
        copy::SCENES,
        cookbook::SCENES,
        shared::SCENES,
        status::SCENES,
    ]
    .into_iter()
    .flatten()
    .map(trial)
    .collect()
}

fn main() -> ExitCode {
    let mut all = trials("zookeeper", cfg!(feature = "zookeeper"), &ZOOKEEPER);
    all.extend(trials("etcd", cfg!(feature = "etcd"), &ETCD));
    libtest_mimic::run(&Arguments::from_args(), all).exit_code()
}
