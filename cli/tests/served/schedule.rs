//! `schedule`: a command at dates, once on all machines.

use crate::{Running, Scene, Server, eventually, text};

/// A date that has passed.
const PAST: &str = "1970-01-01T00:00:00Z";

const WHAT: &str = r#"echo "$SYNOD_DUE $SYNOD_ATTEMPT $SYNOD_PATH" && test "$SYNOD_TOKEN" -gt 0"#;

fn a_date_has_one_run_on_all_machines(on: &Server) {
    let show = ["schedule", "/sched/once", "show"];
    let absent = on.output(&show);
    assert_eq!(absent.status.code(), Some(66));
    assert!(text(&absent.stderr).contains("no process has run the schedule /sched/once"));
    let run = ["schedule", "/sched/once", "run", "--at", PAST, "--label", "ann", "--"];
    let run = [&run[..], &["sh", "-c", WHAT]].concat();
    let first = on.output(&run);
    let expected = format!("{PAST} 1 /sched/once");
    assert_eq!((first.status.code(), text(&first.stdout)), (Some(0), expected));
    let second = on.output(&run);
    assert_eq!((second.status.code(), text(&second.stdout)), (Some(0), String::new()));

    let shown = text(&on.output(&show).stdout);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!((lines[0], lines[1]), ("dates  at 1970-01-01T00:00:00Z", "next   -"), "{shown}");
    assert!(lines[2].starts_with(&format!("last   {PAST}  attempt 1  begun ")), "{shown}");
    assert!(lines[2].contains(" by ann  done ") && lines[3] == format!("done   {PAST}"), "{shown}");
    let shown = text(&on.output(&[&show[..], &["--json"]].concat()).stdout);
    assert!(shown.contains(r#""by":"ann""#) && shown.contains(r#""next":null"#), "{shown}");
}

fn a_run_that_fails_has_as_many_attempts_as_permitted(on: &Server) {
    let run = ["schedule", "/sched/fails", "run", "--at", PAST, "--attempts", "3", "--pause"];
    let run = [&run[..], &["1ms", "--json", "--", "sh", "-c", "exit 7"]].concat();
    let failed = on.output(&run);
    let lines = text(&failed.stdout);
    assert_eq!((failed.status.code(), lines.lines().count()), (Some(0), 3), "{lines}");
    assert!(lines.lines().all(|line| line.contains(r#""code":7"#)), "{lines}");
    let told = text(&failed.stderr);
    assert!(told.contains(&format!("{PAST}: the command ended with 7")), "{told}");
    let shown = text(&on.output(&["schedule", "/sched/fails", "show"]).stdout);
    assert!(shown.contains("attempt 3") && shown.contains("the command ended with 7"), "{shown}");

    let run = |path, dates: &[&str], command| {
        on.code(&[&["schedule", path, "run"], dates, &["--", command]].concat())
    };
    assert_eq!(run("/sched/absent", &["--at", PAST], "no-such-command"), Some(127));
    for wrong in [&[][..], &["--at", "soon"], &["--at", PAST, "--every", "1s"], &["--zone", "UTC"]]
    {
        assert_eq!(run("/sched/wrong", wrong, "true"), Some(2), "{wrong:?}");
    }
    for invalid in [&["--cron", "soon"][..], &["--every", "0"]] {
        let out = on.output(&[&["schedule", "/sched/wrong", "run"], invalid, &["true"]].concat());
        assert!(!out.status.success() && out.status.code() != Some(2), "{out:?}");
    }
}

fn another_machine_continues_a_schedule(on: &Server) {
    let run = ["schedule", "/sched/often", "run", "--every", "50ms", "--", "echo", "ran"];
    let start = || Running::start(&mut on.synod(&run));
    let mut first = start();
    assert_eq!(first.line(), "ran");
    let mut second = start();
    eventually("the second waits", || on.standing("/sched/often/leader") == 2);
    first.signal("TERM");
    first.ends_with(0);
    assert_eq!(second.line(), "ran");
    second.signal("INT");
    second.ends_with(0);
    eventually("both are gone", || on.standing("/sched/often/leader") == 0);
}

fn a_schedule_that_is_stopped_waits_for_its_command(on: &Server) {
    let run = ["schedule", "/sched/slow", "run", "--at", PAST, "--grace", "1s", "--"];
    let script =
        "trap 'sleep 0.1; echo ended; exit 0' TERM; echo begun; while :; do sleep 0.02; done";
    let mut running = Running::start(&mut on.synod(&[&run[..], &["sh", "-c", script]].concat()));
    assert_eq!(running.line(), "begun");
    running.signal("TERM");
    assert_eq!(running.line(), "ended");
    running.ends_with(0);
    let shown = text(&on.output(&["schedule", "/sched/slow", "show"]).stdout);
    assert!(shown.contains("  done "), "{shown}");
}

fn a_cron_expression_is_in_its_time_zone(on: &Server) {
    // The rule of a zone needs no database on this machine.
    let zone = ["--zone", "CET-1CEST,M3.5.0,M10.5.0/3"];
    let run = ["schedule", "/sched/cron", "run", "--cron", "0 3 1 1 *"];
    let mut running = Running::start(&mut on.synod(&[&run[..], &zone, &["echo", "ran"]].concat()));
    let show = ["schedule", "/sched/cron", "show"];
    eventually("it has begun", || on.code(&show) == Some(0));
    let shown = text(&on.output(&show).stdout);
    assert!(shown.contains("-01-01T02:00:00Z"), "{shown}");
    running.signal("HUP");
    assert_eq!(running.line(), "", "it is not due");
    running.ends_with(0);
}

pub(crate) const SCENES: &[Scene] = &[
    ("a_date_has_one_run_on_all_machines", a_date_has_one_run_on_all_machines),
    (
        "a_run_that_fails_has_as_many_attempts_as_permitted",
        a_run_that_fails_has_as_many_attempts_as_permitted,
    ),
    ("another_machine_continues_a_schedule", another_machine_continues_a_schedule),
    (
        "a_schedule_that_is_stopped_waits_for_its_command",
        a_schedule_that_is_stopped_waits_for_its_command,
    ),
    ("a_cron_expression_is_in_its_time_zone", a_cron_expression_is_in_its_time_zone),
];
