//! [`CrewAttempt`]: an attempt at a task. [`AttemptLog`]: the node that holds the attempts at a
//! task.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Expect, Lifetime, Node, Query, Rejected, Txn, Version};
use synod_core::value::{decode, encode};

use crate::mutant::mistake;
use crate::support::names::beginning;
use crate::support::retry::insist;
use crate::support::time::date;

/// An attempt at a task, from its assignment to a worker on.
///
/// The dates are durations since the beginning of 1970. They are meant for display: the clocks of
/// different machines differ.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CrewAttempt {
    /// The name of the worker.
    pub worker: String,
    /// The date of the assignment, by the wall clock of the master. `None` if the master is of an
    /// earlier version.
    #[serde(default, with = "millis", skip_serializing_if = "Option::is_none")]
    pub begun: Option<Duration>,
    /// The progress that the worker reported last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// The date of the end, by the wall clock of the client that noticed it.
    #[serde(default, with = "millis", skip_serializing_if = "Option::is_none")]
    pub ended: Option<Duration>,
    /// The end of the attempt, or `None` while it continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<AttemptEnd>,
}

impl CrewAttempt {
    /// Creates an attempt that continues, with the progress that its worker has reported.
    pub(super) fn new(worker: &str, begun: Option<Duration>, progress: Option<String>) -> Self {
        Self { worker: worker.to_owned(), begun, progress, ended: None, end: None }
    }

    /// Returns the attempt with this end, dated now.
    pub(super) fn ending(self, end: AttemptEnd) -> Self {
        Self { ended: Some(date()), end: Some(end), ..self }
    }
}

/// The end of an attempt at a task.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AttemptEnd {
    /// The result was accepted.
    Done,
    /// The attempt failed, with the beginning of its error message.
    Failed(String),
    /// The worker was lost.
    Lost,
    /// The task was cancelled or expired meanwhile.
    Revoked,
}

/// Omits the progress and the error, which are the application's.
impl fmt::Debug for CrewAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrewAttempt")
            .field("worker", &self.worker)
            .field("begun", &self.begun)
            .field("ended", &self.ended)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

/// Omits the error, which is the application's.
impl fmt::Debug for AttemptEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "Done",
            Self::Failed(_) => "Failed(..)",
            Self::Lost => "Lost",
            Self::Revoked => "Revoked",
        })
    }
}

/// Serialization of durations as numbers of milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    #[expect(clippy::ref_option, reason = "the signature is serde's")]
    pub(super) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let millis = time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        millis.serialize(serializer)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}

/// The maximum number of attempts of a task that are kept: the last ones.
const MAX_ATTEMPTS: usize = 16;

/// The maximum number of bytes of a text that are kept.
const MAX_TEXT: usize = 1_000;

/// The maximum size of a record in bytes. Each change of a task also writes the record, so one
/// transaction must have room for both.
pub(super) const MAX_RECORD: usize = 16_000;

/// The last attempts at a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AttemptsRecord {
    /// The number of earlier attempts, which are not kept.
    #[serde(default)]
    pub(super) earlier: u32,
    pub(super) attempts: Vec<CrewAttempt>,
}

impl AttemptsRecord {
    /// Returns the record with this attempt. If the last attempt is of the same worker and has not
    /// ended, it is replaced.
    pub(super) fn with(mut self, attempt: &CrewAttempt) -> Self {
        let mut attempt = shortened(attempt.clone(), MAX_TEXT);
        let last = self.attempts.pop_if(|it| it.worker == attempt.worker && it.end.is_none());
        if let Some(last) = last {
            attempt.begun = last.begun.or(attempt.begun);
            attempt.progress = attempt.progress.or(last.progress);
        }
        self.attempts.push(attempt);
        let dropped = self.attempts.len().saturating_sub(MAX_ATTEMPTS);
        self.attempts.drain(..dropped);
        self.earlier = self.earlier.saturating_add(u32::try_from(dropped).unwrap_or(u32::MAX));
        self.fitting()
    }

    /// Shortens the texts of the earlier attempts if the record is too large for a node.
    fn fitting(mut self) -> Self {
        let mut max_bytes = MAX_TEXT;
        while max_bytes > 0 && self.size() > MAX_RECORD {
            max_bytes /= 2;
            let last = self.attempts.pop();
            let all = self.attempts.into_iter().map(|attempt| shortened(attempt, max_bytes));
            self.attempts = all.chain(last).collect();
        }
        self
    }

    fn size(&self) -> usize {
        encode(&Path::root(), self).map_or(0, |data| data.len())
    }
}

/// Shortens the texts of an attempt to this number of bytes.
fn shortened(mut attempt: CrewAttempt, max_bytes: usize) -> CrewAttempt {
    if let Some(AttemptEnd::Failed(failure)) = &mut attempt.end {
        *failure = beginning(failure, max_bytes);
    }
    attempt.progress = attempt.progress.map(|progress| beginning(&progress, max_bytes));
    attempt
}

/// The attempts at a task, as the client that ends one knows them. It assumes that there are no
/// earlier attempts until the store rejects that: few tasks have more than one.
pub(super) struct AttemptLog {
    node: Path,
    stored: Option<(Version, AttemptsRecord)>,
}

impl AttemptLog {
    pub(super) fn new(node: Path) -> Self {
        Self { node, stored: None }
    }

    /// Adds the write of this attempt, after the known ones, to a transaction.
    pub(super) fn add_to(&self, txn: Txn, attempt: &CrewAttempt) -> Result<Txn> {
        let (node, stored) = (self.node.clone(), self.stored.clone());
        mistake!(AttemptsForgotten: let stored = stored.map(|(it, _)| (it, AttemptsRecord::default())));
        Ok(match stored {
            None => {
                let data = encode(&node, &AttemptsRecord::default().with(attempt))?;
                txn.create(node, data, Lifetime::Persistent)
            }
            Some((version, record)) => {
                let data = encode(&node, &record.with(attempt))?;
                txn.set(node, data, Expect::Version(version))
            }
        })
    }

    /// Reads the attempts again if a transaction was rejected because others were added. Returns
    /// whether that was the reason.
    pub(super) async fn reload_if_changed(
        &mut self,
        session: &Session,
        no: Option<&Rejected>,
    ) -> Result<bool> {
        if no.is_none_or(|no| no.path != self.node) {
            return Ok(false);
        }
        self.read(session).await?;
        Ok(true)
    }

    /// Reads the attempts.
    pub(super) async fn read(&mut self, session: &Session) -> Result<()> {
        let view = insist(session, || session.read(Query::node(&self.node))).await?;
        self.stored = view.node().and_then(|node| Some((node.stat?.version, record_of(node))));
        Ok(())
    }
}

/// Reads the attempts from a node. Content that is not a record is replaced by the next write.
pub(super) fn record_of(node: &Node) -> AttemptsRecord {
    decode(&node.path, &node.data).unwrap_or_default()
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
    fn an_attempt_that_continues_is_replaced_by_its_end() {
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
    fn a_record_never_exceeds_its_limit() {
        // Each character has six bytes in JSON.
        let worst = "\u{1}".repeat(2 * MAX_TEXT);
        let mut record = AttemptsRecord::default();
        for number in 0..20 {
            // The maximum length of the name of a worker.
            let worker = format!("{number:065}");
            let end = Some(AttemptEnd::Failed(worst.clone()));
            record = record.with(&attempt(&worker, Some(&worst), end));
            assert!(record.size() <= MAX_RECORD, "{} bytes after {number}", record.size());
        }
        assert_eq!((record.earlier, record.attempts.len()), (4, MAX_ATTEMPTS));
        let kept = worst[..MAX_TEXT].to_owned();
        let last = record.attempts.last().expect("there are some");
        assert_eq!(last.progress.as_ref(), Some(&kept), "the last attempt is not shortened");
        assert_eq!(last.end, Some(AttemptEnd::Failed(kept)));
    }

    #[test]
    fn the_last_attempts_and_the_beginnings_of_texts_are_kept() {
        let long = "ä".repeat(MAX_TEXT);
        let mut record = AttemptsRecord::default();
        for number in 0..20 {
            let end = Some(AttemptEnd::Failed(long.clone()));
            record = record.with(&attempt(&number.to_string(), Some(&long), end));
        }
        assert_eq!((record.earlier, record.attempts.len()), (4, MAX_ATTEMPTS));
        let kept = "ä".repeat(MAX_TEXT / 2);
        let last = attempt("19", Some(&kept), Some(AttemptEnd::Failed(kept.clone())));
        assert_eq!(record.attempts.last(), Some(&last));
    }
}
