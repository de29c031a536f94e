//! The list of all cases.

use crate::case::Case;
use crate::{door, every, recipe, store};

/// Every case, in the order of the laws.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    let all = [store::ALL, door::ALL, every::ALL, recipe::ALL];
    all.into_iter().flatten().copied().flatten()
}
