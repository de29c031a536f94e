//! `synod lock`, `synod elect`, `synod inspect` and `synod watch` with the arguments that a user
//! types, on real servers.

use std::io::{Read as _, Write as _};
use std::process::{Command, Output, Stdio};

use synod_testkit::limit::waits_for;

use crate::{Leash, Running, Scene, Server, eventually, runs, text};

const HOLD: &[&str] = &["sh", "-c", "echo in; exec cat >/dev/null"];

impl Server {
    /// A command that holds the lock until its input ends.
    pub(crate) fn holds(&self, words: &[&str]) -> Running {
        let mut held = Running::start(&mut self.synod(&[words, &["--"], HOLD].concat()));
        assert_eq!(held.line(), "in");
        held
    }

    /// Returns the error text of a command that waits for a lock until its time limit, and that
    /// limit. The time includes the connection: if connecting takes that long, on a busy machine,
    /// the command gets the longer limit.
    fn waits_in_vain<'a>(
        &self,
        option: &str,
        times: [&'a str; 2],
        rest: &[&str],
    ) -> (Output, &'a str) {
        let [brief, longer] = times;
        let wait = |time| self.output(&[&["lock", option, time], rest].concat());
        let late = wait(brief);
        if text(&late.stderr).contains("the store did not answer within") {
            return (wait(longer), longer);
        }
        (late, brief)
    }

    /// The number of tickets at a path.
    pub(crate) fn standing(&self, path: &str) -> usize {
        text(&self.output(&["inspect", "--json", path]).stdout).lines().count()
    }
}

fn two_exclude_each_other(on: &Server) {
    let held = on.holds(&["lock", "/two"]);
    assert_eq!(on.code(&["lock", "--try", "/two", "--", "echo", "x"]), Some(75));
    assert_eq!(on.code(&["lock", "--try", "-E", "3", "/two", "--", "true"]), Some(3));
    // The same options as flock.
    assert_eq!(on.code(&["lock", "--nonblock", "/two", "true"]), Some(75));
    let (late, _) = on.waits_in_vain("--wait", ["0.1", "10"], &["/two", "true"]);
    assert_eq!(late.status.code(), Some(75));
    let none = on.output(&["lock", "-w", "0", "/two", "true"]);
    assert_eq!(none.status.code(), Some(75));
    assert!(text(&none.stderr).contains("/two is held by another client"), "no time is a try");
    let (late, time) =
        on.waits_in_vain("--timeout", ["200ms", "10s"], &["/two", "--", "echo", "x"]);
    assert_eq!((late.status.code(), text(&late.stdout)), (Some(75), String::new()));
    assert!(text(&late.stderr).contains(&format!("/two was not acquired within {time}")));
    let mut next = Running::start(&mut on.synod(&["lock", "/two", "--", "echo", "entered"]));
    eventually("the next one waits", || on.standing("/two") == 2);
    held.ends_with(0);
    assert_eq!(next.line(), "entered");
    next.ends_with(0);
    eventually("it is free", || on.standing("/two") == 0);
}

fn a_command_runs_once_in_a_period(on: &Server) {
    // The first period ends in the year 2970.
    let long = "1000years";
    let run = |path: &str| on.output(&["lock", "--once-per", long, path, "--", "echo", "ran"]);
    let first = run("/seldom");
    assert_eq!((first.status.code(), text(&first.stdout)), (Some(0), "ran".to_owned()));
    let second = run("/seldom");
    assert_eq!((second.status.code(), text(&second.stdout)), (Some(75), String::new()));
    let told = text(&second.stderr);
    assert!(told.contains("/seldom was run in this period, by ") && told.contains('Z'), "{told}");
    assert_eq!(on.code(&["lock", "--once-per", long, "-E", "0", "/seldom", "false"]), Some(0));
    // The lock is free, and other commands have their own periods.
    assert_eq!(on.code(&["lock", "--try", "/seldom", "--", "true"]), Some(0));
    assert_eq!(text(&run("/other").stdout), "ran");
    // Two very short periods follow each other.
    for _ in 0..2 {
        let ran = |period| on.code(&["lock", "--once-per", period, "/often", "--", "true"]);
        eventually("the next period begins", || ran("1ms") == Some(0));
    }
    // A run that waits for the previous one does not run in its period.
    let held = on.holds(&["lock", "--once-per", long, "/slow"]);
    let busy = ["lock", "--try", "--once-per", long, "/slow", "--", "echo", "ran"];
    assert!(text(&on.output(&busy).stderr).contains("is held by another client"));
    held.ends_with(0);
    assert_eq!(on.code(&busy), Some(75));
}

fn the_exit_code_is_that_of_the_command(on: &Server) {
    assert_eq!(on.code(&["lock", "/code", "--", "sh", "-c", "exit 7"]), Some(7));
    // As with flock: the command follows the lock, with its own arguments.
    assert_eq!(on.code(&["lock", "/code", "sh", "-c", "exit 7"]), Some(7));
    assert_eq!(text(&on.output(&["lock", "/code", "-w", "60", "echo", "--json"]).stdout), "--json");
    assert_eq!(on.code(&["lock", "/code", "--", "sh", "-c", "kill -9 $$"]), Some(137));
    assert_eq!(on.code(&["lock", "/code", "--", "/no/such/command"]), Some(127));
    assert_eq!(on.code(&["lock", "/code", "--", "/dev/null"]), Some(126));
    let line = on.output(&["lock", "/code", "echo a b"]);
    assert_eq!(line.status.code(), Some(127));
    assert!(text(&line.stderr).ends_with("; for a line of a shell say: sh -c LINE"));
    let refused = on.output(&["lock", "/code", "--grace", "5s", "--", "true"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("say less, or ?session=TIME"));
    assert_eq!(on.standing("/code"), 0);
}

fn the_command_gets_its_token_and_reads_its_input(on: &Server) {
    let mut last = 0;
    for _ in 0..3 {
        let told = on.output(&["lock", "/env", "--", "sh", "-c", "echo $SYNOD_TOKEN $SYNOD_PATH"]);
        let said = text(&told.stdout);
        let (token, path) = said.split_once(' ').expect("two words");
        let token: u64 = token.parse().expect("a number");
        assert!(token > last && path == "/env", "{said}");
        last = token;
    }
    let mut cat = Running::start(&mut on.synod(&["lock", "/env", "--", "cat"]));
    cat.child.stdin.take().expect("piped").write_all(b"through\n").expect("it reads");
    assert_eq!(cat.line(), "through");
    cat.ends_with(0);
}

fn signals_are_passed_on(on: &Server) {
    let script = "trap 'echo got; exit 3' USR1; echo in; while :; do sleep 0.05; done";
    let mut traps = Running::start(&mut on.synod(&["lock", "/signal", "--", "sh", "-c", script]));
    assert_eq!(traps.line(), "in");
    traps.signal("USR1");
    assert_eq!(traps.line(), "got");
    traps.ends_with(3);

    // The whole group gets SIGTERM, and SIGKILL if it does not end.
    let script = "sleep 1000 & echo $!; wait";
    let mut listens = Running::start(&mut on.synod(&["lock", "/signal", "--", "sh", "-c", script]));
    let grandchild = listens.number();
    listens.signal("TERM");
    listens.ends_with(143);
    assert!(!runs(grandchild));
    let script = "trap '' TERM; sh -c 'echo $$; exec sleep 1000'; sleep 1000";
    let mut deaf = Running::start(&mut on.synod(&["lock", "/signal", "--", "sh", "-c", script]));
    let grandchild = deaf.number();
    deaf.signal("TERM");
    deaf.ends_with(137);
    eventually("it was killed", || !runs(grandchild));
    assert_eq!(on.standing("/signal"), 0);
}

fn a_waiter_that_is_interrupted_leaves_the_line(on: &Server) {
    let held = on.holds(&["lock", "/wait"]);
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let waits = Running::start(&mut on.synod(&["lock", "/wait", "--", "echo", "x"]));
        eventually("the waiter is in the line", || on.standing("/wait") == 2);
        waits.signal(name);
        waits.ends_with(code);
        assert_eq!(on.standing("/wait"), 1);
    }
    held.ends_with(0);
}

fn a_command_does_not_outlive_what_was_killed(on: &Server) {
    let script = "trap '' TERM; sh -c 'echo $$; exec sleep 1000' & echo $$; wait";
    let mut held = Running::start(&mut on.synod(&["lock", "/killed", "--", "sh", "-c", script]));
    let (one, two) = (held.number(), held.number());
    assert!(runs(one) && runs(two));
    held.signal("KILL");
    eventually("its command is gone", || !runs(one) && !runs(two));
    eventually("it is free", || on.standing("/killed") == 0);
}

fn a_command_is_ended_when_the_lock_is_lost(on: &Server) {
    // Another client removes the ticket.
    let mut held =
        Running::start(&mut on.synod(&["lock", "/lost", "--", "sh", "-c", "echo $$; sleep 1000"]));
    let process = held.number();
    let told = text(&on.output(&["inspect", "--json", "/lost"]).stdout);
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(on.code(&["delete", told["path"].as_str().expect("a path")]), Some(0));
    held.ends_with(76);
    assert!(!runs(process));

    // The store is gone: the command ends before its session can have expired.
    let mut own = on.another();
    let script = "trap '' TERM; sh -c 'echo $$; exec sleep 1000' & echo $$; wait";
    let mut held = Running::start(&mut own.synod(&["lock", "/lost", "--", "sh", "-c", script]));
    let (one, two) = (held.number(), held.number());
    own.kill();
    held.ends_with(76);
    assert!(!runs(one));
    // The child of the command is an orphan: it was killed, but may not have ended yet.
    eventually("its child is gone", || !runs(two));
}

fn some_share(on: &Server) {
    let (one, two) =
        (on.holds(&["lock", "--shared", "/shared"]), on.holds(&["lock", "-s", "/shared"]));
    assert_eq!(on.code(&["lock", "--try", "/shared", "--", "true"]), Some(75));
    one.ends_with(0);
    two.ends_with(0);
    let (one, two) =
        (on.holds(&["lock", "-n", "2", "/some"]), on.holds(&["lock", "--permits", "2", "/some"]));
    assert_eq!(on.code(&["lock", "--try", "-n", "2", "/some", "--", "true"]), Some(75));
    assert!(text(&on.output(&["inspect", "/some"]).stdout).starts_with("/some: 2 hold\n"));
    one.ends_with(0);
    assert_eq!(on.code(&["lock", "--try", "-n", "2", "/some", "--", "true"]), Some(0));
    two.ends_with(0);
    // If the limits differ, the smallest one applies.
    let only = on.holds(&["lock", "-n", "1", "/some"]);
    assert_eq!(on.code(&["lock", "--try", "-n", "3", "/some", "--", "true"]), Some(75));
    only.ends_with(0);
}

fn one_candidate_leads_and_the_next_one_after_it(on: &Server) {
    let leads = on.holds(&["elect", "--label", "one", "/elect"]);
    assert_eq!(on.code(&["elect", "--try", "/elect", "--", "true"]), Some(75));
    let mut next = Running::start(
        &mut on.synod(&[&["elect", "--label", "two", "/elect", "--"], HOLD].concat()),
    );
    eventually("the next one waits", || on.standing("/elect") == 2);
    let told = text(&on.output(&["inspect", "/elect"]).stdout);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "/elect: 1 holds, 1 waits");
    assert!(lines[1].contains("holds") && lines[1].ends_with("one"), "{told}");
    assert!(lines[2].contains("waits") && lines[2].ends_with("two"), "{told}");
    assert!(lines[1..].iter().all(|line| line.contains("token ") && line.contains("since 20")));
    leads.ends_with(0);
    assert_eq!(next.line(), "in");
    next.ends_with(0);
    assert!(text(&on.output(&["inspect", "/elect"]).stdout).starts_with("/elect: free"));
}

fn members_are_listed_while_their_commands_run(on: &Server) {
    let member = |name: &str| {
        on.holds(&["join", "--name", name, "--data", &format!("{name} is here"), "/members"])
    };
    let (one, two) = (member("one"), member("two"));
    let listed = text(&on.output(&["members", "/members"]).stdout);
    assert_eq!(listed, "one  one is here\ntwo  two is here");
    assert_eq!(on.code(&["join", "--name", "one", "/members", "--", "true"]), Some(75));
    one.ends_with(0);
    let listed = text(&on.output(&["members", "--json", "/members"]).stdout);
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("one line of JSON");
    assert_eq!((&listed["name"], &listed["data"]), (&"two".into(), &"two is here".into()));
    assert_eq!(on.code(&["join", "/members", "--", "sh", "-c", "exit 7"]), Some(7));
    assert_eq!(on.code(&["join", "/members", "--", "/no/such/command"]), Some(127));
    two.ends_with(0);
    assert_eq!(text(&on.output(&["members", "/members"]).stdout), "");
}

fn a_command_runs_when_files_have_changed(on: &Server) {
    const SHOWS: &str = "echo ran $(cat $SYNOD_DIRECTORY/db/url)";
    let name: String = on.url().chars().filter(char::is_ascii_alphanumeric).collect();
    let directory = format!("{}/mirror-{name}", env!("CARGO_TARGET_TMPDIR"));
    let _old = std::fs::remove_dir_all(&directory).is_ok();
    let mirror = ["mirror", "/config", &*directory];
    assert_eq!(on.code(&["create", "/config/db/url", "first"]), Some(0));

    let mut kept =
        Running::start(&mut on.synod(&[&mirror[..], &["--", "sh", "-c", SHOWS]].concat()));

    assert_eq!([kept.line(), kept.line()], ["written db/url", "ran first"]);
    assert_eq!(on.code(&["set", "/config/db/url", "second"]), Some(0));
    assert_eq!([kept.line(), kept.line()], ["written db/url", "ran second"]);
    assert_eq!(on.code(&["create", "/config/mode", "slow"]), Some(0));
    assert_eq!([kept.line(), kept.line()], ["written mode", "ran second"]);
    assert_eq!(on.code(&["delete", "/config/mode"]), Some(0));
    assert_eq!([kept.line(), kept.line()], ["removed mode", "ran second"]);
    kept.signal("TERM");
    kept.ends_with(0);
    // The files stay, and changes made meanwhile are found.
    assert_eq!(on.code(&["set", "/config/db/url", "third"]), Some(0));
    let once = on.output(&[&mirror[..], &["--once", "--json", "--", "/no/such/command"]].concat());
    assert_eq!(once.status.code(), Some(127));
    assert_eq!(text(&once.stdout), r#"{"event":"written","file":"db/url"}"#);
    assert_eq!(on.code(&[&mirror[..], &["--once", "--", "/no/such/command"]].concat()), Some(0));
    assert_eq!(on.code(&["set", "/config/db/url", "fourth"]), Some(0));
    let failing = ["--once", "--", "sh", "-c", "exit 3"];
    assert_eq!(on.code(&[&mirror[..], &failing].concat()), Some(3));
    let other = text(&on.output(&["mirror", "/other", &*directory]).stderr);
    assert!(other.contains("is a mirror of /config, not of /other"), "{other}");
    std::fs::remove_dir_all(&directory).expect("it is there");
}

fn an_unused_path_is_distinguished_from_a_free_lock(on: &Server) {
    let told = text(&on.output(&["inspect", "/never/used"]).stdout);
    assert!(told.starts_with("/never/used: free; nothing is at this path"), "{told}");
    assert_eq!(on.code(&["create", "/used/below"]), Some(0));
    assert_eq!(text(&on.output(&["inspect", "/used"]).stdout), "/used: free");
}

fn several_nodes_are_shown_in_one_call(on: &Server) {
    let long = "long ".repeat(30);
    assert_eq!(on.code(&["put", "/several/a", "one"]), Some(0));
    assert_eq!(on.code(&["put", "/several/b/c", &long]), Some(0));
    let shown = |arguments: &[&str]| {
        let output = on.output(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let both = ["/several/b/c", "/several/a"];
    assert_eq!(shown(&["get", "/several/a"]), "one\n");
    let told = format!("/several/b/c\n{long}\n/several/a\none\n");
    assert_eq!(shown(&[&["get"], &both[..]].concat()), told);
    assert_eq!(shown(&[&["get", "--raw"], &both[..]].concat()), format!("{long}one"));
    let json = shown(&[&["get", "--json"], &both[..]].concat());
    let json: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(json.iter().map(|node| &node["path"]).collect::<Vec<_>>(), both);
    // Existing nodes are printed, and the missing ones are named.
    let partly = on.output(&["get", "/several/x", "/several/a", "/several/y"]);
    assert_eq!(partly.status.code(), Some(66));
    assert_eq!(text(&partly.stdout), "/several/a\none");
    assert!(text(&partly.stderr).ends_with("there is no node at /several/x, /several/y"));

    assert_eq!(shown(&["ls", "/several"]), "a\nb\n");
    assert_eq!(shown(&["ls", "--data", "/several"]), "a = one\nb\n");
    let told = format!("/several:\na = one\nb\n\n/several/b:\nc = {long}\n");
    assert_eq!(shown(&["ls", "-d", "/several", "/several/b"]), told);
    assert!(shown(&["ls", "-ld", "/several/b"]).ends_with(&format!("  c = {long}\n")));
    let json = shown(&["ls", "--json", "/several", "/several/b"]);
    assert_eq!(json.lines().count(), 3, "{json}");
    assert!(shown(&["tree", "/several/b"]).ends_with("…\n"));
    let told = format!("/several/a = one\n/several/b/\n└── c = {long}\n");
    assert_eq!(shown(&["tree", "--data", "/several/a", "/several/b"]), told);
}

/// All that hold and wait below a path, of each recipe.
fn locks_below_a_path_are_found(on: &Server) {
    let free = text(&on.output(&["inspect", "-r", "/team"]).stdout);
    assert_eq!(free, "/team: nobody holds or waits here, nor below");
    let label = |name| ["--label", name];
    let one = on.holds(&[&["lock", "/team/a"], &label("one")[..]].concat());
    let two = on.holds(&[&["lock", "-n", "2", "/team/b/jobs"], &label("two")[..]].concat());
    let three = on.holds(&[&["lock", "-n", "2", "/team/b/jobs"], &label("three")[..]].concat());
    let four = on.holds(&[&["elect", "/team/b"], &label("four")[..]].concat());
    let waits = Running::start(&mut on.synod(&["elect", "--label", "five", "/team/b"]));
    eventually("the candidate waits", || on.standing("/team/b") == 2);
    assert_eq!(on.code(&["queue", "/team/mails", "put", "x"]), Some(0));

    let all = text(&on.output(&["inspect", "-r", "/team"]).stdout);
    let heads: Vec<&str> = all.lines().filter(|line| line.starts_with('/')).collect();
    let locks = ["/team/a: 1 holds", "/team/b: 1 holds, 1 waits", "/team/b/jobs: 2 hold"];
    assert_eq!(heads[..3], locks, "{heads:?}");
    let queue = "/team/mails: queue, 1 ready, the oldest since ";
    assert!(heads.len() == 4 && heads[3].starts_with(queue), "{heads:?}");
    let json = text(&on.output(&["inspect", "-r", "--json", "/team"]).stdout);
    let json: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let told: Vec<String> = json
        .iter()
        .filter(|one| one["recipe"] != "queue")
        .map(|one| [&one["lock"], &one["state"], &one["label"]].map(|it| it.as_str().unwrap_or("")))
        .map(|told| told.join(" "))
        .collect();
    let jobs = ["/team/b/jobs holds two", "/team/b/jobs holds three"];
    let rest = ["/team/a holds one", "/team/b holds four", "/team/b waits five"];
    assert_eq!(told, [&rest[..], &jobs].concat());
    let queue = json.iter().find(|one| one["recipe"] == "queue").expect("it is found");
    assert_eq!((&queue["path"], &queue["ready"]), (&"/team/mails".into(), &1.into()), "{queue}");
    assert!(text(&on.output(&["inspect", "/team/mails"]).stdout).starts_with("/team/mails: queue"));
    let top = text(&on.output(&["top", "--once", "/team"]).stdout);
    assert_eq!(top.lines().next(), Some("/team: 4 recipes, no trouble"), "{top}");
    assert_eq!(on.code(&["crew", "/team/crew", "submit", "--id", "one", "data"]), Some(0));
    let top = text(&on.output(&["top", "--once", "/team/crew"]).stdout);
    let told: Vec<&str> = top.lines().collect();
    let command = "(synod crew /team/crew list)";
    let expected = [
        "/team/crew: 1 recipe, 2 troubles".to_owned(),
        format!("!! /team/crew: 1 task waits, and there is no master  {command}"),
        format!("!! /team/crew: 1 task waits, and there is no worker  {command}"),
    ];
    assert_eq!(told[..3], expected, "{top}");
    assert_eq!(on.code(&["delete", "--recursive", "/team/crew"]), Some(0));
    // A directory is not called a free lock.
    let dir = text(&on.output(&["inspect", "/team"]).stdout);
    let below = "a (1 holds), b (1 holds, 1 waits), b/jobs (2 hold), mails (queue, 1 ready";
    assert!(dir.starts_with(&format!("/team: no lock is here; below: {below}")), "{dir}");
    assert_eq!(text(&on.output(&["inspect", "--json", "/team"]).stdout), "");
    let cut = on.output(&["inspect", "-r", "--limit", "2", "/team"]);
    assert_eq!(text(&cut.stdout).lines().next(), Some("/team/a: 1 holds"));
    let told = text(&cut.stderr);
    assert!(told.starts_with("warning: 2 nodes were searched, and there are more"), "{told}");
    for one in [one, two, three, four] {
        one.ends_with(0);
    }
    waits.signal("TERM");
    waits.ends_with(0);
    assert_eq!(on.code(&["delete", "--recursive", "/team/mails"]), Some(0));
    let free = text(&on.output(&["inspect", "/team"]).stdout);
    assert!(free.starts_with("/team: free"), "{free}");
    if let Server::ZooKeeper(_) = on {
        let kazoo = "/team/kazoo/0af3__lock__0000000007";
        let mut held = Running::start(&mut on.synod(&["create", "--ephemeral", kazoo, "them"]));
        held.line();
        let all = text(&on.output(&["inspect", "-r", "/team"]).stdout);
        assert!(all.starts_with("/team/kazoo: 1 holds\n") && all.ends_with("them"), "{all}");
        held.signal("TERM");
        held.ends_with(0);
    }
}

fn a_change_is_shown_with_its_data(on: &Server) {
    assert_eq!(on.code(&["create", "/watched", "one"]), Some(0));
    let mut watch = Running::start(&mut on.synod(&["watch", "--count", "1", "/watched"]));
    assert_eq!(watch.line(), "found    /watched  one");
    let mut json = Running::start(&mut on.synod(&["watch", "--json", "--count", "1", "/watched"]));
    assert!(json.line().contains(r#""data":"one""#));
    assert_eq!(on.code(&["set", "/watched", r#"{"a":1}"#]), Some(0));
    assert_eq!(watch.line(), r#"updated  /watched  {"a":1}"#);
    watch.ends_with(0);
    let line = json.line();
    let told: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!((&told["event"], &told["json"]["a"]), (&"updated".into(), &1.into()), "{line}");
    json.ends_with(0);
    let tree = text(&on.output(&["tree", "--json", "/watched"]).stdout);
    assert!(tree.ends_with(r#","json":{"a":1}}"#), "{tree}");
    // The JSON is unchanged: no digit is rounded, and no key is dropped.
    let exact = r#"{"n":12345678901234567890123,"a":1,"a":2,"z":0.1e-40}"#;
    assert_eq!(on.code(&["set", "/watched", exact]), Some(0));
    let got = text(&on.output(&["get", "--json", "/watched"]).stdout);
    assert!(got.ends_with(&format!(r#","json":{exact}}}"#)), "{got}");
    let got: serde_json::Value = serde_json::from_str(&got).expect("JSON");
    assert_eq!(got["data"], exact);
}

/// Types into a terminal of its own: a line for the command to read, then Ctrl-C. The terminal's
/// signals must not be ignored: a background job of a shell without job control starts with SIGINT
/// and SIGQUIT ignored, and its children inherit that.
const TYPIST: &str = r#"
import os, pty, signal, sys
pid, terminal = pty.fork()
if pid == 0:
    for one in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(one, signal.SIG_DFL)
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

fn a_command_has_the_terminal(on: &Server) {
    // The command is a shell that waits in `read`: one that is just about to start a process may
    // miss the interrupt.
    let script = "echo asks; read -r word; echo got $word; read -r more";
    let mut python = Command::new("python3");
    python.env("SYNOD_STORE", on.url());
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
    let _leash = Leash::of(&child, &python);
    waits_for("the command to end by the interrupt that was typed");
    let out = child.stdout.as_mut().expect("it is piped");
    out.read_to_string(&mut typed).expect("text");
    assert!(child.wait().expect("it was started").success());
    // The command receives the interrupt; its exit code is passed on.
    assert_eq!(typed.trim(), "130");
    assert_eq!(on.standing("/tty"), 0);
}

/// As with etcdctl: without a command the lock is held until an interrupt.
fn without_a_command_it_is_held_until_interrupted(on: &Server) {
    for name in ["INT", "TERM"] {
        let mut held = Running::start(&mut on.synod(&["lock", "/bare"]));
        let ticket = held.line();
        assert!(ticket.starts_with("/bare/") && ticket.contains("lock-"), "{ticket}");
        assert_eq!(on.code(&["lock", "--try", "/bare"]), Some(75));
        held.signal(name);
        held.ends_with(0);
        assert_eq!(on.standing("/bare"), 0);
    }
    let mut leads = Running::start(&mut on.synod(&["elect", "--json", "/bare-elect"]));
    let told: serde_json::Value = serde_json::from_str(&leads.line()).expect("JSON");
    assert!(told["token"].as_u64() > Some(0), "{told}");
    assert_eq!(on.code(&["delete", told["path"].as_str().expect("a path")]), Some(0));
    leads.ends_with(76);
}

pub(crate) const SCENES: &[Scene] = &[
    ("two_exclude_each_other", two_exclude_each_other),
    ("a_command_runs_once_in_a_period", a_command_runs_once_in_a_period),
    ("the_exit_code_is_that_of_the_command", the_exit_code_is_that_of_the_command),
    (
        "the_command_gets_its_token_and_reads_its_input",
        the_command_gets_its_token_and_reads_its_input,
    ),
    ("signals_are_passed_on", signals_are_passed_on),
    ("a_waiter_that_is_interrupted_leaves_the_line", a_waiter_that_is_interrupted_leaves_the_line),
    ("a_command_does_not_outlive_what_was_killed", a_command_does_not_outlive_what_was_killed),
    ("a_command_is_ended_when_the_lock_is_lost", a_command_is_ended_when_the_lock_is_lost),
    ("some_share", some_share),
    ("members_are_listed_while_their_commands_run", members_are_listed_while_their_commands_run),
    ("a_command_runs_when_files_have_changed", a_command_runs_when_files_have_changed),
    (
        "one_candidate_leads_and_the_next_one_after_it",
        one_candidate_leads_and_the_next_one_after_it,
    ),
    (
        "an_unused_path_is_distinguished_from_a_free_lock",
        an_unused_path_is_distinguished_from_a_free_lock,
    ),
    ("several_nodes_are_shown_in_one_call", several_nodes_are_shown_in_one_call),
    ("locks_below_a_path_are_found", locks_below_a_path_are_found),
    ("a_change_is_shown_with_its_data", a_change_is_shown_with_its_data),
    ("a_command_has_the_terminal", a_command_has_the_terminal),
    (
        "without_a_command_it_is_held_until_interrupted",
        without_a_command_it_is_held_until_interrupted,
    ),
];
