//! Planted mistakes: each is a statement behind the right code, and their number only falls.

use std::collections::{BTreeMap, BTreeSet};

use crate::arrows::STAIRS;
use crate::tree::{File, catches, code, files, holds, spares};

/// How many mistakes are planted in core and its recipes, and how many of these in recipes, stairs aside. Both numbers may only become smaller,
/// except that the first recipe of a new stair brings one for each law that no other mistake breaks. So did the first one
/// that follows a cell: how copies are ordered, when they are stale, and what is read after an outage. So did the transactions
/// of a function: no store, and no stair, runs a function again or mixes what it has read. So did promotions: no other mistake
/// lets a change go on without a turn of its own, or lets others in while it has the lock. So did the keeper: a create whose name others
/// choose leaves a doubt, and what is made again may have the wrong owner or the wrong data. So did the queue: no other mistake loses
/// or doubles an item, or hands items out in a wrong order, acknowledges what failed, or puts more than there is room for. So did
/// the crew: no other mistake accepts a result without its owner, makes one step of a master in two, assigns what is not to be
/// assigned, shows a crew as of two moments, chooses a worker, looks at a deadline, ends what is late without its lead, keeps a drain,
/// or stores the progress and the attempts of a task. So did discovery: nothing else
/// reads several values of which one may be bad, or chooses among them. So did the queues of other libraries, whose order and delays are in
/// the names that these give. So did the node with a time to live: nothing else writes a node again whose data stays, or knows a node
/// that no session owns.
const PLANTED: usize = 204;
const IN_RECIPES: usize = 56;

/// The functions that have more than one mistake. This list may only become shorter.
const TOLERATED: &[(&str, &str)] = &[
    ("core/src/client/put.rs", "put"),
    ("core/src/client/watching.rs", "poll_next"),
    ("recipes/src/line.rs", "draw"),
    ("recipes/src/line.rs", "sees_all"),
    ("recipes/src/line/order.rs", "of"),
    ("recipes/src/line/order.rs", "turn"),
    ("recipes/src/line/order.rs", "turn_of"),
    ("recipes/src/line/permit_order.rs", "share"),
    ("recipes/src/line/ticket.rs", "until_gone"),
    ("core/src/session/call_context.rs", "delays"),
    ("core/src/session/removal.rs", "adopt"),
    ("core/src/session/removal.rs", "find_other"),
    ("core/src/session/sequential.rs", "create"),
    ("core/src/session/write.rs", "hand_over"),
];

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

#[test]
fn a_function_has_one_mistake_at_most() {
    let two =
        "fn a() {\n    mistake!(A: x);\n}\nfn b() {\n    mistake!(B: x);\n    mistake!(C: x);\n}";
    let planted = planted(&[File::new("core/src/a.rs", two)]);
    let count = |name: &str| planted[&("core/src/a.rs".to_owned(), name.to_owned())];
    assert_eq!((count("a"), count("b")), (1, 2));

    let crowded = self::planted(&files()).into_iter().filter(|(_, count)| *count > 1);
    let crowded: BTreeSet<_> = crowded.map(|(place, _)| place).collect();
    let tolerated: BTreeSet<_> =
        TOLERATED.iter().map(|(path, name)| ((*path).to_owned(), (*name).to_owned())).collect();
    let new: Vec<_> = crowded.difference(&tolerated).collect();
    let stale: Vec<_> = tolerated.difference(&crowded).collect();
    assert!(new.is_empty(), "more than one mistake: {new:#?}");
    assert!(stale.is_empty(), "tolerated, and not in the tree any more: {stale:#?}");
}

#[test]
fn the_number_of_mistakes_only_falls() {
    let planted = planted(&files());
    let in_recipes = planted.iter().filter(|((path, _), _)| is_recipe(path));
    let counted = (planted.values().sum::<usize>(), in_recipes.map(|(_, count)| count).sum());
    assert_eq!(
        counted,
        (PLANTED, IN_RECIPES),
        "plant none, or set the constants to the smaller numbers"
    );
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
    module.is_some_and(|module| !STAIRS.contains(&module))
}

/// How many mistakes each function has, by its file and name.
fn planted(files: &[File]) -> BTreeMap<(String, String), usize> {
    let mut planted = BTreeMap::new();
    for file in files.iter().filter(|file| is_production(file)) {
        let mut function = String::new();
        for line in code(&file.text).lines() {
            if let Some((before, behind)) = line.split_once("fn ")
                && before
                    .split_whitespace()
                    .all(|word| word.starts_with("pub") || QUALIFIERS.contains(&word))
            {
                function =
                    behind.chars().take_while(|it| it.is_alphanumeric() || *it == '_').collect();
            }
            if line.trim_start().starts_with("mistake!") {
                *planted.entry((file.path.clone(), function.clone())).or_default() += 1;
            }
        }
    }
    planted
}

const QUALIFIERS: [&str; 3] = ["const", "async", "unsafe"];

/// Rust of a crate's own folder, but for the lists of mistakes and the wrong algorithms.
fn is_production(file: &File) -> bool {
    let folder = file.path.split_once("/src/").map_or("", |(_, path)| path);
    file.is_rust() && !folder.is_empty() && !folder.starts_with("mutant")
}
