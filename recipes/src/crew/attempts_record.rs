//! [`AttemptsRecord`]: what the node of the attempts at a task holds.

use serde::{Deserialize, Serialize};
use synod_core::path::Path;
use synod_core::value::encode;

use crate::crew::crew_attempt::{AttemptEnd, CrewAttempt};

/// How many attempts are kept of a task: the last ones.
const KEPT: usize = 16;

/// How many bytes are kept of a text.
const TEXT: usize = 1_000;

/// The most bytes of a record. Each change of a task writes the record, too, so there must be room for both in one transaction.
pub(super) const MAX_RECORD: usize = 16_000;

/// The last attempts at a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AttemptsRecord {
    /// How many there were before these.
    #[serde(default)]
    pub(super) earlier: u32,
    pub(super) attempts: Vec<CrewAttempt>,
}

impl AttemptsRecord {
    /// The same with this attempt. If the last one is of the same worker and has not ended, it is the same attempt.
    pub(super) fn with(mut self, attempt: &CrewAttempt) -> Self {
        let mut attempt = shortened(attempt.clone(), TEXT);
        let last = self.attempts.pop_if(|it| it.worker == attempt.worker && it.end.is_none());
        if let Some(last) = last {
            attempt.begun = last.begun.or(attempt.begun);
            attempt.progress = attempt.progress.or(last.progress);
        }
        self.attempts.push(attempt);
        let dropped = self.attempts.len().saturating_sub(KEPT);
        self.attempts.drain(..dropped);
        self.earlier = self.earlier.saturating_add(u32::try_from(dropped).unwrap_or(u32::MAX));
        self.fitting()
    }

    /// The same with shorter texts of the earlier attempts, if it is too large for a node.
    fn fitting(mut self) -> Self {
        let mut longest = TEXT;
        while longest > 0 && self.size() > MAX_RECORD {
            longest /= 2;
            let last = self.attempts.pop();
            let all = self.attempts.into_iter().map(|attempt| shortened(attempt, longest));
            self.attempts = all.chain(last).collect();
        }
        self
    }

    fn size(&self) -> usize {
        encode(&Path::root(), self).map_or(0, |data| data.len())
    }
}

/// An attempt without what is longer than so many bytes of its texts.
fn shortened(mut attempt: CrewAttempt, longest: usize) -> CrewAttempt {
    if let Some(AttemptEnd::Failed(failure)) = &mut attempt.end {
        *failure = beginning(failure, longest);
    }
    attempt.progress = attempt.progress.map(|progress| beginning(&progress, longest));
    attempt
}

/// The beginning of a text, of so many bytes at most.
pub(super) fn beginning(text: &str, longest: usize) -> String {
    let end = (0..=longest.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text[..end.unwrap_or_default()].to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn attempt(worker: &str, progress: Option<&str>, end: Option<AttemptEnd>) -> CrewAttempt {
        let ended = end.as_ref().map(|_| Duration::from_secs(3));
        let begun = Some(Duration::from_secs(1));
        let progress = progress.map(str::to_owned);
        CrewAttempt { worker: worker.to_owned(), begun, progress, ended, end }
    }

    #[test]
    fn an_attempt_that_has_not_ended_is_the_one_that_its_worker_ends() {
        let begun = AttemptsRecord::default().with(&attempt("ann", Some("half"), None));
        let more = begun.clone().with(&attempt("ann", Some("most"), None));
        assert_eq!(more.attempts, [attempt("ann", Some("most"), None)]);

        let lost = more.with(&attempt("ann", None, Some(AttemptEnd::Lost)));
        assert_eq!(lost.attempts, [attempt("ann", Some("most"), Some(AttemptEnd::Lost))]);
        let again = lost.with(&attempt("ann", None, Some(AttemptEnd::Done)));
        assert_eq!(again.attempts.len(), 2);
        assert_eq!(begun.with(&attempt("bob", None, None)).attempts.len(), 2);
    }

    #[test]
    fn a_record_of_texts_of_the_worst_kind_is_no_larger_than_its_limit() {
        // Six bytes of JSON for each.
        let worst = "\u{1}".repeat(2 * TEXT);
        let mut record = AttemptsRecord::default();
        for number in 0..20 {
            // As long as the name of a worker.
            let worker = format!("{number:065}");
            let end = Some(AttemptEnd::Failed(worst.clone()));
            record = record.with(&attempt(&worker, Some(&worst), end));
            assert!(record.size() <= MAX_RECORD, "{} bytes after {number}", record.size());
        }
        assert_eq!((record.earlier, record.attempts.len()), (4, KEPT));
        let kept = worst[..TEXT].to_owned();
        let last = record.attempts.last().expect("there are some");
        assert_eq!(last.progress.as_ref(), Some(&kept), "of the last one all is kept");
        assert_eq!(last.end, Some(AttemptEnd::Failed(kept)));
    }

    #[test]
    fn the_last_attempts_and_the_beginnings_of_texts_are_kept() {
        let long = "ä".repeat(TEXT);
        let mut record = AttemptsRecord::default();
        for number in 0..20 {
            let end = Some(AttemptEnd::Failed(long.clone()));
            record = record.with(&attempt(&number.to_string(), Some(&long), end));
        }
        assert_eq!((record.earlier, record.attempts.len()), (4, KEPT));
        let kept = "ä".repeat(TEXT / 2);
        let last = attempt("19", Some(&kept), Some(AttemptEnd::Failed(kept.clone())));
        assert_eq!(record.attempts.last(), Some(&last));
    }
}
