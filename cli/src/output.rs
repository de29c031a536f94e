//! Prints results: as text for a person, or as JSON for a program.

use std::io::{self, IsTerminal as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use synod::store::{Node, Stat};

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

/// Prints one JSON object on a line.
///
/// # Errors
///
/// When the reader of standard output has ended.
pub(crate) fn object(value: &Value) -> io::Result<()> {
    line(&value.to_string())
}

/// Prints what does not keep a command from going on.
pub(crate) fn warning(text: &str) {
    // If standard error is closed, there is no reader.
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

/// Text as text; an object, an array or a string of JSON as JSON under another key, so that no
/// string is quoted within a string; and other data in base64 under a third key.
pub(crate) fn data(data: &[u8]) -> (&'static str, Value) {
    match std::str::from_utf8(data) {
        Err(_) => ("data_base64", STANDARD.encode(data).into()),
        Ok(text) => match serde_json::from_str(text) {
            Ok(json @ (Value::Object(_) | Value::Array(_) | Value::String(_))) => ("json", json),
            _ => ("data", text.into()),
        },
    }
}

/// [`data`] of what somebody says of himself, which is not read as JSON.
pub(crate) fn label(label: &[u8]) -> (&'static str, String) {
    match std::str::from_utf8(label) {
        Err(_) => ("label_base64", STANDARD.encode(label)),
        Ok(text) => ("label", text.to_owned()),
    }
}

/// Data for a person: one line, shortened.
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

/// A character as it is printed on a terminal. A quote needs no backslash outside of quotes.
fn shown(c: char) -> impl Iterator<Item = char> {
    let plain = matches!(c, '"' | '\'').then_some(c);
    let escaped = if plain.is_some() { None } else { Some(c.escape_debug()) };
    plain.into_iter().chain(escaped.into_iter().flatten())
}

/// Whether standard output is a terminal whose user wants colours.
pub(crate) fn wants_colour() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_printed_as_json_and_not_as_a_string() {
        assert_eq!(data(br#"{"a": [1]}"#), ("json", json!({ "a": [1] })));
        assert_eq!(data(br#""blue""#), ("json", "blue".into()));
        for text in ["10", "1e400", "true", "null", "", "{", "[1] x"] {
            assert_eq!(data(text.as_bytes()), ("data", text.into()), "{text}");
        }
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
