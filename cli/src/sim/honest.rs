//! A program that is to be relied on makes no mistakes on purpose.

use std::path::Path;

use crate::args::Common;
use crate::failure::Failure;
use crate::sim::mutants_are_missing;

/// What was asked for.
#[expect(dead_code, reason = "whatever is asked for, it is not here")]
pub(super) struct Asked<'a> {
    pub(super) only: &'a str,
    pub(super) seeds: u64,
    pub(super) first: bool,
    pub(super) keep: Option<&'a Path>,
}

/// Says how to get them.
pub(super) fn run(_: &Common, _: &Asked<'_>, _: bool, _: bool) -> Result<(), Failure> {
    Err(Failure::plain(mutants_are_missing()))
}
