//! [`Form`]: what the tickets of one recipe are like.

use crate::line::marks::{self, Capacity, Claim};
use crate::mutant::mistake;

/// The properties of a recipe's tickets.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    /// The recipe, in metrics and spans.
    pub(crate) recipe: &'static str,
    /// The end of the name of a ticket: one of [`marks`].
    pub(crate) mark: String,
    /// How much the line grants at once, if its tickets are for permits.
    pub(crate) capacity: Capacity,
    /// Whether a grant depends on more than the predecessor.
    pub(crate) whole: bool,
    /// Whether a write to a ticket may reduce its claim.
    pub(crate) changes: bool,
    /// Whether a ticket may reuse the name of a removed ticket, on stores that append no sequence to the name.
    pub(crate) renews: bool,
}

impl Form {
    /// Tickets of a lock that can be shared. The mark decides whether these are shared or exclusive.
    pub(crate) fn shared(recipe: &'static str, mark: &str) -> Self {
        Self::of(recipe, mark.to_owned(), Capacity::One, true)
    }

    /// Tickets that each claim so many permits at once.
    pub(crate) fn permits(recipe: &'static str, permits: u32, capacity: Capacity) -> Self {
        Self::of(recipe, marks::permits_mark(permits, capacity), capacity, true)
    }

    /// Exclusive tickets with this mark, granted one at a time, in order.
    pub(crate) fn alone(recipe: &'static str, mark: &str) -> Self {
        Self::of(recipe, mark.to_owned(), Capacity::One, false)
    }

    fn of(recipe: &'static str, mark: String, capacity: Capacity, whole: bool) -> Self {
        Self { recipe, mark, capacity, whole, changes: false, renews: false }
    }

    /// A write to a ticket of this form may reduce its claim.
    pub(crate) fn changing(self) -> Self {
        mistake!(WriterForEver: return self);
        Self { changes: true, ..self }
    }

    /// Tickets of this form may reuse the names of removed tickets.
    pub(crate) fn renewing(self) -> Self {
        Self { renews: true, ..self }
    }

    /// Whether it matters to such a ticket that its predecessor may downgrade.
    pub(super) fn may_share(&self) -> bool {
        self.capacity == Capacity::One && Claim::of_mark(&self.mark) == Claim::Shared
    }
}
