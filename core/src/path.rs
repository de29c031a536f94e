//! The path of a node, [`Path`], validated once when it is created.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::invalid_path::write_safely;
use crate::name::{MAX_NAME_BYTES, Name, check_segment};

pub use crate::invalid_path::InvalidPath;

/// The longest path that every store accepts, in bytes.
pub const MAX_PATH_BYTES: usize = 2_048;

/// The absolute path of a node, like `/locks/db`.
///
/// A `Path` is valid on every store: it is absolute, has no empty, `.` or `..` segment, no control
/// characters, nothing above U+FFFF, at most [`MAX_PATH_BYTES`] bytes and at most
/// [`MAX_NAME_BYTES`] a segment. `/zookeeper` is reserved by ZooKeeper and rejected on every store.
///
/// Paths are compared byte by byte and are not normalised: two spellings that look alike (for
/// example composed and decomposed accents) are two paths. `Display` escapes characters that would
/// reorder or hide text; [`Path::as_str`] returns the path unchanged.
///
/// # Examples
///
/// ```
/// use synod_core::path::Path;
///
/// let dir: Path = "/locks".parse()?;
/// let lock = dir.join("db")?;
/// assert_eq!(lock.as_str(), "/locks/db");
/// assert_eq!(lock.name(), "db");
/// assert_eq!(lock.parent(), Some(dir));
///
/// let refused = "/locks/../etc".parse::<Path>().unwrap_err();
/// assert_eq!(refused.at(), 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(Arc<str>);

impl Path {
    /// Returns the root, `/`, which always exists and holds no data.
    pub fn root() -> Self {
        Self(Arc::from("/"))
    }

    /// Creates a path from a text, after validation.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`] with the byte offset and the reason if `text` is not a path that every
    /// store accepts.
    pub fn new(text: &str) -> Result<Self, InvalidPath> {
        check(text)?;
        Ok(Self(Arc::from(text)))
    }

    /// Creates the path of a `path!` constant, which [`check_constant`] accepted.
    ///
    /// # Panics
    ///
    /// If the text is not such a constant.
    #[doc(hidden)]
    pub fn of_constant(text: &'static str) -> Self {
        Self::new(text).expect("`path!` checked it when the program was compiled")
    }

    /// Returns the child of this path with the given name.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`] if `name` is not a [`Name`], or the whole path would be too long.
    pub fn join(&self, name: &str) -> Result<Self, InvalidPath> {
        Name::check(name)?;
        self.with_segment(name)
    }

    /// Returns the child of this path with the given validated name.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`] if the whole path would be too long.
    pub fn child(&self, name: &Name) -> Result<Self, InvalidPath> {
        self.with_segment(name.as_str())
    }

    fn with_segment(&self, name: &str) -> Result<Self, InvalidPath> {
        let parent = if self.is_root() { "" } else { self.as_str() };
        let mut text = String::with_capacity(parent.len() + 1 + name.len());
        text.push_str(parent);
        text.push('/');
        text.push_str(name);
        check_whole(&text)?;
        Ok(Self(Arc::from(text)))
    }

    /// Returns the path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns `true` for `/`.
    pub fn is_root(&self) -> bool {
        self.as_str() == "/"
    }

    /// Returns the last segment; empty for the root.
    pub fn name(&self) -> &str {
        self.as_str().rsplit_once('/').map_or("", |(_, name)| name)
    }

    /// Returns the path without its last segment; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        self.parent_str().map(|parent| Self(Arc::from(parent)))
    }

    /// Returns [`Path::parent`] as text, without an allocation.
    pub fn parent_str(&self) -> Option<&str> {
        parent_of(self.as_str())
    }

    /// Iterates over the paths above this one as text, nearest first, the root last.
    pub fn above(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(parent_of(self.as_str()), |path| parent_of(path))
    }

    /// Iterates over the paths above this one, nearest first, without the root.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> {
        self.above().filter(|path| *path != "/").map(|path| Self(Arc::from(path)))
    }

    /// Iterates over the segments, from the top down.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.as_str().split('/').filter(|segment| !segment.is_empty())
    }

    /// Returns `true` if this path lies below `other`, at any depth. A path is not below itself,
    /// and `/ab` is not below `/a`.
    pub fn is_below(&self, other: &Self) -> bool {
        if other.is_root() {
            return !self.is_root();
        }
        self.as_str().strip_prefix(other.as_str()).is_some_and(|rest| rest.starts_with('/'))
    }

    /// Returns this path relative to `root`: the inverse of [`Path::within`]. `None` if it is
    /// neither `root` nor below `root`, and if the result would be `/zookeeper`, which is not a
    /// valid path.
    pub fn relative_to(&self, root: &Self) -> Option<Self> {
        if root.is_root() {
            return Some(self.clone());
        }
        let rest = self.as_str().strip_prefix(root.as_str())?;
        match rest {
            "" => Some(Self::root()),
            below if below.starts_with('/') => {
                check_whole(below).ok().map(|()| Self(Arc::from(below)))
            }
            _ => None,
        }
    }

    /// Returns this path moved below `root`: `/x` within `/app` is `/app/x`.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`] if the whole path would be too long.
    pub fn within(&self, root: &Self) -> Result<Self, InvalidPath> {
        if root.is_root() {
            return Ok(self.clone());
        }
        if self.is_root() {
            return Ok(root.clone());
        }
        let text = format!("{}{}", root.as_str(), self.as_str());
        check_whole(&text)?;
        Ok(Self(Arc::from(text)))
    }
}

/// A [`Path`] from a constant, which is checked when the program is compiled.
///
/// The constant is printable ASCII; [`Path::new`] takes any text.
///
/// # Examples
///
/// ```
/// use synod_core::path;
///
/// const DIR: &str = "/locks";
/// assert_eq!(path!("/locks/db").parent(), Some(path!(DIR)));
/// ```
///
/// An invalid path does not compile:
///
/// ```compile_fail
/// let path = synod_core::path!("locks/db");
/// ```
#[macro_export]
macro_rules! path {
    ($text:expr) => {{
        const { $crate::path::check_constant($text) };
        $crate::path::Path::of_constant($text)
    }};
}

/// Rejects, at compile time, a text that is not a valid path or not printable ASCII.
///
/// # Panics
///
/// If the text is not valid.
#[doc(hidden)]
pub const fn check_constant(text: &str) {
    let bytes = text.as_bytes();
    assert!(!bytes.is_empty() && bytes[0] == b'/', "a path starts with /");
    assert!(bytes.len() <= MAX_PATH_BYTES, "a path has at most 2048 bytes");
    let (mut at, mut start) = (1, 1);
    while at <= bytes.len() && bytes.len() > 1 {
        if at == bytes.len() || bytes[at] == b'/' {
            assert!(at > start, "a path has no empty segment, and does not end with /");
            let dots = at - start <= 2 && bytes[start] == b'.' && bytes[at - 1] == b'.';
            assert!(!dots, "a path has no segment . or ..");
            assert!(at - start <= MAX_NAME_BYTES, "a name has at most 255 bytes");
            start = at + 1;
        } else {
            assert!(matches!(bytes[at], b' '..=b'~'), "a constant path is printable ASCII");
        }
        at += 1;
    }
    assert!(!is_reserved(bytes), "/zookeeper is reserved");
}

/// Returns `true` for `/zookeeper` and the paths below it.
const fn is_reserved(path: &[u8]) -> bool {
    let reserved = b"/zookeeper";
    if path.len() < reserved.len() || (path.len() > reserved.len() && path[reserved.len()] != b'/')
    {
        return false;
    }
    let mut at = 0;
    while at < reserved.len() {
        if path[at] != reserved[at] {
            return false;
        }
        at += 1;
    }
    true
}

impl FromStr for Path {
    type Err = InvalidPath;

    fn from_str(text: &str) -> Result<Self, InvalidPath> {
        Self::new(text)
    }
}

impl TryFrom<&str> for Path {
    type Error = InvalidPath;

    fn try_from(text: &str) -> Result<Self, InvalidPath> {
        Self::new(text)
    }
}

impl TryFrom<String> for Path {
    type Error = InvalidPath;

    fn try_from(text: String) -> Result<Self, InvalidPath> {
        Self::new(&text)
    }
}

impl From<&Self> for Path {
    fn from(path: &Self) -> Self {
        path.clone()
    }
}

impl AsRef<str> for Path {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl std::borrow::Borrow<str> for Path {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_safely(f, self.as_str())
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl serde::Serialize for Path {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> serde::Deserialize<'de> for Path {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Self::new(&text).map_err(serde::de::Error::custom)
    }
}

fn parent_of(path: &str) -> Option<&str> {
    match path.rfind('/')? {
        0 if path == "/" => None,
        0 => Some("/"),
        cut => Some(&path[..cut]),
    }
}

fn check(text: &str) -> Result<(), InvalidPath> {
    let bad = |at, why| Err(InvalidPath::new(text, at, why));
    if text.is_empty() {
        return bad(0, "a path is not empty");
    }
    if !text.starts_with('/') {
        return bad(0, "a path starts with /");
    }
    if text == "/" {
        return Ok(());
    }
    let mut at = 1;
    for segment in text[1..].split('/') {
        if segment.is_empty() {
            let why = if at == text.len() { "a path does not end with /" } else { "empty segment" };
            return bad(at - usize::from(at == text.len()), why);
        }
        if let Err((offset, why)) = check_segment(segment) {
            return bad(at + offset, why);
        }
        at += segment.len() + 1;
    }
    check_whole(text)
}

/// Validates the rules that concern the whole path; its segments are valid.
fn check_whole(text: &str) -> Result<(), InvalidPath> {
    if text.len() > MAX_PATH_BYTES {
        return Err(InvalidPath::new(text, MAX_PATH_BYTES, "a path has at most 2048 bytes"));
    }
    match text.strip_prefix("/zookeeper") {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            Err(InvalidPath::new(text, 0, "/zookeeper is reserved"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str) -> usize {
        match Path::new(text) {
            Ok(path) => panic!("{path} was accepted"),
            Err(error) => error.at(),
        }
    }

    #[test]
    fn ordinary_paths_are_accepted() {
        for text in ["/", "/a", "/a/b", "/.a", "/a..b", "/...", "/é", "/a b", "/~", "/zookeeperx"]
        {
            assert_eq!(Path::new(text).expect("valid").as_str(), text);
        }
    }

    #[test]
    fn the_place_of_the_fault_is_named() {
        let table = [
            ("", 0),
            ("a", 0),
            ("a/b", 0),
            ("//", 1),
            ("/a//b", 3),
            ("/a/", 2),
            ("/.", 1),
            ("/..", 1),
            ("/a/.", 3),
            ("/a/..", 3),
            ("/a/../b", 3),
            ("/a\0", 2),
            ("/a\nb", 2),
            ("/zookeeper", 0),
            ("/zookeeper/quota", 0),
        ];
        for (text, at) in table {
            assert_eq!(refused(text), at, "{text:?}");
        }
    }

    #[test]
    fn a_constant_is_accepted_if_it_is_an_ascii_path() {
        let name = "n".repeat(MAX_NAME_BYTES);
        let long = [format!("/{name}"), format!("/{name}n"), format!("/{name}").repeat(9)];
        let texts = [
            "/",
            "/a",
            "/a/b",
            "/.a",
            "/a..b",
            "/...",
            "/a b",
            "/~",
            "/zookeeperx",
            "/zookeepe",
            "/b.",
            "",
            "a",
            "a/b",
            "//",
            "/a//b",
            "/a/",
            "/.",
            "/..",
            "/a/.",
            "/a/..",
            "/a/../b",
            "/./a",
            "/a\0",
            "/a\nb",
            "/\u{7f}",
            "/zookeeper",
            "/zookeeper/quota",
            "/zookeeper/",
        ];
        for text in texts.into_iter().chain(long.iter().map(String::as_str)) {
            let constant = std::panic::catch_unwind(|| check_constant(text)).is_ok();
            assert_eq!(constant, Path::new(text).is_ok(), "{text:?}");
        }
        assert_eq!(path!("/a/b").as_str(), "/a/b");
        assert!(std::panic::catch_unwind(|| check_constant("/é")).is_err(), "it is not ASCII");
    }

    #[test]
    fn every_forbidden_range_is_refused_up_to_its_edges() {
        let edges = [
            ('\u{1}', false),
            ('\u{1F}', false),
            ('\u{20}', true),
            ('\u{7E}', true),
            ('\u{7F}', false),
            ('\u{9F}', false),
            ('\u{A0}', true),
            ('\u{D7FF}', true),
            ('\u{E000}', false),
            ('\u{F8FF}', false),
            ('\u{F900}', true),
            ('\u{FFEF}', true),
            ('\u{FFF0}', false),
            ('\u{FFFF}', false),
            ('\u{10000}', false),
            ('😀', false),
        ];
        for (c, accepted) in edges {
            assert_eq!(Path::new(&format!("/a{c}b")).is_ok(), accepted, "{}", c.escape_unicode());
        }
    }

    #[test]
    fn lengths_are_refused_from_one_byte_too_many() {
        let name = "n".repeat(255);
        assert!(Path::new(&format!("/{name}")).is_ok());
        assert_eq!(refused(&format!("/{name}n")), 256);

        let longest = format!("{}{}", format!("/{name}").repeat(7), "/".to_owned() + &name);
        assert_eq!(longest.len(), MAX_PATH_BYTES);
        assert!(Path::new(&longest).is_ok());
        let path = Path::new(&longest).expect("valid");
        assert!(path.join("x").is_err());
        assert!(path.within(&Path::new("/a").expect("valid")).is_err());
    }

    #[test]
    fn a_prefix_of_the_text_is_not_an_ancestor() {
        let [a, ab, a_b] = ["/a", "/ab", "/a/b"].map(|text| Path::new(text).expect("valid"));
        assert!(a_b.is_below(&a));
        assert!(!ab.is_below(&a));
        assert!(!a.is_below(&a));
        assert!(a.is_below(&Path::root()));
        assert_eq!(ab.relative_to(&a), None);
        assert_eq!(a_b.relative_to(&a), Some(Path::new("/b").expect("valid")));
        assert_eq!(a.relative_to(&a), Some(Path::root()));
        assert_eq!(a.join("zookeeper").expect("valid").relative_to(&a), None);
    }

    #[test]
    fn an_error_shows_no_raw_control_character() {
        let error = Path::new("/a\u{1b}[31m\n").expect_err("control characters");
        assert!(!error.to_string().contains(['\u{1b}', '\n']));
    }

    #[test]
    fn display_escapes_what_would_reorder_the_text() {
        let path = Path::new("/a\u{202E}b").expect("accepted");
        assert_eq!(path.to_string(), "/a\\u{202e}b");
    }
}
