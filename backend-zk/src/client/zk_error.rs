//! [`ZkError`]: the error of a request.

use std::fmt;

/// The answer of a server that refuses a request, or the reason that there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ZkError {
    NoNode,
    NoAuth,
    BadVersion,
    NoChildrenForEphemerals,
    NodeExists,
    NotEmpty,
    InvalidAcl,
    /// By the server, or before anything was sent.
    BadArguments(&'static str),
    NotReadOnly,
    QuotaExceeded,
    Throttled,
    Unimplemented,
    ReconfigDisabled,
    SessionMoved,
    SessionExpired,
    AuthFailed,
    /// Another code of the server.
    Code(i32),
    /// An answer that cannot be read.
    Malformed(&'static str),
    /// An answer that is longer than this client reads.
    TooLong,
    /// The connection ended before the answer came.
    ConnectionLoss,
    /// No server was found in time.
    Timeout,
    /// No server let this client connect.
    NoHosts,
    /// The client ended its session.
    ClientClosed,
    /// The runtime of the session's task has ended.
    Abandoned,
}

/// The code for a node that does not exist.
pub(super) const NO_NODE: i32 = -101;

impl ZkError {
    /// The meaning of a code in an answer. Zero is no error.
    pub(super) fn of(code: i32) -> Option<Self> {
        Some(match code {
            0 => return None,
            -6 => Self::Unimplemented,
            -8 => Self::BadArguments("by the server"),
            NO_NODE => Self::NoNode,
            -102 => Self::NoAuth,
            -103 => Self::BadVersion,
            -108 => Self::NoChildrenForEphemerals,
            -110 => Self::NodeExists,
            -111 => Self::NotEmpty,
            -112 => Self::SessionExpired,
            -114 => Self::InvalidAcl,
            // Code -124: the server accepts only sessions that log in by SASL.
            -115 | -124 => Self::AuthFailed,
            -118 => Self::SessionMoved,
            -119 => Self::NotReadOnly,
            -123 => Self::ReconfigDisabled,
            -125 => Self::QuotaExceeded,
            -127 => Self::Throttled,
            code => Self::Code(code),
        })
    }

    /// Returns whether the error ends the session, and not only the connection.
    pub(crate) fn ends_session(&self) -> bool {
        matches!(self, Self::SessionExpired | Self::AuthFailed | Self::ClientClosed)
    }
}

impl fmt::Display for ZkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoNode => "there is no such node",
            Self::NoAuth => "not authorized",
            Self::BadVersion => "the node has another version",
            Self::NoChildrenForEphemerals => "an ephemeral node has no children",
            Self::NodeExists => "the node exists",
            Self::NotEmpty => "the node has children",
            Self::InvalidAcl => "the access list is invalid",
            Self::NotReadOnly => "the server accepts only reads",
            Self::QuotaExceeded => "the quota is exceeded",
            Self::Throttled => "the server throttles requests",
            Self::Unimplemented => "the server does not know the request",
            Self::ReconfigDisabled => "reconfiguration is disabled",
            Self::SessionMoved => "the session is at another server",
            Self::SessionExpired => "the session has expired",
            Self::AuthFailed => "authentication failed",
            Self::ConnectionLoss => "the connection was lost",
            Self::Timeout => "no server answered in time",
            Self::NoHosts => "no server accepted the client",
            Self::ClientClosed => "the session was closed",
            Self::Abandoned => "the runtime of the session has ended",
            Self::TooLong => "the answer is too long",
            Self::BadArguments(what) => return write!(f, "bad arguments: {what}"),
            Self::Malformed(what) => return write!(f, "a malformed answer: {what}"),
            Self::Code(code) => return write!(f, "error {code} of the server"),
        })
    }
}

impl std::error::Error for ZkError {}
