//! Files and the targets of links that comments and pages name exist.

use std::sync::LazyLock;

use crate::tree::{File, catches, files, holds, spares};

static TREE: LazyLock<Vec<File>> = LazyLock::new(files);

/// The ends of names that are looked for.
const ENDS: [&str; 4] = [".rs", ".md", ".jsonl", ".bash"];

#[test]
fn every_file_that_is_named_is_there() {
    catches(files_missing, "core/src/a.rs", "//! See `never_written.rs`.");
    catches(files_missing, "core/src/a.rs", "fn f() {} // As `sim/src/never_written.rs` says.");
    catches(files_missing, "docs/a.md", "The list is `core/never/src/lib.rs`.");
    spares(files_missing, "core/src/a.rs", "//! See `store.rs` and `recipes/src/line/order.rs`.");
    spares(files_missing, "core/src/a.rs", "let it = \"`never_written.rs`\";");
    spares(files_missing, "docs/a.md", "a file `recipes/src/NAME.rs`, a name such as `.rs`");
    spares(files_missing, "docs/changelog.md", "`never_written.rs` is gone.");

    holds(files_missing);
}

fn files_missing(file: &File) -> Vec<String> {
    let is_page = file.has_extension("md");
    if !(is_page || file.is_rust()) || file.path == "docs/changelog.md" {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut at = 0;
    for line in file.text.split_inclusive('\n') {
        let prose = if is_page { Some(line) } else { comment(line) };
        for name in prose.into_iter().flat_map(|prose| prose.split('`').skip(1).step_by(2)) {
            if is_name(name) && !is_there(name) {
                found.push(file.offence(at, &format!("there is no file {name}")));
            }
        }
        at += line.len();
    }
    found
}

/// The comment of a line, if it is not within a literal.
fn comment(line: &str) -> Option<&str> {
    let (before, comment) = line.split_once("//")?;
    (!before.contains('"')).then_some(comment)
}

/// Returns `true` if the text is the name of one file: no pattern, and no placeholder.
fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let stem = ENDS.iter().find_map(|end| text.strip_suffix(end));
    let is_real = |stem: &str| !stem.is_empty() && !stem.contains("NAME") && stem != "a";
    text.chars().all(is_plain) && stem.is_some_and(is_real)
}

fn is_there(name: &str) -> bool {
    let tail = format!("/{name}");
    TREE.iter().any(|file| file.path == name || file.path.ends_with(&tail))
}

#[test]
fn every_link_of_a_page_leads_somewhere() {
    catches(links_dead, "docs/a.md", "[it](never.md)");
    catches(links_dead, "docs/a.md", "[it](../core/src/never.rs)");
    catches(links_dead, "README.md", "[it](docs/glossary.md#the-never)");
    catches(links_dead, "docs/a.md", "# One\n[two](#two)");
    spares(links_dead, "docs/a.md", "## One, `two`: L-X\n[it](#one-two-l-x)");
    spares(links_dead, "docs/a.md", "[a](../core/src/lib.rs), [b](glossary.md#the-store), [c](..)");
    spares(links_dead, "docs/a.md", "[a](https://a.b/c.md), [b](crate::never), `[it](never.md)`");

    holds(links_dead);
}

fn links_dead(file: &File) -> Vec<String> {
    if !file.has_extension("md") {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (at, _) in file.text.match_indices("](") {
        let line = file.text[..at].rsplit('\n').next().unwrap_or_default();
        let target = file.text[at + 2..].split(')').next().unwrap_or_default();
        let is_code = line.matches('`').count() % 2 == 1;
        if !is_code && !target.contains("::") && !target.contains("://") && !leads(file, target) {
            found.push(file.offence(at, &format!("a link that leads nowhere: {target}")));
        }
    }
    found
}

/// Returns `true` if the target of a link from this page exists.
fn leads(from: &File, target: &str) -> bool {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let mut parts: Vec<_> = from.path.split('/').collect();
    parts.pop();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    let path = if path.is_empty() { from.path.clone() } else { parts.join("/") };
    let below = format!("{path}/");
    let page = if path == from.path { Some(from) } else { TREE.iter().find(|it| it.path == path) };
    match page {
        Some(page) => anchor.is_empty() || headings(page).any(|heading| heading == anchor),
        None => path.is_empty() || TREE.iter().any(|file| file.path.starts_with(&below)),
    }
}

/// The headings of a page, as links name them.
fn headings(page: &File) -> impl Iterator<Item = String> + '_ {
    let lines = page.text.lines().filter(|line| line.starts_with('#'));
    lines.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        title.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
    })
}
