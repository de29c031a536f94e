//! `synod conformance` on servers with the configuration of their packages, and on a store that
//! this program registers.

#[cfg(feature = "zookeeper")]
use std::process::Command;
use std::sync::Arc;
#[cfg(feature = "zookeeper")]
use std::time::Duration;

use synod::mem::MemBackend;
#[cfg(feature = "zookeeper")]
use synod_servers::{required, zookeeper::Ensemble, zookeeper::TICK};

/// The time limit of the suite for a few cases, for slow machines.
#[cfg(feature = "zookeeper")]
const LIMIT: Duration = Duration::from_secs(300);

/// Runs the cases of the suite with `only` in their name. Returns `true` if it passed, and each
/// verdict.
#[cfg(feature = "zookeeper")]
fn verdicts(url: &str, only: &str) -> (bool, Vec<serde_json::Value>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_synod"));
    command.args(["--store", url, "--json", "conformance", "--only", only]);
    let ran = synod_testkit::limit::limited(LIMIT, move || command.output());
    let ran = ran.expect("it ends").expect("it starts");
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    (ran.status.success(), lines.collect())
}

/// A server without `zookeeper.extendedTypesEnabled` has no nodes with a time to live: that is not
/// a failure.
#[cfg(feature = "zookeeper")]
#[test]
fn what_a_stock_zookeeper_cannot_do_is_skipped_with_its_reason() {
    let stock = ["-Dzookeeper.extendedTypesEnabled=false"];
    let server = match Ensemble::start_with(1, &stock, &[]) {
        Ok(server) => server,
        Err(why) => {
            assert!(!required(), "{why}");
            return;
        }
    };
    let (address, tick) = (server.addresses()[0], TICK.as_millis());
    let url = format!("zk://{address}?acl=open&tick={tick}ms");

    let (passed, told) = verdicts(&url, "store::ttl::");

    let (total, cases) = told.split_last().expect("a line for each case, and one for all");
    assert!(passed, "{told:?}");
    assert_eq!((&total["failed"], &total["passed"]), (&0.into(), &0.into()), "{told:?}");
    assert!(cases.len() >= 5, "{told:?}");
    for case in cases {
        assert_eq!(case["verdict"], "skipped", "{case}");
        let why = case["why"].as_str().unwrap_or_default();
        assert!(why.contains("zookeeper.extendedTypesEnabled=true"), "{case}");
    }
    // The store rejects operations that it does not support.
    let (passed, told) = verdicts(&url, "what_the_store_cannot_do_it_refuses");
    assert!(passed && told[0]["verdict"] == "ok", "{told:?}");
}

/// The command of a program that registers a store takes its URLs.
#[test]
fn a_store_that_a_program_adds_is_used_and_held_to_its_laws() {
    let registered = synod::register("shelf", |opening| {
        let name = opening.parameter("name").unwrap_or("default");
        Ok(Arc::new(MemBackend::named(name)))
    });
    registered.expect("no other store has this scheme");
    // In this process, because the store is in its memory.
    let run = |arguments: &[&str]| {
        let arguments: Vec<_> = ["shelf-synod"].iter().chain(arguments).collect();
        synod_cli::run_with(arguments)
    };
    let success = format!("{:?}", std::process::ExitCode::SUCCESS);
    let kept = MemBackend::named("kept");

    let url = "shelf:///app?name=kept";
    let create = run(&["--store", url, "create", "/n", "x"]);
    assert_eq!(format!("{create:?}"), success);
    assert_eq!(kept.census().nodes, 1, "it is in the store that the URL names");
    let laws = run(&["--store", url, "conformance", "--only", "store::keyvalue::"]);
    assert_eq!(format!("{laws:?}"), success);
    let unknown = run(&["--store", "shelf:///app?colour=blue", "get", "/n"]);
    assert_ne!(format!("{unknown:?}"), success);
}
