//! `synod crew` with the arguments that a user types, on real servers.

use std::io::Write as _;

use synod_servers::home::Home;

use crate::{Running, Scene, Server, eventually, runs, text};

fn a_command_does_the_tasks_of_a_crew(on: &Server) {
    let submit = |more: &[&str]| on.output(&[&["crew", "/crew", "submit"], more].concat());
    let script = "read it; echo $it in $SYNOD_PATH, $SYNOD_TASK, $SYNOD_FAILED; exit $it";
    let options = ["--property", "size=big", "--policy", "property:size"];
    let work = [&["crew", "/crew", "work"], &options[..], &["--", "sh", "-c", script]].concat();
    let worker = Running::start(&mut on.synod(&work));
    let done = submit(&["0", "--id", "a", "--wait"]);
    assert_eq!((done.status.code(), text(&done.stdout).as_str()), (Some(0), "0 in /crew, a, 0"));
    // Submitted again it is the same task.
    let again = submit(&["1", "--id", "a", "--wait", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&again.stdout).expect("JSON");
    assert_eq!(
        (told["state"].as_str(), told["data"].as_str()),
        (Some("done"), Some("0 in /crew, a, 0\n"))
    );

    let failed = submit(&["3", "--id", "b", "--retries", "1", "--needs", "size=big", "--wait"]);
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(text(&failed.stderr), "error: the task b failed: exit code 3");
    let late = ["0", "--id", "late", "--needs", "size=other", "--deadline", "100ms", "--wait"];
    let late = submit(&late);
    assert_eq!(late.status.code(), Some(1));
    assert_eq!(text(&late.stderr), "error: the task late was not over by its deadline");
    assert_eq!(text(&on.output(&["crew", "/crew", "status", "late"]).stdout), "expired");
    let mut given =
        Running::start(&mut on.synod(&["crew", "/crew", "submit", "--id", "c", "--wait"]));
    given.child.stdin.take().expect("piped").write_all(b"0\n").expect("it reads");
    assert_eq!(given.line(), "0 in /crew, c, 0");
    given.ends_with(0);

    let listed = text(&on.output(&["crew", "/crew", "list", "--json"]).stdout);
    let listed: Vec<serde_json::Value> =
        listed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let name = listed.iter().find_map(|it| it["worker"].as_str()).expect("it is there").to_owned();
    assert_eq!(on.code(&["crew", "/crew", "drain", &name]), Some(0));
    assert_eq!(text(&submit(&["0", "--id", "d"]).stdout), "d");
    assert_eq!(text(&on.output(&["crew", "/crew", "status", "d"]).stdout), "waiting");
    assert_eq!(on.code(&["crew", "/crew", "undrain", &name]), Some(0));
    assert_eq!(text(&submit(&["0", "--id", "d", "--wait"]).stdout), "0 in /crew, d, 0");
    assert_eq!(on.code(&["crew", "/crew", "drain", &name]), Some(0));
    assert_eq!(text(&submit(&["0", "--id", "f"]).stdout), "f");
    assert_eq!(text(&on.output(&["crew", "/crew", "cancel", "f"]).stdout), "cancelled");
    worker.signal("TERM");
    worker.ends_with(0);

    assert_eq!(on.code(&["crew", "/crew", "work", "--policy", "any", "--", "true"]), Some(2));
    // A missing command does not fail a task.
    assert_eq!(text(&submit(&["0", "--id", "e"]).stdout), "e");
    assert_eq!(on.code(&["crew", "/crew", "work", "--", "/no/such/command"]), Some(127));
    let _next = Running::start(&mut on.synod(&work));
    assert!(text(&submit(&["--id", "e", "--wait"]).stdout).starts_with("0 in /crew, e"));
}

fn the_task_of_a_killed_worker_is_done_by_another(on: &Server) {
    let works = |script| on.synod(&["crew", "/kill", "work", "--", "sh", "-c", script]);
    let mut first = Running::start(&mut works("cat; exec sleep 1000"));
    assert_eq!(on.code(&["crew", "/kill", "submit", "data", "--id", "a"]), Some(0));
    assert_eq!(first.line(), "begun   a");
    let _second = Running::start(&mut works("cat; echo by the second"));

    first.signal("KILL");

    let done = on.output(&["crew", "/kill", "submit", "--id", "a", "--wait"]);
    assert_eq!(text(&done.stdout), "databy the second");
}

fn the_command_of_a_cancelled_task_is_ended(on: &Server) {
    let script = "trap '' TERM; echo $$ >$0; sleep 1000";
    let home = Home::new("cancel").expect("a temporary directory");
    let file = home.path().join("process");
    let at = file.to_str().expect("text");
    let work = ["crew", "/cancel", "work", "--grace", "200ms", "--", "sh", "-c", script, at];
    let mut worker = Running::start(&mut on.synod(&work));
    assert_eq!(on.code(&["crew", "/cancel", "submit", "", "--id", "a"]), Some(0));
    let process = || std::fs::read_to_string(&file).ok()?.trim().parse().ok();
    eventually("its command runs", || process().is_some_and(runs));

    assert_eq!(on.code(&["crew", "/cancel", "cancel", "a"]), Some(0));

    eventually("its command is killed", || process().is_some_and(|process| !runs(process)));
    assert_eq!([worker.line(), worker.line()], ["begun   a", "dropped a"]);
}

fn an_output_that_is_too_large_fails_its_task(on: &Server) {
    let work = ["crew", "/large", "work", "--", "sh", "-c", "exec cat /dev/zero"];
    let mut worker = Running::start(&mut on.synod(&work));
    let failed = on.output(&["crew", "/large", "submit", "", "--id", "a", "--wait"]);
    assert_eq!(failed.status.code(), Some(1));
    let why = "its output is larger than 1000000 bytes";
    assert_eq!(text(&failed.stderr), format!("error: the task a failed: {why}"));
    assert_eq!([worker.line(), worker.line()], ["begun   a", &format!("failed  a  {why}")]);
    worker.signal("TERM");
    worker.ends_with(0);
}

fn a_worker_ends_its_task_after_a_signal_and_at_once_after_two(on: &Server) {
    let home = Home::new("gentle").expect("a temporary directory");
    let file = home.path().join("free");
    let at = file.to_str().expect("text");
    let script = "until [ -e $0 ]; do sleep 0.05; done; cat";
    let work = ["crew", "/gentle", "work", "--", "sh", "-c", script, at];
    let submit = |id| on.code(&["crew", "/gentle", "submit", "data", "--id", id]);
    let mut gentle = Running::start(&mut on.synod(&work));
    assert_eq!(submit("a"), Some(0));
    assert_eq!(gentle.line(), "begun   a");
    gentle.signal("INT");
    let drained = || text(&on.output(&["crew", "/gentle", "list"]).stdout).contains("drained");
    eventually("it gets no more tasks", drained);
    assert_eq!(submit("b"), Some(0));

    std::fs::write(&file, "").expect("it can be written");

    assert_eq!(gentle.line(), "done    a  4 bytes");
    gentle.ends_with(0);
    std::fs::remove_file(&file).expect("it is there");
    let mut hasty = Running::start(&mut on.synod(&work));
    assert_eq!(hasty.line(), "begun   b");
    hasty.signal("TERM");
    eventually("it gets no more tasks", drained);
    hasty.signal("TERM");
    hasty.ends_with(143);
    assert_eq!(text(&on.output(&["crew", "/gentle", "cancel", "b"]).stdout), "cancelled");
}

fn an_attempt_that_takes_too_long_is_ended(on: &Server) {
    let script = "cat; [ $SYNOD_FAILED = 0 ] || exit 0; exec sleep 1000";
    let work = ["crew", "/long", "work", "--", "sh", "-c", script];
    let _worker = Running::start(&mut on.synod(&work));
    let submit = |id, limit, retries| {
        let options = ["--id", id, "--attempt-timeout", limit, "--retries", retries, "--wait"];
        on.output(&[&["crew", "/long", "submit", "data"], &options[..]].concat())
    };
    let why = "the attempt took longer than its limit of 200ms";
    let failed = submit("a", "200ms", "0");
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(text(&failed.stderr), format!("error: the task a failed: {why}"));
    let retried = submit("b", "2s", "20");
    assert_eq!(text(&retried.stdout), "data");
}

fn the_progress_of_a_task_is_shown(on: &Server) {
    let script = "echo half >$SYNOD_PROGRESS; until [ -e $0 ]; do sleep 0.1; done
        echo most >>$SYNOD_PROGRESS; cat";
    let home = Home::new("progress").expect("a temporary directory");
    let file = home.path().join("goes-on");
    let at = file.to_str().expect("text");
    let work = ["crew", "/progress", "work", "--", "sh", "-c", script, at];
    let worker = Running::start(&mut on.synod(&work));
    assert_eq!(on.code(&["crew", "/progress", "submit", "data", "--id", "a"]), Some(0));
    let status = |more: &[&str]| {
        text(&on.output(&[&["crew", "/progress", "status", "a"], more].concat()).stdout)
    };
    eventually("it is half done", || status(&[]).contains("goes on  [half]"));
    assert!(status(&[]).starts_with("assigned\nattempt "), "{}", status(&[]));

    std::fs::write(&file, "").expect("it can be written");

    let followed = status(&["--follow", "--json"]);
    let last = followed.lines().last().expect("it is over");
    let last: serde_json::Value = serde_json::from_str(last).expect("JSON");
    let attempt = &last["attempts"][0];
    assert_eq!(
        (last["state"].as_str(), attempt["end"].as_str(), attempt["progress"].as_str()),
        (Some("done"), Some("done"), Some("most")),
        "{last}"
    );
    worker.signal("TERM");
    worker.ends_with(0);
}

pub(crate) const SCENES: &[Scene] = &[
    ("a_command_does_the_tasks_of_a_crew", a_command_does_the_tasks_of_a_crew),
    (
        "the_task_of_a_killed_worker_is_done_by_another",
        the_task_of_a_killed_worker_is_done_by_another,
    ),
    ("an_output_that_is_too_large_fails_its_task", an_output_that_is_too_large_fails_its_task),
    ("the_progress_of_a_task_is_shown", the_progress_of_a_task_is_shown),
    ("the_command_of_a_cancelled_task_is_ended", the_command_of_a_cancelled_task_is_ended),
    (
        "a_worker_ends_its_task_after_a_signal_and_at_once_after_two",
        a_worker_ends_its_task_after_a_signal_and_at_once_after_two,
    ),
    ("an_attempt_that_takes_too_long_is_ended", an_attempt_that_takes_too_long_is_ended),
];
