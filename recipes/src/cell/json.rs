//! [`encode_readable`]: a value as JSON that can be read again.

use serde::Serialize;
use serde::de::DeserializeOwned;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::value::{decode, encode};

use bytes::Bytes;

/// Writes a value as JSON, if it can be read again: serde writes some values that it does not read, such as a number that is
/// none. One of them would be unreadable to every client until it is replaced.
pub(crate) fn encode_readable<T: Serialize + DeserializeOwned>(
    path: &Path,
    value: &T,
) -> Result<Bytes> {
    let data = encode(path, value)?;
    match decode::<T>(path, &data) {
        Ok(_same) => Ok(data),
        Err(error) => Err(Error::new(ErrorKind::Invalid, "writing a value")
            .at(path)
            .because("its JSON could not be read again")
            .caused_by(error)),
    }
}
