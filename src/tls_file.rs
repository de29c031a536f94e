//! [`read`]: the files of a TLS connection.

use std::path::Path;

use synod_core::error::Result;

use crate::scheme::invalid;

/// The content of a file, which is text: PEM.
pub(crate) fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).map_err(|error| {
        let why = format!("the TLS file {} cannot be read: {error}", file.display());
        invalid(why).caused_by(error)
    })
}

/// The content of a file of certificates. A file without any is refused: with it no server would be
/// trusted, and which setting is wrong would be hard to find.
pub(crate) fn read_certificates(file: &Path) -> Result<String> {
    let text = read(file)?;
    if !text.contains("-----BEGIN CERTIFICATE-----") {
        let why = format!("the TLS file {} has no certificate in PEM", file.display());
        return Err(invalid(why));
    }
    Ok(text)
}
