//! Checks a history by the revisions that its answers carry, without a search.
//!
//! Nearly every answer of a store has the revision at which it was true. So this check tests that
//! the order of revisions explains the answers and agrees with the order of calls that did not
//! overlap. It takes `n log n` steps. It accepts a few histories that the search of
//! [`registers`](super::registers) rejects, but never rejects a legal one.

use std::collections::BTreeMap;

use crate::check::Violation;
use crate::history::{Action, Answer, Call, History, Value};

/// Checks every register, and the order of all.
///
/// # Errors
///
/// The first answer that no correct store would have given. Each write must have had a unique
/// value.
pub fn check(history: &History) -> Result<(), Violation> {
    let registers: Vec<_> = history.registers().iter().map(|calls| Register::new(calls)).collect();
    for register in &registers {
        register.check_revisions()?;
        register.check_reads()?;
        register.check_swaps()?;
    }
    check_real_time(registers.iter().flat_map(|register| &register.known))
}

/// The calls of one register, classified.
struct Register {
    /// Every call with a known revision: a write has its own, a read has the revision of its value.
    known: Vec<(u64, Call)>,
    /// The writes that were applied, by revision. They include ambiguous ones that were read.
    chain: Vec<(u64, Call)>,
    /// Writes that may have been applied, at an unknown time.
    loose: Vec<Call>,
    /// The write of each value, if it may have been applied.
    writers: BTreeMap<Value, Call>,
    reads: Vec<Call>,
    refused: Vec<Call>,
    /// The revisions of values in reads.
    read_revisions: BTreeMap<Value, u64>,
}

impl Register {
    fn new(calls: &[Call]) -> Self {
        let writers = calls.iter().filter_map(|call| Some((call.written()??, *call)));
        let mut register = Self {
            known: Vec::new(),
            chain: Vec::new(),
            loose: Vec::new(),
            writers: writers.collect(),
            reads: Vec::new(),
            refused: Vec::new(),
            read_revisions: revisions_of_reads(calls),
        };
        for call in calls {
            register.sort_in(*call);
        }
        register.chain.sort_by_key(|(revision, call)| (*revision, call.called));
        register
    }

    fn sort_in(&mut self, call: Call) {
        match call.answer {
            Answer::Refused => self.refused.push(call),
            Answer::Found { value, revision } => {
                self.reads.push(call);
                let written =
                    value.and_then(|value| self.writers.get(&value)).and_then(revision_of);
                self.known.extend(revision.or(written).map(|revision| (revision, call)));
            }
            Answer::Done { revision: Some(revision) } => {
                self.known.push((revision, call));
                self.chain.push((revision, call));
            }
            Answer::Done { revision: None } | Answer::Unknown => {
                let Some(value) = call.written() else { return };
                match value.and_then(|value| self.read_revisions.get(&value)) {
                    Some(revision) => self.chain.push((*revision, call)),
                    None => self.loose.push(call),
                }
            }
            Answer::Failed => {}
        }
    }

    fn check_revisions(&self) -> Result<(), Violation> {
        for pair in self.chain.windows(2) {
            let [(first, one), (second, other)] = pair else { continue };
            if first == second {
                return Err(Violation::new("two writes share a revision", [*one, *other]));
            }
        }
        Ok(())
    }

    fn check_reads(&self) -> Result<(), Violation> {
        let fresh = Fresh::new(&self.known);
        let deletions = Deletions::new(&self.chain, &self.loose);
        for read in &self.reads {
            let Answer::Found { value, revision } = read.answer else { continue };
            let newest = fresh.before(read.called);
            let Some(value) = value else {
                let Some((newest, seen)) = newest else { continue };
                let absent = seen.written() == Some(None);
                if !absent && !deletions.any(newest, read.returned) {
                    return Err(Violation::new("a value vanished", [seen, *read]));
                }
                continue;
            };
            let Some(writer) = self.writers.get(&value) else {
                return Err(Violation::new("a read found a value that was never written", [*read]));
            };
            if writer.called > read.returned {
                return Err(Violation::new("a read returned a later write", [*writer, *read]));
            }
            let written = revision_of(writer).or_else(|| self.read_revisions.get(&value).copied());
            if written.is_some()
                && revision.is_some()
                && written != revision
                && revision_of(writer).is_none()
            {
                return Err(Violation::new("a write was applied twice", [*writer, *read]));
            }
            if written.is_some() && revision.is_some() && written != revision {
                return Err(Violation::new("a read has another revision", [*writer, *read]));
            }
            if let (Some(revision), Some((newest, seen))) = (revision.or(written), newest)
                && revision < newest
            {
                return Err(Violation::new("a read is stale", [seen, *read]));
            }
        }
        Ok(())
    }

    fn check_swaps(&self) -> Result<(), Violation> {
        let mut held = None;
        for (place, (_, call)) in self.chain.iter().enumerate() {
            if let Action::Swap { from, .. } = call.action
                && from != held
                && !self
                    .loose
                    .iter()
                    .any(|loose| loose.written() == Some(from) && loose.called < call.returned)
            {
                let before = place.checked_sub(1).map(|before| self.chain[before].1);
                let what = "a swap was applied to another value";
                return Err(Violation::new(what, before.into_iter().chain([*call])));
            }
            held = call.written().flatten();
        }
        self.check_refused()
    }

    /// Checks that a swap is not rejected while the register certainly has the expected value.
    fn check_refused(&self) -> Result<(), Violation> {
        let places: BTreeMap<_, _> = (self.chain.iter().enumerate())
            .filter_map(|(place, (_, call))| Some((call.written()??, place)))
            .collect();
        for refused in &self.refused {
            let Action::Swap { from: Some(from), .. } = refused.action else { continue };
            let Some(place) = places.get(&from) else { continue };
            let (_, writer) = self.chain[*place];
            let in_time =
                matches!(writer.answer, Answer::Done { .. }) && writer.returned < refused.called;
            let replaced =
                self.chain.get(place + 1).is_some_and(|(_, next)| next.called <= refused.returned);
            let unsure = self.loose.iter().any(|loose| loose.called <= refused.returned);
            if in_time && !replaced && !unsure {
                return Err(Violation::new("a swap was refused for no reason", [writer, *refused]));
            }
        }
        Ok(())
    }
}

/// The revisions of values in reads.
fn revisions_of_reads(calls: &[Call]) -> BTreeMap<Value, u64> {
    let read_revisions = calls.iter().filter_map(|call| match call.answer {
        Answer::Found { value: Some(value), revision: Some(revision) } => Some((value, revision)),
        _ => None,
    });
    read_revisions.collect()
}

fn revision_of(write: &Call) -> Option<u64> {
    match write.answer {
        Answer::Done { revision } => revision,
        _ => None,
    }
}

/// The facts that were certainly true at the highest revision before a time.
struct Fresh(Vec<(u64, u64, Call)>);

impl Fresh {
    fn new(known: &[(u64, Call)]) -> Self {
        let mut sorted = known.to_vec();
        sorted.sort_by_key(|(_, call)| call.returned);
        let mut highest: Option<(u64, Call)> = None;
        let steps = sorted.into_iter().map(|(revision, call)| {
            let better = highest.is_none_or(|(best, held)| {
                // At one revision the write itself is more precise than a read.
                revision > best || (revision == best && held.action == Action::Read)
            });
            if better {
                highest = Some((revision, call));
            }
            let (revision, best) = highest.unwrap_or((revision, call));
            (call.returned, revision, best)
        });
        Self(steps.collect())
    }

    fn before(&self, time: u64) -> Option<(u64, Call)> {
        let count = self.0.partition_point(|(returned, _, _)| *returned < time);
        let (_, revision, call) = self.0[..count].last()?;
        Some((*revision, *call))
    }
}

/// The deletions that may have happened, and their highest revision so far.
struct Deletions(Vec<(u64, u64)>);

impl Deletions {
    fn new(chain: &[(u64, Call)], loose: &[Call]) -> Self {
        let known = chain.iter().map(|(revision, call)| (*revision, call));
        let all = known.chain(loose.iter().map(|call| (u64::MAX, call)));
        let deletions = all.filter(|(_, call)| call.written() == Some(None));
        let mut sorted: Vec<_> =
            deletions.map(|(revision, call)| (call.called, revision)).collect();
        sorted.sort_unstable();
        let mut highest = 0;
        for (_, revision) in &mut sorted {
            highest = highest.max(*revision);
            *revision = highest;
        }
        Self(sorted)
    }

    /// Returns `true` if there may have been one after this revision, called before this time.
    fn any(&self, after: u64, before: u64) -> bool {
        let count = self.0.partition_point(|(called, _)| *called <= before);
        self.0[..count].last().is_some_and(|(_, highest)| *highest > after)
    }
}

/// Checks that a write has a later revision than every fact that was true before its call.
fn check_real_time<'a>(known: impl Iterator<Item = &'a (u64, Call)>) -> Result<(), Violation> {
    let known: Vec<_> = known.copied().collect();
    let fresh = Fresh::new(&known);
    for (revision, call) in known.iter().filter(|(_, call)| call.action != Action::Read) {
        if let Some((newest, seen)) = fresh.before(call.called)
            && newest >= *revision
        {
            return Err(Violation::new("a later write has an earlier revision", [seen, *call]));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::generated::{
        at, done, failed, found, found_at, refused, swap, unknown, write,
    };

    #[track_caller]
    fn legal(calls: &[Call]) {
        check(&History::new(calls.to_vec())).expect("legal");
    }

    #[track_caller]
    fn illegal(calls: &[Call], what: &str) {
        let violation = check(&History::new(calls.to_vec())).expect_err("illegal");
        assert_eq!(violation.what, what, "{violation}");
    }

    #[test]
    fn what_the_revisions_explain_is_legal() {
        legal(&[]);
        legal(&[at(5, write(1), 1, 9), found_at(5, Some(1), 2, 3), at(6, swap(Some(1), 2), 4, 9)]);
        legal(&[at(5, write(1), 1, 9), at(4, write(2), 2, 8), found_at(5, Some(1), 10, 11)]);
        legal(&[unknown(write(1), 1, 2), at(4, swap(Some(1), 2), 3, 4)]);
        legal(&[
            unknown(write(1), 1, 2),
            found_at(3, Some(1), 3, 4),
            at(4, swap(Some(1), 2), 5, 6),
        ]);
        legal(&[at(1, write(1), 1, 2), done(Action::Write(None), 3, 4), found(None, 5, 6)]);
        legal(&[at(1, write(1), 1, 2), unknown(Action::Write(None), 3, 4), found(None, 5, 6)]);
        legal(&[at(1, write(1), 1, 4), refused(swap(Some(1), 2), 3, 5)]);
        legal(&[failed(write(1), 1, 2), found(None, 3, 4)]);
    }

    #[test]
    fn what_the_revisions_do_not_explain_is_illegal() {
        illegal(
            &[at(5, write(1), 1, 2), at(4, write(2), 3, 4)],
            "a later write has an earlier revision",
        );
        illegal(&[at(5, write(1), 1, 2), at(5, write(2), 1, 2)], "two writes share a revision");
        illegal(
            &[at(1, write(1), 1, 2), at(2, write(2), 3, 4), found_at(1, Some(1), 5, 6)],
            "a read is stale",
        );
        illegal(
            &[
                at(1, write(1), 1, 9),
                at(2, write(2), 1, 9),
                found_at(2, Some(2), 2, 3),
                found_at(1, Some(1), 4, 5),
            ],
            "a read is stale",
        );
        illegal(&[found(Some(7), 1, 2)], "a read found a value that was never written");
        illegal(
            &[failed(write(1), 1, 2), found(Some(1), 3, 4)],
            "a read found a value that was never written",
        );
        illegal(
            &[at(1, write(1), 1, 2), refused(swap(Some(9), 2), 3, 4), found(Some(2), 5, 6)],
            "a read found a value that was never written",
        );
        illegal(&[found(Some(1), 1, 2), at(1, write(1), 3, 4)], "a read returned a later write");
        illegal(
            &[at(1, write(1), 1, 2), found_at(2, Some(1), 3, 4)],
            "a read has another revision",
        );
        illegal(&[at(1, write(1), 1, 2), found(None, 3, 4)], "a value vanished");
        illegal(
            &[at(1, swap(None, 1), 1, 9), at(2, swap(None, 2), 1, 9)],
            "a swap was applied to another value",
        );
        illegal(
            &[at(1, write(1), 1, 2), refused(swap(Some(1), 2), 3, 4)],
            "a swap was refused for no reason",
        );
    }

    #[test]
    fn an_ambiguous_write_that_was_read_at_two_revisions_happened_twice() {
        let calls = [
            unknown(write(1), 1, 2),
            found_at(1, Some(1), 3, 4),
            at(2, write(2), 5, 6),
            found_at(3, Some(1), 7, 8),
        ];
        illegal(&calls, "a write was applied twice");
    }
}
