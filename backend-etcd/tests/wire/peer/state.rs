//! [`State`]: the state on which the members agree, and how requests change it.

use std::collections::BTreeSet;

use tonic::Code;

use super::answer::Answer;
use super::keys::{Batch, Keys};
use super::leases::{Leases, not_found};
use super::message::{
    AuthenticateResponse, DeleteRequest, DeleteResponse, Done, Header, LeaseResponse, Op,
    PutRequest, PutResponse, RangeRequest, RangeResponse, RequestOp, ResponseOp, RevokeResponse,
    TxnRequest, TxnResponse,
};
use super::refusal::Refusal;
use super::request::Request;
use super::users::Users;

/// The maximum number of conditions, and of operations, in a transaction.
const MOST: usize = 128;
/// The maximum size of a request.
const LARGEST: usize = 1_572_864;

/// Keys, leases and users.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// The id of the cluster.
    pub(crate) cluster: u64,
    /// The term of the leader.
    pub(crate) term: u64,
    pub(crate) keys: Keys,
    pub(crate) leases: Leases,
    pub(crate) users: Users,
    /// The keys that reads went through: etcd counts all keys of a range, also those that a limit
    /// cuts off.
    pub(crate) passed: i64,
}

impl Default for State {
    fn default() -> Self {
        let (keys, leases, users) = (Keys::default(), Leases::default(), Users::default());
        Self { cluster: 1, term: 1, keys, leases, users, passed: 0 }
    }
}

impl State {
    fn header(&self, member: usize) -> Header {
        self.header_at(member, self.keys.revision)
    }

    /// The header of an answer of a member at this revision.
    pub(crate) fn header_at(&self, member: usize, revision: i64) -> Header {
        let member = u64::try_from(member).unwrap_or_default() + 1;
        Header { cluster: self.cluster, member, revision, term: self.term }
    }

    /// Applies a request at a member that has applied everything up to `applied`.
    pub(crate) fn apply(
        &mut self,
        member: usize,
        applied: i64,
        request: &Request,
    ) -> Result<Answer, Refusal> {
        match request {
            Request::Range(request) => {
                let (kvs, more, count) = self.keys.range(request, applied)?;
                self.passed += count;
                let header = Some(self.header_at(member, applied));
                Ok(Answer::Range(RangeResponse { header, kvs, more, count }))
            }
            Request::Put(request) => {
                small(request)?;
                self.put_alone(member, request)
            }
            Request::Delete(request) => {
                let mut batch = self.keys.write();
                let gone = delete(&mut batch, &mut self.leases, request);
                batch.commit();
                let header = Some(self.header(member));
                Ok(Answer::Delete(DeleteResponse { header, ..gone }))
            }
            Request::Txn(request) => {
                small(request)?;
                self.txn(member, applied, request).map(Answer::Txn)
            }
            Request::Grant(request) => {
                let ttl = self.leases.grant(request.id, request.ttl)?;
                let header = Some(self.header(member));
                Ok(Answer::Lease(LeaseResponse { header, id: request.id, ttl }))
            }
            Request::KeepAlive(request) => {
                let ttl = self.leases.renew(request.id);
                let header = Some(self.header(member));
                Ok(Answer::Lease(LeaseResponse { header, id: request.id, ttl }))
            }
            Request::Revoke(request) => {
                self.end(request.id)?;
                Ok(Answer::Revoke(RevokeResponse { header: Some(self.header(member)) }))
            }
            Request::Authenticate(request) => {
                let token = self.users.authenticate(request)?;
                let header = Some(self.header(member));
                Ok(Answer::Authenticate(AuthenticateResponse { header, token }))
            }
        }
    }

    /// Ends a lease, and deletes its keys at one revision.
    pub(crate) fn end(&mut self, lease: i64) -> Result<(), Refusal> {
        let keys = self.leases.end(lease)?;
        let mut batch = self.keys.write();
        for key in keys {
            batch.delete(&key, &[]);
        }
        batch.commit();
        Ok(())
    }

    fn put_alone(&mut self, member: usize, request: &PutRequest) -> Result<Answer, Refusal> {
        self.may_put(request)?;
        let mut batch = self.keys.write();
        let done = put(&mut batch, &mut self.leases, request);
        batch.commit();
        let header = Some(self.header(member));
        Ok(Answer::Put(PutResponse { header, ..done }))
    }

    fn may_put(&self, request: &PutRequest) -> Result<(), Refusal> {
        if request.ignore_lease && self.keys.get(&request.key).is_none() {
            return Err(Refusal::etcd(Code::InvalidArgument, "key not found"));
        }
        if request.lease != 0 && !self.leases.is_alive(request.lease) {
            return Err(not_found());
        }
        Ok(())
    }

    fn txn(
        &mut self,
        member: usize,
        applied: i64,
        request: &TxnRequest,
    ) -> Result<TxnResponse, Refusal> {
        let most = request.compare.len().max(request.success.len()).max(request.failure.len());
        if most > MOST {
            return Err(Refusal::etcd(Code::InvalidArgument, "too many operations in txn request"));
        }
        once_each(&request.success)?;
        once_each(&request.failure)?;
        let succeeded = request.compare.iter().all(|compare| self.keys.holds(compare));
        let ops = if succeeded { &request.success } else { &request.failure };
        for op in ops {
            match &op.op {
                Some(Op::Put(request)) => self.may_put(request)?,
                Some(Op::Range(request)) => drop(self.keys.range(request, applied)?),
                _ => {}
            }
        }
        let mut batch = self.keys.write();
        let mut responses = Vec::new();
        for op in ops {
            responses.push(ResponseOp {
                done: op.op.as_ref().map(|op| one(&mut batch, &mut self.leases, op, applied)),
            });
        }
        let wrote = batch.revision() > batch.keys.revision;
        batch.commit();
        let revision = if wrote { self.keys.revision } else { applied };
        let header = Some(self.header_at(member, revision));
        Ok(TxnResponse { header, succeeded, responses })
    }
}

fn one(batch: &mut Batch<'_>, leases: &mut Leases, op: &Op, applied: i64) -> Done {
    match op {
        Op::Range(request) => {
            // Reads within a transaction see its earlier writes.
            let wrote = batch.revision() > batch.keys.revision;
            let now = if wrote { batch.revision() } else { applied };
            let found = batch.keys.range(&RangeRequest { revision: 0, ..request.clone() }, now);
            let (kvs, more, count) = found.expect("it was looked at before");
            Done::Range(RangeResponse { header: None, kvs, more, count })
        }
        Op::Put(request) => Done::Put(put(batch, leases, request)),
        Op::Delete(request) => Done::Delete(delete(batch, leases, request)),
    }
}

fn put(batch: &mut Batch<'_>, leases: &mut Leases, request: &PutRequest) -> PutResponse {
    let held = batch.keys.get(&request.key).map_or(0, |kv| kv.lease);
    let lease = if request.ignore_lease { held } else { request.lease };
    leases.attach(&request.key, held, lease);
    let before = batch.put(&request.key, request.value.clone(), lease);
    PutResponse { header: None, prev_kv: before.filter(|_| request.prev_kv) }
}

fn delete(batch: &mut Batch<'_>, leases: &mut Leases, request: &DeleteRequest) -> DeleteResponse {
    let gone = batch.delete(&request.key, &request.range_end);
    for kv in &gone {
        leases.attach(&kv.key, kv.lease, 0);
    }
    DeleteResponse { header: None, deleted: i64::try_from(gone.len()).unwrap_or(i64::MAX) }
}

/// Checks that no key is written twice by one transaction.
fn once_each(ops: &[RequestOp]) -> Result<(), Refusal> {
    let mut written = BTreeSet::new();
    let deletes = ops.iter().filter_map(|op| match &op.op {
        Some(Op::Delete(request)) => Some(request.key.clone()),
        _ => None,
    });
    let deletes: BTreeSet<_> = deletes.collect();
    for op in ops {
        let Some(Op::Put(request)) = &op.op else { continue };
        if deletes.contains(&request.key) || !written.insert(request.key.clone()) {
            let why = "duplicate key given in txn request";
            return Err(Refusal::etcd(Code::InvalidArgument, why));
        }
    }
    Ok(())
}

fn small(request: &impl prost::Message) -> Result<(), Refusal> {
    if request.encoded_len() > LARGEST {
        return Err(Refusal::etcd(Code::InvalidArgument, "request is too large"));
    }
    Ok(())
}
