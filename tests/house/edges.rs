//! Each argument of a recipe is passed by the cases of `conformance/src/every/edge.rs`: the row
//! names an edge for each public function that takes a text, data, a number, a duration, a value or
//! a function.

use std::collections::BTreeSet;
use std::fmt;

use synod_testkit::recipe::{Row, Takes, rows};

use crate::tree::{File, files};

/// The place of the edges.
const PLACE: &str = "testkit/src/edges/";

/// Functions that only look up a value in memory, or read a text, by their modules.
const LOOKS_UP: [(&str, &[&str]); 4] = [
    ("discovery", &["get"]),
    ("hash_ring", &["new", "owner"]),
    ("partition", &["is_held", "release", "token", "txn"]),
    ("schedule", &["cron", "cron_in"]),
];

/// The kinds of arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Text,
    Data,
    Number,
    Time,
    Value,
    Function,
}

impl Kind {
    /// The kind of an argument of this type, if its range has ends.
    fn of(of_type: &str) -> Option<Self> {
        const NUMBERS: [&str; 8] = ["u8", "u16", "u32", "u64", "usize", "i32", "i64", "N"];
        let holds = |parts: &[&str]| parts.iter().any(|part| of_type.contains(part));
        let is_number = NUMBERS.contains(&of_type) || of_type.starts_with("NonZero");
        Some(match of_type {
            _ if holds(&["impl Fn"]) => Self::Function,
            _ if holds(&["AsRef", "Path"]) => return None,
            _ if holds(&["Duration"]) => Self::Time,
            _ if holds(&["&str", "String"]) => Self::Text,
            _ if holds(&["Bytes"]) => Self::Data,
            _ if is_number => Self::Number,
            "T" | "&T" | "&[T]" | "Option<T>" => Self::Value,
            _ => return None,
        })
    }

    /// The functions of a recipe whose arguments of this kind have edges.
    fn edges(self, takes: &Takes) -> Vec<&'static str> {
        match self {
            Self::Text => takes.texts.iter().map(|it| it.of).collect(),
            Self::Data => takes.data.iter().map(|it| it.of).collect(),
            Self::Number => takes.numbers.iter().map(|it| it.of).collect(),
            Self::Time => takes.times.iter().map(|it| it.of).collect(),
            Self::Value => takes.values.iter().map(|it| it.of).collect(),
            Self::Function => takes.functions.iter().map(|it| it.of).collect(),
        }
    }

    const ALL: [Self; 6] =
        [Self::Text, Self::Data, Self::Number, Self::Time, Self::Value, Self::Function];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "texts",
            Self::Data => "data",
            Self::Number => "numbers",
            Self::Time => "times",
            Self::Value => "values",
            Self::Function => "functions",
        })
    }
}

#[test]
fn every_argument_of_a_recipe_has_an_edge() {
    let code = "impl Mutex {\n    pub fn new(client: &Client, path: impl Into<Path>, most: NonZeroU32) -> Self {\n    \
                pub async fn wait<F>(\n        &self,\n        times: (u8, u8),\n        limit: Duration,\n        \
                work: impl Fn(u8, &str) -> F,\n    ) -> Result<u8>\n    pub(crate) fn hidden(it: u8) {";
    let of = |name: &str, kind| (name.to_owned(), kind);
    let all = [of("new", Kind::Number), of("wait", Kind::Time), of("wait", Kind::Function)];
    assert_eq!(arguments(code), BTreeSet::from(all));
    let whole = *rows().find(|row| row.name == "Mutex").expect("there is one");
    let tree = files();
    assert_eq!(lacking(&tree, &whole), [""; 0]);
    let found = lacking(&tree, &Row { takes: Takes::NONE, ..whole });
    assert!(found.iter().any(|it| it.contains("`lock_within` in `times`")), "blind: {found:?}");

    let found: Vec<_> = rows().flat_map(|row| lacking(&tree, row)).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn every_edge_is_of_a_function_that_there_is() {
    let code: String = within(&files(), "recipes/src/").map(|file| &*file.text).collect();
    for row in rows() {
        for name in Kind::ALL.iter().flat_map(|kind| kind.edges(&row.takes)) {
            let is_there = [format!("fn {name}("), format!("fn {name}<")];
            let is_there = is_there.iter().any(|it| code.contains(it));
            assert!(is_there, "{PLACE}: {} has no `{name}`", row.name);
        }
    }
}

fn within<'a>(tree: &'a [File], path: &str) -> impl Iterator<Item = &'a File> {
    tree.iter().filter(move |file| file.is_rust() && file.path.starts_with(path))
}

/// The edges that a recipe lacks, a line each.
fn lacking(tree: &[File], row: &Row) -> Vec<String> {
    let module = format!("recipes/src/{}", row.module);
    let files = [format!("{module}.rs"), format!("{module}/")];
    let files = files.iter().flat_map(|path| within(tree, path));
    let looks_up = LOOKS_UP.iter().filter(|(of, _)| *of == row.module);
    let looks_up: Vec<_> = looks_up.flat_map(|(_, names)| *names).collect();
    let arguments: BTreeSet<_> = files.flat_map(|file| arguments(&file.text)).collect();
    let lacks = arguments.into_iter().filter(|(name, kind)| {
        !looks_up.iter().any(|it| **it == name.as_str())
            && !kind.edges(&row.takes).contains(&name.as_str())
    });
    let line = |(name, kind): (String, Kind)| {
        format!("{} lacks an edge of `{name}` in `{kind}`: see {PLACE}", row.name)
    };
    lacks.map(line).collect()
}

/// The arguments of the public functions in the code of a file: each by the name of its function.
fn arguments(code: &str) -> BTreeSet<(String, Kind)> {
    let mut all = BTreeSet::new();
    for function in code.split("\n    pub ").skip(1) {
        let words = function.strip_prefix("async ").unwrap_or(function);
        let Some(function) = words.strip_prefix("const ").unwrap_or(words).strip_prefix("fn ")
        else {
            continue;
        };
        let name: String = function.chars().take_while(|it| !"(<".contains(*it)).collect();
        let types = parameters(&function[name.len()..]);
        all.extend(types.iter().filter_map(|it| Kind::of(it)).map(|kind| (name.clone(), kind)));
    }
    all
}

/// The types in the first parentheses.
fn parameters(function: &str) -> Vec<String> {
    let (mut depth, mut types, mut one) = (0_usize, Vec::new(), String::new());
    let inside = function.split_once('(').map_or("", |(_, rest)| rest);
    for (at, letter) in inside.char_indices() {
        let is_arrow = letter == '>' && inside[..at].ends_with('-');
        match letter {
            ')' if depth == 0 => break,
            ',' if depth == 0 => types.push(std::mem::take(&mut one)),
            '(' | '<' | '[' => depth += 1,
            ')' | '>' | ']' if !is_arrow => depth -= 1,
            _ => {}
        }
        one.push(letter);
    }
    types.push(one);
    let of_type = |it: &String| it.split_once(": ").map(|(_, of_type)| of_type.trim().to_owned());
    types.iter().filter_map(of_type).collect()
}
