//! Translates errors of the servers and of the client into errors of synod. No other module does.

use synod_core::error::{Error, ErrorKind};
use synod_core::path::Path;
use synod_core::store::SessionEnd;

use crate::client::ZkError;

/// The reason why a request has no result in terms of the `Store` trait.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The session is over.
    Lost(SessionEnd),
    /// Nodes that were to be read as a consistent snapshot kept changing.
    Restless,
    /// Nodes that were to be read as a consistent snapshot do not fit into one request.
    TooLarge,
    /// One of the nodes that were to be read is not readable for this client.
    Unreadable(String),
    /// The error of the server or of the client.
    Zk(ZkError),
}

/// The kind of a call: it only reads, or may have changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Read,
    Write,
}

impl Trouble {
    /// The error of a call.
    pub(crate) fn translate(self, doing: &'static str, sort: Sort) -> Error {
        let definite = matches!(&self, Self::Zk(error) if is_definite(error));
        let error = match self {
            Self::Lost(why) => why.error(doing),
            Self::Restless => Error::new(ErrorKind::Unreachable, doing)
                .because("the nodes that were read kept changing"),
            Self::TooLarge => Error::new(ErrorKind::TooLarge, doing),
            Self::Unreadable(node) => {
                let error = Self::Zk(ZkError::NoAuth).translate(doing, sort);
                match Path::new(&node) {
                    Ok(node) => error.at(&node),
                    Err(_) => error,
                }
            }
            Self::Zk(cause) => {
                let error = Error::new(kind(&cause), doing);
                let error = match advice(&cause) {
                    Some(advice) => error.because(advice),
                    None => error,
                };
                error.caused_by(cause)
            }
        };
        if sort == Sort::Write && !definite { error.with_unknown_effect() } else { error }
    }
}

fn kind(error: &ZkError) -> ErrorKind {
    match error {
        ZkError::ConnectionLoss
        | ZkError::Timeout
        | ZkError::Throttled
        | ZkError::SessionMoved
        | ZkError::NotReadOnly
        | ZkError::NoHosts => ErrorKind::Unreachable,
        ZkError::SessionExpired | ZkError::ClientClosed | ZkError::Abandoned => {
            ErrorKind::SessionLost
        }
        ZkError::TooLong => ErrorKind::TooLarge,
        ZkError::NoAuth | ZkError::AuthFailed => ErrorKind::Denied,
        ZkError::BadArguments(_) | ZkError::InvalidAcl | ZkError::NoChildrenForEphemerals => {
            ErrorKind::Invalid
        }
        ZkError::Unimplemented | ZkError::ReconfigDisabled => ErrorKind::Unsupported,
        _ => ErrorKind::Backend,
    }
}

/// Advice about the setting that a feature requires and that some servers lack.
pub(crate) const NO_TTL_NODES: &str =
    "nodes with a time to live need zookeeper.extendedTypesEnabled=true on each server";

/// Advice to the user about the error.
fn advice(error: &ZkError) -> Option<&'static str> {
    Some(match error {
        ZkError::ConnectionLoss => {
            "the connection was lost before the answer arrived; if that continues, see the \
             server's log"
        }
        ZkError::Timeout => "the server did not answer in time",
        ZkError::Throttled => "the server is overloaded; request less at a time",
        ZkError::NotReadOnly => {
            "the server is cut off from the majority of its servers, and accepts only reads"
        }
        ZkError::NoAuth => {
            "the node's access list does not permit this: the node was created by another user, \
             or with another password"
        }
        ZkError::AuthFailed => {
            "the servers do not accept our user and password, or refuse DIGEST-MD5 in FIPS mode \
             (zookeeper.fips-mode, on by default since 3.9)"
        }
        ZkError::InvalidAcl => {
            "the servers refuse the access list: a node of an anonymous client has no owner (give user \
             and password, or use Access::Open), and a scheme may not be enabled there"
        }
        ZkError::QuotaExceeded => "a quota on the servers is used up",
        ZkError::TooLong => "the answer is longer than ZkOptions::max_answer; read less at a time",
        ZkError::Unimplemented => NO_TTL_NODES,
        _ => return None,
    })
}

/// The error for a permission that the access list of a node does not give. Nothing was changed.
pub(crate) fn denied(doing: &'static str, node: &Path, permission: &str) -> Error {
    Trouble::Zk(ZkError::NoAuth).translate(doing, Sort::Read).at(node).because(format!(
        "the node's access list does not give this client the permission {permission}; the node \
         was created by another user, or with another password"
    ))
}

/// Returns `true` if this is the server's answer to this very request, and means that nothing was
/// changed. Any other error may come from the connection, whether the request was applied or not.
pub(crate) fn is_definite(error: &ZkError) -> bool {
    matches!(
        error,
        ZkError::NoNode
            | ZkError::NoAuth
            | ZkError::BadVersion
            | ZkError::NoChildrenForEphemerals
            | ZkError::NodeExists
            | ZkError::NotEmpty
            | ZkError::InvalidAcl
            | ZkError::BadArguments(_)
            | ZkError::NotReadOnly
            | ZkError::QuotaExceeded
            | ZkError::Throttled
            | ZkError::Unimplemented
            | ZkError::ReconfigDisabled
    )
}

#[cfg(test)]
mod tests {
    use synod_core::error::Effect;

    use super::*;

    #[test]
    fn what_a_person_can_change_is_said() {
        let hints = [
            (ZkError::ConnectionLoss, "log"),
            (ZkError::Timeout, "in time"),
            (ZkError::Throttled, "request less"),
            (ZkError::NotReadOnly, "majority"),
            (ZkError::QuotaExceeded, "quota"),
            (ZkError::TooLong, "max_answer"),
            (ZkError::NoAuth, "access list"),
            (ZkError::AuthFailed, "user and password"),
            (ZkError::InvalidAcl, "Access::Open"),
            (ZkError::Unimplemented, "extendedTypesEnabled"),
        ];
        for (error, hint) in hints {
            assert!(advice(&error).is_some_and(|text| text.contains(hint)), "{error}");
        }
    }

    #[test]
    fn only_a_definite_answer_means_that_a_write_did_not_happen() {
        let table = [
            (ZkError::ConnectionLoss, ErrorKind::Unreachable, Effect::Unknown),
            (ZkError::Timeout, ErrorKind::Unreachable, Effect::Unknown),
            (ZkError::SessionExpired, ErrorKind::SessionLost, Effect::Unknown),
            (ZkError::AuthFailed, ErrorKind::Denied, Effect::Unknown),
            (ZkError::Code(-4), ErrorKind::Backend, Effect::Unknown),
            (ZkError::NoAuth, ErrorKind::Denied, Effect::None),
            (ZkError::NotReadOnly, ErrorKind::Unreachable, Effect::None),
            (ZkError::Abandoned, ErrorKind::SessionLost, Effect::Unknown),
            (ZkError::TooLong, ErrorKind::TooLarge, Effect::Unknown),
            (ZkError::InvalidAcl, ErrorKind::Invalid, Effect::None),
        ];
        for (cause, kind, effect) in table {
            let error = Trouble::Zk(cause.clone()).translate("commit", Sort::Write);
            assert_eq!((error.kind(), error.effect()), (kind, effect), "{cause}");
            let read = Trouble::Zk(cause).translate("read", Sort::Read);
            assert_eq!((read.kind(), read.effect()), (kind, Effect::None));
        }
    }
}
