//! Modules of core import only what stands below them, and always by the defining module: the `use`
//! block of a file is the list of its arrows.

use crate::tree::{File, catches, code, holds, spares};

/// What even those below stand on.
const GROUND: &[&str] = &["chance", "mutant", "stage"];
/// Needed everywhere, and standing on nothing but the ground.
const BELOW: &[&str] = &["chance", "mutant", "stage", "choice", "clock", "task", "sweep"];
/// What a store is.
const FLOOR: &[&str] = &["invalid_path", "name", "path", "error", "store"];
/// Stores that wrap stores.
const LAYER: &[&str] = &["layer"];
/// What an application holds.
const DOOR: &[&str] = &["client", "session", "retry", "value"];
/// What the recipes are made of.
const STAIRS: &[&str] = &["line", "cell", "mirror", "keeper"];

/// The modules of core, each with the modules that it may import in addition.
const ROOMS: &[(&[&str], &[&[&str]])] = &[
    (GROUND, &[]),
    (BELOW, &[GROUND]),
    (&["invalid_path"], &[BELOW]),
    (&["name"], &[BELOW, &["invalid_path"]]),
    (&["path"], &[BELOW, &["invalid_path", "name"]]),
    (&["error"], &[BELOW, &["name", "path"]]),
    (&["store"], &[BELOW, FLOOR]),
    (LAYER, &[BELOW, FLOOR]),
    (DOOR, &[BELOW, FLOOR, LAYER, DOOR]),
    (STAIRS, &[BELOW, FLOOR, DOOR]),
    (&["recipe"], &[BELOW, FLOOR, DOOR, STAIRS]),
];

#[test]
fn modules_of_core_import_only_what_stands_below_them() {
    let upward = [
        ("path.rs", "use crate::error::Error;"),
        ("chance.rs", "use crate::path::Path;"),
        ("store.rs", "use crate::client::Client;"),
        ("store/txn.rs", "fn f() -> crate::layer::trace::Trace {}"),
        ("layer/trace.rs", "use crate::retry::Policy;"),
        ("session.rs", "use crate::line::Line;"),
        ("session.rs", "use crate::{error::Error, recipe::mutex::Mutex};"),
        ("session.rs", "use super::recipe::mutex::Mutex;"),
        ("store/txn.rs", "use super::super::client::Client;"),
        ("line.rs", "mod tests {\n    use crate::recipe::mutex::Mutex;\n}"),
        ("error.rs", "macro_rules! m { () => { $crate::store::Txn } }"),
    ];
    for (path, text) in upward {
        catches(import_upward, &format!("core/src/{path}"), text);
    }
    let fine = [
        (
            "error.rs",
            "use crate::path::Path;\n/// See [`Txn`](crate::store::Txn).\npub(crate) fn f() {}",
        ),
        ("store/txn.rs", "use super::node::Node;\nuse crate::store::query::Query;"),
        ("client.rs", "use crate::{session::Session, layer::{trace, faults}};"),
        ("recipe/mutex.rs", "use crate::line::Line;\nmod tests {\n    use super::*;\n}"),
        ("lib.rs", "pub use crate::recipe::mutex::Mutex;"),
        ("mutant/line.rs", "use crate::line::Line;"),
    ];
    for (path, text) in fine {
        spares(import_upward, &format!("core/src/{path}"), text);
    }

    holds(import_upward);
}

#[test]
fn every_module_of_core_has_its_place() {
    catches(import_upward, "core/src/new.rs", "");
    catches(import_upward, "core/src/new/part.rs", "");
    spares(import_upward, "core/src/store/new.rs", "");

    holds(import_upward);
}

#[test]
fn imports_name_the_defining_module() {
    catches(import_upward, "core/src/store.rs", "use crate::Error;");
    catches(import_upward, "core/src/store.rs", "use crate::*;");
    catches(import_upward, "core/src/store.rs", "use crate::{Error, path::Path};");

    holds(import_upward);
}

#[test]
fn stairs_never_name_each_other() {
    catches(import_upward, "core/src/line.rs", "use crate::cell::Cell;");
    catches(import_upward, "core/src/mirror/tree.rs", "use crate::keeper::Keeper;");
    spares(import_upward, "core/src/line.rs", "use crate::line::ticket::Ticket;");

    holds(import_upward);
}

#[test]
fn recipes_never_name_each_other() {
    catches(import_upward, "core/src/recipe/rwlock.rs", "use crate::recipe::mutex::Mutex;");
    catches(import_upward, "core/src/recipe/rwlock.rs", "use super::mutex::Mutex;");
    catches(import_upward, "core/src/recipe/rwlock.rs", "use crate::recipe::{mutex::Mutex};");
    spares(import_upward, "core/src/recipe/rwlock.rs", "use crate::recipe::rwlock::Guard;");

    holds(import_upward);
}

fn import_upward(file: &File) -> Vec<String> {
    let Some(place) = file.path.strip_prefix("core/src/").and_then(|it| it.strip_suffix(".rs"))
    else {
        return Vec::new();
    };
    let home: Vec<_> = place.split('/').collect();
    // Wrong algorithms are written for the module that they are planted in.
    if home == ["lib"] || (home[0] == "mutant" && home.len() > 1) {
        return Vec::new();
    }
    let Some((_, allowed)) = ROOMS.iter().find(|(rooms, _)| rooms.contains(&home[0])) else {
        return vec![file.offence(0, "a module that ROOMS in tests/house/arrows.rs does not know")];
    };
    imports(&code(&file.text), &home)
        .into_iter()
        .filter(|(_, target)| !may_import(&home, target, allowed))
        .map(|(at, target)| {
            file.offence(
                at,
                &format!("{} may not name crate::{}", home.join("::"), target.join("::")),
            )
        })
        .collect()
}

fn may_import(home: &[&str], target: &[String], allowed: &[&[&str]]) -> bool {
    let room = target.first().map_or("", String::as_str);
    if room != home[0] {
        return allowed.iter().any(|rooms| rooms.contains(&room));
    }
    // A module may import every module of its own folder, except that recipes may not import each
    // other.
    room != "recipe" || home.len() == 1 || target.get(1).is_some_and(|recipe| recipe == home[1])
}

/// What a module names of its crate, as paths from the crate's root, each with its place.
pub(crate) fn imports(code: &str, home: &[&str]) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    for (at, _) in word(code, "crate::") {
        found.extend(use_tree(&code[at + "crate::".len()..], &[]).0.into_iter().map(|it| (at, it)));
    }
    for (at, _) in word(code, "super::") {
        let rest = &code[at + "super::".len()..];
        if rest.starts_with("super") {
            found.push((at, vec!["super::super".into()]));
        } else if !code[..at].contains("mod tests {") && !code[..at].ends_with("super::") {
            let above: Vec<_> = home[..home.len() - 1].iter().map(|part| (*part).into()).collect();
            found.extend(use_tree(rest, &above).0.into_iter().map(|it| (at, it)));
        }
    }
    found
}

/// Where `needle` stands at the start of a word.
pub(crate) fn word<'a>(code: &'a str, needle: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    code.match_indices(needle).filter(|(at, _)| {
        !code[..*at].ends_with(|before: char| before.is_alphanumeric() || before == '_')
    })
}

/// Reads one use tree, and returns its paths and the text after it.
pub(crate) fn use_tree<'a>(code: &'a str, above: &[String]) -> (Vec<Vec<String>>, &'a str) {
    let code = code.trim_start();
    if let Some(mut rest) = code.strip_prefix('{') {
        let mut paths = Vec::new();
        while !rest.trim_start().starts_with('}') && !rest.is_empty() {
            let (more, behind) = use_tree(rest, above);
            paths.extend(more);
            rest = behind.trim_start().strip_prefix(',').unwrap_or(behind.trim_start());
            if behind.len() == code.len() {
                break; // not a use tree after all
            }
        }
        return (paths, rest.trim_start().strip_prefix('}').unwrap_or_default());
    }
    let end = code.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '*'));
    let (name, behind) = code.split_at(end.unwrap_or(code.len()));
    let path = [above, &[name.to_owned()]].concat();
    match behind.strip_prefix("::") {
        Some(rest) if !rest.starts_with('<') => use_tree(rest, &path),
        _ => {
            let renamed = behind.trim_start().strip_prefix("as ");
            let behind = renamed.map_or(behind, |rest| {
                rest.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_')
            });
            (vec![path], behind)
        }
    }
}

#[test]
fn a_use_tree_is_read_to_its_leaves() {
    let leaves = |code| -> Vec<String> {
        let (paths, behind) = use_tree(code, &[]);
        assert_eq!(behind, ";", "{code}");
        paths.iter().map(|path| path.join("::")).collect()
    };
    assert_eq!(leaves("a::B;"), ["a::B"]);
    assert_eq!(leaves("{a::{B, c::*}, d as e,\n f::G};"), ["a::B", "a::c::*", "d", "f::G"]);
}
