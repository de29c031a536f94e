//! [`Failure`]: the reason why a command failed, in one plain line.

use std::error::Error as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use synod::InvalidPath;
use synod::{Error, ErrorKind};

/// The reason why a command ends without success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the store, or of the connection to it.
    Store(Error),
    /// An error of the terminal, or of a pipe.
    Io(io::Error),
    /// An error of the command itself.
    Plain(String),
    /// The command printed the reason already.
    Told,
    /// An error with an exit code of its own, and an optional message.
    Exit(u8, Option<String>),
}

impl Failure {
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self::Plain(text.into())
    }

    /// Prints the failure, and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let text = match self {
            // The reader of the pipe has ended, as with `| head`: that is intended.
            Self::Io(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return ExitCode::SUCCESS;
            }
            Self::Io(error) => error.to_string(),
            Self::Store(error) => sentence(error),
            Self::Plain(text) | Self::Exit(_, Some(text)) => text.clone(),
            Self::Told => return ExitCode::FAILURE,
            Self::Exit(code, None) => return ExitCode::from(*code),
        };
        // If standard error is closed too, the exit code has to suffice.
        let _told = writeln!(io::stderr(), "error: {text}").is_ok();
        match self {
            Self::Exit(code, _) => ExitCode::from(*code),
            _ => ExitCode::FAILURE,
        }
    }
}

/// An error, its causes, and what to do, in one line.
fn sentence(error: &Error) -> String {
    let (mut text, mut explained) = (error.to_string(), error.detail().is_some());
    let mut cause = error.source();
    while let Some(error) = cause {
        let told = match ours(error) {
            // The cause is about the same call as the error above it: only its detail is new.
            Some(inner) => {
                explained |= inner.detail().is_some();
                inner.detail().map(str::to_owned)
            }
            // The text of the client library is for its experts, and long.
            None if explained => break,
            None => Some(error.to_string()),
        };
        if let Some(told) = told.filter(|told| !text.contains(told)) {
            text = format!("{text}: {told}");
        }
        cause = error.source();
    }
    match hint(error.kind()) {
        Some(hint) if !text.ends_with('?') => format!("{text}; {hint}"),
        _ => text,
    }
}

/// An error of the store's contract, as a cause of another.
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
    use super::*;

    fn unreachable(why: &'static str) -> Error {
        Error::new(ErrorKind::Unreachable, "opening a session").because(why)
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

        // With no other explanation, print the text of the client library.
        let failed = Error::new(ErrorKind::Backend, "commit").caused_by("disk full");
        assert_eq!(sentence(&failed), "commit failed: store failed: disk full");
        let told = unreachable("the queue is full").caused_by("code 8");
        assert!(!sentence(&told).contains("code 8"));
    }
}
