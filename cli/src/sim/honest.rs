//! `sim mutants` without the feature `mutants`: a program for production contains no planted
//! mistakes.

use std::path::Path;

use crate::args::Common;
use crate::failure::Failure;
use crate::sim::failing::mutants_are_missing;

/// The arguments.
#[expect(dead_code, reason = "whatever is asked for, it is not here")]
pub(super) struct Asked<'a> {
    pub(super) only: &'a str,
    pub(super) seeds: u64,
    pub(super) first: bool,
    pub(super) keep: Option<&'a Path>,
}

/// Reports how to build with them.
pub(super) fn run(_: &Common, _: &Asked<'_>, _: bool, _: bool) -> Result<(), Failure> {
    Err(Failure::plain(mutants_are_missing()))
}
