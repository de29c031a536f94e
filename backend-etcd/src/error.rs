//! Translates errors of etcd's client into those of synod. The only place that does.

use std::error::Error as StdError;

use synod_core::error::{Error, ErrorKind};
use tonic::{Code, ConnectError, Status};

use crate::error_help::describe;

/// The meaning of a failed call for the caller, and for its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) kind: ErrorKind,
    /// The server certainly did nothing, and never will.
    pub(crate) refused: bool,
    /// Another member may succeed.
    pub(crate) elsewhere: bool,
    /// The same member may succeed on a new connection, with a new token.
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

    /// The server answered, and may have applied the request. No other member knows more.
    const fn done_perhaps(kind: ErrorKind) -> Self {
        Self { kind, refused: false, ..REFUSED }
    }

    const fn elsewhere(mut self) -> Self {
        self.elsewhere = true;
        self
    }

    const fn reconnect(mut self) -> Self {
        self.reconnect = true;
        self
    }

    /// True if every repetition would be refused.
    pub(crate) const fn is_final(self) -> bool {
        self.refused && !self.elsewhere && !self.reconnect
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
        // Network errors are statuses. This one is about the configuration.
        Client::TransportError(_) => Verdict::of(ErrorKind::Invalid),
        _ => UNCLEAR,
    }
}

fn judge_status(status: &Status) -> Verdict {
    if is_connect(status) {
        return Verdict::of(ErrorKind::Unreachable).elsewhere();
    }
    // A status with a cause was not sent by a server: a stream or a connection broke with the
    // request in flight, and tonic chose the code from the reason. `ENHANCE_YOUR_CALM`, for
    // example, becomes `ResourceExhausted`.
    if status.source().is_some() {
        return UNCLEAR;
    }
    let text = status.message();
    SAYINGS
        .iter()
        .find(|saying| saying.codes.contains(&status.code()) && text.contains(saying.text))
        .map_or_else(|| judge_code(status.code()), |saying| saying.verdict)
}

/// A message of etcd, and its meaning.
struct Saying {
    codes: &'static [Code],
    text: &'static str,
    verdict: Verdict,
}

const fn saying(codes: &'static [Code], text: &'static str, verdict: Verdict) -> Saying {
    Saying { codes, text, verdict }
}

/// The texts are those of etcd's `api/v3rpc/rpctypes/error.go`, the codes those of any release
/// since 3.4. Each row names where etcd decides it, which shows whether a write was applied.
///
/// Below, "before raft" means that the request was not proposed, and "by the applier" that every
/// member refuses it, at its position in the log, before it changes anything.
const SAYINGS: &[Saying] = {
    use ErrorKind::{Backend, Denied, Invalid, SessionLost, TooLarge, Unreachable, Unsupported};
    const UNAVAILABLE: &[Code] = &[Code::Unavailable];
    const INVALID: &[Code] = &[Code::InvalidArgument];
    const EXHAUSTED: &[Code] = &[Code::ResourceExhausted];
    // The code of 3.6 differs from that of 3.4 and 3.5.
    const LEARNER: &[Code] = &[Code::Unavailable, Code::FailedPrecondition];
    &[
        // Before raft: `newUnaryInterceptor` (v3rpc/interceptor.go), for requests with `hasleader`.
        saying(UNAVAILABLE, "etcdserver: no leader", Verdict::of(Unreachable).elsewhere()),
        // Before raft: `newUnaryInterceptor` and `newStreamInterceptor`, which check the member's
        // own role.
        saying(LEARNER, "not supported for learner", Verdict::of(Unreachable).elsewhere()),
        // Before raft: `newUnaryInterceptor`, while the members agree on a version.
        saying(UNAVAILABLE, "etcdserver: not capable", Verdict::of(Unreachable).elsewhere()),
        // Before raft: `processInternalRaftRequestOnce` (v3_server.go), when too many entries are
        // not applied yet.
        saying(EXHAUSTED, "etcdserver: too many requests", Verdict::of(Unreachable)),
        // Before raft, and before a watch is created: `AuthInfoFromCtx` (auth/store.go).
        saying(
            &[Code::Unauthenticated],
            "etcdserver: invalid auth token",
            Verdict::of(Denied).reconnect(),
        ),
        // By the applier: `authApplierV3` calls `isOpPermitted` (auth/store.go) before it calls the
        // applier that writes. A token of the kind `jwt` contains the revision of users and roles
        // at which it was issued, and is refused after any change of them.
        saying(
            INVALID,
            "etcdserver: revision of auth store is old",
            Verdict::of(Unreachable).reconnect(),
        ),
        // By the applier, in the same place: a request without a token. Authentication may have
        // been enabled after this connection was opened.
        saying(INVALID, "etcdserver: user name is empty", Verdict::of(Denied).reconnect()),
        // Before raft: `Authenticate` (v3_server.go). It precedes every request of a caller.
        saying(INVALID, "etcdserver: authentication failed", Verdict::of(Denied)),
        // Where authentication was disabled, a new connection works without a token.
        saying(
            &[Code::FailedPrecondition],
            "etcdserver: authentication is not enabled",
            Verdict::of(Denied).reconnect(),
        ),
        // By the applier: `isOpPermitted`.
        saying(&[Code::PermissionDenied], "etcdserver: permission denied", Verdict::of(Denied)),
        // Before raft: `checkTxnRequest` (v3rpc/key.go), and `processInternalRaftRequestOnce`.
        saying(INVALID, "etcdserver: too many operations", Verdict::of(TooLarge)),
        saying(INVALID, "etcdserver: request is too large", Verdict::of(TooLarge)),
        // An error of this crate: see `proxy`.
        saying(&[Code::Unimplemented], PROXY, Verdict::of(Unsupported).elsewhere()),
        // An error of this crate: see `other_cluster`.
        saying(UNAVAILABLE, OTHER_CLUSTER, Verdict::of(Unreachable).elsewhere()),
        // Before the handler: grpc-go's `recvAndDecompress` (rpc_util.go).
        saying(EXHAUSTED, "received message larger than max", Verdict::of(TooLarge)),
        // After the handler: the message that was too large to send is the answer (grpc-go,
        // server.go).
        saying(EXHAUSTED, "send message larger than max", Verdict::done_perhaps(TooLarge)),
        // In this process: the message that is too large is the answer (tonic, codec/decode.rs).
        saying(
            &[Code::OutOfRange],
            "decoded message length too large",
            Verdict::done_perhaps(TooLarge),
        ),
        // `quotaApplierV3` (apply/quota.go; etcdserver/apply.go before 3.6) applies the request
        // first, and then replaces the answer if the size is above the quota. Only after the alarm
        // was raised does `applierV3Capped` refuse without applying. The answer does not show which
        // of the two it was.
        saying(EXHAUSTED, "database space exceeded", Verdict::done_perhaps(Backend)),
        // By the applier: `checkRequestPut`, `LeaseRevoke`, `Renew`, each before it writes.
        saying(
            &[Code::NotFound],
            "etcdserver: requested lease not found",
            Verdict::of(SessionLost),
        ),
        // By the applier: `lessor.Grant` (lease/lessor.go).
        saying(&[Code::FailedPrecondition], "etcdserver: lease already exists", REFUSED),
        saying(&[Code::OutOfRange], "etcdserver: too large lease TTL", REFUSED),
        // By the applier: `checkRange` (etcdserver/txn), before the writes of a transaction.
        saying(&[Code::OutOfRange], "etcdserver: mvcc: required revision", REFUSED),
        // Any other invalid request: refused before raft (v3rpc/key.go), or by the applier before
        // it writes (`checkRequestPut`).
        saying(INVALID, "etcdserver: ", Verdict::of(Invalid)),
    ]
};

/// The meaning of a code with an unknown text: the effect is unknown, unless the code shows that
/// the call was not accepted at all.
fn judge_code(code: Code) -> Verdict {
    match code {
        // Proxies return this before they forward anything; tonic maps the HTTP statuses 401, 403
        // and 404 to these.
        Code::Unauthenticated => Verdict::of(ErrorKind::Denied).reconnect(),
        Code::PermissionDenied => Verdict::of(ErrorKind::Denied),
        Code::Unimplemented => Verdict::of(ErrorKind::Unsupported),
        Code::InvalidArgument => Verdict::done_perhaps(ErrorKind::Invalid),
        Code::ResourceExhausted
        | Code::NotFound
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::AlreadyExists
        | Code::DataLoss => Verdict::done_perhaps(ErrorKind::Backend),
        // Among these are a connection that broke with requests in flight, a leader that was lost
        // while it had them, and a deadline of the server's own. The request may have been applied.
        _ => UNCLEAR,
    }
}

const PROXY: &str = "this is etcd's gRPC proxy, whose answers do not prove how long a session lives: \
    connect to the members themselves";

/// The error for a peer that is etcd's gRPC proxy.
pub(crate) fn proxy() -> etcd_client::Error {
    etcd_client::Error::GRpcStatus(Status::unimplemented(PROXY))
}

const OTHER_CLUSTER: &str = "this is no member of the cluster whose other members reported it";

/// The error for a member that others have reported, and that is not of their cluster.
pub(crate) fn other_cluster() -> etcd_client::Error {
    Status::unavailable(OTHER_CLUSTER).into()
}

/// True if etcd refused a read of a key for which the caller has no permission. etcd checks that
/// after the leader has confirmed a linearizable read (`Range` in `v3_server.go`).
pub(crate) fn is_forbidden(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status) if status.source().is_none()
        && ["etcdserver: permission denied", "etcdserver: user name is empty"]
            .contains(&status.message()))
}

/// The error for a keep-alive that was answered while another leader was elected.
pub(crate) fn other_term() -> etcd_client::Error {
    Status::unavailable("another leader was elected meanwhile").into()
}

/// Returns whether a read at one revision needed a revision that etcd has compacted.
pub(crate) fn is_compacted(error: &Error) -> bool {
    let source = StdError::source(error);
    let client = source.and_then(|source| source.downcast_ref::<etcd_client::Error>());
    matches!(client, Some(etcd_client::Error::GRpcStatus(status))
        if status.code() == Code::OutOfRange && status.message().contains("revision"))
}

/// Returns whether a write of a key that must exist was refused because the key does not exist.
pub(crate) fn is_missing(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status)
        if status.code() == Code::InvalidArgument && status.message().contains("key not found"))
}

/// Returns whether a login was refused because authentication is not enabled.
pub(crate) fn is_open_to_all(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status)
        if status.code() == Code::FailedPrecondition
            && status.message().contains("authentication is not enabled"))
}

/// Returns whether no connection was established, so that nothing can have been sent.
fn is_connect(error: &(dyn StdError + 'static)) -> bool {
    // Not any error of the kind `ConnectionRefused`: an established connection may end with it,
    // too, for example because of a firewall that begins to reject its packets.
    std::iter::successors(Some(error), |error| (**error).source())
        .any(<dyn StdError>::is::<ConnectError>)
}

/// Translates an error of the client, without a text. `write`: the effect of the call matters.
pub(crate) fn translate(doing: &'static str, write: bool, error: etcd_client::Error) -> Error {
    let verdict = judge(&error);
    let mut translated = Error::new(verdict.kind, doing);
    if write && !verdict.refused {
        translated = translated.with_unknown_effect();
    }
    translated.caused_by(error)
}

/// The error for an answer that did not arrive in time.
pub(crate) fn unanswered(doing: &'static str) -> Error {
    Error::new(ErrorKind::Unreachable, doing).because("no answer in time")
}

/// The error of watches at a member that lags behind the others.
pub(crate) fn lagging() -> Error {
    Error::new(ErrorKind::Unreachable, "watch").because("the member lags behind the others")
}

/// The error of watches at a member that is not in the list any more.
pub(crate) fn removed() -> Error {
    Error::new(ErrorKind::Unreachable, "watch").because("the member is not in the list any more")
}

/// The error of watches that stay refused although their stream was opened with new tokens.
pub(crate) fn refused_again(reason: &str) -> Error {
    Error::new(ErrorKind::Denied, "watch").because(describe(reason).into_owned())
}

/// Returns whether etcd refuses a watch because of the token with which its stream was opened.
pub(crate) fn is_stale(reason: &str) -> bool {
    ["invalid auth token", "revision of auth store is old", "user name is empty"]
        .iter()
        .any(|text| reason.contains(text))
}

/// The error for a watch that etcd ends.
pub(crate) fn of_watch(reason: &str) -> Error {
    let denied = ["permission denied", "auth", "user name"];
    let kind = if denied.iter().any(|word| reason.contains(word)) {
        ErrorKind::Denied
    } else {
        ErrorKind::Backend
    };
    let reason = if reason.is_empty() { "etcd ended the watch" } else { reason };
    Error::new(kind, "watch").because(describe(reason).into_owned())
}

#[cfg(test)]
mod tests {
    use std::io;

    use synod_core::error::Effect;

    use super::*;

    fn status(code: Code, message: &str) -> etcd_client::Error {
        Status::new(code, message).into()
    }

    fn status_error(code: Code, message: &str) -> Error {
        translate("commit", true, status(code, message))
    }

    #[test]
    fn what_etcd_says_becomes_what_to_do_and_whether_it_happened() {
        use Effect::{None, Unknown};
        use ErrorKind::{
            Backend, Denied, Invalid, SessionLost, TooLarge, Unreachable, Unsupported,
        };
        let table = [
            (Code::Unavailable, "etcdserver: no leader", Unreachable, None),
            (Code::Unavailable, "etcdserver: not capable", Unreachable, None),
            (Code::Unavailable, "etcdserver: rpc not supported for learner", Unreachable, None),
            (
                Code::FailedPrecondition,
                "etcdserver: rpc not supported for learner",
                Unreachable,
                None,
            ),
            (Code::Unavailable, "etcdserver: request timed out", Unreachable, Unknown),
            (Code::Unavailable, "etcdserver: leader changed", Unreachable, Unknown),
            (Code::Unavailable, "etcdserver: server stopped", Unreachable, Unknown),
            (Code::Unavailable, "http2 error", Unreachable, Unknown),
            (Code::Unknown, "transport error", Unreachable, Unknown),
            (Code::Cancelled, "operation was canceled", Unreachable, Unknown),
            (Code::Cancelled, "Timeout expired", Unreachable, Unknown),
            (Code::DeadlineExceeded, "context deadline exceeded", Unreachable, Unknown),
            (Code::PermissionDenied, "etcdserver: permission denied", Denied, None),
            (Code::Unauthenticated, "etcdserver: invalid auth token", Denied, None),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old", Unreachable, None),
            (Code::InvalidArgument, "etcdserver: user name is empty", Denied, None),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                Denied,
                None,
            ),
            (Code::FailedPrecondition, "etcdserver: authentication is not enabled", Denied, None),
            (Code::InvalidArgument, "etcdserver: request is too large", TooLarge, None),
            (
                Code::InvalidArgument,
                "etcdserver: too many operations in txn request",
                TooLarge,
                None,
            ),
            (Code::InvalidArgument, "etcdserver: duplicate key given in txn", Invalid, None),
            (Code::InvalidArgument, "a text of another program", Invalid, Unknown),
            (Code::ResourceExhausted, "etcdserver: too many requests", Unreachable, None),
            (Code::ResourceExhausted, "grpc: received message larger than max", TooLarge, None),
            (Code::ResourceExhausted, "trying to send message larger than max", TooLarge, Unknown),
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                Backend,
                Unknown,
            ),
            (Code::ResourceExhausted, "a text of another program", Backend, Unknown),
            (Code::OutOfRange, "decoded message length too large: 5", TooLarge, Unknown),
            (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision has been compacted",
                Backend,
                None,
            ),
            (Code::NotFound, "etcdserver: requested lease not found", SessionLost, None),
            (Code::NotFound, "a text of another program", Backend, Unknown),
            (Code::FailedPrecondition, "etcdserver: lease already exists", Backend, None),
            (Code::DataLoss, "etcdserver: corrupt cluster", Backend, Unknown),
            (Code::Unimplemented, "unknown service", Unsupported, None),
            (Code::Unauthenticated, "a text of a proxy", Denied, None),
            (Code::PermissionDenied, "a text of a proxy", Denied, None),
            (Code::Internal, "protocol error", Unreachable, Unknown),
        ];
        for (code, message, kind, effect) in table {
            let error = status_error(code, message);
            assert_eq!((error.kind(), error.effect()), (kind, effect), "{code:?} {message}");
        }
    }

    #[test]
    fn another_member_or_another_connection_is_tried_where_it_may_help() {
        let table = [
            (Code::Unavailable, "etcdserver: no leader", true, false),
            (Code::FailedPrecondition, "etcdserver: rpc not supported for learner", true, false),
            (Code::ResourceExhausted, "etcdserver: too many requests", false, false),
            (Code::Unauthenticated, "etcdserver: invalid auth token", false, true),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old", false, true),
            (Code::InvalidArgument, "etcdserver: user name is empty", false, true),
            (Code::FailedPrecondition, "etcdserver: authentication is not enabled", false, true),
            (Code::PermissionDenied, "etcdserver: permission denied", false, false),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", false, false),
            (Code::Unavailable, "etcdserver: request timed out", true, false),
        ];
        for (code, text, elsewhere, reconnect) in table {
            let verdict = judge(&status(code, text));
            assert_eq!((verdict.elsewhere, verdict.reconnect), (elsewhere, reconnect), "{text}");
        }
    }

    #[test]
    fn a_stream_that_a_peer_resets_leaves_the_effect_unknown() {
        for reason in [h2::Reason::ENHANCE_YOUR_CALM, h2::Reason::INADEQUATE_SECURITY] {
            let status = Status::from_error(Box::new(h2::Error::from(reason)));
            let error = translate("commit", true, etcd_client::Error::GRpcStatus(status));
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::Unknown));
        }
    }

    #[test]
    fn a_watch_is_asked_for_again_where_only_its_token_was_refused() {
        // etcd returns the text of a Go status there.
        let grpc = |text: &str| format!("rpc error: code = InvalidArgument desc = {text}");
        for text in ["invalid auth token", "revision of auth store is old", "user name is empty"] {
            assert!(is_stale(&grpc(&format!("etcdserver: {text}"))), "{text}");
        }
        for text in ["permission denied", "mvcc: required revision has been compacted"] {
            assert!(!is_stale(&grpc(&format!("etcdserver: {text}"))), "{text}");
        }
    }

    #[test]
    fn what_this_client_does_not_accept_is_invalid() {
        use etcd_client::Error::{InvalidArgs, TransportError};

        let malformed = tonic::transport::Endpoint::from_shared("not an address").expect_err("so");
        for error in [InvalidArgs("no address".to_owned()), TransportError(malformed)] {
            let error = translate("commit", true, error);
            let expected = (ErrorKind::Invalid, Effect::None);
            assert_eq!((error.kind(), error.effect()), expected, "{error}");
        }
    }

    #[test]
    fn what_was_on_its_way_when_the_connection_broke_may_have_happened() {
        for (kind, effect) in [
            (io::ErrorKind::ConnectionRefused, Effect::Unknown),
            (io::ErrorKind::ConnectionReset, Effect::Unknown),
            (io::ErrorKind::BrokenPipe, Effect::Unknown),
        ] {
            let status = Status::from_error(Box::new(io::Error::from(kind)));
            let error = translate("commit", true, etcd_client::Error::GRpcStatus(status));
            let expected = (ErrorKind::Unreachable, effect);
            assert_eq!((error.kind(), error.effect()), expected, "{kind:?}");
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
    fn a_server_without_users_says_so() {
        let text = "etcdserver: authentication is not enabled";
        assert!(is_open_to_all(&status(Code::FailedPrecondition, text)));
        assert!(!is_open_to_all(&status(Code::InvalidArgument, text)));
        assert!(!is_open_to_all(&status(Code::FailedPrecondition, "etcdserver: root user")));
    }

    #[test]
    fn only_a_missing_key_is_missing() {
        assert!(is_missing(&status(Code::InvalidArgument, "etcdserver: key not found")));
        assert!(!is_missing(&status(Code::InvalidArgument, "etcdserver: key is not provided")));
        assert!(!is_missing(&status(Code::NotFound, "etcdserver: requested lease not found")));
    }

    #[test]
    fn only_a_forgotten_revision_is_compacted() {
        let compacted = "etcdserver: mvcc: required revision has been compacted";
        assert!(is_compacted(&status_error(Code::OutOfRange, compacted)));
        assert!(!is_compacted(&status_error(Code::OutOfRange, "decoded message length too large")));
        assert!(!is_compacted(&unanswered("read")));
    }
}
