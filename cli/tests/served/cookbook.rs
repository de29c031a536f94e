//! The blocks of `docs/cookbook.md`, run unchanged, with test programs in place of the reader's.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use synod_servers::home::Home;
use synod_testkit::limit::waits_for;

use crate::{Leash, Running, Scene, Server, eventually, text};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cookbook.md");

/// The blocks of a language in a section of the page.
fn blocks(section: &str, language: &str) -> Vec<String> {
    blocks_of(PAGE, section, language)
}

/// The blocks of a language in a section of a page.
pub(crate) fn blocks_of(page: &str, section: &str, language: &str) -> Vec<String> {
    let page = fs::read_to_string(page).expect("it is there");
    let start = page.find(&format!("\n## {section}\n")).expect(section) + 1;
    let end = page[start..].find("\n## ").map_or(page.len(), |end| start + end);
    let fence = format!("```{language}\n");
    let parts = page[start..end].split(&fence).skip(1);
    parts.map(|part| part.split("```").next().expect("it is closed").to_owned()).collect()
}

/// A machine: a directory with the reader's programs, and the store.
pub(crate) struct Machine<'a> {
    on: &'a Server,
    home: Home,
}

impl<'a> Machine<'a> {
    /// Each of the programs appends its name and its arguments to the file `log`, and then runs a
    /// script.
    pub(crate) fn new(on: &'a Server, programs: &[(&str, &str)]) -> Self {
        let machine = Self { on, home: Home::new("cookbook").expect("a temporary directory") };
        for (name, script) in programs {
            let log = machine.path("log");
            let script =
                format!("#!/bin/sh\nflock {0} echo {name} \"$@\" >>{0}\n{script}\n", log.display());
            machine.program(name, &script);
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub(crate) fn program(&self, name: &str, script: &str) {
        let path = self.path(name);
        fs::write(&path, script).expect("writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is there");
    }

    fn log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    pub(crate) fn command(&self, script: &str, arguments: &[&str]) -> Command {
        let synod = Path::new(env!("CARGO_BIN_EXE_synod")).parent().expect("a directory");
        let path = std::env::var("PATH").expect("there is one");
        let path = format!("{}:{}:{path}", self.home.path().display(), synod.display());
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP,INT,TERM", "sh", "-c", script, "block"]);
        command.args(arguments).env("PATH", path).env("SYNOD_STORE", self.on.url());
        command.current_dir(self.home.path()).env("CONFIG_DIRECTORY", self.path("conf.d"));
        command.env("NAME", "web-1");
        command
    }

    /// Runs a block to its end. Returns its exit code and its output.
    fn run(&self, script: &str, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = self.command(script, arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.spawn().expect("it starts");
        let _leash = Leash::of(&child, &command);
        waits_for(format_args!("the end of {script}"));
        let output = child.wait_with_output().expect("it was started");
        (output.status.code(), text(&output.stdout))
    }

    /// Starts a block that runs until a signal. The shell becomes the command, so the command gets
    /// the signal.
    fn start(&self, script: &str) -> Running {
        Running::start(&mut self.command(&format!("exec {script}"), &[]))
    }
}

fn ends(running: Running) {
    running.signal("TERM");
    running.ends_with(0);
}

fn a_cron_job_runs_on_one_machine(on: &Server) {
    let [line] = &blocks("A cron job on one of several machines", "sh")[..] else { panic!() };
    // The first period ends in the year 2970, and not during the test.
    let line = line.replace("1day", "1000years");
    let one = Machine::new(on, &[("nightly-report", "")]);
    let start = |_| Running::start(&mut one.command(&line, &[]));
    let machines: Vec<Running> = (0..3).map(start).collect();
    for machine in machines {
        machine.ends_with(0);
    }
    assert_eq!(one.log(), ["nightly-report"]);
    let other = Machine::new(on, &[("nightly-report", "exit 7")]);
    let line = line.replace("/cron/report", "/cron/other");
    assert_eq!(other.run(&line, &[]).0, Some(7));
    assert_eq!(other.run(&line, &[]).0, Some(0), "its day is over");
}

fn a_cron_job_needs_no_crontab(on: &Server) {
    let [line] = &blocks("A cron job without a crontab", "sh")[..] else { panic!() };
    // Each second, instead of each night.
    let line = line.replace("0 3 * * *", "* * * * * *");
    let host = Machine::new(on, &[("nightly-report", "exit 1")]);
    let line = line.replace("10m", "1ms");
    let (one, other) = (host.start(&line), host.start(&line));
    eventually("the report has run", || host.log().len() >= 3);
    ends(one);
    let before = host.log().len();
    eventually("the other one continues", || host.log().len() > before + 1);
    ends(other);
    assert!(host.log().iter().all(|line| line == "nightly-report"));
}

fn a_pipeline_deploys_at_a_time(on: &Server) {
    let [deploy, inspect] = &blocks("A lock in a CI pipeline", "sh")[..] else { panic!() };
    let ci = Machine::new(on, &[("deploy", "while [ -e gate ]; do sleep 0.02; done; echo done")]);
    fs::write(ci.path("gate"), "").expect("writable");
    let first = Running::start(ci.command(deploy, &[]).env("CI_JOB_URL", "https://ci/1"));
    eventually("the first one deploys", || ci.log().len() == 1);
    let second = Running::start(&mut ci.command(deploy, &[]));
    eventually("the second one waits", || on.standing("/ci/production") == 2);
    let shown = ci.run(inspect, &[]).1;
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "/ci/production: 1 holds, 1 waits");
    assert!(lines[1].ends_with("https://ci/1") && lines[2].ends_with("by hand"), "{shown}");
    assert_eq!(ci.log().len(), 1, "the second one waits");
    fs::remove_file(ci.path("gate")).expect("it is there");
    first.ends_with(0);
    second.ends_with(0);
    assert_eq!(ci.log(), ["deploy production", "deploy production"]);
}

fn a_rolling_restart_stops_at_the_first_failure(on: &Server) {
    let [script] = &blocks("Rolling restart", "sh")[..] else { panic!() };
    let host = Machine::new(on, &[("restart-web", ""), ("web-is-healthy", "[ ! -e sick ]")]);
    assert_eq!(host.run(script, &[]).0, Some(0));
    fs::write(host.path("sick"), "").expect("writable");
    assert_eq!(host.run(script, &[]).0, Some(1));
    assert_eq!(host.log().len(), 4);
    assert_eq!(host.run(script, &[]).0, Some(1));
    assert_eq!(host.log().len(), 4, "it was stopped");
    assert_eq!(on.code(&["delete", "/rolling/web/failed"]), Some(0));
    fs::remove_file(host.path("sick")).expect("it is there");
    assert_eq!(host.run(script, &[]).0, Some(0));
}

fn mails_are_sent_again_after_a_repair(on: &Server) {
    let [put, consume, revive] = &blocks("A job queue", "sh")[..] else { panic!() };
    let host = Machine::new(on, &[("send-mail", "cat >mail; [ ! -e down ]")]);
    // With one delivery the mail is a dead letter at once.
    let consume = consume.replace("--max-deliveries 5", "--max-deliveries 1");
    fs::write(host.path("down"), "").expect("writable");
    assert_eq!(host.run(put, &[]).0, Some(0));
    let worker = host.start(&consume);
    eventually("it is a dead letter", || {
        !text(&on.output(&["queue", "/mails", "dead"]).stdout).is_empty()
    });
    fs::remove_file(host.path("down")).expect("it is there");
    let (code, dead) = host.run(revive, &[]);
    assert!(code == Some(0) && dead.contains("ann@example.org"), "{dead}");
    eventually("it is sent", || host.log().len() == 2);
    eventually("it is acknowledged", || {
        text(&on.output(&["queue", "/mails", "list"]).stdout).is_empty()
    });
    assert_eq!(fs::read_to_string(host.path("mail")).expect("it is there"), {
        "{\"to\":\"ann@example.org\"}\n"
    });
    ends(worker);
}

fn configuration_becomes_files(on: &Server) {
    let [mirror] = &blocks("Configuration as files", "sh")[..] else { panic!() };
    let host = Machine::new(on, &[("reload-web", "cat $SYNOD_DIRECTORY/port >port")]);
    assert_eq!(on.code(&["put", "/config/web/port", "80"]), Some(0));
    let kept = host.start(mirror);
    let is_loaded = |port: &str| fs::read_to_string(host.path("port")).is_ok_and(|it| it == port);
    eventually("it is loaded", || is_loaded("80"));
    assert_eq!(on.code(&["put", "/config/web/port", "81"]), Some(0));
    eventually("it is loaded again", || is_loaded("81"));
    ends(kept);

    let [apply, export] = &blocks("Configuration under version control", "sh")[..] else {
        panic!()
    };
    assert_eq!(host.run(export, &[]).0, Some(0));
    assert_eq!(host.run(apply, &[]), (Some(0), String::new()));
    assert_eq!(on.code(&["put", "/config/web/port", "82"]), Some(0));
    assert_eq!(host.run(apply, &[]).0, Some(0));
    assert_eq!(text(&on.output(&["get", "/config/web/port"]).stdout), "81");
}

fn the_live_side_is_switched(on: &Server) {
    let [follow, switch] = &blocks("Blue-green switch", "sh")[..] else { panic!() };
    let sides =
        [("switch-upstream", "cat >live"), ("green-is-healthy", ""), ("blue-is-healthy", "false")];
    let host = Machine::new(on, &sides);
    assert_eq!(on.code(&["put", "/web/live", "blue"]), Some(0));
    let proxy = host.start(follow);
    let is_live = |side: &str| fs::read_to_string(host.path("live")).is_ok_and(|it| it == side);
    eventually("the proxy knows the side", || is_live("blue"));
    assert_eq!(host.run(switch, &[]), (Some(0), "green is live".to_owned()));
    eventually("the proxy has switched", || is_live("green"));
    // The other side is not healthy.
    assert_eq!(host.run(switch, &[]), (Some(1), String::new()));
    assert_eq!(text(&on.output(&["get", "/web/live"]).stdout), "green");
    ends(proxy);
}

fn a_machine_is_drained(on: &Server) {
    let [join, proxy, wait, drain] = &blocks("Draining a machine", "sh")[..] else { panic!() };
    let host = Machine::new(
        on,
        &[
            ("web-server", "trap 'exit 0' TERM; while :; do sleep 0.02; done"),
            ("update-upstreams", ""),
            ("systemctl", "kill $(cat pid)"),
        ],
    );
    let upstreams = host.start(proxy);
    let server = host.start(join);
    fs::write(host.path("pid"), server.child.id().to_string()).expect("writable");
    let has_logged = |line: &str| host.log().iter().any(|logged| logged == line);
    eventually("it serves", || has_logged("web-server") && has_logged("update-upstreams"));
    let waits = host.start(wait);
    assert_eq!(host.run(drain, &["web-1"]).0, Some(0));
    assert!(has_logged("systemctl stop web"), "{:?}", host.log());
    server.ends_with(0);
    assert_eq!(text(&on.output(&["members", "/web/members"]).stdout), "");
    eventually("the proxies know", || {
        host.log().iter().filter(|it| *it == "update-upstreams").count() >= 2
    });
    ends(waits);
    ends(upstreams);
}

fn a_unit_runs_on_the_leader_only(on: &Server) {
    let [unit] = &blocks("A service on the leader only, under systemd", "ini")[..] else {
        panic!()
    };
    let host = Machine::new(on, &[("scheduler", "echo $$; exec sleep 1000")]);
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("one");
    let start = start.replace("/usr/local/bin/", "");
    let mut one = host.start(&start);
    one.number();
    let mut two = host.start(&start);
    eventually("the second one waits", || on.standing("/leaders/scheduler") == 2);
    assert_eq!(host.log().len(), 1);
    one.signal("KILL");
    two.number();
    assert_eq!(host.log().len(), 2);
    two.signal("TERM");
    two.ends_with(143);

    // The unchanged unit, with programs that exist.
    let synod = env!("CARGO_BIN_EXE_synod");
    let unit = unit.replace("/usr/local/bin/synod", synod);
    let unit = unit.replace("/usr/local/bin", &host.home.path().display().to_string());
    let file = host.path("scheduler.service");
    fs::write(&file, unit).expect("writable");
    let Ok(checked) = Command::new("systemd-analyze").arg("verify").arg(&file).output() else {
        return;
    };
    assert!(checked.status.success(), "{}", text(&checked.stderr));
}

/// Each section with blocks has a scene, and the configuration file can be read.
fn each_block_of_the_page_is_run(on: &Server) {
    let page = fs::read_to_string(PAGE).expect("it is there");
    let (_, file) = page.split_once("```toml\n").expect("it is there");
    let (file, _) = file.split_once("```").expect("it is closed");
    let host = Machine::new(on, &[]);
    let file = file.replace("zk://localhost:2181?acl=open", &on.url());
    fs::write(host.path("config.toml"), file).expect("writable");
    fs::write(host.path("prod.password"), "secret").expect("writable");
    let get = "unset SYNOD_STORE; synod --config config.toml get /none";
    assert_eq!(host.run(get, &[]).0, Some(66));
    assert_eq!(host.run(&format!("{get} --profile prod"), &[]).0, Some(1), "no CA is there");
    let this = include_str!("cookbook.rs");
    for section in page.split("\n## ").skip(1) {
        let title = section.lines().next().expect("a title");
        let is_run = this.contains(&format!("blocks(\"{title}\", "));
        assert!(is_run || !section.contains("```sh"), "no scene runs {title}");
    }
}

pub(crate) const SCENES: &[Scene] = &[
    ("a_cron_job_runs_on_one_machine", a_cron_job_runs_on_one_machine),
    ("a_cron_job_needs_no_crontab", a_cron_job_needs_no_crontab),
    ("a_pipeline_deploys_at_a_time", a_pipeline_deploys_at_a_time),
    ("a_rolling_restart_stops_at_the_first_failure", a_rolling_restart_stops_at_the_first_failure),
    ("mails_are_sent_again_after_a_repair", mails_are_sent_again_after_a_repair),
    ("configuration_becomes_files", configuration_becomes_files),
    ("the_live_side_is_switched", the_live_side_is_switched),
    ("a_machine_is_drained", a_machine_is_drained),
    ("a_unit_runs_on_the_leader_only", a_unit_runs_on_the_leader_only),
    ("each_block_of_the_page_is_run", each_block_of_the_page_is_run),
];
