//! [`Token`]: the fencing token of a grant.

use std::fmt;

use crate::store::Revision;

/// The fencing token of a grant: a number that is larger for each later grant.
///
/// Send it with every request to a system outside the store that is made under a lock, and let that system refuse
/// a token lower than one that it has seen. Tokens of one path never repeat and never go back, even after the
/// directory of the path was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    revision: Revision,
    turn: u32,
}

impl Token {
    /// The token of what hangs on a node: its `created` revision.
    pub fn new(revision: Revision) -> Self {
        Self { revision, turn: 0 }
    }

    /// The token of the same ticket after it was handed over within this process.
    pub fn next_turn(self) -> Self {
        Self { turn: self.turn + 1, ..self }
    }

    /// The revision of the ticket's create: the whole token, unless the ticket is handed over within a process.
    pub fn revision(self) -> Revision {
        self.revision
    }

    /// How many times the ticket was handed over within its process. Zero unless the recipe is made to hand tickets
    /// over.
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
