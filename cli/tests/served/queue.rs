//! `synod queue` with the arguments that a user types, on real servers.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::Value;
use synod_testkit::limit::waits_for;

use crate::{Leash, Running, Scene, Server, eventually, runs, text};

impl Server {
    fn queue(&self, path: &str, arguments: &[&str]) -> String {
        let output = self.output(&[&["queue", path], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// The lines of JSON of `list` or `dead`.
    fn listed(&self, path: &str, what: &str) -> Vec<Value> {
        let lines = self.queue(path, &["--json", what]);
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    fn consumes(&self, path: &str, options: &[&str], script: &str) -> Running {
        let queue = ["queue", path, "consume"];
        Running::start(&mut self.synod(&[&queue, options, &["--", "sh", "-c", script]].concat()))
    }
}

fn items_are_put_listed_and_taken(on: &Server) {
    assert_eq!(on.queue("/jobs", &["put", "one"]), "");
    let seven = ["put", "--id", "7", "--priority", "1", "first"];
    on.queue("/jobs", &seven);
    let again = on.output(&[&["queue", "/jobs"], &seven[..]].concat());
    assert_eq!(again.status.code(), Some(0));
    assert!(text(&again.stderr).contains("an item of this id is in the queue already"));
    let mut put = on.synod(&["queue", "/jobs", "put"]);
    let mut input = put.stdin(Stdio::piped()).spawn().expect("it starts");
    let _leash = Leash::of(&input, &put);
    input.stdin.take().expect("piped").write_all(b"two\n").expect("it reads");
    waits_for("an item to be put from standard input");
    assert!(input.wait().expect("it was started").success());
    on.queue("/jobs", &["put", "--delay", "1h", "late"]);

    let list = on.queue("/jobs", &["list"]);
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 4, "{list}");
    assert!(lines[0].starts_with("7 ") && lines[0].contains("priority 1, put "), "{list}");
    assert!(lines[3].contains("priority 100, not before 20") && lines[3].ends_with("  late"));
    assert_eq!(on.listed("/jobs", "list")[2]["data"], "two\n");
    assert_eq!(on.queue("/jobs", &["take"]), "first");
    let taken: Value = serde_json::from_str(&on.queue("/jobs", &["take", "--json"])).expect("JSON");
    assert_eq!((&taken["data"], &taken["delivered"]), (&"one".into(), &1.into()));
    let raw = on.output(&["queue", "/jobs", "take", "--raw", "--no-wait"]);
    assert_eq!(raw.stdout, b"two\n");

    // The remaining item must not be delivered yet.
    for options in [["--no-wait", "--raw"], ["-w", "0.3"]] {
        let none = on.output(&[&["queue", "/jobs", "take"], &options[..]].concat());
        assert_eq!(none.status.code(), Some(75));
        assert!(text(&none.stderr).contains("there is no item in /jobs"));
    }
    let late = on.listed("/jobs", "list");
    assert_eq!(on.queue("/jobs", &["stats"]), "0 ready, 1 delayed, 0 claimed, 0 dead");
    let stats = on.listed("/jobs", "stats");
    assert_eq!((&stats[0]["delayed"], &stats[0]["oldest"]), (&1.into(), &Value::Null));
    on.queue("/jobs", &["remove", late[0]["name"].as_str().expect("a name")]);
    assert_eq!(on.queue("/jobs", &["list"]), "");
    let missing = on.output(&["queue", "/jobs", "remove", "7"]);
    assert_eq!(missing.status.code(), Some(66));
    assert!(text(&missing.stderr).contains("there is no 7 here"));
}

fn a_command_runs_for_each_item(on: &Server) {
    for item in ["a", "b", "c"] {
        on.queue("/each", &["put", "--id", item, item]);
    }
    let script = "echo \"$(cat) $SYNOD_ID $SYNOD_DELIVERED $SYNOD_PATH\"";
    let mut consumer = on.consumes("/each", &["-n", "2"], script);
    let mut lines = [consumer.line(), consumer.line(), consumer.line()];
    lines.sort();
    assert_eq!(lines, ["a a 1 /each", "b b 1 /each", "c c 1 /each"]);
    eventually("all are acknowledged", || on.queue("/each", &["list"]).is_empty());
    on.queue("/each", &["put", "d"]);
    assert_eq!(consumer.line(), "d  1 /each");
    // Until then, the signal may find the command before its end.
    eventually("it is acknowledged", || on.queue("/each", &["list"]).is_empty());
    consumer.signal("TERM");
    consumer.ends_with(0);
    assert_eq!(on.code(&["queue", "/each", "put", "e"]), Some(0));
    assert_eq!(on.code(&["queue", "/each", "consume", "--", "/no/such/command"]), Some(127));
    assert_eq!(on.queue("/each", &["take"]), "e", "it was put back");
}

fn an_item_whose_command_fails_is_put_back_and_becomes_a_dead_letter(on: &Server) {
    on.queue("/fails", &["put", "bad"]);
    let script = "echo $SYNOD_DELIVERED; exit 3";
    let mut consumer = on.consumes("/fails", &["--max-deliveries", "2", "--json"], script);
    let mut told = |number: &str| {
        assert_eq!(consumer.line(), number);
        serde_json::from_str::<Value>(&consumer.line()).expect("JSON")
    };
    for number in ["1", "2"] {
        assert_eq!(told(number)["code"], 3);
    }
    eventually("it is dead", || on.listed("/fails", "dead").len() == 1);
    consumer.signal("INT");
    consumer.ends_with(0);

    assert_eq!(on.queue("/fails", &["list"]), "");
    let dead = on.queue("/fails", &["dead"]);
    let lines: Vec<_> = dead.lines().collect();
    assert!(lines[0].ends_with(" ago, delivered 2 times  bad"), "{dead}");
    assert!(lines[1].starts_with("  delivery 1 failed ") && lines.len() == 2, "{dead}");
    assert!(lines[1].contains("its command ended with 3"), "{dead}");
    let dead = on.listed("/fails", "dead");
    let failures = dead[0]["failures"].as_array().expect("a list");
    assert_eq!(failures.len(), 2);
    assert_eq!((&failures[0]["delivered"], &failures[1]["delivered"]), (&1.into(), &2.into()));
    assert_eq!(failures[1]["reason"], dead[0]["reason"]);
    on.queue("/fails", &["revive", "--all"]);
    assert_eq!(on.queue("/fails", &["dead"]), "");
    assert_eq!(on.queue("/fails", &["take"]), "bad");
}

fn an_item_whose_command_ends_with_a_chosen_code_is_rejected(on: &Server) {
    on.queue("/rejects", &["put", "bad"]);
    let options = ["--reject-on", "3", "--reject-on", "65", "--json"];
    let mut consumer = on.consumes("/rejects", &options, "exit 65");
    let told: Value = serde_json::from_str(&consumer.line()).expect("JSON");
    assert_eq!((&told["code"], &told["delivered"]), (&65.into(), &1.into()));
    eventually("it is dead", || on.listed("/rejects", "dead").len() == 1);
    consumer.signal("TERM");
    consumer.ends_with(0);

    let dead = on.listed("/rejects", "dead");
    assert_eq!(dead[0]["reason"], "its command ended with 65");
    let zero = ["queue", "/rejects", "consume", "--reject-on", "0", "--", "true"];
    assert_eq!(on.code(&zero), Some(2));
}

fn a_command_is_ended_when_its_claim_is_lost(on: &Server) {
    on.queue("/claim", &["put", "one"]);
    // It is not ended by the first signal.
    let script = "trap '' TERM; echo $$; test $SYNOD_DELIVERED = 2 || exec sleep 1000";
    let mut consumer = on.consumes("/claim", &[], script);
    let process = consumer.number();
    let list = on.listed("/claim", "list");
    assert!(list[0]["claimed_by"].is_string(), "{list:?}");
    let claim = format!("/claim/claims/{}", list[0]["name"].as_str().expect("a name"));

    assert_eq!(on.code(&["delete", &claim]), Some(0));

    let next = consumer.number();
    assert_ne!(next, process);
    eventually("its command is ended", || !runs(process));
    eventually("the second try is acknowledged", || on.queue("/claim", &["list"]).is_empty());
    consumer.signal("TERM");
    consumer.ends_with(0);
}

fn the_item_of_a_consumer_that_was_killed_is_delivered_again(on: &Server) {
    on.queue("/killed", &["put", "one"]);
    let mut killed = on.consumes("/killed", &[], "echo $$; exec sleep 1000");
    let process = killed.number();
    let mut next = on.consumes("/killed", &[], "cat; echo \" $SYNOD_DELIVERED\"");

    killed.signal("KILL");

    assert_eq!(next.line(), "one 2");
    eventually("its command is ended", || !runs(process));
    eventually("it is acknowledged", || on.queue("/killed", &["list"]).is_empty());
    next.signal("TERM");
    next.ends_with(0);
}

pub(crate) const SCENES: &[Scene] = &[
    ("items_are_put_listed_and_taken", items_are_put_listed_and_taken),
    ("a_command_runs_for_each_item", a_command_runs_for_each_item),
    (
        "an_item_whose_command_fails_is_put_back_and_becomes_a_dead_letter",
        an_item_whose_command_fails_is_put_back_and_becomes_a_dead_letter,
    ),
    (
        "an_item_whose_command_ends_with_a_chosen_code_is_rejected",
        an_item_whose_command_ends_with_a_chosen_code_is_rejected,
    ),
    ("a_command_is_ended_when_its_claim_is_lost", a_command_is_ended_when_its_claim_is_lost),
    (
        "the_item_of_a_consumer_that_was_killed_is_delivered_again",
        the_item_of_a_consumer_that_was_killed_is_delivered_again,
    ),
];
