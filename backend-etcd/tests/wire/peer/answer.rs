//! [`Answer`]: the answer of a member, as a message that a script may still change.

use bytes::Bytes;
use prost::Message as _;

use super::message::{
    AuthenticateResponse, DeleteResponse, LeaseResponse, PutResponse, RangeResponse,
    RevokeResponse, TxnResponse, WatchResponse,
};

/// One message of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Range(RangeResponse),
    Put(PutResponse),
    Delete(DeleteResponse),
    Txn(TxnResponse),
    Lease(LeaseResponse),
    Revoke(RevokeResponse),
    Authenticate(AuthenticateResponse),
    Watch(WatchResponse),
    /// Bytes that cannot be decoded.
    Garbage(Bytes),
}

impl Answer {
    pub(crate) fn encode(&self) -> Bytes {
        match self {
            Self::Range(message) => message.encode_to_vec().into(),
            Self::Put(message) => message.encode_to_vec().into(),
            Self::Delete(message) => message.encode_to_vec().into(),
            Self::Txn(message) => message.encode_to_vec().into(),
            Self::Lease(message) => message.encode_to_vec().into(),
            Self::Revoke(message) => message.encode_to_vec().into(),
            Self::Authenticate(message) => message.encode_to_vec().into(),
            Self::Watch(message) => message.encode_to_vec().into(),
            Self::Garbage(bytes) => bytes.clone(),
        }
    }

    /// Removes the header, if there is one.
    pub(crate) fn without_header(mut self) -> Self {
        match &mut self {
            Self::Range(message) => message.header = None,
            Self::Put(message) => message.header = None,
            Self::Delete(message) => message.header = None,
            Self::Txn(message) => message.header = None,
            Self::Lease(message) => message.header = None,
            Self::Revoke(message) => message.header = None,
            Self::Authenticate(message) => message.header = None,
            Self::Watch(message) => message.header = None,
            Self::Garbage(_) => {}
        }
        self
    }
}
