//! Without the feature: never.

use super::Mutant;

#[inline]
pub(super) const fn is(_mutant: Mutant) -> bool {
    false
}
