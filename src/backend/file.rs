//! `file:///directory` is the store in that directory of this machine.

use std::path::PathBuf;
use std::sync::Arc;

use synod_core::error::Result;
use synod_core::store::Backend;

use crate::scheme::invalid;
use crate::target::Target;

#[cfg(target_os = "linux")]
pub(crate) fn open(target: Target) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(file_backend(target)?))
}

/// Returns the backend of a directory as its own type, with the calls that only it has.
#[cfg(target_os = "linux")]
pub(crate) fn file_backend(target: Target) -> Result<synod_file::FileBackend> {
    let (directory, unchecked, linger) = settings(target)?;
    let options = synod_file::FileOptions::new(directory);
    let options = options.unchecked_file_system(unchecked).linger(linger);
    Ok(synod_file::FileBackend::new(options))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn open(target: Target) -> Result<Arc<dyn Backend>> {
    use synod_core::error::{Error, ErrorKind};

    let (_directory, _unchecked, _linger) = settings(target)?;
    Err(Error::new(ErrorKind::Unsupported, "connecting")
        .because("file:// works on Linux only: it relies on how Linux reports the end of a FIFO"))
}

/// Returns the directory, and the parameters `fs` and `linger`.
fn settings(target: Target) -> Result<(PathBuf, bool, bool)> {
    target.no_more_parameters(&["fs", "linger"])?;
    let parameter = |name: &str| {
        let found = target.parameters.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    };
    let unchecked = match parameter("fs") {
        None => false,
        Some("unchecked") => true,
        Some(_) => return Err(invalid("fs is unchecked, or left out, as in ?fs=unchecked")),
    };
    let linger = match parameter("linger") {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(invalid("linger is true or false, as in ?linger=true")),
    };
    if target.credentials.is_some() {
        return Err(invalid("a directory knows no users of its own; leave user and password out"));
    }
    let directory = target.directory.filter(|directory| directory.parent().is_some());
    let Some(directory) = directory else {
        return Err(invalid("a directory is missing, as in file:///var/lib/app/synod"));
    };
    Ok((directory, unchecked, linger))
}
