//! [`Request`]: a message to the server, and the receiver of the answer.

use crate::acl::{Acl, AclEntry, Permissions};
use crate::client::answer::ReplySender;
use crate::client::jute::{Decoder, Encoder};
use crate::client::node::CreateOptions;
use crate::client::watches::WatchRequest;
use crate::client::zk_error::ZkError;

/// The numbers of the requests.
pub(super) mod op {
    pub(crate) const DELETE: i32 = 2;
    pub(crate) const EXISTS: i32 = 3;
    pub(crate) const GET_DATA: i32 = 4;
    pub(crate) const SET_DATA: i32 = 5;
    pub(crate) const GET_ACL: i32 = 6;
    pub(crate) const SET_ACL: i32 = 7;
    pub(crate) const GET_CHILDREN: i32 = 8;
    pub(crate) const SYNC: i32 = 9;
    pub(crate) const PING: i32 = 11;
    pub(crate) const GET_CHILDREN_2: i32 = 12;
    pub(crate) const CHECK: i32 = 13;
    pub(crate) const MULTI: i32 = 14;
    pub(crate) const CREATE_2: i32 = 15;
    pub(crate) const REMOVE_WATCHES: i32 = 18;
    pub(crate) const CREATE_CONTAINER: i32 = 19;
    pub(crate) const CREATE_TTL: i32 = 21;
    pub(crate) const MULTI_READ: i32 = 22;
    pub(crate) const AUTH: i32 = 100;
    pub(crate) const SET_WATCHES: i32 = 101;
    #[cfg(feature = "sasl")]
    pub(crate) const SASL: i32 = 102;
    pub(crate) const ADD_WATCH: i32 = 106;
    pub(crate) const CLOSE_SESSION: i32 = -11;
    /// In the answer to several operations: one of them was refused.
    pub(crate) const ERROR: i32 = -1;
    /// In the same answer: the result of a create without a stat.
    pub(crate) const CREATE: i32 = 1;
}

/// The length of a message and the number of the request, which are written when it is sent.
const HEAD: usize = 8;

/// A message to the server: a frame whose length and number are still to be written.
#[derive(Debug)]
pub(super) struct Message(Encoder);

impl Message {
    pub(super) fn new(op: i32) -> Self {
        let mut frame = Encoder::after(HEAD);
        frame.int(op);
        Self(frame)
    }

    /// The part after the operation's number.
    pub(super) fn body(&mut self) -> &mut Encoder {
        &mut self.0
    }

    /// Appends the frame of the request with this number.
    pub(super) fn append(self, xid: i32, to: &mut Vec<u8>) {
        let mut frame = self.0.finish();
        let length = i32::try_from(frame.len() - 4).unwrap_or(i32::MAX);
        frame[..4].copy_from_slice(&length.to_be_bytes());
        frame[4..HEAD].copy_from_slice(&xid.to_be_bytes());
        to.extend_from_slice(&frame);
    }
}

/// A request to the task that owns the session.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) message: Message,
    /// The watch that the request sets.
    pub(super) watch: Option<WatchRequest>,
    pub(super) reply: ReplySender,
}

/// An order to the task that owns the session.
#[derive(Debug)]
pub(super) enum Order {
    Send(Request),
    /// The watcher with this number was dropped.
    Unwatch(u64),
}

impl Encoder {
    /// An access list.
    pub(super) fn acl(&mut self, acl: &Acl) -> &mut Self {
        self.int(i32::try_from(acl.entries().len()).unwrap_or(i32::MAX));
        for entry in acl.entries() {
            self.int(entry.permissions.bits()).text(&entry.scheme).text(&entry.id);
        }
        self
    }

    /// The body of a create.
    pub(super) fn create(&mut self, path: &str, data: &[u8], options: &CreateOptions) {
        self.text(path).buffer(data).acl(options.acl());
        self.int(options.flags());
        if let Some(ttl) = options.ttl() {
            self.long(ttl);
        }
    }
}

impl Decoder<'_> {
    /// An access list.
    pub(super) fn acl(&mut self) -> Result<Acl, ZkError> {
        let mut entries = Vec::new();
        // A server without a list sends -1.
        for _ in 0..self.int()?.max(0) {
            let permissions = Permissions::of_bits(self.int()?);
            let (scheme, id) = (self.text()?, self.text()?);
            entries.push(AclEntry::new(scheme, id, permissions));
        }
        Ok(Acl::new(entries))
    }
}

/// The number of the request that creates such a node.
pub(super) fn create_op(options: &CreateOptions) -> i32 {
    if options.ttl().is_some() {
        op::CREATE_TTL
    } else if options.is_container() {
        op::CREATE_CONTAINER
    } else {
        op::CREATE_2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_list_is_read_as_it_was_written() {
        for list in ["world:anyone:r", "auth::cdrwa,x509:CN=ann,O=shop:r,ip:10.0.0.0/8:a"] {
            let list: Acl = list.parse().expect("valid");
            let mut message = Encoder::default();
            let bytes = std::mem::take(message.acl(&list)).finish();
            assert_eq!(Decoder::new(&bytes).acl(), Ok(list));
            for end in 0..bytes.len() {
                assert!(Decoder::new(&bytes[..end]).acl().is_err(), "{end}");
            }
        }
        for (count, is_valid) in [(-1, true), (0, true), (i32::MAX, false)] {
            let mut message = Encoder::default();
            message.int(count);
            assert_eq!(Decoder::new(&message.finish()).acl().is_ok(), is_valid, "{count}");
        }
    }
}
