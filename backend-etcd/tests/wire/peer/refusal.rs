//! [`Refusal`]: an answer that is an error.

use tonic::Code;

/// A code and a message, as in gRPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// With the prefix that etcd gives its own messages.
    pub(crate) fn etcd(code: Code, message: &str) -> Self {
        Self::new(code, format!("etcdserver: {message}"))
    }

    /// A request for a revision that is no longer kept.
    pub(crate) fn compacted() -> Self {
        Self::etcd(Code::OutOfRange, "mvcc: required revision has been compacted")
    }
}
