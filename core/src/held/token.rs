//! [`Token`]: the number that proves outside what somebody holds.

use std::fmt;

use crate::store::Revision;

/// Proof of holding something: a number that is larger for whoever holds it later.
///
/// Give it to systems outside with everything that is done there under a lock, and let them refuse what
/// comes with a lower one than they have seen. Tokens of one path never repeat and never go back,
/// also after its directory was deleted.
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

    /// The token of the next owner within this process of what hangs on the same node.
    pub fn next_turn(self) -> Self {
        Self { turn: self.turn + 1, ..self }
    }

    /// When the ticket was created: the whole of the token where nothing is handed over within a process.
    pub fn revision(self) -> Revision {
        self.revision
    }

    /// Which time it is that the ticket was handed over within its process. Zero unless a recipe was
    /// told to do so.
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
