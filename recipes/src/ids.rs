//! [`Ids`]: unique numbers, handed out from blocks.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use tokio::sync::Mutex;

use crate::cell::Cell;
use crate::mutant::mistake;

#[cfg_attr(not(doctest), doc = include_str!("../docs/ids.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/values.md"))]
#[derive(Clone)]
pub struct Ids {
    cell: Cell,
    block: NonZeroU64,
    /// What is reserved, and not handed out yet.
    left: Arc<Mutex<Range<u64>>>,
}

impl Ids {
    /// The numbers at `path`, reserved in blocks of this size.
    pub fn new(client: &Client, path: impl Into<Path>, block: NonZeroU64) -> Self {
        Self { cell: Cell::new(client, path.into(), "ids"), block, left: Arc::default() }
    }

    /// A number that no other call gets.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if there are no numbers left below 2^63, [`ErrorKind::Corrupt`] if what is stored is no number,
    /// [`ErrorKind::Refused`] if the path is a directory, and as every verb of a [`Client`]. Numbers may be skipped then.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may skip numbers.
    pub async fn next(&self) -> Result<u64> {
        let mut left = self.left.lock().await;
        if left.is_empty() {
            let reserved = self.reserve().await;
            mistake!(BlockByGuess: let reserved = {
                reserved.or_else(|_in_doubt| Ok(left.end..left.end + self.block.get()))
            });
            *left = reserved?;
        }
        left.next().ok_or_else(|| exhausted(self.cell.path()))
    }

    /// Reserves a block that no other client has.
    async fn reserve(&self) -> Result<Range<u64>> {
        let (path, block) = (self.cell.path().clone(), self.block.get());
        let reserved = self.cell.change(move |bytes| {
            let last = number(&path, bytes)?.checked_add(block);
            let last = last.filter(|last| i64::try_from(*last).is_ok());
            let last = last.ok_or_else(|| exhausted(&path))?;
            Ok(Some(Bytes::copy_from_slice(&last.to_be_bytes())))
        });
        let (path, reserved) = (self.cell.path(), reserved.await?);
        Ok(number(path, reserved.before.as_ref())?..number(path, reserved.after.as_ref())?)
    }
}

fn exhausted(path: &Path) -> Error {
    Error::new(ErrorKind::Invalid, "handing out a number")
        .at(path)
        .because("there are no numbers left")
}

/// The next number that is not reserved; 0 if there is no node.
fn number(path: &Path, bytes: Option<&Bytes>) -> Result<u64> {
    let Some(bytes) = bytes else { return Ok(0) };
    let number = bytes[..].try_into().ok().map(u64::from_be_bytes);
    number.filter(|number| i64::try_from(*number).is_ok()).ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, "handing out a number")
            .at(path)
            .because("what is stored is no number of eight bytes, or a negative one")
    })
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ids")
            .field("cell", &self.cell)
            .field("block", &self.block)
            .finish_non_exhaustive()
    }
}
