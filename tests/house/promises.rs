//! `docs/promises.md` and the pages of the recipes name every law of the families that they
//! promise, and no other.

use std::collections::BTreeSet;

use synod_conformance::law::laws;

use crate::tree::files;

const PAGE: &str = "docs/promises.md";
const PAGES_OF_RECIPES: &str = "recipes/docs/";

/// The families that are not promised whole: a page names those of them that it is about.
const ELSEWHERE: [&str; 3] = ["L-X", "C", "B"];

/// Laws of single stores, which the contract leaves out: `UNCHECKED` in `testkit/src/law.rs`
/// says why.
const NOT_PROMISED: [&str; 2] = ["L-WAT-5", "L-WAT-9"];

#[test]
fn every_law_is_among_the_promises() {
    assert_eq!(
        named("*Laws:* L-KV-1 to L-KV-3, L-KV-9; D-DROP."),
        set(&["L-KV-1", "L-KV-2", "L-KV-3", "L-KV-9", "D-DROP"])
    );
    assert_eq!(named("L-MX-17 is `tests/interop/`"), set(&["L-MX-17"]));

    let tree = files();
    let promised_whole = |id: &str| !ELSEWHERE.iter().any(|family| is_of(id, family));
    let of_families = |ids: BTreeSet<String>| -> BTreeSet<String> {
        ids.into_iter().filter(|id| promised_whole(id)).collect()
    };
    let there = of_families(laws().map(|law| law.id.to_owned()).collect());
    assert!(there.len() > 90, "{} laws are too few: this test is blind", there.len());
    let pages =
        tree.iter().filter(|file| file.path == PAGE || file.path.starts_with(PAGES_OF_RECIPES));
    let pages: Vec<_> = pages.map(|file| &*file.text).collect();
    let promised = of_families(named(&pages.join("\n")));
    let missing: Vec<_> =
        there.difference(&promised).filter(|id| !NOT_PROMISED.contains(&id.as_str())).collect();
    assert!(missing.is_empty(), "{PAGE} and {PAGES_OF_RECIPES} do not name {missing:?}");
    let unknown: Vec<_> = promised.difference(&there).filter(|id| !is_untestable(id)).collect();
    assert!(
        unknown.is_empty(),
        "{PAGE} or {PAGES_OF_RECIPES} names {unknown:?}, which no law is called"
    );
}

/// Laws that are not checked by cases of the suite: the pages say where they are.
fn is_untestable(id: &str) -> bool {
    id == "L-MX-17"
}

fn is_of(id: &str, family: &str) -> bool {
    id.strip_prefix(family).is_some_and(|rest| rest.starts_with('-'))
}

fn set(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|&id| id.to_owned()).collect()
}

/// The ids in a text; `A-1 to A-3` is three.
fn named(text: &str) -> BTreeSet<String> {
    let words: Vec<_> = text
        .split(|c: char| c.is_whitespace() || ",.;:()`|".contains(c))
        .filter(|word| !word.is_empty())
        .collect();
    let mut ids = BTreeSet::new();
    for (place, word) in words.iter().enumerate() {
        if !is_id(word) {
            continue;
        }
        ids.insert((*word).to_owned());
        let range = (words.get(place + 1), words.get(place + 2));
        let ((Some(&"to"), Some(last)), Some((family, first))) = (range, numbered(word)) else {
            continue;
        };
        if let Some((_, last)) = numbered(last).filter(|(of, _)| *of == family) {
            ids.extend((first..=last).map(|number| format!("{family}-{number}")));
        }
    }
    ids
}

fn is_id(word: &str) -> bool {
    let (is_law, is_door) = (word.starts_with("L-"), word.starts_with("D-"));
    (is_door || is_law && numbered(word).is_some())
        && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '-')
}

fn numbered(word: &str) -> Option<(&str, u32)> {
    let (family, number) = word.rsplit_once('-')?;
    Some((family, number.parse().ok()?))
}
