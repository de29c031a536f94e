//! `backup` and `doctor` of a build without stores in directories.

use std::path::Path as FilePath;

use crate::args::Common;
use crate::failure::Failure;

const ABSENT: &str = "a store in a directory needs the feature `file`, and Linux: this build has \
    none";

#[expect(clippy::unused_async, reason = "as with the feature")]
pub(crate) async fn backup(_common: &Common, _to: &FilePath) -> Result<(), Failure> {
    Err(Failure::plain(ABSENT))
}

#[expect(clippy::unused_async, reason = "as with the feature")]
pub(crate) async fn doctor(_common: &Common) -> Result<(), Failure> {
    Err(Failure::plain(ABSENT))
}
