//! Typed values: the data of a node as JSON.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind, Result};
use crate::mutant::mistake;
use crate::path::Path;
use crate::store::{Expect, Lifetime, Node, Stat, Txn};

/// A value of a node, and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Value<T> {
    /// The value.
    pub value: T,
    /// The incarnation and version of the node that had the value.
    pub stat: Stat,
}

impl<T> Value<T> {
    /// Returns the required state for a write that replaces exactly this version.
    pub fn unchanged(&self) -> Expect {
        mistake!(ValueWithoutVersion: return Expect::Any);
        Expect::Version(self.stat.version)
    }
}

impl<T: DeserializeOwned> Value<T> {
    /// Reads the value of a node.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] with the path and the position in the data, but never with the data.
    pub fn of(node: &Node) -> Result<Self> {
        let Some(stat) = node.stat else {
            return Err(corrupt(&node.path, "the store returned no version".into()));
        };
        decode(&node.path, &node.data).map(|value| Self { value, stat })
    }
}

/// # Values as JSON
impl Txn {
    /// Adds a [`Txn::create`] of a node with a value as JSON.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the value cannot be serialised as JSON.
    ///
    /// # Examples
    ///
    /// ```
    /// # use synod_core::path;
    /// use synod_core::store::{Expect, Lifetime, Txn};
    ///
    /// let txn = Txn::new()
    ///     .create_value(path!("/jobs/last"), &7, Lifetime::Persistent)?
    ///     .set_value(path!("/jobs/state"), "done", Expect::Any)?;
    /// assert_eq!(txn.ops.len(), 2);
    /// # Ok::<(), synod_core::error::Error>(())
    /// ```
    pub fn create_value<T: Serialize + ?Sized>(
        self,
        path: impl Into<Path>,
        value: &T,
        lifetime: Lifetime,
    ) -> Result<Self> {
        let path = path.into();
        let data = encode(&path, value)?;
        Ok(self.create(path, data, lifetime))
    }

    /// Adds a [`Txn::set`] to a value as JSON. With [`Value::unchanged`] it replaces exactly the
    /// version that was read.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the value cannot be serialised as JSON.
    pub fn set_value<T: Serialize + ?Sized>(
        self,
        path: impl Into<Path>,
        value: &T,
        expect: Expect,
    ) -> Result<Self> {
        let path = path.into();
        let data = encode(&path, value)?;
        Ok(self.set(path, data, expect))
    }
}

/// Serialises a value in the format that [`Value::of`] reads.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] if the value cannot be serialised as JSON.
pub fn encode<T: Serialize + ?Sized>(path: &Path, value: &T) -> Result<Bytes> {
    serde_json::to_vec(value).map(Bytes::from).map_err(|_quotes_the_data| {
        Error::new(ErrorKind::Invalid, "writing a value")
            .at(path)
            .because("the value cannot be serialised as JSON")
    })
}

/// Deserialises the result of [`encode`].
///
/// # Errors
///
/// [`ErrorKind::Corrupt`] with the path and the position in the data, but never with the data.
pub fn decode<T: DeserializeOwned>(path: &Path, data: &[u8]) -> Result<T> {
    // Not the error itself: it quotes the data, which may be secret.
    serde_json::from_slice(data).map_err(|error| {
        let what = match error.classify() {
            serde_json::error::Category::Data => "JSON of another shape",
            _ => "not JSON",
        };
        let (line, column) = (error.line(), error.column());
        let detail = format!("{what}, at line {line} column {column}");
        mistake!(DataQuoted: let detail = String::from_utf8_lossy(data).into_owned());
        corrupt(path, detail)
    })
}

fn corrupt(path: &Path, detail: String) -> Error {
    Error::new(ErrorKind::Corrupt, "reading a value").at(path).because(detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Revision, Version};

    fn node(data: &[u8]) -> Node {
        let stat = Stat::new(Revision::new(1), Revision::new(2), Version::new(3), None);
        let path = Path::new("/config/limit").expect("valid");
        Node::new(path).with(Bytes::copy_from_slice(data), stat)
    }

    #[test]
    fn what_was_written_is_read_again() {
        let path = Path::new("/a").expect("valid");
        let data = encode(&path, &("x", 7)).expect("JSON");
        let read = Value::<(String, u32)>::of(&node(&data)).expect("the same shape");
        assert_eq!(read.value, ("x".to_owned(), 7));
        assert_eq!(read.unchanged(), Expect::Version(Version::new(3)));
    }

    #[test]
    fn malformed_data_is_named_by_path_and_place_and_not_quoted() {
        let deep = "[".repeat(100_000);
        for data in [&b""[..], b"{", b"\"canary\"", b"\xff\xfe", b"7 canary", deep.as_bytes()] {
            let error = Value::<u32>::of(&node(data)).expect_err("not a number");
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert_eq!(error.path().map(Path::as_str), Some("/config/limit"));
            let all = format!("{error} {error:?}");
            assert!(!all.contains("canary"), "{all}");
        }
    }

    #[test]
    fn a_value_that_is_no_json_is_the_callers_fault() {
        let path = Path::new("/a").expect("valid");
        let odd = std::collections::BTreeMap::from([((1, 2), 3)]);
        assert_eq!(encode(&path, &odd).expect_err("no key").kind(), ErrorKind::Invalid);
    }
}
