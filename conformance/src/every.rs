//! Cases that are the same for all recipes, generated from the table of the recipes.

use crate::case::Case;

mod dropped;
mod edge;
mod ended;
mod foreign;
mod narrow;
mod passing;
mod second;
mod trial;

pub(crate) const ALL: &[&[Case]] =
    &[dropped::CASES, ended::CASES, foreign::CASES, edge::CASES, second::CASES];
