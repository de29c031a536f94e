//! Readable texts for errors of etcd's client, if possible with advice.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::io;

use etcd_client::Error;
use tonic::Status;

/// The member that was called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member<'a> {
    pub(crate) url: &'a str,
    /// The member has answered on this connection.
    pub(crate) proven: bool,
}

impl Member<'_> {
    pub(crate) fn host(&self) -> &str {
        self.url.split_once("://").map_or(self.url, |(_, host)| host)
    }

    fn is_encrypted(&self) -> bool {
        self.url.starts_with("https")
    }
}

/// Messages of etcd, with advice if the remedy is not obvious.
const ADVICE: &[(&str, &str)] = &[
    ("no leader", "a majority of the members must run and reach each other"),
    ("database space exceeded", "compact and defragment it, then disarm the alarm with etcdctl"),
    (
        "has been compacted",
        "etcd forgets faster than this is read: have it keep more of its history",
    ),
    ("permission denied", "no role of this user allows it for these keys"),
    ("user name is empty", "it wants a user and a password"),
    ("authentication is not enabled", "it takes no user and no password"),
];

/// One line about an error.
pub(crate) fn error_text(error: &Error, member: Member<'_>) -> String {
    match error {
        Error::GRpcStatus(status) if status.source().is_none() => describe(status.message()).into(),
        Error::GRpcStatus(status) => of_connection(status, member),
        other => other.to_string(),
    }
}

/// A message of etcd, with advice.
pub(crate) fn describe(message: &str) -> Cow<'_, str> {
    // Some messages went through etcd's own client.
    let message = message.rsplit_once("desc = ").map_or(message, |(_, text)| text);
    match ADVICE.iter().find(|(text, _)| message.contains(text)) {
        Some((_, advice)) => format!("{message}: {advice}").into(),
        None => message.into(),
    }
}

/// The text for an error of the connection.
fn of_connection(status: &Status, member: Member<'_>) -> String {
    let (host, cause, message) = (member.host(), deepest(status), status.message());
    if refused(status) {
        return format!("{host} refuses connections: does etcd run there?");
    }
    if message.contains("dns error") {
        return format!("{host} is not known: {cause}");
    }
    if message.contains("UnknownIssuer") {
        return format!("{host} shows a certificate of an authority that is not trusted: {cause}");
    }
    if member.proven || message.contains("certificate") {
        return format!("{host}: {cause}");
    }
    let doubt = if member.is_encrypted() {
        "does it talk TLS, and did it get the certificate that it may want?"
    } else {
        "does it talk TLS, and is it etcd?"
    };
    format!("{host} breaks off before it answers: {cause}: {doubt}")
}

/// Returns `true` if the member refused the connection, or its name has no address.
pub(crate) fn is_no_server(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status)
        if refused(status) || (status.source().is_some() && is_unknown_name(status)))
}

fn is_unknown_name(status: &Status) -> bool {
    causes(status).any(|cause| cause.to_string().contains("dns error"))
}

fn refused(status: &Status) -> bool {
    let refused = |io: &io::Error| io.kind() == io::ErrorKind::ConnectionRefused;
    causes(status).any(|cause| cause.downcast_ref::<io::Error>().is_some_and(refused))
}

/// The first cause in the chain, which is the most specific.
fn deepest(error: &(dyn StdError + 'static)) -> String {
    causes(error).last().unwrap_or(error).to_string()
}

fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error| (**error).source())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// The text for a connection that breaks in this way.
    fn broken(kind: io::ErrorKind, url: &str, proven: bool) -> String {
        let mut status = Status::unknown("transport error");
        status.set_source(Arc::new(io::Error::new(kind, "the reason")));
        error_text(&Error::GRpcStatus(status), Member { url, proven })
    }

    #[test]
    fn a_connection_that_breaks_is_explained_by_its_cause_and_what_was_expected_of_it() {
        let broken = |url, proven| broken(io::ErrorKind::ConnectionReset, url, proven);
        assert_eq!(broken("http://h:1", true), "h:1: the reason");
        let at_first = "h:1 breaks off before it answers: the reason: does it talk TLS, and";
        assert_eq!(broken("http://h:1", false), format!("{at_first} is it etcd?"));
        let certificate = "did it get the certificate that it may want?";
        assert_eq!(broken("https://h:1", false), format!("{at_first} {certificate}"));
    }

    #[test]
    fn what_etcd_says_comes_with_advice() {
        let text = |message: &str| {
            let status = Status::unavailable(message);
            error_text(&Error::GRpcStatus(status), Member { url: "http://h:1", proven: false })
        };
        let advice = "a majority of the members must run and reach each other";
        assert_eq!(text("etcdserver: no leader"), format!("etcdserver: no leader: {advice}"));
        assert_eq!(text("etcdserver: something new"), "etcdserver: something new");
    }

    #[test]
    fn a_connection_that_is_refused_is_explained_by_that() {
        let refused = broken(io::ErrorKind::ConnectionRefused, "http://h:1", true);
        assert_eq!(refused, "h:1 refuses connections: does etcd run there?");
    }
}
