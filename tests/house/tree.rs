//! The files of the tree, and the parts of a Rust file that are code.

use std::fs;
use std::path::{Path, PathBuf};

/// A text file of the tree.
#[derive(Debug)]
pub(crate) struct File {
    /// The path from the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Finds the offences in one file: lines of the form `path:line: what`.
pub(crate) type Rule = fn(&File) -> Vec<String>;

impl File {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.has_extension("rs")
    }

    pub(crate) fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| found == extension)
    }

    /// An offence at the byte `at` of the text.
    pub(crate) fn offence(&self, at: usize, what: &str) -> String {
        let line = self.text[..at].matches('\n').count() + 1;
        format!("{}:{line}: {what}", self.path)
    }

    /// Offences wherever `needle` occurs in `text`, which has the length of the file's.
    pub(crate) fn offences(&self, text: &str, needle: &str, what: &str) -> Vec<String> {
        text.match_indices(needle).map(|(at, _)| self.offence(at, what)).collect()
    }
}

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every text file of the tree, except for the files of git and cargo.
pub(crate) fn files() -> Vec<File> {
    let mut files = Vec::new();
    collect(&root(), "", &mut files);
    assert!(files.iter().any(|file| file.path == "core/src/lib.rs"), "not the root of the tree");
    files
}

fn collect(dir: &Path, above: &str, files: &mut Vec<File>) {
    for entry in fs::read_dir(dir).expect("readable") {
        let entry = entry.expect("readable");
        let name = entry.file_name().into_string().expect("file names are UTF-8");
        let path = format!("{above}{name}");
        if entry.file_type().expect("readable").is_dir() {
            // A directory with a repository of its own is not part of this tree.
            if !matches!(name.as_str(), "target" | ".git") && !entry.path().join(".git").exists() {
                collect(&entry.path(), &format!("{path}/"), files);
            }
        } else if name != ".git"
            && let Ok(text) = fs::read_to_string(entry.path())
        {
            files.push(File { path, text });
        }
    }
}

/// Asserts that the rule finds something in the sample.
#[track_caller]
pub(crate) fn catches(rule: Rule, path: &str, text: &str) {
    assert!(!rule(&File::new(path, text)).is_empty(), "blind for {path}:\n{text}");
}

/// Asserts that the rule finds nothing in the sample.
#[track_caller]
pub(crate) fn spares(rule: Rule, path: &str, text: &str) {
    let found = rule(&File::new(path, text));
    assert!(found.is_empty(), "{}\nin {path}:\n{text}", found.join("\n"));
}

/// Asserts that the rule finds nothing in the tree.
#[track_caller]
pub(crate) fn holds(rule: Rule) {
    let found: Vec<_> = files().iter().flat_map(rule).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// A Rust text with every byte of its comments and literals replaced by a blank: same length, same
/// lines.
pub(crate) fn code(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = at + literal(&bytes[at..], at.checked_sub(1).map(|before| bytes[before]));
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8(code).expect("literals are replaced whole")
}

/// Returns the length in bytes of the comment or literal that `rest` starts with; `before` is the
/// byte preceding it.
fn literal(rest: &[u8], before: Option<u8>) -> usize {
    let in_word = before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => past(rest, 2, b"*/"),
        [b'"', ..] => quoted(rest, b'"'),
        [b'r', b'"' | b'#', ..] if !in_word => raw(rest),
        [b'b', b'r', b'"' | b'#', ..] if !in_word => 1 + raw(&rest[1..]),
        [b'\'', b'\\', ..] => quoted(rest, b'\''),
        [b'\'', c, ..] => {
            // A character, or else a lifetime.
            let width = match c {
                0..0x80 => 1,
                0x80..0xE0 => 2,
                0xE0..0xF0 => 3,
                0xF0.. => 4,
            };
            if rest.get(1 + width) == Some(&b'\'') { width + 2 } else { 0 }
        }
        _ => 0,
    }
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

fn raw(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0; // a raw identifier
    }
    let end = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    past(rest, 2 + hashes, &end)
}

fn past(rest: &[u8], from: usize, end: &[u8]) -> usize {
    let found = rest[from..].windows(end.len()).position(|window| window == end);
    found.map_or(rest.len(), |at| from + at + end.len())
}

#[test]
fn code_is_what_is_neither_comment_nor_literal() {
    let left = |text| code(text).split_whitespace().map(String::from).collect::<Vec<_>>();
    assert_eq!(left("a // b\nc /* d */ e"), ["a", "c", "e"]);
    assert_eq!(left(r#"f("x // y", 'z', '\'', "\"q")"#), ["f(", ",", ",", ",", ")"]);
    assert_eq!(
        left("g(r#\"a \" b\"#, br\"c\", r#type) for<'a> &'a str"),
        ["g(", ",", ",", "r#type)", "for<'a>", "&'a", "str"]
    );
    assert_eq!(left("h('é', \"é\")"), ["h(", ",", ")"]);
    let text = "a \"b\nc\" // é\nd";
    assert_eq!((code(text).len(), code(text).lines().count()), (text.len(), 3));
}
