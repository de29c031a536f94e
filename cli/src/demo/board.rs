//! [`Board`]: a few lines that are drawn repeatedly in the same place of a terminal.

use std::io::{self, IsTerminal as _};

use crate::output;

/// The lines that are currently drawn. Without a terminal nothing is drawn.
#[derive(Debug)]
pub(crate) struct Board {
    live: bool,
    drawn: usize,
}

impl Board {
    pub(crate) fn new(json: bool) -> Self {
        Self { live: !json && io::stdout().is_terminal(), drawn: 0 }
    }

    /// Draws these lines in place of the previous ones.
    pub(crate) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        if !self.live {
            return Ok(());
        }
        self.clear()?;
        self.drawn = lines.len();
        output::line(&lines.join("\n"))
    }

    /// Removes what is drawn, so that other lines can be printed.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        if self.drawn == 0 {
            return Ok(());
        }
        // Moves to the first line, and erases everything from there.
        let erase = format!("\x1b[{}F\x1b[J", self.drawn);
        self.drawn = 0;
        output::bytes(erase.as_bytes())
    }
}
