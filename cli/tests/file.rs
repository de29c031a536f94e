//! The command on a directory, which the processes of one machine share.

#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use synod_servers::home::Home;

use crate::run::{failing, failing_with, synod, text};

mod run;

/// The URL of a store in a new directory, which is removed with it.
fn store() -> (Home, String) {
    let home = Home::new("cli-file").expect("a directory can be created");
    let url = format!("file://{}/store", home.path().display());
    (home, url)
}

#[track_caller]
fn succeeds(arguments: &[&str]) -> String {
    let output = synod(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_directory_keeps_what_a_command_has_written() {
    let (_home, url) = store();
    succeeds(&["put", "--store", &url, "/config/colour", "blue"]);
    assert_eq!(succeeds(&["get", "--store", &url, "/config/colour"]).trim_end(), "blue");
    assert!(succeeds(&["ls", "--store", &url, "/"]).contains("config"));
}

/// The output of a command of a user whose home and state are in this directory, and who has named
/// no store.
fn at_home(home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_synod"));
    command.args(arguments).env_clear().env("HOME", home);
    command.output().expect("the command starts")
}

#[test]
fn here_is_the_directory_of_the_user_on_a_fresh_machine_too() {
    let home = Home::new("cli-here").expect("a directory can be created");
    let first = ["lock", "--here", "/backup", "--", "sh", "-c", "echo $SYNOD_PATH"];
    let output = at_home(home.path(), &first);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("/backup"));
    let directory = home.path().join(".local/state/synod");
    assert!(directory.join("store.db").exists());

    let output = at_home(home.path(), &["put", "--here", "/a", "1"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let url = format!("file://{}", directory.display());
    assert_eq!(succeeds(&["get", "--store", &url, "/a"]).trim_end(), "1");
    let output = at_home(home.path(), &["get", "--store", "file:?session=5s", "/a"]);
    assert_eq!(text(&output.stdout).trim_end(), "1");
}

#[test]
fn here_is_said_and_never_a_default() {
    let home = Home::new("cli-here").expect("a directory can be created");
    let output = at_home(home.path(), &["get", "/a"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("--here"), "{}", text(&output.stderr));
    for other in [["--store", "mem://"], ["--profile", "prod"]] {
        let output = at_home(home.path(), &[&["get", "--here", "/a"][..], &other].concat());
        assert!(text(&output.stderr).contains("cannot be used"), "{}", text(&output.stderr));
    }
    assert!(!home.path().join(".local").exists());
}

#[test]
fn a_directory_says_what_is_missing_or_wrong() {
    let (_home, url) = store();
    assert!(failing_with(66, &["get", "--store", &url, "/missing"]).contains("/missing"));
    let unknown = format!("{url}?owner=ann");
    assert!(failing(&["get", "--store", &unknown, "/a"]).contains("it knows"));
}

#[test]
fn a_lock_in_a_directory_excludes_other_commands_while_it_is_held() {
    let (_home, url) = store();
    let second = ["lock", "-w", "0.5", "--store", &url, "/lock", "true"];
    let first = ["lock", "--store", &url, "/lock", env!("CARGO_BIN_EXE_synod")];
    let both = synod(&[&first[..], &second].concat());
    assert!(!both.status.success(), "the second waits for the first, which waits for it");
    succeeds(&second);
}

/// A `synod lock` with the command of a shell script, as two processes. Both are ended with it.
struct Holder {
    synod: Child,
    directory: PathBuf,
}

impl Holder {
    /// Starts the command, which writes its process id, and then the word `ended` at its end.
    fn start(home: &Home, url: &str, trap: &str) -> Self {
        let directory = home.path().to_owned();
        // A write at a time, so that a file that is there is complete.
        let script = format!(
            "trap '{trap}' TERM; echo $$ > new && mv new pid; while :; do sleep 0.05; done"
        );
        let mut synod = Command::new(env!("CARGO_BIN_EXE_synod"));
        synod.args(["lock", "--grace", "1", "--store", url, "/lock", "sh", "-c", &script]);
        let synod = synod.current_dir(&directory).spawn().expect("the command starts");
        let holder = Self { synod, directory };
        while holder.command().is_none() {
            sleep(Duration::from_millis(5));
        }
        holder
    }

    /// Returns the process id of the command, once it runs.
    fn command(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.directory.join("pid")).ok()?;
        Pid::from_raw(text.trim().parse().ok()?)
    }

    /// Returns `true` while the command runs.
    fn runs(&self) -> bool {
        let Some(pid) = self.command() else { return false };
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
    }

    fn kill_synod(&mut self) {
        self.synod.kill().and_then(|()| self.synod.wait()).expect("it runs");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ended = self.synod.kill().and_then(|()| self.synod.wait()).is_ok();
        if let Some(pid) = self.command() {
            let _ended = kill_process(pid, Signal::KILL).is_ok();
        }
    }
}

#[test]
fn a_backup_is_a_store_and_other_stores_have_none() {
    let (home, url) = store();
    succeeds(&["put", "--store", &url, "/a", "1"]);
    let file = home.path().join("backup.db").display().to_string();
    succeeds(&["backup", "--store", &url, &file]);
    succeeds(&["put", "--store", &url, "/a", "2"]);
    let restored = home.path().join("restored");
    fs::DirBuilder::new().mode(0o700).create(&restored).expect("new");
    fs::rename(&file, restored.join("store.db")).expect("written");
    let restored = format!("file://{}", restored.display());
    assert_eq!(succeeds(&["get", "--store", &restored, "/a"]).trim_end(), "1");
    assert!(failing(&["backup", "--store", "mem://", &file]).contains("synod export"));
    assert!(failing(&["doctor", "--store", "mem://"]).contains("synod status"));
}

#[test]
fn the_doctor_names_a_stopped_process_and_says_that_a_killed_one_ended() {
    let (home, url) = store();
    let doctor = |code: i32| {
        let output = synod(&["doctor", "--store", &url]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let mut holder = Holder::start(&home, &format!("{url}{LONG}"), "exit");
    let pid = holder.synod.id();
    assert!(doctor(0).contains(&format!("process    {pid}  synod  runs, 1 sessions")));
    let process = Pid::from_raw(pid.cast_signed()).expect("a process");
    kill_process(process, Signal::STOP).expect("it runs");
    while !status(pid).contains("stopped") {}
    assert!(doctor(1).contains(&format!("problem    process {pid} is stopped")));
    holder.kill_synod();
    succeeds(&["lock", "-w", "60", "--store", &url, "/lock", "true"]);
    let report = doctor(0);
    assert!(report.contains(&format!("of process {pid}: its process ended")), "{report}");
    let json = succeeds(&["doctor", "--json", "--store", &url]);
    assert!(json.contains(r#""problems":[]"#), "{json}");
}

/// The state of a process, as the system shows it.
fn status(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/status")).expect("it exists")
}

/// Longer than any wait: no session ends by its time to live.
const LONG: &str = "?session=1h";

#[test]
fn the_lock_of_a_killed_command_is_free_when_its_program_has_ended() {
    let (home, url) = store();
    let mut holder = Holder::start(&home, &format!("{url}{LONG}"), "");
    holder.kill_synod();
    // The program ignores SIGTERM, and is killed after the grace.
    let check = holder.command().expect("it has run");
    let check = format!("! grep -q 'State:.[RSDT]' /proc/{check}/status");
    succeeds(&["lock", "-w", "60", "--store", &url, "/lock", "sh", "-c", &check]);
    assert!(!holder.runs());
}

#[test]
fn a_program_that_ends_at_once_passes_the_lock_on_before_its_grace() {
    let (home, url) = store();
    let mut holder = Holder::start(&home, &format!("{url}{LONG}"), "exit");
    holder.kill_synod();
    succeeds(&["lock", "-w", "60", "--store", &url, "/lock", "true"]);
    assert!(!holder.runs());
}
