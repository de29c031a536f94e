//! [`Codec`]: how the items of a queue are written as data.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::value;

use crate::queue::place::DOING;

/// Writes items as data, and reads them.
pub(super) struct Codec<T> {
    encode: fn(&Path, &T) -> Result<Bytes>,
    decode: fn(&Path, &Bytes) -> Result<T>,
}

impl<T: Serialize + DeserializeOwned> Codec<T> {
    /// As JSON.
    pub(super) const JSON: Self = Self {
        encode: |path, item| value::encode(path, item),
        decode: |path, data| value::decode(path, data),
    };
}

impl Codec<Bytes> {
    /// As they are.
    pub(super) const RAW: Self =
        Self { encode: |_, item| Ok(item.clone()), decode: |_, data| Ok(data.clone()) };
}

impl<T> Codec<T> {
    pub(super) fn encode(self, path: &Path, item: &T) -> Result<Bytes> {
        (self.encode)(path, item)
    }

    /// Reads an item. One whose type panics cannot be read: in a task of ours the panic would be met again by each consumer.
    pub(super) fn decode(self, path: &Path, data: &Bytes) -> Result<T> {
        catch_unwind(AssertUnwindSafe(|| (self.decode)(path, data))).unwrap_or_else(|_panic| {
            Err(Error::new(ErrorKind::Corrupt, DOING).at(path).because("its type panics"))
        })
    }
}

impl<T> Clone for Codec<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Codec<T> {}
