//! [`Token`]: the fencing token of a grant.

use std::fmt;

use crate::store::Revision;

/// The fencing token of a grant: a number that is larger for each later grant.
///
/// Send it with every request that is made under a lock to a system outside the store, and let that
/// system reject a token lower than one that it has seen. Tokens of one path never repeat and never
/// decrease, even after the directory of the path was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    revision: Revision,
    turn: u32,
}

impl Token {
    /// Creates the token of a grant that depends on a node with this `created` revision.
    pub fn new(revision: Revision) -> Self {
        Self { revision, turn: 0 }
    }

    /// Returns the token of the same ticket after it was handed over within this process.
    pub fn next_turn(self) -> Self {
        Self { turn: self.turn + 1, ..self }
    }

    /// Returns the revision at which the ticket was created: this is the whole token, unless the
    /// ticket is handed over within a process.
    pub fn revision(self) -> Revision {
        self.revision
    }

    /// Returns the number of times that the ticket was handed over within its process. Zero unless
    /// the recipe is configured to hand tickets over.
    pub fn turn(self) -> u32 {
        self.turn
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.revision, f)?;
        if self.turn > 0 { write!(f, ".{}", self.turn) } else { Ok(()) }
    }
}
