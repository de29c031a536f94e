//! [`CrewAttempt`]: an attempt at a task. [`AttemptEnd`]: how it ended.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::crew::deadlines::date;

/// An attempt at a task, from its assignment to a worker on.
///
/// Its dates are durations since the beginning of 1970. They are for people: clocks of different machines differ.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CrewAttempt {
    /// The name of its worker.
    pub worker: String,
    /// When the task was assigned, by the wall clock of the master. `None` if that was a master of an earlier version.
    #[serde(default, with = "millis", skip_serializing_if = "Option::is_none")]
    pub begun: Option<Duration>,
    /// What its worker reported last of its progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// When it ended, by the wall clock of the client that noticed.
    #[serde(default, with = "millis", skip_serializing_if = "Option::is_none")]
    pub ended: Option<Duration>,
    /// How it ended, if it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<AttemptEnd>,
}

impl CrewAttempt {
    /// One that goes on, with what its worker has reported.
    pub(super) fn new(worker: &str, begun: Option<Duration>, progress: Option<String>) -> Self {
        Self { worker: worker.to_owned(), begun, progress, ended: None, end: None }
    }

    /// The same, and it ends now.
    pub(super) fn ending(self, end: AttemptEnd) -> Self {
        Self { ended: Some(date()), end: Some(end), ..self }
    }
}

/// How an attempt at a task ended.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AttemptEnd {
    /// Its result was accepted.
    Done,
    /// It failed, with the beginning of the text of its error.
    Failed(String),
    /// Its worker was lost.
    Lost,
    /// The task was cancelled or expired meanwhile.
    Revoked,
}

/// Shows neither progress nor errors: they are the application's.
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

/// Shows no error: it is the application's.
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

/// Durations as numbers of milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    #[expect(clippy::ref_option, reason = "serde calls it so")]
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
