//! [`FileLock`]: the locks that the kernel has for files.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, fcntl_lock, flock};

use super::job::{Rival, add_one};
use super::lap::{Lap, timed};
use crate::racer::Failure;

/// A lock of a file. Nobody is served in order.
pub(super) struct FileLock {
    file: File,
    is_record: bool,
    sum: PathBuf,
}

impl FileLock {
    pub(super) fn open(rival: Rival, place: &Path, sum: &Path) -> Result<Self, Failure> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(place.join("lock"))?;
        Ok(Self { file, is_record: rival == Rival::Fcntl, sum: sum.to_owned() })
    }

    fn set(&self, operation: FlockOperation) -> Result<(), Failure> {
        if self.is_record {
            Ok(fcntl_lock(&self.file, operation)?)
        } else {
            Ok(flock(&self.file, operation)?)
        }
    }
}

impl Lap for FileLock {
    fn lap(&mut self) -> Result<Duration, Failure> {
        timed(|| {
            self.hold()?;
            add_one(&self.sum)?;
            self.set(FlockOperation::Unlock)
        })
    }

    fn hold(&mut self) -> Result<(), Failure> {
        self.set(FlockOperation::LockExclusive)
    }
}
