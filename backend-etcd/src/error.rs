//! The one place where etcd's words become ours.

use std::error::Error as StdError;
use std::io;

use synod_core::error::{Error, ErrorKind};
use tonic::{Code, ConnectError, Status};

use crate::advice::said;

/// What a failed call means for whoever made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) kind: ErrorKind,
    /// Whether the server certainly did nothing, and never will.
    pub(crate) refused: bool,
    /// Whether another member may do better.
    pub(crate) elsewhere: bool,
    /// Whether this connection is of no use any more.
    pub(crate) reconnect: bool,
}

const REFUSED: Verdict =
    Verdict { kind: ErrorKind::Backend, refused: true, elsewhere: false, reconnect: false };
const UNCLEAR: Verdict =
    Verdict { kind: ErrorKind::Unreachable, refused: false, elsewhere: true, reconnect: false };

impl Verdict {
    const fn of(kind: ErrorKind) -> Self {
        Self { kind, ..REFUSED }
    }

    const fn elsewhere(mut self) -> Self {
        self.elsewhere = true;
        self
    }

    const fn reconnect(mut self) -> Self {
        self.reconnect = true;
        self
    }
}

pub(crate) fn judge(error: &etcd_client::Error) -> Verdict {
    use etcd_client::Error as Client;
    match error {
        Client::GRpcStatus(status) => judge_status(status),
        Client::InvalidArgs(_) | Client::InvalidUri(_) | Client::InvalidMetadataValue(_) => {
            Verdict::of(ErrorKind::Invalid)
        }
        Client::LeaseKeepAliveError(_) => Verdict::of(ErrorKind::SessionLost),
        // What goes wrong on the way is told by a status: this is about what we were configured with.
        Client::TransportError(_) => Verdict::of(ErrorKind::Invalid),
        _ => UNCLEAR,
    }
}

fn judge_status(status: &Status) -> Verdict {
    let said = status.message();
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    match status.code() {
        Code::Unavailable if says(&["etcdserver: no leader"]) => {
            Verdict::of(ErrorKind::Unreachable).elsewhere()
        }
        _ if is_connect(status) => Verdict::of(ErrorKind::Unreachable).elsewhere(),
        // The token ran out, or was given before the users changed: a new one may do.
        Code::Unauthenticated => Verdict::of(ErrorKind::Denied).elsewhere().reconnect(),
        Code::InvalidArgument if says(&["revision in header is old"]) => {
            Verdict::of(ErrorKind::Unreachable).elsewhere().reconnect()
        }
        Code::PermissionDenied => Verdict::of(ErrorKind::Denied),
        Code::InvalidArgument if says(&["user name", "authentication failed", "password"]) => {
            Verdict::of(ErrorKind::Denied)
        }
        Code::FailedPrecondition if says(&["authentication is not enabled"]) => {
            Verdict::of(ErrorKind::Denied)
        }
        Code::InvalidArgument if says(&["too large", "too many operations"]) => {
            Verdict::of(ErrorKind::TooLarge)
        }
        Code::InvalidArgument => Verdict::of(ErrorKind::Invalid),
        Code::ResourceExhausted if says(&["too many requests"]) => {
            Verdict::of(ErrorKind::Unreachable)
        }
        Code::ResourceExhausted if says(&["message larger", "message too large"]) => {
            Verdict::of(ErrorKind::TooLarge)
        }
        // What was read here is the answer: the request has been done.
        Code::OutOfRange if says(&["message length too large"]) => {
            Verdict { kind: ErrorKind::TooLarge, elsewhere: false, ..UNCLEAR }
        }
        Code::NotFound if says(&["lease"]) => Verdict::of(ErrorKind::SessionLost),
        Code::Unimplemented => Verdict::of(ErrorKind::Unsupported),
        Code::ResourceExhausted
        | Code::NotFound
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::AlreadyExists => REFUSED,
        // Among these are a connection that broke with requests in flight, a leader that was lost
        // while it had them, and a deadline of the server's own. Any of them may have been done.
        _ => UNCLEAR,
    }
}

/// Whether a read at one revision asked for what etcd has forgotten.
pub(crate) fn is_compacted(error: &Error) -> bool {
    let source = StdError::source(error);
    let client = source.and_then(|source| source.downcast_ref::<etcd_client::Error>());
    matches!(client, Some(etcd_client::Error::GRpcStatus(status))
        if status.code() == Code::OutOfRange && status.message().contains("revision"))
}

/// Whether a write of a key that must be there was refused because it is not.
pub(crate) fn is_missing(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status)
        if status.code() == Code::InvalidArgument && status.message().contains("key not found"))
}

/// Whether no connection came about, so that nothing can have been sent.
fn is_connect(error: &(dyn StdError + 'static)) -> bool {
    let refused = |io: &io::Error| io.kind() == io::ErrorKind::ConnectionRefused;
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<ConnectError>() || error.downcast_ref::<io::Error>().is_some_and(refused) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// An error of ours for one of the client's, without words. `write` says whether it matters what
/// became of it.
pub(crate) fn translate(doing: &'static str, write: bool, error: etcd_client::Error) -> Error {
    let verdict = judge(&error);
    let mut translated = Error::new(verdict.kind, doing);
    if write && !verdict.refused {
        translated = translated.with_unknown_effect();
    }
    translated.caused_by(error)
}

/// Nothing was heard in time.
pub(crate) fn unanswered(doing: &'static str) -> Error {
    Error::new(ErrorKind::Unreachable, doing).because("no answer in time")
}

/// What etcd says of a watch that it ends.
pub(crate) fn of_watch(reason: &str) -> Error {
    let denied = ["permission denied", "auth", "user name"];
    let kind = if denied.iter().any(|word| reason.contains(word)) {
        ErrorKind::Denied
    } else {
        ErrorKind::Backend
    };
    let reason = if reason.is_empty() { "etcd ended the watch" } else { reason };
    Error::new(kind, "observe").because(said(reason).into_owned())
}

#[cfg(test)]
mod tests {
    use synod_core::error::Effect;

    use super::*;

    fn said(code: Code, message: &str) -> Error {
        let status = Status::new(code, message);
        translate("commit", true, etcd_client::Error::GRpcStatus(status))
    }

    #[test]
    fn what_etcd_says_becomes_what_to_do_and_whether_it_happened() {
        use Effect::{None, Unknown};
        use ErrorKind::{Backend, Denied, Invalid, SessionLost, TooLarge, Unreachable};
        let table = [
            (Code::Unavailable, "etcdserver: no leader", Unreachable, None),
            (Code::Unavailable, "etcdserver: request timed out", Unreachable, Unknown),
            (Code::Unavailable, "http2 error", Unreachable, Unknown),
            (Code::Unknown, "transport error", Unreachable, Unknown),
            (Code::Cancelled, "operation was canceled", Unreachable, Unknown),
            (Code::Cancelled, "Timeout expired", Unreachable, Unknown),
            (Code::DeadlineExceeded, "context deadline exceeded", Unreachable, Unknown),
            (Code::PermissionDenied, "etcdserver: permission denied", Denied, None),
            (Code::Unauthenticated, "etcdserver: invalid auth token", Denied, None),
            (Code::InvalidArgument, "etcdserver: user name is empty", Denied, None),
            (Code::InvalidArgument, "etcdserver: request is too large", TooLarge, None),
            (Code::InvalidArgument, "etcdserver: duplicate key given in txn", Invalid, None),
            (Code::ResourceExhausted, "trying to send message larger than max", TooLarge, None),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", Backend, None),
            (Code::OutOfRange, "decoded message length too large: 5", TooLarge, Unknown),
            (Code::NotFound, "etcdserver: requested lease not found", SessionLost, None),
            (Code::FailedPrecondition, "etcdserver: lease already exists", Backend, None),
            (Code::Internal, "protocol error", Unreachable, Unknown),
        ];
        for (code, message, kind, effect) in table {
            let error = said(code, message);
            assert_eq!((error.kind(), error.effect()), (kind, effect), "{code:?} {message}");
        }
    }

    #[test]
    fn what_was_never_sent_did_not_happen() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let status = Status::from_error(Box::new(ConnectError(Box::new(refused))));
        let error = translate("commit", true, etcd_client::Error::GRpcStatus(status));
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::None));
    }

    #[test]
    fn only_a_missing_key_is_missing() {
        let said = |code, text: &str| etcd_client::Error::from(Status::new(code, text));
        assert!(is_missing(&said(Code::InvalidArgument, "etcdserver: key not found")));
        assert!(!is_missing(&said(Code::InvalidArgument, "etcdserver: key is not provided")));
        assert!(!is_missing(&said(Code::NotFound, "etcdserver: requested lease not found")));
    }

    #[test]
    fn only_a_forgotten_revision_is_compacted() {
        let compacted = "etcdserver: mvcc: required revision has been compacted";
        assert!(is_compacted(&said(Code::OutOfRange, compacted)));
        assert!(!is_compacted(&said(Code::OutOfRange, "decoded message length too large")));
        assert!(!is_compacted(&unanswered("read")));
    }
}
