//! `file:///directory` is the store in that directory of this machine.

use std::sync::Arc;

use synod_core::error::Result;
use synod_core::store::Backend;

use crate::scheme::invalid;
use crate::target::Target;

pub(crate) fn open(target: Target) -> Result<Arc<dyn Backend>> {
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
    backend(directory, unchecked, linger)
}

#[cfg(target_os = "linux")]
#[expect(clippy::unnecessary_wraps, reason = "the same shape as on other systems")]
fn backend(
    directory: std::path::PathBuf,
    unchecked: bool,
    linger: bool,
) -> Result<Arc<dyn Backend>> {
    let options = synod_file::FileOptions::new(directory);
    let options = options.unchecked_file_system(unchecked).linger(linger);
    Ok(Arc::new(synod_file::FileBackend::new(options)))
}

#[cfg(not(target_os = "linux"))]
fn backend(_: std::path::PathBuf, _: bool, _: bool) -> Result<Arc<dyn Backend>> {
    use synod_core::error::{Error, ErrorKind};

    Err(Error::new(ErrorKind::Unsupported, "connecting")
        .because("file:// works on Linux only: it relies on how Linux reports the end of a FIFO"))
}
