//! [`Failure`]: the reason why a command failed, in one plain line.

use std::error::Error as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use synod::InvalidPath;
use synod::{Error, ErrorKind, Outcome, RejectReason};

use crate::usage::USAGE;

/// The exit code if a node, an item, a worker or a task does not exist. This code and the next
/// three come from `sysexits.h`.
const NOT_THERE: u8 = 66;
/// The exit code if the store does not answer, or the session was lost.
pub(crate) const UNREACHABLE: u8 = 69;
/// The exit code if the store refuses a change: something already exists, or was changed.
pub(crate) const REFUSED: u8 = 73;
/// The exit code if the store rejects the user, or the user lacks a permission.
pub(crate) const DENIED: u8 = 77;

/// The exit code of `diff` where other commands have 1.
const TROUBLE: u8 = 2;

/// The exit codes of all commands, for their help.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    success         2    wrong arguments
  66   it is not there
  69   the store does not answer
  73   the store refuses it: it is there already, or was changed meanwhile
  77   the user may not do that
  1    anything else, with a line that says what
Some commands have more, which their own help lists.";

/// The reason why a command ends without success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the store, or of the connection to it.
    Store(Error),
    /// Nothing is there.
    NotThere(String),
    /// An error of the terminal, or of a pipe.
    Io(io::Error),
    /// An error of the command itself.
    Plain(String),
    /// The command printed the reason already.
    Told,
    /// An error with its own exit code, and an optional message.
    Exit(u8, Option<String>),
}

impl Failure {
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self::Plain(text.into())
    }

    /// An error of the arguments, as a whole.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::Exit(USAGE, Some(text.into()))
    }

    /// Converts a change that was not applied to an error.
    pub(crate) fn unless_applied<T>(outcome: Outcome<T>) -> Result<T, Self> {
        match outcome {
            Outcome::Committed(done) => Ok(done),
            Outcome::Rejected(no) if no.reason == RejectReason::Missing => {
                Err(Self::NotThere(no.to_string()))
            }
            Outcome::Rejected(no) => Err(Self::Exit(REFUSED, Some(no.to_string()))),
        }
    }

    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Exit(code, _) => *code,
            Self::NotThere(_) => NOT_THERE,
            Self::Store(error) => match error.kind() {
                ErrorKind::Unreachable | ErrorKind::SessionLost => UNREACHABLE,
                ErrorKind::Refused => REFUSED,
                ErrorKind::Denied => DENIED,
                _ => 1,
            },
            Self::Io(_) | Self::Plain(_) | Self::Told => 1,
        }
    }

    /// The failure of `diff`, whose exit code is 2 instead of 1: 1 means a difference.
    pub(crate) fn of_diff(self) -> Self {
        match self {
            Self::Store(error) if Self::Store(error.clone()).code() == 1 => {
                Self::Exit(TROUBLE, Some(sentence(&error)))
            }
            Self::Plain(text) => Self::Exit(TROUBLE, Some(text)),
            Self::Io(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Self::Exit(TROUBLE, Some(error.to_string()))
            }
            other => other,
        }
    }

    /// Prints the failure, and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let text = match self {
            // The reader of the pipe has ended, as with `| head`. This is intended.
            Self::Io(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return ExitCode::SUCCESS;
            }
            Self::Io(error) => error.to_string(),
            Self::Store(error) => sentence(error),
            Self::Plain(text) | Self::NotThere(text) | Self::Exit(_, Some(text)) => text.clone(),
            Self::Told | Self::Exit(_, None) => return ExitCode::from(self.code()),
        };
        // If standard error is closed too, the exit code is the only report.
        let _told = writeln!(io::stderr(), "error: {text}").is_ok();
        ExitCode::from(self.code())
    }
}

/// An error, its causes and advice, in one line.
pub(crate) fn sentence(error: &Error) -> String {
    let (mut text, mut explained) = (error.to_string(), error.detail().is_some());
    let mut cause = error.source();
    while let Some(error) = cause {
        let told = match ours(error) {
            // The cause is about the same call as the error above it: only its detail is new.
            Some(inner) => {
                explained |= inner.detail().is_some();
                inner.detail().map(str::to_owned)
            }
            // The text of the client library is long and technical.
            None if explained => break,
            None => Some(error.to_string()),
        };
        if let Some(told) = told.filter(|told| !text.contains(told)) {
            text = format!("{text}: {told}");
        }
        cause = error.source();
    }
    match hint(error.kind()) {
        // The explanation of a denial says more than the hint.
        Some(_) if explained && error.kind() == ErrorKind::Denied => text,
        Some(hint) if !text.ends_with('?') => format!("{text}; {hint}"),
        _ => text,
    }
}

/// An error of the store's contract that is the cause of another error.
fn ours<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a Error> {
    let shared = || cause.downcast_ref::<Arc<Error>>().map(AsRef::as_ref);
    cause.downcast_ref().or_else(shared)
}

fn hint(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::Unreachable => Some("is the store running, and is --store right?"),
        ErrorKind::Denied => Some("check user and password, and what the user may do"),
        ErrorKind::SessionLost => Some("try again"),
        _ => None,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<InvalidPath> for Failure {
    fn from(invalid: InvalidPath) -> Self {
        Self::Plain(invalid.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

#[cfg(test)]
mod tests {
    use synod::{Path, Rejected};

    use super::*;

    fn unreachable(why: &'static str) -> Error {
        Error::new(ErrorKind::Unreachable, "opening a session").because(why)
    }

    #[test]
    fn exit_codes_tell_apart_what_a_script_may_react_to() {
        let of = |kind| Failure::Store(Error::new(kind, "commit")).code();
        let kinds = [
            ErrorKind::Unreachable,
            ErrorKind::SessionLost,
            ErrorKind::Refused,
            ErrorKind::Denied,
            ErrorKind::Invalid,
            ErrorKind::Backend,
        ];
        assert_eq!(kinds.map(of), [69, 69, 73, 77, 1, 1]);
        let rejected = |reason| {
            let no = Rejected::new(0, Path::new("/a").expect("valid"), reason);
            let refused = Failure::unless_applied::<()>(Outcome::Rejected(no));
            refused.expect_err("it was rejected").code()
        };
        let reasons = [RejectReason::Missing, RejectReason::Exists, RejectReason::OtherVersion];
        assert_eq!(reasons.map(rejected), [66, 73, 73]);
        assert_eq!(Failure::Exit(7, None).code(), 7);
    }

    #[test]
    fn a_failure_is_reported_once_and_with_what_to_do() {
        let refused =
            || unreachable("refuses connections: does it run there?").caused_by("code 14");
        let late = || unreachable("no answer within 15s");
        let opening = "opening a session failed: store unreachable: no answer within 15s";
        let asked = format!("{opening}; is the store running, and is --store right?");
        let why = format!("{opening}: refuses connections: does it run there?");
        assert_eq!(sentence(&late()), asked);
        assert_eq!(sentence(&late().caused_by(late())), asked);
        assert_eq!(sentence(&late().caused_by(refused())), why);
        assert_eq!(sentence(&late().caused_by(Arc::new(refused()))), why);

        let denied = Error::new(ErrorKind::Denied, "commit");
        assert!(sentence(&denied).contains("; check user and password"));
        assert!(!sentence(&denied.because("/a needs create")).contains("check"));

        // With no other explanation, print the text of the client library.
        let failed = Error::new(ErrorKind::Backend, "commit").caused_by("disk full");
        assert_eq!(sentence(&failed), "commit failed: store failed: disk full");
        let told = unreachable("the queue is full").caused_by("code 8");
        assert!(!sentence(&told).contains("code 8"));
    }
}
