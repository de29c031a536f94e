//! A diagram as text.

use std::fmt::Write as _;
use std::time::Duration;

use crate::diagram::{Cell, Diagram};

const TIME: usize = 10;
/// The minimum width of a lane, for any total width.
const NARROW: usize = 18;

impl Diagram {
    /// The diagram as lines of at most `width` characters, if they fit.
    pub fn text(&self, width: usize) -> String {
        let lanes = self.lanes.len();
        let lane = (width.saturating_sub(TIME + 3 * lanes) / lanes).max(NARROW);
        let mut text = String::new();
        let heads = self.lanes.iter().map(|name| format!("│ {name:<lane$} "));
        let _written = writeln!(text, "{:>TIME$}{}", "", trimmed(&heads.collect::<String>()));
        let rule = format!("┼{}", "─".repeat(lane + 2)).repeat(lanes);
        let _written = writeln!(text, "{}{rule}", "─".repeat(TIME));
        let mut last = Duration::ZERO;
        for cell in &self.cells {
            let is_later = text.lines().count() == 2 || cell.at != last;
            last = cell.at;
            self.cell(&mut text, cell, lane, is_later);
        }
        text
    }

    fn cell(&self, text: &mut String, cell: &Cell, lane: usize, is_later: bool) {
        let times = if cell.times > 1 { format!(" ({} times)", cell.times) } else { String::new() };
        let parts = wrapped(&format!("{}{times}", cell.text), lane);
        for (nth, part) in parts.iter().enumerate() {
            let mark = if cell.is_marked { "▶" } else { " " };
            let time = if nth == 0 && is_later { shown(cell.at) } else { String::new() };
            let mut drawn = format!("{mark}{time:>8} ");
            for place in 0..self.lanes.len() {
                let bar = if cell.goes_on.get(place) == Some(&true) { '┃' } else { '│' };
                let said = if place == cell.lane { part.as_str() } else { "" };
                let _written = write!(drawn, "{bar} {said:<lane$} ");
            }
            let _written = writeln!(text, "{}", trimmed(&drawn));
        }
    }
}

/// A time, in a suitable unit.
pub(super) fn shown(at: Duration) -> String {
    let (millis, micros) = (at.as_millis(), at.subsec_micros() % 1_000);
    if micros == 0 { format!("{millis} ms") } else { format!("{millis}.{:01} ms", micros / 100) }
}

fn trimmed(line: &str) -> &str {
    line.trim_end()
}

/// A text in lines of at most `width` characters, broken at spaces where possible.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        loop {
            let indent = if lines.len() > 1 { 2 } else { 0 };
            let Some(line) = lines.last_mut() else { break };
            let used = line.chars().count();
            let gap = usize::from(used > indent);
            if used + gap + word.len() <= width {
                line.extend(std::iter::repeat_n(' ', gap));
                line.extend(word);
                break;
            }
            if used <= indent {
                // The word is longer than a line.
                line.extend(word.drain(..width - used));
            }
            lines.push("  ".to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_at_spaces_and_else_anywhere() {
        assert_eq!(wrapped("one two", 20), ["one two"]);
        assert_eq!(wrapped("one two three", 8), ["one two", "  three"]);
        assert_eq!(wrapped("abcdefghij", 6), ["abcdef", "  ghij"]);
        assert_eq!(wrapped("a abcdefghij b", 6), ["a", "  abcd", "  efgh", "  ij b"]);
    }
}
