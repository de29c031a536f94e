//! Names of nodes and of directories, and texts of limited length.

use synod_core::error::Result;
use synod_core::name::{MAX_NAME_BYTES, Name};
use synod_core::path::Path;

/// Returns the text that a name encodes.
///
/// A name that this library would not write belongs to another program and is returned unchanged.
pub(crate) fn decoded_name(name: &str) -> String {
    let decoded = Name::new(name).ok().and_then(|name| name.decode());
    decoded.unwrap_or_else(|| name.to_owned())
}

/// Returns the path of a directory, if a child with a name of any length fits below it.
pub(crate) fn dir_for_any_name(dir: Path) -> Result<Path> {
    let _longest = dir.join(&"x".repeat(MAX_NAME_BYTES))?;
    Ok(dir)
}

/// Returns the beginning of a text, with at most this number of bytes.
pub(crate) fn beginning(text: &str, max_bytes: usize) -> String {
    let end = (0..=max_bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text[..end.unwrap_or_default()].to_owned()
}
