//! Comments, names, laws and mistakes are plain technical English: a ratchet over the idioms that this
//! code once had.
//!
//! A line counts when it has one of the patterns below. Some lines of comments are good English, so
//! the limit of a crate need not reach zero: the aim is one line in a hundred.

use crate::tree::{File, catches, code, files, holds, spares};

/// Words that take the place of a subject, in six groups:
///
/// - relative clauses without a noun in front: name the session, the waiter or the caller;
/// - people's pronouns for programs: a session is "it";
/// - one verb for everything: write report, log, return, notify or distinguish;
/// - definition by negation: say what happens, and to what;
/// - membership and order as places: write "concurrently", "after", "earlier";
/// - a pronoun as the object of a relative clause: split the sentence.
const WORDS: [&str; 20] = [
    "who",
    "whoever",
    "whom",
    "he",
    "him",
    "his",
    "himself",
    "tell",
    "tells",
    "told",
    "untold",
    "telling",
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "beside",
    "behind",
    "ahead",
    "of which",
];

/// How many lines each crate may have: its folders, and the number. Lower a number, never raise it.
/// A number of up to five leaves room for good English, such as a server behind a proxy.
const LIMITS: [(&str, &[&str], usize); 11] = [
    ("synod-core", &["core/"], 5),
    ("synod-recipes", &["recipes/"], 5),
    ("synod-testkit", &["testkit/"], 5),
    ("synod-conformance", &["conformance/"], 5),
    ("synod-mem", &["backend-mem/"], 5),
    ("synod-zk", &["backend-zk/"], 5),
    ("synod-etcd", &["backend-etcd/"], 5),
    ("synod-sim", &["sim/"], 5),
    ("synod", &["src/", "tests/", "examples/"], 3),
    ("synod-cli", &["cli/"], 3),
    ("synod-bench", &["bench/"], 3),
];

#[test]
fn idioms_in_comments_only_become_fewer() {
    assert!(verdict("a", 100, 100).is_ok());
    assert!(verdict("a", 100, 101).is_err_and(|why| why.contains("above")));
    assert!(verdict("a", 100, 91).is_ok(), "a few fewer need no new number");
    assert!(verdict("a", 100, 80).is_err_and(|why| why.contains("lower the number to 80")));
    assert!(verdict("a", 0, 0).is_ok());

    let tree = files();
    let mut wrong = Vec::new();
    for (name, folders, limit) in LIMITS {
        let of_crate =
            tree.iter().filter(|file| folders.iter().any(|it| file.path.starts_with(it)));
        let found: Vec<_> = of_crate.flat_map(idioms).collect();
        if let Err(why) = verdict(name, limit, found.len()) {
            let all = if found.len() > limit { found.join("\n") } else { String::new() };
            wrong.push(format!("{all}\n{why}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Compares the count of a crate with its limit. The limit follows the count down in steps, so that
/// two branches that each remove a line do not both have to change the number.
fn verdict(name: &str, limit: usize, count: usize) -> Result<(), String> {
    let step = (limit / 10).max(5);
    if count > limit {
        return Err(format!("{name}: {count} such lines, {} above the limit", count - limit));
    }
    if count + step < limit {
        return Err(format!("{name}: {count} such lines; lower the number to {count}"));
    }
    Ok(())
}

#[test]
fn every_source_file_belongs_to_a_crate_with_a_limit() {
    let missing: Vec<_> = files()
        .into_iter()
        .filter(File::is_rust)
        .map(|file| file.path)
        .filter(|path| !LIMITS.iter().any(|(_, of, _)| of.iter().any(|it| path.starts_with(it))))
        .collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn an_idiom_is_found_in_prose_and_nowhere_else() {
    let count = |text: &str| idioms(&File::new("core/src/a.rs", text)).len();
    for idiom in WORDS {
        assert_eq!(count(&format!("/// A sentence {idiom} end.")), 1, "blind for {idiom}");
    }
    assert_eq!(count("//! Whoever waits, and whom he told of it.\n    // (Nobody does.)"), 2);
    assert_eq!(count("/// Not the [`told`](crate::told) of `he`, nor *what* `beside` means."), 0);
    assert_eq!(
        count("/// ```\n/// let behind = ahead; // who\n/// ```\n/// The whole history."),
        0
    );
    assert_eq!(count("let told = nobody(\"// he\");"), 0);
    assert_eq!(count("/// A list of\n/// which each"), 0, "lines are read one by one");
}

/// The files whose strings are laws and mistakes.
const SENTENCES: [&str; 4] = [
    "conformance/src/law.rs",
    "conformance/src/wrong/mistake.rs",
    "core/src/mutant.rs",
    "sim/src/slip.rs",
];

#[test]
fn no_idiom_is_in_the_name_of_a_case() {
    catches(idioms_in_names, "core/src/a.rs", "async fn who_waits_is_granted(world: World) {");
    catches(idioms_in_names, "core/src/a.rs", "    fn a_holder_is_told_once() {");
    spares(idioms_in_names, "core/src/a.rs", "fn a_holder_is_notified() {");
    spares(idioms_in_names, "core/src/a.rs", "fn may_be_behind() {} // fn who_is_in_a_comment()");
    spares(idioms_in_names, "docs/a.md", "fn who_waits_is_granted()");

    holds(idioms_in_names);
}

/// The names of functions with an idiom. Names of up to three words are no sentences.
fn idioms_in_names(file: &File) -> Vec<String> {
    if !file.is_rust() {
        return Vec::new();
    }
    let code = code(&file.text);
    let names = code.match_indices("fn ").filter_map(|(at, _)| {
        let name = code[at + 3..].split(|c: char| !(c.is_alphanumeric() || c == '_')).next()?;
        let is_sentence = name.matches('_').count() >= 3 && has_idiom(&name.replace('_', " "));
        is_sentence.then(|| file.offence(at, name))
    });
    names.collect()
}

#[test]
fn no_idiom_is_in_a_law_or_a_mistake() {
    let law = |sentence: &str| format!("law(\n    \"L-A-1\",\n    \"{sentence}\",\n),\n");
    catches(idioms_in_sentences, SENTENCES[0], &law("a session is told"));
    catches(idioms_in_sentences, SENTENCES[0], &law("a session is \\\n     told"));
    spares(idioms_in_sentences, SENTENCES[0], &law("a session is notified"));
    spares(idioms_in_sentences, SENTENCES[0], "/// Not \"told\".\nfn told() {}\n");
    spares(idioms_in_sentences, "core/src/a.rs", &law("a session is told"));

    holds(idioms_in_sentences);
}

/// The string literals with an idiom, in the files that consist of sentences.
fn idioms_in_sentences(file: &File) -> Vec<String> {
    if !SENTENCES.contains(&file.path.as_str()) {
        return Vec::new();
    }
    let is_comment = |line: &&str| line.trim_start().starts_with("//");
    let lines: Vec<_> = file.text.lines().filter(|line| !is_comment(line)).collect();
    let strings = lines.join("\n");
    let literals = strings.split('"').skip(1).step_by(2);
    literals
        .filter(|literal| has_idiom(literal))
        .map(|literal| file.offence(file.text.find(literal).unwrap_or_default(), literal))
        .collect()
}

/// The prose lines of a file that have an idiom.
fn idioms(file: &File) -> Vec<String> {
    if !file.is_rust() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut in_example = false;
    let mut at = 0;
    for line in file.text.split_inclusive('\n') {
        if let Some(comment) = line.trim().strip_prefix("//") {
            let prose = comment.trim_start_matches(['/', '!']).trim();
            if prose.starts_with("```") {
                in_example = !in_example;
            } else if !in_example && has_idiom(prose) {
                found.push(file.offence(at, prose));
            }
        } else {
            in_example = false;
        }
        at += line.len();
    }
    found
}

fn has_idiom(prose: &str) -> bool {
    // Every second piece is code in backticks; the address of a link is one word with its slashes.
    let prose: Vec<_> = prose.split('`').step_by(2).collect();
    let prose = prose.join(" x ").to_lowercase();
    let words: Vec<_> =
        prose.split(|c: char| !(c.is_alphanumeric() || "_:/'".contains(c))).collect();
    words.iter().any(|word| WORDS.contains(word))
        || words.windows(2).any(|two| WORDS.contains(&two.join(" ").as_str()))
}
