//! No recipe lacks a part: each has a row in the table of the recipes (`testkit/src/recipe.rs`),
//! and what the row names exists.

use std::collections::BTreeSet;

use synod_servers::clients::holding::Room;
use synod_testkit::recipe::{Part, Row, rows};

use crate::arrows::SUPPORT;
use crate::tree::{File, files};

/// Modules that users see, of functions on any line.
const TOOLS: [&str; 2] = ["request_release", "inspect"];

/// The pages of the recipes.
const PAGES: &str = "recipes/docs/";

/// The sections of a page, alone or together with the page of its family.
const PROMISES: [&str; 6] = [
    "\n# Promises\n",
    "*Assumes*",
    "*Not promised:*",
    "*Laws:*",
    "\n# What it costs\n",
    "\n# Others on the path\n",
];

/// The files of the tree, to look for the parts of a recipe.
struct Tree(Vec<File>);

impl Tree {
    fn text(&self, path: &str) -> &str {
        self.0.iter().find(|file| file.path == path).map_or("", |file| &file.text)
    }

    /// All files in a folder, or the file of this path.
    fn within(&self, path: &str) -> String {
        self.0.iter().filter(|file| file.path.starts_with(path)).map(|file| &*file.text).collect()
    }
}

#[test]
fn every_recipe_has_a_row() {
    let tree = Tree(files());
    let kinds = tree
        .text("recipes/src/lib.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ").map(|line| line.trim_end_matches(';')));
    let public = kinds.flat_map(|kind| {
        let text = tree.text(&format!("recipes/src/{kind}.rs"));
        let offered = text.lines().filter_map(|line| {
            let module = line.strip_prefix("pub use crate::")?.split("::").next()?;
            (!SUPPORT.contains(&module) && !TOOLS.contains(&module)).then_some(module)
        });
        let own = text.contains("include_str!(\"../docs/").then_some(kind);
        offered.chain(own).collect::<Vec<_>>()
    });
    let public: BTreeSet<_> = public.collect();
    let named: BTreeSet<_> = rows().map(|row| row.module).collect();
    assert_eq!(public, named, "the recipes in the public modules, and the rows of the table");
    assert_eq!(named.len(), rows().count(), "one row each");
}

#[test]
fn no_recipe_lacks_a_part() {
    let tree = Tree(files());
    let whole = *rows().next().expect("there is one");
    assert_eq!(lacking(&tree, &whole), [""; 0]);
    for (row, part) in [
        (Row { name: "Mutexes", ..whole }, "example"),
        (Row { name: "Mutexes", ..whole }, "list in recipes/src/lib.rs"),
        (Row { name: "Mutexes", ..whole }, "docs/changelog.md"),
        (Row { module: "mutexes", ..whole }, "stair"),
        (Row { module: "mutexes", ..whole }, "page"),
        (Row { module: "mutexes", ..whole }, "src/examples.rs"),
        (Row { cases: "mutexes", ..whole }, "cases of its own"),
        (Row { cases: "mutexes", ..whole }, "conformance/src/recipe.rs"),
        (Row { family: None, ..whole }, "*Assumes*"),
        (Row { family: Some("elections"), ..whole }, "family"),
        (Row { uses: &[], ..whole }, "way to use it"),
        (Row { interop: Part::Has(&["a_mutex_is_sh"]), ..whole }, "interop"),
        (Row { bench: Part::Has(&["Loc"]), ..whole }, "bench"),
        (Row { faults: Part::Has(&["Mute"]), ..whole }, "faults"),
        (Row { interop: Part::None(""), ..whole }, "reason"),
    ] {
        let found = lacking(&tree, &row);
        assert!(found.iter().any(|it| it.contains(part)), "blind for {part}: {found:?}");
    }

    let found: Vec<_> = rows().flat_map(|row| lacking(&tree, row)).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// Returns the parts that a recipe lacks, one line each.
fn lacking(tree: &Tree, row: &Row) -> Vec<String> {
    let Row { name, module, .. } = row;
    let code = tree.within(&format!("recipes/src/{module}"));
    let stair = |stair| code.contains(&format!("use crate::{stair}::"));
    let cases = tree.text(&format!("conformance/src/recipe/{}.rs", row.cases));
    let page = tree.text(&format!("{PAGES}{module}.md"));
    let family = row.family.map_or("", |family| tree.text(&format!("{PAGES}{family}.md")));
    let promises = format!("{page}{family}").replace("# What they cost", "# What it costs");
    let has_page = |page: &str| code.contains(&format!("include_str!(\"../docs/{page}.md\")"));
    let example = page.split_once("```rust\n").map_or("", |(_, rest)| rest);
    let example = example.split("\n```").next().unwrap_or_default();
    let is_run = tree.text("src/examples.rs").contains(&format!("recipes/docs/{module}.md"));
    let line = format!("//! | [`{name}`](");
    let own = format!("recipe::{}::", row.cases);
    let is_listed = synod_conformance::cases().any(|case| case.name().starts_with(&own));
    let mut parts = vec![
        ("its file on its stair", row.stair.map_or(!code.is_empty(), stair)),
        ("a way to use it", !row.uses.is_empty()),
        ("cases of its own", cases.contains("cases![") && cases.contains(name)),
        ("its cases in the list of conformance/src/recipe.rs", is_listed),
        ("its page as the documentation of its type", has_page(module)),
        ("the page of its family there", row.family.is_none_or(has_page)),
        ("an example on its page", example.contains(name)),
        ("a line in src/examples.rs", is_run),
        (
            "a line of the list in recipes/src/lib.rs",
            tree.text("recipes/src/lib.rs").contains(&line),
        ),
        (
            "a line in docs/changelog.md",
            tree.text("docs/changelog.md").contains(&format!("`{name}")),
        ),
        ("a workload", !row.workloads.names().is_empty()),
        ("a reason for the parts that it has not", has_reasons(row)),
    ];
    parts.extend(PROMISES.map(|part| (part, promises.contains(part))));
    let rooms = Room::ALL.map(|room| format!("{room:?}"));
    let is_room = |room: &&str| rooms.iter().any(|it| it == room);
    parts.push(("the rooms that its row names in faults", row.faults.names().iter().all(is_room)));
    let scenes = tree.within("tests/interop/");
    let is_scene = |scene: &&str| scenes.contains(&format!("async fn {scene}("));
    parts.push((
        "the scenes that its row names in interop",
        row.interop.names().iter().all(is_scene),
    ));
    let works = tree.text("bench/src/task.rs");
    let is_work = |work: &&str| works.contains(&format!("\n    {work},\n"));
    parts.push(("the work that its row names in bench", row.bench.names().iter().all(is_work)));
    let lacks = parts.into_iter().filter(|(_, there)| !there);
    lacks.map(|(part, _)| format!("{name} lacks {part}")).collect()
}

fn has_reasons(row: &Row) -> bool {
    [row.workloads, row.faults, row.interop, row.bench].into_iter().all(|part| match part {
        Part::Has(names) => !names.is_empty(),
        Part::None(why) => !why.is_empty(),
    })
}

#[test]
fn whatever_is_tested_with_other_programs_or_faults_is_in_a_row() {
    let tree = Tree(files());
    let scenes = tree.within("tests/interop/");
    let scenes = scenes.split("async fn a").skip(1).filter_map(|rest| rest.split('(').next());
    let of_a_kind = |rest: &&str| rest.starts_with('_') || rest.starts_with("n_");
    let scenes: BTreeSet<_> = scenes.filter(of_a_kind).map(|rest| format!("a{rest}")).collect();
    let named = |part: fn(&Row) -> Part| -> BTreeSet<String> {
        rows().flat_map(|row| part(row).names()).map(|&name| name.to_owned()).collect()
    };
    assert_eq!(scenes, named(|row| row.interop));
    assert_eq!(BTreeSet::from(Room::ALL.map(|room| format!("{room:?}"))), named(|row| row.faults));
}
