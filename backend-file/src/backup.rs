//! Backups of a store that is in use.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use synod_core::error::{Error, ErrorKind, Result};

use crate::database::{DATABASE, check_format, open_copier};
use crate::fault::Fault;

/// The call of all errors of this module.
const COPYING: &str = "a backup";

/// Writes the database of a store, as of one moment, to a new file. Blocks the thread.
pub(crate) fn write(directory: &Path, to: &Path) -> Result<()> {
    if !directory.join(DATABASE).exists() {
        return Err(Error::new(ErrorKind::Invalid, COPYING)
            .because(format!("there is no store in {}", directory.display())));
    }
    let of_file = |error: io::Error| of_file(to, &error);
    // Nobody else may read it, and no file is replaced.
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
    drop(created.map_err(of_file)?);
    let written = copy(directory, to).map_err(|fault| fault.to_error(COPYING));
    let synced = written.and_then(|()| sync(to).map_err(of_file));
    if synced.is_err() {
        let _removed = std::fs::remove_file(to).is_ok();
    }
    synced
}

fn copy(directory: &Path, to: &Path) -> Result<(), Fault> {
    let db = open_copier(directory)?;
    check_format(&db)?;
    let to =
        to.to_str().ok_or_else(|| Fault::Foreign("the name of the file is not UTF-8".into()))?;
    db.execute("VACUUM INTO ?1", [to])?;
    Ok(())
}

/// Syncs the file and its name.
fn sync(file: &Path) -> io::Result<()> {
    File::open(file)?.sync_all()?;
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

fn of_file(path: &Path, error: &io::Error) -> Error {
    let path = path.display();
    let why = match error.kind() {
        io::ErrorKind::AlreadyExists => format!("{path} exists; name a new file"),
        _ => format!("the file {path}: {error}"),
    };
    Error::new(ErrorKind::Invalid, COPYING).because(why)
}
