//! Planted mistakes: each is a statement after the right code, and in a recipe each is needed.

use std::collections::BTreeSet;

use crate::arrows::SUPPORT;
use crate::tree::{File, catches, code, files, holds, spares};

#[test]
fn a_mistake_is_a_statement_after_the_right_code() {
    catches(bent, "core/src/a.rs", "fn f() {\n    if mutant::is(Mutant::Late) {}\n}");
    catches(bent, "core/src/a.rs", "fn f() -> bool {\n    a && !crate::mutant::is(it)\n}");
    catches(bent, "core/src/a.rs", "fn f() {\n    let a = mistake!(Late: b);\n}");
    catches(bent, "core/src/a.rs", "fn f() {\n    a(); mistake!(Late: return);\n}");
    spares(bent, "core/src/a.rs", "fn f() {\n    a();\n    mistake!(Late: return);\n}");
    spares(bent, "core/src/a.rs", "// `mutant::is(x)`, or a `mistake!(X: return)`\n");
    spares(bent, "core/src/mutant.rs", "mutant::is(Mutant::Late)");

    holds(bent);
}

fn bent(file: &File) -> Vec<String> {
    if !is_production(file) {
        return Vec::new();
    }
    let code = code(&file.text);
    let mut found =
        file.offences(&code, "mutant::is(", "a mistake within the code; plant it by `mistake!`");
    for (at, _) in code.match_indices("mistake!") {
        let line = code[..at].rsplit('\n').next().unwrap_or_default();
        if !line.trim().is_empty() {
            found.push(file.offence(at, "a mistake that does not begin its line"));
        }
    }
    found
}

/// A mistake in a recipe is there because nothing else makes one of its cases fail.
#[test]
fn a_recipe_has_no_mistake_that_a_stair_or_a_store_shows_as_well() {
    let table = r#""L-MX-1 L-MX-2" catches [A] breaks [B] => two, "L-MX-3" breaks [C] => one,"#;
    assert_eq!(only_ones(table), BTreeSet::from(["C".to_owned()]));

    let files = files();
    let cases = files.iter().filter(|file| file.path.starts_with("conformance/src/"));
    let needed: BTreeSet<String> = cases.flat_map(|file| only_ones(&file.text)).collect();
    let planted = files.iter().filter(|file| is_production(file) && is_recipe(&file.path));
    let planted = planted.flat_map(|file| {
        let code = code(&file.text);
        let names = code.split("mistake!(").skip(1).filter_map(|it| it.split_once(':'));
        names.map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    });
    let idle: Vec<_> = planted.filter(|name| !needed.contains(name)).collect();
    assert!(idle.is_empty(), "each case that finds these finds others, too: {idle:?}");
}

/// The mistakes of the cases in this text that find no other.
fn only_ones(text: &str) -> BTreeSet<String> {
    let entries = text.split("=>").filter_map(|entry| Some(entry.rsplit_once('"')?.1));
    let found = entries.filter_map(|entry| {
        let lists = entry.split(['[', ']']).collect::<Vec<_>>();
        let named = lists.chunks(2).filter_map(|pair| match pair {
            [kind, names] if kind.contains("catches") || kind.contains("breaks") => Some(*names),
            _ => None,
        });
        let named: Vec<_> = named.flat_map(|names| names.split(',')).map(str::trim).collect();
        match named[..] {
            [only] => Some(only.to_owned()),
            _ => None,
        }
    });
    found.collect()
}

fn is_recipe(path: &str) -> bool {
    let module = path.strip_prefix("recipes/src/").and_then(|it| it.split(['/', '.']).next());
    module.is_some_and(|module| !SUPPORT.contains(&module))
}

/// Rust of a crate's own folder, except the lists of mistakes and the wrong algorithms.
fn is_production(file: &File) -> bool {
    let folder = file.path.split_once("/src/").map_or("", |(_, path)| path);
    file.is_rust() && !folder.is_empty() && !folder.starts_with("mutant")
}
