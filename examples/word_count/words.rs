//! [`Words`]: the number of occurrences of each word.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The longest run of bytes without a space or an ASCII sign that is taken for text. A longer run
/// is not counted.
pub(crate) const LONGEST: u64 = 4096;

/// The number of occurrences of each word, in lower case.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Words(BTreeMap<String, u64>);

impl Words {
    /// Counts the words of those runs that begin within `part` of `text`. So parts that follow one
    /// another count each word once, wherever they meet. A run ends at an ASCII byte, and never
    /// within a character.
    pub(crate) fn of(text: &[u8], part: &Range<u64>) -> Self {
        let mut words = Self::default();
        let mut begin = 0;
        for run in text.split(|byte| byte.is_ascii() && !byte.is_ascii_alphanumeric()) {
            let length = run.len() as u64;
            if part.contains(&begin) && length <= LONGEST {
                let run = String::from_utf8_lossy(run);
                for word in
                    run.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
                {
                    *words.0.entry(word.to_lowercase()).or_default() += 1;
                }
            }
            begin += length + 1;
        }
        words
    }

    pub(crate) fn add(&mut self, others: Self) {
        for (word, times) in others.0 {
            *self.0.entry(word).or_default() += times;
        }
    }

    /// The most frequent words first, and the sums at the end.
    pub(crate) fn table(&self, rows: usize) -> String {
        let mut all: Vec<_> = self.0.iter().collect();
        // Equally frequent words stay in alphabetical order.
        all.sort_by_key(|(_, times)| std::cmp::Reverse(**times));
        let mut table = String::new();
        for (word, times) in all.iter().take(rows) {
            let _written = writeln!(table, "{times:>10}  {word}").is_ok();
        }
        let (sum, different) = (self.0.values().sum::<u64>(), self.0.len());
        let _written = write!(table, "{sum:>10}  words, {different} different ones").is_ok();
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_any_length_have_the_words_of_the_whole() {
        let text = "a b the The, the-end; Über été\n日本語 x".as_bytes();
        let whole = Words::of(text, &(0..text.len() as u64));
        for length in 1..text.len() {
            let mut sum = Words::default();
            for from in (0..text.len()).step_by(length) {
                sum.add(Words::of(text, &(from as u64..(from + length) as u64)));
            }
            assert_eq!(sum, whole, "in parts of {length} bytes");
        }
        assert_eq!(whole.0["the"], 3);
        assert_eq!(whole.0["über"], 1);
    }

    #[test]
    fn the_most_frequent_words_are_first() {
        let words = Words::of(b"b a c c", &(0..7));
        let lines: Vec<String> =
            words.table(2).lines().map(|line| line.trim().to_owned()).collect();
        assert_eq!(lines, ["2  c", "1  a", "4  words, 3 different ones"]);
    }

    #[test]
    fn a_run_that_is_too_long_is_not_counted() {
        let most = usize::try_from(LONGEST).expect("small");
        for (length, counted) in [(most, 1), (most + 1, 0)] {
            let text = "x".repeat(length);
            assert_eq!(Words::of(text.as_bytes(), &(0..length as u64)).0.len(), counted);
        }
    }
}
