//! `synod lock`, `synod elect` and `synod inspect` as a person types them, on a real server.

#![cfg(unix)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use synod_conformance::server::etcd::Cluster;
use synod_conformance::server::required;

static ETCD: LazyLock<Result<Cluster, String>> = LazyLock::new(|| Cluster::start(1));

/// How often something is looked for before it is taken for not there.
const LOOKS: usize = 3_000;

fn url(cluster: &Cluster) -> String {
    format!("etcd://{}?session=2s", cluster.addresses()[0])
}

fn synod(arguments: &[&str]) -> Command {
    // Who starts the tests may have signals ignored, as `nohup` has, and what is started heeds that.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_synod")]);
    let cluster = ETCD.as_ref().expect("it runs");
    command.env("SYNOD_STORE", url(cluster)).args(arguments);
    command
}

fn output(arguments: &[&str]) -> Output {
    synod(arguments).output().expect("it starts")
}

/// The exit code of a command that runs to its end.
fn code(arguments: &[&str]) -> Option<i32> {
    output(arguments).status.code()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// A command that goes on, and ends with this.
struct Running {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let said = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, said }
    }

    /// The next line that it says; empty at the end.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("text");
        line.trim().to_owned()
    }

    /// A number that it says.
    fn number(&mut self) -> u32 {
        self.line().parse().expect("a number")
    }

    fn signal(&self, name: &str) {
        signal(name, self.child.id());
    }

    fn ends_with(mut self, code: i32) {
        drop(self.child.stdin.take());
        let status = self.child.wait().expect("it was started");
        assert_eq!(status.code(), Some(code), "{status:?}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait()).is_ok();
    }
}

fn signal(name: &str, process: u32) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(process.to_string()).status();
    assert!(sent.expect("kill is there").success(), "no process {process}");
}

/// Whether a process runs, or at least is more than what is left of one.
fn runs(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = status.rsplit_once(')').map(|(_, rest)| rest.trim_start().chars().next());
    !matches!(state, None | Some(None | Some('Z' | 'X')))
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if holds() {
            return;
        }
        sleep(Duration::from_millis(20));
    }
    panic!("{what}: not so in the end");
}

/// How many stand in line at a path.
fn standing(path: &str) -> usize {
    text(&output(&["inspect", "--json", path]).stdout).lines().count()
}

const HOLD: &[&str] = &["sh", "-c", "echo in; exec cat >/dev/null"];

fn holds(words: &[&str]) -> Running {
    let mut held = Running::start(&mut synod(&[words, &["--"], HOLD].concat()));
    assert_eq!(held.line(), "in");
    held
}

fn two_exclude_each_other() {
    let held = holds(&["lock", "/two"]);
    assert_eq!(code(&["lock", "--try", "/two", "--", "echo", "x"]), Some(75));
    assert_eq!(code(&["lock", "--try", "-E", "3", "/two", "--", "true"]), Some(3));
    let late = output(&["lock", "--timeout", "200ms", "/two", "--", "echo", "x"]);
    assert_eq!((late.status.code(), text(&late.stdout)), (Some(75), String::new()));
    assert!(text(&late.stderr).contains("/two was not to be had within 200ms"));
    let mut next = Running::start(&mut synod(&["lock", "/two", "--", "echo", "entered"]));
    eventually("the next one waits", || standing("/two") == 2);
    held.ends_with(0);
    assert_eq!(next.line(), "entered");
    next.ends_with(0);
    eventually("it is free", || standing("/two") == 0);
}

fn the_exit_code_is_that_of_the_command() {
    assert_eq!(code(&["lock", "/code", "--", "sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["lock", "/code", "--", "sh", "-c", "kill -9 $$"]), Some(137));
    assert_eq!(code(&["lock", "/code", "--", "/no/such/command"]), Some(127));
    assert_eq!(code(&["lock", "/code", "--", "/dev/null"]), Some(126));
    let refused = output(&["lock", "/code", "--grace", "5s", "--", "true"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("say less, or ?session=TIME"));
    assert_eq!(standing("/code"), 0);
}

fn the_command_is_told_its_token_and_reads_its_input() {
    let mut last = 0;
    for _ in 0..3 {
        let told = output(&["lock", "/env", "--", "sh", "-c", "echo $SYNOD_TOKEN $SYNOD_PATH"]);
        let said = text(&told.stdout);
        let (token, path) = said.split_once(' ').expect("two words");
        let token: u64 = token.parse().expect("a number");
        assert!(token > last && path == "/env", "{said}");
        last = token;
    }
    let mut cat = Running::start(&mut synod(&["lock", "/env", "--", "cat"]));
    cat.child.stdin.take().expect("piped").write_all(b"through\n").expect("it reads");
    assert_eq!(cat.line(), "through");
    cat.ends_with(0);
}

fn signals_are_passed_on() {
    let script = "trap 'echo got; exit 3' USR1; echo in; while :; do sleep 0.05; done";
    let mut traps = Running::start(&mut synod(&["lock", "/signal", "--", "sh", "-c", script]));
    assert_eq!(traps.line(), "in");
    traps.signal("USR1");
    assert_eq!(traps.line(), "got");
    traps.ends_with(3);

    // The whole group is told, and killed if it does not listen.
    let script = "sleep 1000 & echo $!; wait";
    let mut listens = Running::start(&mut synod(&["lock", "/signal", "--", "sh", "-c", script]));
    let grandchild = listens.number();
    listens.signal("TERM");
    listens.ends_with(143);
    assert!(!runs(grandchild));
    let script = "trap '' TERM; sh -c 'echo $$; exec sleep 1000'; sleep 1000";
    let mut deaf = Running::start(&mut synod(&["lock", "/signal", "--", "sh", "-c", script]));
    let grandchild = deaf.number();
    deaf.signal("TERM");
    deaf.ends_with(137);
    eventually("it was killed", || !runs(grandchild));
    assert_eq!(standing("/signal"), 0);
}

fn who_is_interrupted_while_waiting_leaves_the_line() {
    let held = holds(&["lock", "/wait"]);
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let waits = Running::start(&mut synod(&["lock", "/wait", "--", "echo", "x"]));
        eventually("he waits", || standing("/wait") == 2);
        waits.signal(name);
        waits.ends_with(code);
        assert_eq!(standing("/wait"), 1);
    }
    held.ends_with(0);
}

fn a_command_does_not_outlive_what_was_killed() {
    let script = "trap '' TERM; sh -c 'echo $$; exec sleep 1000' & echo $$; wait";
    let mut held = Running::start(&mut synod(&["lock", "/killed", "--", "sh", "-c", script]));
    let (one, two) = (held.number(), held.number());
    assert!(runs(one) && runs(two));
    held.signal("KILL");
    eventually("its command is gone", || !runs(one) && !runs(two));
    eventually("it is free", || standing("/killed") == 0);
}

fn a_command_is_ended_when_the_lock_is_lost() {
    // Somebody removes it.
    let mut held =
        Running::start(&mut synod(&["lock", "/lost", "--", "sh", "-c", "echo $$; sleep 1000"]));
    let process = held.number();
    let told = text(&output(&["inspect", "--json", "/lost"]).stdout);
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(code(&["delete", told["path"].as_str().expect("a path")]), Some(0));
    held.ends_with(76);
    assert!(!runs(process));

    // The store is gone: the command ends before its session can have.
    let mut own = Cluster::start(1).expect("there is one already");
    let mut command = Command::new(env!("CARGO_BIN_EXE_synod"));
    command.env("SYNOD_STORE", url(&own)).args(["lock", "/lost", "--"]);
    let script = "trap '' TERM; sh -c 'echo $$; exec sleep 1000' & echo $$; wait";
    let mut held = Running::start(command.args(["sh", "-c", script]));
    let (one, two) = (held.number(), held.number());
    own.kill(0).expect("it runs");
    held.ends_with(76);
    assert!(!runs(one));
    // Nobody waits for the child of a command: it was killed, and may be on its way.
    eventually("its child is gone", || !runs(two));
}

fn some_share() {
    let (one, two) = (holds(&["lock", "--shared", "/shared"]), holds(&["lock", "-s", "/shared"]));
    assert_eq!(code(&["lock", "--try", "/shared", "--", "true"]), Some(75));
    one.ends_with(0);
    two.ends_with(0);
    let (one, two) =
        (holds(&["lock", "-n", "2", "/some"]), holds(&["lock", "--permits", "2", "/some"]));
    assert_eq!(code(&["lock", "--try", "-n", "2", "/some", "--", "true"]), Some(75));
    one.ends_with(0);
    assert_eq!(code(&["lock", "--try", "-n", "2", "/some", "--", "true"]), Some(0));
    two.ends_with(0);
}

fn one_leads_and_the_next_after_him() {
    let leads = holds(&["elect", "--label", "one", "/elect"]);
    assert_eq!(code(&["elect", "--try", "/elect", "--", "true"]), Some(75));
    let mut next =
        Running::start(&mut synod(&[&["elect", "--label", "two", "/elect", "--"], HOLD].concat()));
    eventually("the next one waits", || standing("/elect") == 2);
    let told = text(&output(&["inspect", "/elect"]).stdout);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "/elect: 1 holds, 1 waits");
    assert!(lines[1].contains("holds") && lines[1].ends_with("one"), "{told}");
    assert!(lines[2].contains("waits") && lines[2].ends_with("two"), "{told}");
    leads.ends_with(0);
    assert_eq!(next.line(), "in");
    next.ends_with(0);
    assert_eq!(text(&output(&["inspect", "/elect"]).stdout), "/elect: free");
}

/// Types into a terminal of its own: a line for the command to read, then Ctrl-C.
const TYPIST: &str = r#"
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
def until(word):
    said = b""
    while word not in said:
        said += os.read(terminal, 1000)
until(b"asks")
os.write(terminal, b"hello\n")
until(b"got hello")
os.write(terminal, b"\x03")
_, status = os.waitpid(pid, 0)
print(os.waitstatus_to_exitcode(status))
"#;

fn a_command_has_the_terminal() {
    let script = "echo asks; read -r word; echo got $word; sleep 1000";
    let mut python = Command::new("python3");
    python.env("SYNOD_STORE", url(ETCD.as_ref().expect("it runs")));
    python.args([
        "-c",
        TYPIST,
        env!("CARGO_BIN_EXE_synod"),
        "lock",
        "/tty",
        "--",
        "sh",
        "-c",
        script,
    ]);
    let mut typed = String::new();
    let mut child = python.stdout(Stdio::piped()).spawn().expect("python3 is there");
    let out = child.stdout.as_mut().expect("it is piped");
    out.read_to_string(&mut typed).expect("text");
    assert!(child.wait().expect("it was started").success());
    // The interrupt is the command's; what it ends with is passed on.
    assert_eq!(typed.trim(), "130");
    assert_eq!(standing("/tty"), 0);
}

type Scene = (&'static str, fn());

const SCENES: &[Scene] = &[
    ("two_exclude_each_other", two_exclude_each_other),
    ("the_exit_code_is_that_of_the_command", the_exit_code_is_that_of_the_command),
    (
        "the_command_is_told_its_token_and_reads_its_input",
        the_command_is_told_its_token_and_reads_its_input,
    ),
    ("signals_are_passed_on", signals_are_passed_on),
    (
        "who_is_interrupted_while_waiting_leaves_the_line",
        who_is_interrupted_while_waiting_leaves_the_line,
    ),
    ("a_command_does_not_outlive_what_was_killed", a_command_does_not_outlive_what_was_killed),
    ("a_command_is_ended_when_the_lock_is_lost", a_command_is_ended_when_the_lock_is_lost),
    ("some_share", some_share),
    ("one_leads_and_the_next_after_him", one_leads_and_the_next_after_him),
    ("a_command_has_the_terminal", a_command_has_the_terminal),
];

fn main() -> ExitCode {
    let missing = if cfg!(feature = "etcd") {
        ETCD.as_ref().err().cloned()
    } else {
        Some("etcd is not compiled in".into())
    };
    let trial = |(name, scene): &Scene| {
        let scene = *scene;
        let trial = Trial::test(*name, move || {
            scene();
            Ok::<(), Failed>(())
        });
        match &missing {
            Some(why) if !required() || !cfg!(feature = "etcd") => {
                trial.with_ignored_flag(true).with_kind(why.clone())
            }
            _ => trial,
        }
    };
    libtest_mimic::run(&Arguments::from_args(), SCENES.iter().map(trial).collect()).exit_code()
}
