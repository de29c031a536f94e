//! The first line of a doc comment begins with a noun or a verb, and prose fits the width of the
//! code.

use crate::tree::{File, catches, holds, spares};

/// Words that begin a clause or stand for a noun: the reader has to look for the thing that is
/// meant.
const CLAUSES: [&str; 8] = ["What", "Whether", "How", "That", "Why", "It", "Who", "Where"];

#[test]
fn no_doc_comment_begins_with_a_clause_or_a_pronoun() {
    for word in CLAUSES {
        catches(
            begins_with_a_clause,
            "core/src/a.rs",
            &format!("/// {word} is read.\nfn f() {{}}"),
        );
        catches(begins_with_a_clause, "core/src/a.rs", &format!("//! {word} is read."));
        catches(begins_with_a_clause, "docs/a.md", &format!("# A page\n\n{word} is read."));
    }
    catches(
        begins_with_a_clause,
        "core/src/a.rs",
        "fn f() {\n    /// What is read.\n    let a;\n}",
    );
    spares(begins_with_a_clause, "core/src/a.rs", "/// Reads a node.\n///\n/// It is read once.");
    spares(begins_with_a_clause, "core/src/a.rs", "// What is read twice is equal.");
    spares(begins_with_a_clause, "docs/a.md", "# What it is not\n\nA database.\n\nIt is small.");
    spares(begins_with_a_clause, "core/src/a.rs", "/// Howls.\nfn howl() {}");

    holds(begins_with_a_clause);
}

/// First lines of doc comments, and of the sections of pages, that begin with one of [`CLAUSES`].
fn begins_with_a_clause(file: &File) -> Vec<String> {
    let is_page = file.has_extension("md");
    if !is_page && !file.is_rust() {
        return Vec::new();
    }
    let (mut found, mut at, mut is_first) = (Vec::new(), 0, true);
    for line in file.text.split_inclusive('\n') {
        let text = line.trim();
        let prose = if is_page { Some(text) } else { doc(text) };
        let is_begin = prose.is_some_and(|prose| is_first && begins_so(prose));
        if is_begin {
            found.push(file.offence(at, "begin with a noun or a verb"));
        }
        is_first = if is_page {
            text.starts_with('#') || (is_first && text.is_empty())
        } else {
            prose.is_none()
        };
        at += line.len();
    }
    found
}

/// The prose of a line of a doc comment.
fn doc(line: &str) -> Option<&str> {
    line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim)
}

fn begins_so(prose: &str) -> bool {
    let word = prose.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    CLAUSES.contains(&word)
}

/// The maximum width of a line of prose, which is the width of the code.
const WIDTH: usize = 100;

#[test]
fn prose_is_at_most_100_columns_wide() {
    let wide = "word ".repeat(20);
    catches(too_wide, "core/src/a.rs", &format!("/// {wide}"));
    catches(too_wide, "core/src/a.rs", &format!("    // {wide}"));
    catches(too_wide, "docs/a.md", &format!("A page.\n\n{wide}word"));
    spares(too_wide, "docs/a.md", &format!("| {wide} | {wide} |\n```\n{wide}{wide}\n```"));
    spares(too_wide, "docs/a.md", &format!("![{wide}](a.svg)\n[a]: {}", "x".repeat(100)));
    spares(too_wide, "core/src/a.rs", &format!("let a = \"{wide}{wide}\";"));

    holds(too_wide);
}

/// Lines of prose above [`WIDTH`]. A table, an example, a picture and an address cannot be divided.
fn too_wide(file: &File) -> Vec<String> {
    let is_page = file.has_extension("md");
    if !is_page && !file.is_rust() {
        return Vec::new();
    }
    let (mut found, mut at, mut in_example) = (Vec::new(), 0, false);
    for line in file.text.split_inclusive('\n') {
        let text = line.trim();
        let prose = if is_page { Some(text) } else { text.strip_prefix("//") };
        if let Some(prose) = prose.map(|prose| prose.trim_start_matches(['/', '!']).trim()) {
            in_example ^= prose.starts_with("```");
            let is_whole = ["|", "![", "[", "<"].iter().any(|it| prose.starts_with(it));
            let is_word = prose.trim_start_matches(['-', ' ']).split(' ').count() < 2;
            let is_wide = line.trim_end().chars().count() > WIDTH;
            if is_wide && !in_example && !is_whole && !is_word {
                found.push(file.offence(at, "wider than 100 columns"));
            }
        } else {
            in_example = false;
        }
        at += line.len();
    }
    found
}
