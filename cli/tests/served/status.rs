//! `synod status` on real servers.

use serde_json::Value;

use crate::{Scene, Server, text};

/// The URL with another host behind the first one, at which nothing listens.
fn with_dead_host(url: &str) -> String {
    let (hosts, rest) = url.split_once('?').expect("it has parameters");
    format!("{hosts},127.0.0.1:1?connect=5s&{rest}")
}

fn each_server_is_asked(on: &Server) {
    let up = on.output(&["status", "--timeout", "60s"]);
    assert_eq!(up.status.code(), Some(0), "{}", text(&up.stdout));
    let told = text(&up.stdout);
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0].starts_with("store    ") && lines[0].contains("127.0.0.1:"), "{told}");
    assert!(lines[1].starts_with("session  open, connected in "), "{told}");
    assert!(lines[2].contains("  answers, 3."), "{told}");
    assert!(lines[2].contains(", connected in "), "{told}");
    let (is_etcd, last) = (on.url().starts_with("etcd"), lines[lines.len() - 1]);
    let role = if is_etcd { ", leader, " } else { ", standalone, " };
    assert!(lines[2].contains(role), "{told}");
    assert!(!is_etcd || last == "alarms   none", "{told}");

    let url = with_dead_host(&on.url());
    let partly = on.output(&["status", "--timeout", "60s", "--json", "--store", &url]);
    let told: Value = serde_json::from_slice(&partly.stdout).expect("JSON");
    assert_eq!(partly.status.code(), Some(1), "{told}");
    assert_eq!(told["session"]["open"], true);
    assert_eq!([&told["servers"][0]["answers"], &told["servers"][1]["answers"]], [true, false]);
    assert_eq!(told["servers"][1]["server"], "127.0.0.1:1");
    assert!(told["servers"][0]["read_ms"].as_f64() > Some(0.0), "{told}");
    assert!(told["servers"][0]["version"].as_str().is_some_and(|it| it.starts_with("3.")));
    assert_eq!(told["servers"][1]["version"], Value::Null);
    assert_eq!(told["leader"].as_str(), is_etcd.then_some(lines[2].split(' ').nth(3)).flatten());
    assert_eq!(told["alarms"].as_array().map(Vec::len), is_etcd.then_some(0));
    assert_eq!(told["leases"].as_u64().is_some(), is_etcd, "{told}");
    assert_eq!(told["servers"][0]["connections"].as_u64().is_some(), !is_etcd, "{told}");
}

fn a_store_that_does_not_answer_is_shown(on: &Server) {
    let (scheme, rest) =
        on.url().split_once("://").map(|(a, b)| (a.to_owned(), b.to_owned())).expect("a URL");
    let (_, parameters) = rest.split_once('?').expect("it has parameters");
    let url = format!("{scheme}://ann:canary-7f3a@127.0.0.1:1?connect=300ms&{parameters}");
    let down = on.output(&["status", "--store", &url]);
    let told = text(&down.stdout);
    assert_eq!(down.status.code(), Some(69), "{told}");
    assert!(
        told.contains("server   127.0.0.1:1  ") && told.contains("store unreachable"),
        "{told}"
    );
    assert!(!told.contains("canary"), "{told}");
}

pub(crate) const SCENES: &[Scene] = &[
    ("each_server_is_asked", each_server_is_asked),
    ("a_store_that_does_not_answer_is_shown", a_store_that_does_not_answer_is_shown),
];
