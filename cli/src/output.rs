//! Prints results: as text for the user, or as JSON for a program.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path as FilePath;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use synod::{Node, Stat};

/// The path of a file, for a message.
pub(crate) fn file(path: &FilePath) -> String {
    path.display().to_string().escape_debug().to_string()
}

/// Prints one line.
///
/// # Errors
///
/// When the reader of standard output has ended, as with `| head`.
pub(crate) fn line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Prints bytes as they are.
///
/// # Errors
///
/// When the reader of standard output has ended.
pub(crate) fn bytes(data: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(data)?;
    out.flush()
}

/// Prints one JSON object on a line. If its `data` is a JSON object, array or string, the line also
/// has it as `json`: byte for byte, because a parser would round its numbers and drop repeated
/// keys.
///
/// # Errors
///
/// When the reader of standard output has ended.
pub(crate) fn object(value: &Value) -> io::Result<()> {
    line(&rendered(value))
}

fn rendered(value: &Value) -> String {
    let mut text = value.to_string();
    if let Some(json) = value.get("data").and_then(Value::as_str).and_then(json_in)
        && text.ends_with('}')
    {
        text.truncate(text.len() - 1);
        text = format!("{text},\"json\":{json}}}");
    }
    text
}

/// Returns a text that is JSON, on one line. A number or a word counts as plain text.
fn json_in(text: &str) -> Option<String> {
    match serde_json::from_str(text) {
        // A line break in JSON is always between two tokens: within a string it is escaped.
        Ok(Value::Object(_) | Value::Array(_) | Value::String(_)) => {
            Some(text.trim().replace(['\r', '\n'], " "))
        }
        _ => None,
    }
}

/// Prints a warning, after which the command continues.
pub(crate) fn warning(text: &str) {
    // If standard error is closed, nobody reads the warning.
    let _told = writeln!(io::stderr(), "warning: {text}").is_ok();
}

/// A node as JSON.
pub(crate) fn node(node: &Node) -> Value {
    let mut object = Map::new();
    object.insert("path".into(), node.path.as_str().into());
    match &node.stat {
        None => {
            object.insert("kind".into(), "container".into());
        }
        Some(stat) => {
            let (key, value) = data(&node.data);
            object.insert(key.into(), value);
            object.extend(facts(stat));
        }
    }
    if let Some(sequence) = node.sequence {
        object.insert("sequence".into(), sequence.get().into());
    }
    Value::Object(object)
}

/// A stat as JSON.
pub(crate) fn facts(stat: &Stat) -> Map<String, Value> {
    let facts = json!({
        "kind": kind(Some(stat)),
        "created": stat.created.get(),
        "modified": stat.modified.get(),
        "version": stat.version.get(),
        "owner": stat.owner.map(|owner| owner.to_string()),
    });
    match facts {
        Value::Object(facts) => facts,
        _ => Map::new(),
    }
}

/// The kind of a node, in one word.
pub(crate) fn kind(stat: Option<&Stat>) -> &'static str {
    match stat {
        None => "container",
        Some(stat) if stat.owner.is_some() => "ephemeral",
        Some(_) => "persistent",
    }
}

/// The data: text under one key, and other bytes in base64 under another key.
pub(crate) fn data(data: &[u8]) -> (&'static str, Value) {
    match std::str::from_utf8(data) {
        Err(_) => ("data_base64", STANDARD.encode(data).into()),
        Ok(text) => ("data", text.into()),
    }
}

/// Prints data: unchanged with `raw`, and otherwise with a line break at its end, and escaped for a
/// terminal.
///
/// # Errors
///
/// When the reader of standard output has ended.
pub(crate) fn content(data: &[u8], raw: bool) -> io::Result<()> {
    if raw {
        return bytes(data);
    }
    if io::stdout().is_terminal() {
        return line(&for_terminal(data));
    }
    bytes(data)?;
    bytes(b"\n")
}

/// Prints the output of a command that ran elsewhere: unchanged, or escaped for a terminal.
///
/// # Errors
///
/// When the reader of standard output has ended.
pub(crate) fn result(data: &[u8]) -> io::Result<()> {
    if io::stdout().is_terminal() { bytes(for_terminal(data).as_bytes()) } else { bytes(data) }
}

/// Data as text without control sequences, which only adds lines to a terminal.
fn for_terminal(data: &[u8]) -> String {
    let text = String::from_utf8_lossy(data);
    let mut printed = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' | '\\' => printed.push(c),
            _ => printed.extend(shown(c)),
        }
    }
    printed
}

/// [`data`] for the label that a client has set.
pub(crate) fn label(label: &[u8]) -> (&'static str, String) {
    match std::str::from_utf8(label) {
        Err(_) => ("label_base64", STANDARD.encode(label)),
        Ok(text) => ("label", text.to_owned()),
    }
}

/// Readable data: one line, shortened.
pub(crate) fn glimpse(data: &[u8]) -> String {
    const SHOWN: usize = 60;
    match std::str::from_utf8(data) {
        Err(_) => format!("<{} bytes>", data.len()),
        Ok(text) => {
            let shown: String = text.chars().take(SHOWN).flat_map(shown).collect();
            let more = if text.chars().nth(SHOWN).is_some() { "…" } else { "" };
            format!("{shown}{more}")
        }
    }
}

/// Readable data: one line, complete.
pub(crate) fn on_one_line(data: &[u8]) -> String {
    match std::str::from_utf8(data) {
        Err(_) => format!("<{} bytes>", data.len()),
        Ok(text) => text.chars().flat_map(shown).collect(),
    }
}

/// A character as it is printed on a terminal. A quote needs no backslash outside of quotes.
fn shown(c: char) -> impl Iterator<Item = char> {
    let plain = matches!(c, '"' | '\'').then_some(c);
    let escaped = if plain.is_some() { None } else { Some(c.escape_debug()) };
    plain.into_iter().chain(escaped.into_iter().flatten())
}

/// Returns `true` if standard output is a terminal whose user wants colours.
pub(crate) fn wants_colour() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_printed_as_it_is_and_json_in_addition() {
        let printed = |text: &str| {
            let (key, value) = data(text.as_bytes());
            rendered(&json!({ key: value, "kind": "persistent" }))
        };
        for text in [
            r#"{"n":12345678901234567890123,"a":1,"a":2,"z":0.1e-40,"b":1}"#,
            r#"{"a": [1]}"#,
            r#""blue""#,
            "[]",
        ] {
            let line = printed(text);
            assert!(line.ends_with(&format!(r#","json":{text}}}"#)), "{line}");
            let read: Value = serde_json::from_str(&line).expect("JSON");
            assert_eq!(read["data"], text, "{line}");
        }
        let line = printed("{\r\n \"a\": \"x\\ny\"\n}\n");
        assert!(line.ends_with(r#","json":{   "a": "x\ny" }}"#), "{line}");
        let deep = "[".repeat(10_000) + &"]".repeat(10_000);
        for text in ["10", "1e400", "true", "null", "", "{", "[1] x", &deep] {
            let line = printed(text);
            let read: Value = serde_json::from_str(&line).expect("JSON");
            assert_eq!((&read["data"], read.get("json")), (&text.into(), None), "{line}");
        }
        assert_eq!(rendered(&json!({ "put": true })), r#"{"put":true}"#);
    }

    #[test]
    fn data_does_not_control_a_terminal() {
        let data = b"a\tb\\\n\x1b[31m\x07 \"it's\" \xff\r".to_vec();
        let printed = "a\tb\\\n\\u{1b}[31m\\u{7} \"it's\" \u{fffd}\\r";
        assert_eq!(for_terminal(&data), printed);
        assert_eq!(for_terminal("\u{202e}é".as_bytes()), "\\u{202e}é");
    }

    #[test]
    fn bytes_that_are_no_text_are_distinguished_from_text() {
        assert_eq!(data(b"blue"), ("data", "blue".into()));
        assert_eq!(data(&[0xFF, 0]), ("data_base64", "/wA=".into()));
        assert_eq!(label(b"[1]"), ("label", "[1]".to_owned()));
        assert_eq!(label(&[0xFF, 0]), ("label_base64", "/wA=".to_owned()));
        assert_eq!(glimpse(b"a\nb"), "a\\nb");
        assert_eq!(glimpse(br#"{"a": "it's"}"#), r#"{"a": "it's"}"#);
        assert_eq!(glimpse(&[0xFF]), "<1 bytes>");
        assert_eq!(glimpse("x".repeat(61).as_bytes()), format!("{}…", "x".repeat(60)));
    }
}
