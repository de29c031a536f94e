//! The order of tickets for permits: as many are granted as there are permits.

use crate::line::marks::Claim;
use crate::mutant::mistake;

/// Where a ticket for permits stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PermitTurn {
    /// There are permits for it.
    Granted,
    /// It is the first for which there are too few.
    Next,
    /// A ticket before it waits, too.
    Later,
}

/// The share of a ticket with this claim after those `ahead`, if there are so many permits.
pub(super) fn share(
    ahead: impl Iterator<Item = Claim> + Clone,
    claim: Claim,
    permits: u32,
) -> PermitTurn {
    let weight = |claim| match claim {
        Claim::Permits(permits) => u64::from(permits),
        // An exclusive claim takes all permits that there are, and at least one.
        Claim::Alone | Claim::Shared => u64::from(permits).max(1),
    };
    let weights = ahead.map(weight);
    let taken: u64 = weights.clone().sum();
    mistake!(PermitsMiscounted: let taken = weights.clone().count() as u64);
    mistake!(PermitsBarge: let taken = crate::mutant::line::fitting(weights.clone(), permits));
    if taken + weight(claim) <= permits.into() {
        PermitTurn::Granted
    } else if taken <= permits.into() {
        PermitTurn::Next
    } else {
        PermitTurn::Later
    }
}
