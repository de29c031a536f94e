//! What every recipe keeps, whatever it is for: cases that are the same for all of them, by the table
//! of the recipes.

use crate::case::Case;

mod dropped;
mod ended;
mod foreign;
mod trial;

pub(crate) const ALL: &[&[Case]] = &[dropped::CASES, ended::CASES, foreign::CASES];
