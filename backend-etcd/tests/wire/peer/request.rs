//! [`Request`]: the requests to a member, except for watches.

use prost::Message as _;
use tonic::Code;

use super::message::{
    AuthenticateRequest, DeleteRequest, GrantRequest, LeaseRequest, PutRequest, RangeRequest,
    TxnRequest,
};
use super::refusal::Refusal;
use super::script::Kind;

/// One request.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Range(RangeRequest),
    Put(PutRequest),
    Delete(DeleteRequest),
    Txn(TxnRequest),
    Grant(GrantRequest),
    KeepAlive(LeaseRequest),
    Revoke(LeaseRequest),
    Authenticate(AuthenticateRequest),
}

impl Request {
    pub(crate) fn decode(kind: Kind, message: &[u8]) -> Result<Self, Refusal> {
        let decoded = match kind {
            Kind::Range => RangeRequest::decode(message).map(Self::Range),
            Kind::Put => PutRequest::decode(message).map(Self::Put),
            Kind::Delete => DeleteRequest::decode(message).map(Self::Delete),
            Kind::Txn => TxnRequest::decode(message).map(Self::Txn),
            Kind::Grant => GrantRequest::decode(message).map(Self::Grant),
            Kind::KeepAlive => LeaseRequest::decode(message).map(Self::KeepAlive),
            Kind::Revoke => LeaseRequest::decode(message).map(Self::Revoke),
            Kind::Authenticate => AuthenticateRequest::decode(message).map(Self::Authenticate),
            Kind::Watch | Kind::Create | Kind::Cancel | Kind::Progress | Kind::Push => {
                return Err(Refusal::new(Code::Internal, "not a request of its own"));
            }
        };
        decoded.map_err(|error| Refusal::new(Code::Internal, error.to_string()))
    }

    /// Returns `true` if any member may answer it alone, even one that lags.
    pub(crate) fn is_serializable(&self) -> bool {
        use super::message::Op;
        match self {
            Self::Range(request) => request.serializable,
            Self::Txn(request) => {
                let ops = request.success.iter().chain(&request.failure);
                request.compare.is_empty()
                    && ops
                        .map(|op| &op.op)
                        .all(|op| matches!(op, Some(Op::Range(request)) if request.serializable))
            }
            _ => false,
        }
    }

    /// Returns `true` if it concerns keys, which may require a login.
    pub(crate) fn is_of_keys(&self) -> bool {
        matches!(self, Self::Range(_) | Self::Put(_) | Self::Delete(_) | Self::Txn(_))
    }

    pub(crate) fn is_of_leases(&self) -> bool {
        matches!(self, Self::Grant(_) | Self::KeepAlive(_) | Self::Revoke(_))
    }
}
