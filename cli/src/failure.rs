//! [`Failure`]: why a command did not do what it was asked, in one plain line.

use std::error::Error as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use synod::error::{Error, ErrorKind};
use synod::path::InvalidPath;

/// Why a command ends without success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The store, or the way to it.
    Store(Error),
    /// The terminal, or a pipe.
    Io(io::Error),
    /// Something that only this command knows.
    Plain(String),
    /// It was told already.
    Told,
    /// Something with an exit code of its own, and what there is to say of it.
    Exit(u8, Option<String>),
}

impl Failure {
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self::Plain(text.into())
    }

    /// Tells it, and with which code to exit.
    pub(crate) fn report(&self) -> ExitCode {
        let text = match self {
            // Nobody reads any more, as behind `| head`: that is how it was meant.
            Self::Io(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return ExitCode::SUCCESS;
            }
            Self::Io(error) => error.to_string(),
            Self::Store(error) => sentence(error),
            Self::Plain(text) | Self::Exit(_, Some(text)) => text.clone(),
            Self::Told => return ExitCode::FAILURE,
            Self::Exit(code, None) => return ExitCode::from(*code),
        };
        // If standard error is gone too, the exit code has to do.
        let _told = writeln!(io::stderr(), "error: {text}").is_ok();
        match self {
            Self::Exit(code, _) => ExitCode::from(*code),
            _ => ExitCode::FAILURE,
        }
    }
}

/// An error, its causes, and what to do, in one line.
fn sentence(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let told = error.to_string();
        // Clients like to repeat themselves, at length.
        if !text.rsplit(": ").next().is_some_and(|last| told.contains(last)) {
            text = format!("{text}: {told}");
        }
        cause = error.source();
    }
    match hint(error.kind()) {
        Some(hint) => format!("{text}; {hint}"),
        None => text,
    }
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
