//! `docs/traps.md` has a row for each known fault of other lock libraries, and names only cases
//! that exist.

use std::collections::BTreeSet;

use crate::tree::{File, catches, code, files, holds, spares};

const PAGE: &str = "docs/traps.md";

/// The rows that must exist.
fn rows() -> BTreeSet<String> {
    let reproduced = (1..=12).chain(18..=30).chain(32..=35);
    let parts = ['a', 'b', 'c', 'd'].map(|part| format!("V31{part}"));
    let reproduced = reproduced.map(|row| format!("V{row}")).chain(parts);
    reproduced.chain((1..=77).chain([93]).map(|row: u32| row.to_string())).collect()
}

#[test]
fn every_trap_has_its_row() {
    let all: Vec<_> = rows().iter().map(|row| format!("| {row} | `a::b::c` |\n")).collect();
    let whole = all.concat();
    spares(rows_missing, PAGE, &whole);
    catches(rows_missing, PAGE, &whole.replace("| V21 |", "| V99 |"));
    catches(rows_missing, PAGE, &whole.replace("| 7 |", "| 99 |"));
    spares(rows_missing, PAGE, &whole.replace("| 7 |", "| 7, 99 |"));
    spares(rows_missing, "docs/other.md", "");

    holds(rows_missing);
}

fn rows_missing(file: &File) -> Vec<String> {
    if file.path != PAGE {
        return Vec::new();
    }
    let first = |line: &str| Some(line.strip_prefix('|')?.split('|').next()?.to_owned());
    let there: BTreeSet<String> = file
        .text
        .lines()
        .filter_map(first)
        .flat_map(|cell| cell.split(',').map(|row| row.trim().to_owned()).collect::<Vec<_>>())
        .collect();
    let missing = rows().into_iter().filter(|row| !there.contains(row));
    missing.map(|row| file.offence(0, &format!("no row for {row}"))).collect()
}

#[test]
fn every_case_that_is_named_is_there() {
    catches(cases_missing, PAGE, "| 1 | `recipe::mutex::nobody_ever_wrote_this` |");
    catches(cases_missing, PAGE, "| 1 | `recipe::nowhere::*` |");
    catches(cases_missing, PAGE, "| 1 | recipes: `line::order::tests::nobody_ever_wrote_this` |");
    spares(
        cases_missing,
        PAGE,
        "| 1 | `recipe::mutex::a_crowd_is_let_in_one_by_one`, `store::tree::*` |",
    );
    spares(cases_missing, PAGE, "`x::*` is all of a file, `V` a letter.");

    holds(cases_missing);
}

fn cases_missing(file: &File) -> Vec<String> {
    if file.path != PAGE {
        return Vec::new();
    }
    let tree = files();
    let named = file.text.match_indices('`').step_by(2).filter_map(|(at, _)| {
        let name = file.text[at + 1..].split('`').next()?;
        (name.matches("::").count() >= 2).then_some((at, name))
    });
    let missing = named.filter(|(_, name)| !is_there(&tree, name));
    missing.map(|(at, name)| file.offence(at, &format!("there is no {name}"))).collect()
}

/// Returns `true` if a case or a test exists in its module; with `*`, if the module exists.
fn is_there(tree: &[File], name: &str) -> bool {
    let Some((module, case)) = name.rsplit_once("::") else { return false };
    let path = module.replace("::", "/");
    let homes =
        ["conformance", "core", "recipes", "cli", "sim"].map(|of| format!("{of}/src/{path}.rs"));
    tree.iter().filter(|file| homes.contains(&file.path)).any(|file| {
        let text = code(&file.text);
        case == "*" || text.contains(&format!("fn {case}("))
    })
}
