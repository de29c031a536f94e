//! [`Piece`]: a part of a file, which one task counts.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::words::{LONGEST, Words};

/// A part of a file, in the state in which the file was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Piece {
    /// The absolute path: the workers open it on their machines.
    pub(crate) file: String,
    state: FileState,
    from: u64,
    to: u64,
}

/// The metadata that changes when a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct FileState {
    bytes: u64,
    /// In nanoseconds since 1970.
    modified: u128,
}

impl Piece {
    /// The pieces of all files in `place`, which may be a file itself, in the same order each time.
    /// Symbolic links are not followed.
    pub(crate) fn all_in(place: &Path, length: u64) -> Result<Vec<Self>, Failure> {
        let mut pieces = Vec::new();
        let because = |error| format!("cannot read {}: {error}", place.display());
        collect(&place.canonicalize().map_err(because)?, length, &mut pieces)?;
        Ok(pieces)
    }

    /// The data of the task.
    pub(crate) fn data(&self) -> Result<Vec<u8>, Failure> {
        Ok(serde_json::to_vec(self)?)
    }

    /// Counts the words of the runs that begin in this piece. Fails if the file is not as it was
    /// when it was found.
    pub(crate) fn count(&self) -> Result<Words, Failure> {
        let because = |error| format!("cannot read {}: {error}", self.file);
        let mut file = File::open(&self.file).map_err(because)?;
        self.expect_same(&file)?;
        // The byte before shows whether a run begins with the piece, and the last run may continue
        // after it.
        let before = self.from.saturating_sub(1);
        file.seek(SeekFrom::Start(before)).map_err(because)?;
        let mut text = Vec::new();
        let window = (&file).take(self.to - before + LONGEST);
        { window }.read_to_end(&mut text).map_err(because)?;
        self.expect_same(&file)?;
        Ok(Words::of(&text, &(self.from - before..self.to - before)))
    }

    fn expect_same(&self, file: &File) -> Result<(), Failure> {
        if FileState::of(&file.metadata()?)? == self.state {
            return Ok(());
        }
        Err(format!("{} was changed while it was counted: count again", self.file).into())
    }
}

impl FileState {
    fn of(metadata: &fs::Metadata) -> Result<Self, Failure> {
        let modified = metadata.modified()?.duration_since(UNIX_EPOCH)?.as_nanos();
        Ok(Self { bytes: metadata.len(), modified })
    }
}

fn collect(place: &Path, length: u64, pieces: &mut Vec<Piece>) -> Result<(), Failure> {
    let because = |error| format!("cannot read {}: {error}", place.display());
    let metadata = fs::symlink_metadata(place).map_err(because)?;
    if metadata.is_dir() {
        let names: Result<Vec<_>, _> = fs::read_dir(place).map_err(because)?.collect();
        let mut names = names.map_err(because)?;
        names.sort_by_key(fs::DirEntry::file_name);
        return names.iter().try_for_each(|name| collect(&name.path(), length, pieces));
    }
    if !metadata.is_file() {
        return Ok(());
    }
    let Some(file) = place.to_str() else {
        return Err(format!("rename {}: its name is not UTF-8", place.display()).into());
    };
    let state = FileState::of(&metadata)?;
    let mut from = 0;
    while from < state.bytes {
        let to = state.bytes.min(from + length);
        pieces.push(Piece { file: file.to_owned(), state, from, to });
        from = to;
    }
    Ok(())
}
