//! Each type of core and the recipes has a name of its own, so that a name has one definition to
//! find.

use std::collections::BTreeMap;

use crate::tree::{File, code, files};

#[test]
fn no_two_types_of_core_and_the_recipes_have_one_name() {
    let sample = |texts: [&str; 2]| {
        let paths = ["core/src/a.rs", "recipes/src/b.rs"];
        let files: Vec<_> =
            paths.iter().zip(texts).map(|(path, text)| File::new(path, text)).collect();
        homonyms(&files)
    };
    assert_eq!(sample(["pub struct A;", "enum A {}"]).len(), 1, "blind for a private type");
    assert_eq!(
        sample(["pub(crate) trait A {}", "type A<T> = Vec<T>;"]).len(),
        1,
        "blind for an alias"
    );
    assert_eq!(sample(["struct A;", "struct B;"]), [""; 0]);
    // Exceptions: parts of a trait, helpers of tests, and the same type with its parameters filled
    // in.
    assert_eq!(sample(["struct A;", "impl T for B {\n    type A = u8;\n}"]), [""; 0]);
    assert_eq!(sample(["struct A;", "mod tests {\n    struct A;\n}"]), [""; 0]);
    assert_eq!(sample(["struct A<T>(T);", "pub type A = a::A<u8>;"]), [""; 0]);

    let found = homonyms(&files());
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// The names of types that are defined in more than one file of core and the recipes, with the
/// files.
fn homonyms(files: &[File]) -> Vec<String> {
    let mut defined: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let is_of_both = |path: &str| path.starts_with("core/src/") || path.starts_with("recipes/src/");
    for file in files.iter().filter(|file| file.is_rust() && is_of_both(&file.path)) {
        for name in code(&file.text).lines().filter_map(type_name) {
            defined.entry(name).or_default().push(&file.path);
        }
    }
    let twice = defined.into_iter().filter(|(_, places)| places.len() > 1);
    twice.map(|(name, places)| format!("{name}: {}", places.join(", "))).collect()
}

/// The name of the type that a line defines, if it defines one at the level of its file.
fn type_name(line: &str) -> Option<String> {
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let line = line
        .strip_prefix("pub(")
        .map_or(line, |rest| rest.split_once(") ").map_or(rest, |it| it.1));
    let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
    let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
    let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
    let (name, behind) = rest.split_at(end);
    let fills_in = behind.contains(&format!("::{name}<"));
    (!fills_in).then(|| name.to_owned())
}
