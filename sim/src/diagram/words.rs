//! [`Words`]: replaces ids by short names.

use std::collections::BTreeMap;

use crate::cluster::What;

use crate::report::Report;

/// The names, and the subject of the failure.
pub(super) struct Words {
    /// Names of sessions, by their ids.
    sessions: BTreeMap<String, String>,
    /// Words that the failure mentions.
    about: Vec<String>,
}

impl Words {
    pub(super) fn of(report: &Report) -> Self {
        let mut sessions = BTreeMap::new();
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        for line in report.lines.iter().filter(|line| line.what == What::Session) {
            let Some(id) = line.text.strip_prefix("session ").and_then(|it| it.split(' ').next())
            else {
                continue;
            };
            let count = counts.entry(line.actor).or_default();
            sessions.entry(id.to_owned()).or_insert_with(|| {
                *count += 1;
                format!("{}/{count}", report.name(line.actor))
            });
        }
        let mut words = Self { sessions, about: Vec::new() };
        let what = report.violation.as_ref().map_or("", |violation| &violation.what);
        words.about =
            words.short(what).split(is_gap).filter(|it| names(it)).map(Into::into).collect();
        words
    }

    /// A text with short names.
    pub(super) fn short(&self, text: &str) -> String {
        let mut short = text.to_owned();
        for (id, name) in &self.sessions {
            if short.contains(id.as_str()) {
                short = short.replace(id.as_str(), name);
            }
        }
        without_ids(&short)
    }

    /// Returns `true` if a text mentions a subject of the failure.
    pub(super) fn is_about(&self, text: &str) -> bool {
        self.about.iter().any(|name| text.split(is_gap).any(|word| word == name))
    }
}

fn is_gap(c: char) -> bool {
    c.is_whitespace() || ",;:(){}\"'=".contains(c)
}

/// Returns `true` if a word is a unique name, such as a path or data.
fn names(word: &str) -> bool {
    let digits = word.contains(|c: char| c.is_ascii_digit());
    (digits && word.contains(['/', '.']) || word.starts_with('/') && word.len() > 2)
        && !word.ends_with('s')
}

/// Ids of 32 digits, with or without dashes, are shortened to the first four digits.
fn without_ids(text: &str) -> String {
    const LONG: usize = 24;
    let is_part = |c: char| c.is_ascii_hexdigit() || c == '-';
    let mut short = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.find(|c: char| c.is_ascii_hexdigit()) {
        short.push_str(&rest[..first]);
        rest = &rest[first..];
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        // The dash before the number that the store appended belongs to the number.
        let id = rest[..end].find("-0").filter(|at| *at >= LONG).unwrap_or(end);
        if id >= LONG {
            short.push_str(&rest[..4]);
            short.push('…');
            short.push_str(&rest[id..end]);
        } else {
            short.push_str(&rest[..end]);
        }
        rest = &rest[end..];
    }
    short.push_str(rest);
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_ids_are_cut_and_numbers_stay() {
        let id = "0123456789abcdef0123456789abcdef";
        assert_eq!(
            without_ids(&format!("create /q/t-{id}-0000000007 = x")),
            "create /q/t-0123…-0000000007 = x"
        );
        assert_eq!(without_ids("set /r/1 = deadbeef, #12"), "set /r/1 = deadbeef, #12");
        let dashed = "_c_01234567-89ab-cdef-0123-456789abcdef-lock-0000000007";
        assert_eq!(without_ids(dashed), "_c_0123…lock-0000000007");
    }
}
