//! [`Error`]: what went wrong, whether it happened all the same, and what to do.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::path::{InvalidPath, Path};

/// The result of everything that talks to a store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A call that did not come to its end.
///
/// It carries three independent facts: its [`kind`](Error::kind) says what a caller can do about
/// it, its [`effect`](Error::effect) whether a write may have happened all the same, and its
/// [`source`](StdError::source) what the client underneath said. A lost race is no error: see
/// [`Outcome`](crate::store::Outcome).
///
/// `Display` is one line without the cause. No error holds a secret.
#[derive(Clone, Debug)]
pub struct Error(Box<Details>);

#[derive(Clone, Debug)]
struct Details {
    kind: ErrorKind,
    effect: Effect,
    doing: Cow<'static, str>,
    path: Option<Path>,
    detail: Option<Cow<'static, str>>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// What a caller can do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store did not answer, or not in time. Repeat later; look first if the effect is
    /// unknown.
    Unreachable,
    /// The session is over, and with it all that depends on it. Open a new one.
    SessionLost,
    /// The store knows the caller and refuses the call, or does not know the caller.
    Denied,
    /// The call itself is wrong and was not sent.
    Invalid,
    /// The call, or its answer, is larger than the store allows.
    TooLarge,
    /// This store cannot do this. Choose another, or do without.
    Unsupported,
    /// What is stored there is not what was expected to be stored there.
    Corrupt,
    /// Something else was there first, and the caller asked for an error in that case: see
    /// [`Outcome::required`](crate::store::Outcome::required).
    Refused,
    /// The store failed in a way that has no better name.
    Backend,
}

impl ErrorKind {
    /// Whether the store was out of reach, or the session is over: a later try, in whatever session, may succeed.
    pub fn is_outage(self) -> bool {
        matches!(self, Self::Unreachable | Self::SessionLost)
    }
}

/// Whether a failed write happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "either it certainly did not happen or it may have")]
pub enum Effect {
    /// It did not, and it never will.
    None,
    /// It may have happened, or may still happen, at most once.
    Unknown,
}

impl Error {
    /// An error of the given kind while `doing` something: a verb like `commit`.
    ///
    /// The effect is [`Effect::None`] until [`Error::with_unknown_effect`] says otherwise.
    pub fn new(kind: ErrorKind, doing: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Details {
            kind,
            effect: Effect::None,
            doing: doing.into(),
            path: None,
            detail: None,
            source: None,
        }))
    }

    /// Says that the write may have happened.
    pub fn with_unknown_effect(mut self) -> Self {
        self.0.effect = Effect::Unknown;
        self
    }

    /// Names the node that the call was about.
    pub fn at(mut self, path: &Path) -> Self {
        self.0.path = Some(path.clone());
        self
    }

    /// Names the node that the call was about, unless the error names one already.
    pub fn or_at(self, path: &Path) -> Self {
        if self.0.path.is_some() { self } else { self.at(path) }
    }

    /// Names the node as `f` does, or not at all: for stores that wrap stores.
    pub fn map_path(mut self, f: impl FnOnce(&Path) -> Option<Path>) -> Self {
        self.0.path = self.0.path.as_ref().and_then(f);
        self
    }

    /// Adds what a person needs to know, best with what to do.
    pub fn because(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// Keeps the error that this one was made of.
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(Arc::from(source.into()));
        self
    }

    /// What can be done about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the write may have happened all the same.
    pub fn effect(&self) -> Effect {
        self.0.effect
    }

    /// Whether the write may have happened all the same: `effect() == Effect::Unknown`.
    pub fn has_unknown_effect(&self) -> bool {
        self.effect() == Effect::Unknown
    }

    /// The node that the call was about.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_ref()
    }

    /// What a person needs to know, if more is known than the kind. Where it is there, the
    /// [`source`](StdError::source) says the same in the words of the client underneath.
    pub fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {}", self.0.doing, self.0.kind)?;
        if let Some(path) = &self.0.path {
            write!(f, " at {path}")?;
        }
        if let Some(detail) = &self.0.detail {
            write!(f, ": {detail}")?;
        }
        if self.has_unknown_effect() {
            f.write_str(" (it may have happened)")?;
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

impl From<InvalidPath> for Error {
    fn from(invalid: InvalidPath) -> Self {
        Self::new(ErrorKind::Invalid, "reading a path").because(invalid.to_string())
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "store unreachable",
            Self::SessionLost => "session lost",
            Self::Denied => "not permitted",
            Self::Invalid => "invalid request",
            Self::TooLarge => "too large",
            Self::Unsupported => "not supported by this store",
            Self::Corrupt => "unreadable data",
            Self::Refused => "refused",
            Self::Backend => "store failed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_that_says_what_where_and_whether() {
        let path = Path::new("/locks/db").expect("valid");
        let error = Error::new(ErrorKind::Unreachable, "commit")
            .at(&path)
            .because("no answer within 5s")
            .with_unknown_effect()
            .caused_by("connection reset");

        assert_eq!(
            error.to_string(),
            "commit failed: store unreachable at /locks/db: no answer within 5s (it may have happened)"
        );
        assert_eq!(error.detail(), Some("no answer within 5s"));
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("connection reset"));
    }
}
