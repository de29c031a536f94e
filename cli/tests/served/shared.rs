//! `synod request-release`, `synod semaphore` and `synod txn` on real servers.

use serde_json::Value;

use crate::{Running, Scene, Server, eventually, text};

fn a_lock_is_released_when_another_client_requests_it(on: &Server) {
    assert_eq!(on.code(&["request-release", "/ask"]), Some(66), "nobody holds it");
    let script = "trap 'echo asked; exit 5' TERM; echo in; while :; do sleep 0.05; done";
    let listens = ["lock", "--release-on-request", "/ask", "--", "sh", "-c", script];
    let mut held = Running::start(&mut on.synod(&listens));
    assert_eq!(held.line(), "in");
    let mut waits = Running::start(&mut on.synod(&["lock", "--release-on-request", "/ask"]));
    eventually("the next one waits", || on.standing("/ask") == 2);
    let requested = on.output(&["request-release", "/ask"]);
    let ticket = text(&requested.stdout);
    assert!(
        ticket.starts_with("/ask/") && ticket.lines().count() == 1,
        "only the holder: {ticket}"
    );
    assert_eq!(held.line(), "asked");
    held.ends_with(5);
    // Without a command, and by the ticket.
    let ticket = waits.line();
    let requested = on.output(&["request-release", "--json", &ticket]);
    let told: Value = serde_json::from_slice(&requested.stdout).expect("JSON");
    assert_eq!(told["requested"], *ticket);
    waits.ends_with(0);
    assert_eq!(on.standing("/ask"), 0);
    assert_eq!(on.code(&["request-release", &ticket]), Some(66));

    for recipe in [&["elect"][..], &["lock", "-s"], &["lock", "-n", "2"]] {
        let listens = [recipe, &["--release-on-request", "/ask"]].concat();
        let mut held = Running::start(&mut on.synod(&listens));
        held.line();
        assert_eq!(on.code(&["request-release", "/ask"]), Some(0), "{recipe:?}");
        held.ends_with(0);
    }
    // A holder that does not listen keeps it.
    let held = on.holds(&["lock", "/ask"]);
    assert_eq!(on.code(&["request-release", "/ask"]), Some(0));
    assert_eq!(on.code(&["lock", "--try", "/ask", "true"]), Some(75));
    held.ends_with(0);
}

fn the_store_has_the_number_of_permits(on: &Server) {
    let semaphore = |arguments: &[&str]| {
        let output = on.output(&[&["semaphore", "/stored"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(semaphore(&["get"]), "0");
    let enter = ["lock", "--try", "-n", "stored", "/stored", "true"];
    assert_eq!(on.code(&enter), Some(75), "it was never set");
    assert_eq!(semaphore(&["set", "1"]), "1");
    let one = on.holds(&["lock", "--permits", "stored", "/stored"]);
    assert_eq!(on.code(&enter), Some(75));
    assert_eq!(semaphore(&["--json", "set", "2"]), r#"{"path":"/stored","permits":2}"#);
    assert_eq!(on.code(&enter), Some(0));
    assert_eq!(semaphore(&["set", "0"]), "0");
    assert_eq!(on.code(&enter), Some(75));
    assert_eq!(semaphore(&["get"]), "0");
    one.ends_with(0);
}

fn operations_are_applied_together_or_not_at_all(on: &Server) {
    let txn = |text: &str| on.fed(&["txn", "--json"], text.as_bytes());
    let first = r#"{"op":"check","path":"/txn/a","exists":false}
        {"op":"create","path":"/txn/b","data":"1"} {"op":"create","path":"/txn/c","data":"2"}"#;
    let done = txn(first);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let results: Vec<Value> =
        text(&done.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((results.len(), &results[2]["path"]), (3, &"/txn/c".into()));
    let node: Value =
        serde_json::from_slice(&on.output(&["get", "--json", "/txn/b"]).stdout).expect("JSON");
    let version = &node["version"];

    let next = |version: &str| {
        format!(
            r#"{{"op":"set","path":"/txn/b","data":"3","version":{version}}}
               {{"op":"delete","path":"/txn/c"}}"#
        )
    };
    let wrong = txn(&next("123456"));
    assert_eq!(wrong.status.code(), Some(73));
    let told = text(&wrong.stderr);
    let why = "error: operation 1, on /txn/b: it has another version; nothing was changed";
    assert_eq!(told, why);
    assert_eq!(text(&on.output(&["get", "/txn/c"]).stdout), "2");
    let applied = txn(&next(&version.to_string()));
    assert_eq!(applied.status.code(), Some(0), "{}", text(&applied.stderr));
    assert_eq!(text(&on.output(&["get", "/txn/b"]).stdout), "3");
    assert_eq!(on.code(&["get", "/txn/c"]), Some(66));
    assert_eq!(txn(r#"{"op":"delete","path":"/txn/c"}"#).status.code(), Some(66));
    assert_eq!(txn(first).status.code(), Some(73), "it exists");
    assert_eq!(txn("").status.code(), Some(1));
    assert_eq!(on.code(&["txn", "/no/such/file"]), Some(1));
}

pub(crate) const SCENES: &[Scene] = &[
    (
        "a_lock_is_released_when_another_client_requests_it",
        a_lock_is_released_when_another_client_requests_it,
    ),
    ("the_store_has_the_number_of_permits", the_store_has_the_number_of_permits),
    (
        "operations_are_applied_together_or_not_at_all",
        operations_are_applied_together_or_not_at_all,
    ),
];
