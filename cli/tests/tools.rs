//! The commands with their own features, with the arguments that a user types.

use crate::run::{failing, synod, text};

mod run;

#[test]
fn memory_keeps_the_laws_and_the_last_line_counts_them() {
    let laws = synod(&["conformance", "--store", "mem://", "--only", "keyvalue"]);
    assert!(laws.status.success());
    let said = text(&laws.stdout);
    assert!(said.contains("(L-KV-5"), "{said}");
    let last = said.lines().last().expect("there is a count");
    assert!(last.ends_with(" passed, 0 failed, 0 skipped") && !last.starts_with('0'), "{last}");
    assert!(failing(&["conformance", "--store", "mem://", "--only", "nosuch"]).contains("--only"));
}

#[test]
fn a_store_is_measured_and_the_result_is_printed() {
    let chosen = ["bench", "--store", "mem://", "--only", "get"];
    let table = text(&synod(&chosen).stdout);
    let row = table.lines().last().expect("a row");
    assert!(table.starts_with("### mem\n\n| work ") && row.starts_with("| get "), "{table}");

    let lines = text(&synod(&[&chosen[..], &["--json"]].concat()).stdout);
    let line = lines.lines().next().expect("a round");
    let told: serde_json::Value = serde_json::from_str(line).expect("JSON");
    assert_eq!((&told["work"], &told["racer"]), (&"get".into(), &"ours".into()));
    assert!(failing(&["bench", "--store", "mem://", "--only", "nosuch"]).contains("--only"));
}

#[test]
fn the_simulator_lists_what_it_can_do_and_does_it() {
    let list = text(&synod(&["sim"]).stdout);
    assert!(list.contains("registers") && list.contains("L-KV-1"), "{list}");

    let run = synod(&["sim", "registers", "--seeds", "50", "--from", "0x10"]);
    let said = text(&run.stdout);
    assert!(run.status.success() && said.contains("50 histories, nothing broken"), "{said}");

    let whole = synod(&["sim", "replay", "registers", "--seed", "7", "--whole"]);
    let said = text(&whole.stdout);
    assert!(whole.status.success() && said.contains("│ the store"), "{said}");
}

#[test]
fn an_unknown_workload_is_reported_with_the_known_ones() {
    assert!(failing(&["sim", "nosuch"]).contains("there are registers"));
    assert!(failing(&["sim", "replay", "nosuch.json"]).contains("say --seed N"));
    let strict = synod(&["sim", "registers", "--seeds", "3", "--strict"]);
    assert_eq!(strict.status.code(), Some(1));
    assert!(text(&strict.stderr).contains("test less than they seem to"));
}
