//! The error of a call, [`Error`], with its kind, its effect and its source.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::path::{InvalidPath, Path};

/// The result of a call on a store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed call.
///
/// An error carries three independent facts: its [`kind`](Error::kind), which tells how a caller
/// can react; its [`effect`](Error::effect), which tells whether a write may have been applied
/// nevertheless; and its [`source`](StdError::source), the error of the client library or the
/// system. A lost race is not an error: see [`Outcome`](crate::store::Outcome).
///
/// `Display` writes one line, without the source. No error contains a secret.
///
/// # Examples
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::path::Path;
/// use synod_core::error::{Effect, Result};
///
/// /// Stores a setting, and tells the caller whether to repeat the call.
/// async fn store(client: &Client, path: &Path, limit: u32) -> Result<bool> {
///     match client.put_value(path, &limit).await {
///         Ok(_) => Ok(true),
///         // The value was certainly not written: a later call may succeed.
///         Err(error) if error.effect() == Effect::None && client.is_transient(&error) => {
///             Ok(false)
///         }
///         Err(error) => Err(error),
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Error(Box<Details>);

#[derive(Clone, Debug)]
struct Details {
    kind: ErrorKind,
    effect: Effect,
    no_server: bool,
    doing: Cow<'static, str>,
    path: Option<Path>,
    detail: Option<Cow<'static, str>>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// The kind of an [`Error`], by the possible reaction of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store did not answer in time. Retry later; if the effect is unknown, read first.
    Unreachable,
    /// The session is over, and with it everything that depends on it. Open a new one.
    SessionLost,
    /// The store rejected the credentials, or they do not permit the call.
    Denied,
    /// The call itself is invalid and was not sent.
    Invalid,
    /// The call, or its answer, is larger than the store allows.
    TooLarge,
    /// This store does not support the call. Use another store, or avoid the call.
    Unsupported,
    /// The data of the node does not have the expected format.
    Corrupt,
    /// Another client was first, and the caller requested an error in that case: see
    /// [`Outcome::required`](crate::store::Outcome::required).
    Refused,
    /// The store failed in another way.
    Backend,
}

impl ErrorKind {
    /// Returns `true` if the store was unreachable, or the session is over. A later attempt may
    /// succeed, possibly in another session.
    pub fn is_outage(self) -> bool {
        matches!(self, Self::Unreachable | Self::SessionLost)
    }
}

/// The effect of a failed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "either it certainly did not happen or it may have")]
pub enum Effect {
    /// The write was not applied, and never will be.
    None,
    /// The write may have been applied, or may still be, at most once.
    Unknown,
}

impl Error {
    /// Creates an error of the given kind. `doing` names the failed call: a verb like `commit`.
    ///
    /// The effect is [`Effect::None`] until [`Error::with_unknown_effect`] is called.
    pub fn new(kind: ErrorKind, doing: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Details {
            kind,
            effect: Effect::None,
            no_server: false,
            doing: doing.into(),
            path: None,
            detail: None,
            source: None,
        }))
    }

    /// Marks the effect as unknown: the write may have been applied.
    pub fn with_unknown_effect(mut self) -> Self {
        self.0.effect = Effect::Unknown;
        self
    }

    /// Records that no server accepted a connection: each one refused it, or its name has no
    /// address. For stores: [`Client::open`](crate::client::Client::open) then fails early.
    pub fn with_no_server(mut self) -> Self {
        self.0.no_server = true;
        self
    }

    /// Sets the path of the node that the call was about.
    pub fn at(mut self, path: &Path) -> Self {
        self.0.path = Some(path.clone());
        self
    }

    /// Sets the path of the node that the call was about, unless the error has a path.
    pub fn or_at(self, path: &Path) -> Self {
        if self.0.path.is_some() { self } else { self.at(path) }
    }

    /// Maps the path with `f`, or removes it: for stores that wrap stores.
    pub fn map_path(mut self, f: impl FnOnce(&Path) -> Option<Path>) -> Self {
        self.0.path = self.0.path.as_ref().and_then(f);
        self
    }

    /// Adds a description for people, if possible with a remedy.
    pub fn because(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// Sets the error that caused this one.
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(Arc::from(source.into()));
        self
    }

    /// Returns the kind.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the effect of the failed call: whether a write may have been applied nevertheless.
    pub fn effect(&self) -> Effect {
        self.0.effect
    }

    /// Returns `true` if the write may have been applied nevertheless: `effect() ==
    /// Effect::Unknown`.
    pub fn has_unknown_effect(&self) -> bool {
        self.effect() == Effect::Unknown
    }

    /// Returns `true` if no server accepted a connection: each one refused it, or its name has no
    /// address. `false` if a server is silent, or if the store does not report the difference.
    pub fn has_no_server(&self) -> bool {
        self.0.no_server
    }

    /// Returns the path of the node that the call was about.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_ref()
    }

    /// Returns the description for people, if the kind does not say everything. If the error has a
    /// [`source`](StdError::source), this is its text.
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
            f.write_str(" (it may have taken effect)")?;
        }
        Ok(())
    }
}

/// The text of [`Display`](fmt::Display) and the causes: `main` prints errors in this form. `{:#?}`
/// shows the fields.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return self.0.fmt(f);
        }
        write!(f, "{self}")?;
        let mut cause = self.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
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
            "commit failed: store unreachable at /locks/db: no answer within 5s (it may have taken effect)"
        );
        let inner = Error::new(ErrorKind::Backend, "open").caused_by(error.clone());
        assert_eq!(
            format!("{inner:?}"),
            format!("open failed: store failed: {error}: connection reset")
        );
        assert!(format!("{inner:#?}").contains("effect: Unknown"));
        assert_eq!(error.detail(), Some("no answer within 5s"));
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("connection reset"));
    }
}
