//! Values of the application: [`encode_readable`] writes them, [`decoded`] reads and [`discard`]
//! drops them; both catch panics, for a task that must not end.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::value::{decode, encode};

/// Writes a value as JSON, if the JSON can be read back.
///
/// serde writes some values that it does not read, such as an infinite number. Such a value would
/// be unreadable to every client until it is replaced.
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

/// Calls a decoder of the application for the data at a path. A panic of the decoder counts as
/// unreadable data.
pub(crate) fn decoded<T>(path: &Path, decode: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_panic| {
        Err(Error::new(ErrorKind::Corrupt, "reading a value")
            .at(path)
            .because("its decoder panicked"))
    })
}

/// Drops a value of the application, whose `Drop` may panic.
pub(super) fn discard<T>(thing: T) {
    let _panicked = catch_unwind(AssertUnwindSafe(|| drop(thing))).is_err();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decoder_that_panics_has_read_no_value() {
        let path = Path::new("/value").expect("it is one");
        assert_eq!(decoded(&path, || Ok(7)).expect("it is a value"), 7);
        let error = decoded::<u32>(&path, || panic!("in a decoder")).expect_err("it panics");
        assert_eq!((error.kind(), error.path()), (ErrorKind::Corrupt, Some(&path)));
    }

    #[test]
    fn a_drop_that_panics_ends_here() {
        struct Panics;
        impl Drop for Panics {
            fn drop(&mut self) {
                panic!("as it is dropped");
            }
        }
        discard(Some(Panics));
    }
}
