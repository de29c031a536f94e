//! Files of one crate that use each other in a circle are refused.
//!
//! A file uses another one if its code, tests aside, names an item of it: by `crate::`, by
//! `super::`, or by a child module. A name that a file only re-exports is looked up where it is
//! defined, and a re-export alone is no use.

use std::collections::{BTreeMap, BTreeSet};

use crate::arrows::{imports, use_tree, word};
use crate::tree::{code, files};

/// The code of the files of one crate without their tests, by module path: `["store", "txn"]`.
type Crate = BTreeMap<Vec<String>, String>;

#[test]
fn files_do_not_use_each_other_in_circles() {
    let found =
        circles(&crates(files().iter().map(|file| (file.path.as_str(), file.text.as_str()))));
    assert!(found.is_empty(), "circles: {found:#?}");
}

#[test]
fn a_circle_is_seen_however_its_files_name_each_other() {
    let circular = [
        &[("a", "use crate::b::B;"), ("b", "fn f() { crate::a::f() }")][..],
        &[("a", "use crate::{b::{B, C}};"), ("b", "use crate::c::C;"), ("c", "use crate::a::A;")],
        &[("a/x", "use super::y::Y;"), ("a/y", "use super::x::X;")],
        // A module and its own child.
        &[("a", "mod x;\nfn f() { x::f() }"), ("a/x", "use crate::a::A;")],
        &[("a", "mod x;\nfn f() { x::f() }"), ("a/x", "use super::A;")],
        // A name that is re-exported and used.
        &[("a", "mod x;\npub use x::X;\nstruct Own(X);"), ("a/x", "use crate::a::Own;")],
        // By way of a re-export.
        &[("a", "mod x;\npub use x::X;"), ("a/x", "use crate::b::B;"), ("b", "use crate::a::X;")],
        &[
            ("a", "mod x;\npub use crate::a::x::X;"),
            ("a/x", "use crate::b::B;"),
            ("b", "use crate::a::X;"),
        ],
    ];
    for sample in circular {
        assert_eq!(sampled(sample).len(), 1, "blind for {sample:?}");
    }
    let fine = [
        &[("a", "use crate::b::B;"), ("b", "use crate::c::C;"), ("c", "")][..],
        &[("a", "use crate::b::B;"), ("b", "// crate::a::A\nmod tests {\n    use crate::a::A;\n}")],
        &[("a", "use crate::b::B;"), ("b", ""), ("b/tests", "use crate::a::A;")],
        // A module and its child, one way.
        &[("a", "mod x;\nfn f() { x::f() }"), ("a/x", "use crate::b::B;"), ("b", "")],
        &[("a", "mod x;\nstruct A;"), ("a/x", "use crate::a::A;")],
        &[("a", "mod x;\nfn f() { x::f() }"), ("a/x", "mod y {\n    use super::X;\n}")],
        // A name that is only re-exported does not count as used, and leads to its definition.
        &[
            ("a", "mod x;\nmod y;\npub use x::X;\npub use y::Y;"),
            ("a/x", ""),
            ("a/y", "use crate::a::X;"),
        ],
        &[("a", "mod x;\npub use x::X;\npub struct A;"), ("a/x", "use crate::a::A;")],
    ];
    for sample in fine {
        assert_eq!(sampled(sample), BTreeSet::new(), "in {sample:?}");
    }
}

/// The circles of a crate of these modules.
fn sampled(modules: &[(&str, &str)]) -> BTreeSet<BTreeSet<String>> {
    let paths: Vec<_> = modules.iter().map(|(name, _)| format!("core/src/{name}.rs")).collect();
    circles(&crates(paths.iter().map(String::as_str).zip(modules.iter().map(|(_, text)| *text))))
}

/// The crates by the folder of their sources.
fn crates<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> BTreeMap<String, Crate> {
    let mut crates: BTreeMap<String, Crate> = BTreeMap::new();
    for (path, text) in files {
        let Some(at) =
            path.starts_with("src/").then_some(0).or(path.find("/src/").map(|at| at + 1))
        else {
            continue;
        };
        let (home, place) = path.split_at(at + "src/".len());
        let Some(place) = place.strip_suffix(".rs").filter(|place| !place.ends_with("tests"))
        else {
            continue;
        };
        // Wrong algorithms use the module that they are planted in, and are not in a program
        // without mistakes.
        if place.starts_with("mutant/") {
            continue;
        }
        let module: Vec<_> = place.split('/').map(String::from).collect();
        let code = code(text);
        let code = code.split("mod tests {").next().unwrap_or_default().to_owned();
        crates.entry(home.to_owned()).or_default().insert(module, code);
    }
    crates
}

/// The files of each circle: files that reach each other in both directions.
fn circles(crates: &BTreeMap<String, Crate>) -> BTreeSet<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for (home, modules) in crates {
        let uses: BTreeMap<_, _> =
            modules.keys().map(|module| (module, used(modules, module))).collect();
        let reached: BTreeMap<_, _> =
            uses.keys().map(|module| (*module, reachable(&uses, module))).collect();
        for (module, reaches) in &reached {
            let circle = reaches.iter().filter(|other| reached[*other].contains(*module));
            let circle: BTreeSet<_> =
                circle.map(|other| format!("{home}{}.rs", other.join("/"))).collect();
            if !circle.is_empty() {
                found.insert(circle);
            }
        }
    }
    found
}

/// The modules that this one uses, directly or indirectly.
fn reachable(
    uses: &BTreeMap<&Vec<String>, BTreeSet<Vec<String>>>,
    from: &Vec<String>,
) -> BTreeSet<Vec<String>> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<_> = uses[from].iter().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module.clone()) {
            next.extend(&uses[module]);
        }
    }
    reached
}

/// The modules that this one uses.
fn used(modules: &Crate, module: &Vec<String>) -> BTreeSet<Vec<String>> {
    let code = &modules[module];
    let named = named(modules, module);
    let used = named.into_iter().filter(|(at, path)| !is_only_re_exported(code, *at, path));
    let used = used.filter_map(|(_, path)| defining(modules, &path, 0));
    used.filter(|other| other != module).collect()
}

/// Returns the names of its own crate in a module, as paths from the crate's root, each with its
/// place.
fn named(modules: &Crate, module: &Vec<String>) -> Vec<(usize, Vec<String>)> {
    let code = &modules[module];
    let home: Vec<_> = module.iter().map(String::as_str).collect();
    let mut named = imports(code, &home);
    // Inside a module within the file, `super` is the file itself.
    named.retain(|(at, _)| !(code[*at..].starts_with("super::") && is_in_inner_module(code, *at)));
    let children =
        modules.keys().filter(|other| other.split_last().is_some_and(|(_, up)| up == module));
    for child in children {
        let needle = format!("{}::", child[child.len() - 1]);
        for (at, _) in word(code, &needle).filter(|(at, _)| !code[..*at].ends_with("::")) {
            named.extend(use_tree(&code[at..], module).0.into_iter().map(|path| (at, path)));
        }
    }
    named
}

/// Returns `true` if a place is within braces that a `mod` opened.
fn is_in_inner_module(code: &str, at: usize) -> bool {
    word(&code[..at], "mod ").any(|(start, _)| {
        let Some((name, inside)) = code[start..at].split_once('{') else { return false };
        let opened = 1 + inside.matches('{').count();
        !name.contains(';') && opened > inside.matches('}').count()
    })
}

/// Returns `true` if a path occurs in a `pub use`, and its last name nowhere else in the file.
fn is_only_re_exported(code: &str, at: usize, path: &[String]) -> bool {
    let statement = code[..at].rsplit([';', '}']).next().unwrap_or_default().trim_start();
    let statement = statement.rsplit_once(']').map_or(statement, |(_, behind)| behind).trim_start();
    let is_public = statement.starts_with("pub ") || statement.starts_with("pub(");
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let name = path.last().map_or("", String::as_str);
    is_public
        && statement.contains("use ")
        && code.split(|c| !is_word(c)).filter(|word| *word == name).count() == 1
}

/// The module that defines what a path names, past those that re-export it.
fn defining(modules: &Crate, path: &[String], depth: usize) -> Option<Vec<String>> {
    let module =
        (1..=path.len()).rev().map(|end| &path[..end]).find(|it| modules.contains_key(*it))?;
    let Some(item) = path.get(module.len()).filter(|_| depth < 8) else {
        return Some(module.into());
    };
    let module = module.to_vec();
    let mut names = named(modules, &module).into_iter().map(|(_, path)| path);
    let behind = names.find(|other| other.last() == Some(item) && **other != *path);
    match behind.and_then(|other| defining(modules, &other, depth + 1)) {
        Some(defining) => Some(defining),
        None => Some(module),
    }
}
