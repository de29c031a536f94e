//! A segment of a path, [`Name`], and a safe encoding of other text as a name.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use crate::invalid_path::{InvalidPath, write_safely};

/// The longest segment that every store accepts, in bytes.
pub const MAX_NAME_BYTES: usize = 255;

/// One segment of a [`Path`](crate::path::Path): for example the id of a member, an instance or a
/// task.
///
/// A name contains no `/`, so an id from an untrusted source cannot refer to a node outside its
/// directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Creates a name from a text, after validation.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`] with the byte offset and the reason.
    pub fn new(text: &str) -> Result<Self, InvalidPath> {
        Self::check(text)?;
        Ok(Self(Arc::from(text)))
    }

    /// Encodes any text as a name: each byte of a character that a name cannot contain becomes `%`
    /// and two hex digits. Different texts give different names; [`Name::decode`] is the inverse.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`] if `text` is empty, or too long once encoded.
    ///
    /// # Examples
    ///
    /// ```
    /// use synod_core::name::Name;
    ///
    /// let name = Name::encode("../../leader")?;
    /// assert_eq!(name.as_str(), "..%2F..%2Fleader");
    /// assert_eq!(name.decode().as_deref(), Some("../../leader"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn encode(text: &str) -> Result<Self, InvalidPath> {
        let only_dots = matches!(text, "." | "..");
        let mut name = String::with_capacity(text.len());
        for c in text.chars() {
            if c == '%' || c == '/' || !is_allowed(c) || (only_dots && c == '.') {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    let _written = write!(name, "%{byte:02X}").is_ok();
                }
            } else {
                name.push(c);
            }
        }
        Self::new(&name)
    }

    /// Returns the text that was passed to [`Name::encode`]; `None` if this name is not the result
    /// of it.
    pub fn decode(&self) -> Option<String> {
        let mut bytes = Vec::with_capacity(self.0.len());
        let mut rest = self.0.as_bytes();
        while let Some((&byte, tail)) = rest.split_first() {
            if byte == b'%' {
                let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &tail[2..];
            } else {
                bytes.push(byte);
                rest = tail;
            }
        }
        let text = String::from_utf8(bytes).ok()?;
        (Self::encode(&text).ok()? == *self).then_some(text)
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn check(text: &str) -> Result<(), InvalidPath> {
        check_segment(text).map_err(|(at, why)| InvalidPath::new(text, at, why))
    }
}

impl std::str::FromStr for Name {
    type Err = InvalidPath;

    fn from_str(text: &str) -> Result<Self, InvalidPath> {
        Self::new(text)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_safely(f, self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns the first error in `segment` that some store would reject or misread.
pub(crate) fn check_segment(segment: &str) -> Result<(), (usize, &'static str)> {
    match segment {
        "" => return Err((0, "a name is not empty")),
        "." | ".." => return Err((0, "a name is not . or ..")),
        _ => {}
    }
    // Most names are plain ASCII, which is checked byte by byte.
    let plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'/';
    if segment.len() <= MAX_NAME_BYTES && segment.bytes().all(plain) {
        return Ok(());
    }
    for (at, c) in segment.char_indices() {
        if c == '/' {
            return Err((at, "a name holds no /"));
        }
        if !is_allowed(c) {
            return Err((at, "character that not every store accepts"));
        }
    }
    if segment.len() > MAX_NAME_BYTES {
        return Err((MAX_NAME_BYTES, "a name has at most 255 bytes"));
    }
    Ok(())
}

/// Returns `true` for a character that a ZooKeeper server accepts in a path. Its strings are
/// UTF-16: it represents everything above U+FFFF as a pair of surrogates, and rejects those.
fn is_allowed(c: char) -> bool {
    !matches!(c,
        '\u{0}'..='\u{1F}' | '\u{7F}'..='\u{9F}' | '\u{E000}'..='\u{F8FF}'
        | '\u{FFF0}'..='\u{FFFF}' | '\u{10000}'..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_segment() {
        for text in ["a", ".a", "a.", "a b", "é", "%2F"] {
            assert_eq!(Name::new(text).expect("valid").as_str(), text);
        }
        for text in ["", ".", "..", "a/b", "/", "a\n", "😀"] {
            assert!(Name::new(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn encoding_is_undone_by_decoding() {
        for text in ["a", ".", "..", "../x", "a%2Fb", "😀", "\0\n", "é/é", "%", "%%2"] {
            let name = Name::encode(text).expect("short");
            assert_eq!(name.decode().as_deref(), Some(text), "{name}");
        }
        assert!(Name::encode("").is_err());
        assert!(Name::encode(&"/".repeat(86)).is_err());
    }

    #[test]
    fn a_name_that_no_encoding_gives_does_not_decode() {
        for text in ["%", "%2", "%zz", "%41", "%FF"] {
            assert_eq!(Name::new(text).expect("valid").decode(), None, "{text}");
        }
    }
}
