//! [`Codec`]: how the items of a queue are written as data.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::value;

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

    pub(super) fn decode(self, path: &Path, data: &Bytes) -> Result<T> {
        (self.decode)(path, data)
    }
}

impl<T> Clone for Codec<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Codec<T> {}
