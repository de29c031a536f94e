//! The error of a text that is neither a path nor a name, [`InvalidPath`], and the escaping of
//! text.

use std::fmt::{self, Write as _};

/// The error for a text that is not a [`Path`](crate::path::Path) or not a
/// [`Name`](crate::name::Name).
///
/// The text is shown with its control characters escaped, and truncated if it is long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPath {
    text: String,
    at: usize,
    why: &'static str,
}

impl InvalidPath {
    pub(crate) fn new(text: &str, at: usize, why: &'static str) -> Self {
        const SHOWN: usize = 80;
        let mut end = text.len().min(SHOWN);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut shown: String = text[..end].escape_debug().collect();
        if end < text.len() {
            shown.push('…');
        }
        Self { text: shown, at, why }
    }

    /// Returns the byte offset of the first error.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Returns the reason.
    pub fn why(&self) -> &'static str {
        self.why
    }
}

impl fmt::Display for InvalidPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid path \"{}\": {} at byte {}", self.text, self.why, self.at)
    }
}

impl std::error::Error for InvalidPath {}

/// Writes `text`, and escapes the characters that would reorder or hide other text.
pub(crate) fn write_safely(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for c in text.chars() {
        if c.is_control() || is_invisible(c) {
            write!(f, "{}", c.escape_unicode())?;
        } else {
            f.write_char(c)?;
        }
    }
    Ok(())
}

fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{00AD}' | '\u{061C}' | '\u{180E}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}' | '\u{FEFF}')
}
