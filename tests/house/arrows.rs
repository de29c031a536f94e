//! Modules of core and of the recipes import only modules below them, and always by the defining
//! module: the `use` block of a file is the list of its arrows.

use crate::tree::{File, catches, code, holds, spares};

/// The modules that even [`BELOW`] depends on.
const GROUND: &[&str] = &["random", "mutant", "runtime"];
/// The modules that are needed everywhere, and depend on nothing but [`GROUND`].
const BELOW: &[&str] = &["random", "mutant", "runtime", "clock", "task"];
/// The modules of the contract of a store.
const FLOOR: &[&str] = &["invalid_path", "name", "path", "error", "store"];
/// Stores that wrap stores.
const LAYER: &[&str] = &["layer"];
/// The modules of the types that an application holds.
const DOOR: &[&str] = &["client", "held", "session", "retry", "value"];
/// The modules below the contract that the recipes may name.
const OFFERED: &[&str] = &["random", "mutant", "clock", "task"];
/// The modules that recipes are built from. They may import each other. All other modules of the
/// crate are recipes.
pub(crate) const SUPPORT: &[&str] = &["support", "layout", "line", "cell", "mirror", "keeper"];

/// The recipes that are built from others, each with the recipes that it may import.
const MADE_OF: &[(&str, &[&str])] =
    &[("crew", &["leader_selector"]), ("schedule", &["leader_selector"])];

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
    (&["local"], &[FLOOR]),
    (DOOR, &[BELOW, FLOOR, LAYER, &["local"], DOOR]),
];

#[test]
fn modules_of_core_import_only_what_stands_below_them() {
    let upward = [
        ("path.rs", "use crate::error::Error;"),
        ("random.rs", "use crate::path::Path;"),
        ("store.rs", "use crate::client::Client;"),
        ("store/txn.rs", "fn f() -> crate::layer::trace::Trace {}"),
        ("layer/trace.rs", "use crate::retry::Policy;"),
        ("session.rs", "use crate::line::Line;"),
        ("store.rs", "use crate::{error::Error, client::Client};"),
        ("store.rs", "use super::client::Client;"),
        ("store/txn.rs", "use super::super::client::Client;"),
        ("store.rs", "mod tests {\n    use crate::client::Client;\n}"),
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
        ("value.rs", "use crate::client::Client;\nmod tests {\n    use super::*;\n}"),
        ("lib.rs", "pub use crate::client::Client;"),
        ("mutant/session.rs", "use crate::session::Session;"),
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
fn support_modules_never_name_a_recipe() {
    catches(import_upward, "recipes/src/line.rs", "use crate::mutex::Mutex;");
    catches(import_upward, "recipes/src/support/wait.rs", "use crate::queue::Queue;");
    spares(import_upward, "recipes/src/mirror/tree.rs", "use crate::keeper::Keeper;");
    spares(import_upward, "recipes/src/line.rs", "use crate::line::ticket::Ticket;");

    holds(import_upward);
}

#[test]
fn recipes_never_name_each_other() {
    catches(import_upward, "recipes/src/rwlock.rs", "use crate::mutex::Mutex;");
    catches(import_upward, "recipes/src/rwlock.rs", "use super::mutex::Mutex;");
    catches(import_upward, "recipes/src/rwlock.rs", "use crate::{mutex::Mutex};");
    catches(import_upward, "recipes/src/rwlock.rs", "use crate::Mutex;");
    catches(import_upward, "recipes/src/election/observer.rs", "use crate::mutex::Mutex;");
    catches(import_upward, "recipes/src/line.rs", "mod tests {\n    use crate::mutex::Mutex;\n}");
    catches(import_upward, "recipes/src/crew.rs", "use crate::mutex::Mutex;");
    spares(import_upward, "recipes/src/crew/master.rs", "use crate::leader_selector::Term;");
    spares(import_upward, "recipes/src/rwlock.rs", "use crate::rwlock::Guard;");
    spares(import_upward, "recipes/src/rwlock.rs", "use crate::line::{Form, hold::Hold};");
    spares(import_upward, "recipes/src/lib.rs", "pub use crate::mutex::Mutex;");
    spares(import_upward, "recipes/src/lock.rs", "pub use crate::mutex::Mutex;");

    holds(import_upward);
}

#[test]
fn recipes_name_neither_a_store_that_wraps_another_nor_what_drives_the_clock() {
    catches(import_upward, "recipes/src/rwlock.rs", "use synod_core::layer::trace::Traced;");
    catches(import_upward, "recipes/src/line.rs", "use synod_core::{path::Path, stage};");
    catches(import_upward, "recipes/src/line.rs", "use synod_core::Path;");
    spares(import_upward, "recipes/src/line.rs", "use synod_core::client::{Client, Connection};");

    holds(import_upward);
}

fn import_upward(file: &File) -> Vec<String> {
    let Some((of_core, place)) = module_of(&file.path) else { return Vec::new() };
    let home: Vec<_> = place.split('/').collect();
    // Wrong algorithms are written for the module that they are planted in.
    if home == ["lib"] || (home[0] == "mutant" && home.len() > 1) {
        return Vec::new();
    }
    let mut code = code(&file.text);
    if !of_core {
        // The module of a kind offers the recipes of that kind.
        code = code.replace("pub use crate::", "pub use kinds::");
    }
    let mut found = Vec::new();
    let allowed = if of_core {
        let Some((_, allowed)) = ROOMS.iter().find(|(rooms, _)| rooms.contains(&home[0])) else {
            let what = "a module that ROOMS in tests/house/arrows.rs does not know";
            return vec![file.offence(0, what)];
        };
        *allowed
    } else {
        found.extend(offences(
            file,
            &home,
            named_of_core(&code),
            &[OFFERED, FLOOR, DOOR],
            "synod_core",
        ));
        &[GROUND, SUPPORT]
    };
    let made_of = MADE_OF.iter().find(|(recipe, _)| !of_core && *recipe == home[0]);
    let parts = made_of.map_or(&[][..], |(_, parts)| *parts);
    // A module may import every module of its own folder.
    let mut named = imports(&code, &home);
    named.retain(|(_, target)| target.first().is_none_or(|room| room != home[0]));
    let allowed = [allowed, &[parts]].concat();
    found.extend(offences(file, &home, named, &allowed, "crate"));
    found
}

/// Returns the path of a module in its crate, with `true` for core and `false` for the recipes.
fn module_of(path: &str) -> Option<(bool, &str)> {
    let place = path.strip_suffix(".rs")?;
    let of_core = place.strip_prefix("core/src/").map(|place| (true, place));
    of_core.or_else(|| place.strip_prefix("recipes/src/").map(|place| (false, place)))
}

/// Returns the names of core in a module of another crate, as paths from core's root, each with its
/// place.
fn named_of_core(code: &str) -> Vec<(usize, Vec<String>)> {
    let found = word(code, "synod_core::");
    let tree = |at: usize| use_tree(&code[at + "synod_core::".len()..], &[]).0;
    found.flat_map(|(at, _)| tree(at).into_iter().map(move |path| (at, path))).collect()
}

/// The paths whose first part is in none of the lists that are allowed.
fn offences(
    file: &File,
    home: &[&str],
    mut named: Vec<(usize, Vec<String>)>,
    allowed: &[&[&str]],
    of_crate: &str,
) -> Vec<String> {
    named.retain(|(_, target)| {
        let room = target.first().map_or("", String::as_str);
        !allowed.iter().any(|rooms| rooms.contains(&room))
    });
    let what = |target: &[String]| {
        format!("{} may not name {of_crate}::{}", home.join("::"), target.join("::"))
    };
    named.iter().map(|(at, target)| file.offence(*at, &what(target))).collect()
}

/// Returns the names of its own crate in a module, as paths from the crate's root, each with its
/// place.
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

/// Returns the places where `needle` occurs at the start of a word.
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
