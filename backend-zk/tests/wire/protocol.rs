//! ZooKeeper's requests and answers, as versions 3.5 to 3.8 write them.

use crate::jute::{Reader, Writer};
use crate::tree::Stat;

/// The numbers of requests.
pub(crate) mod op {
    pub(crate) const CREATE: i32 = 1;
    pub(crate) const DELETE: i32 = 2;
    pub(crate) const EXISTS: i32 = 3;
    pub(crate) const GET_DATA: i32 = 4;
    pub(crate) const SET_DATA: i32 = 5;
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
    pub(crate) const SET_WATCHES_2: i32 = 105;
    pub(crate) const ADD_WATCH: i32 = 106;
    pub(crate) const CLOSE: i32 = -11;
    pub(crate) const ERROR: i32 = -1;
}

/// The numbers of errors.
pub(crate) mod code {
    pub(crate) const RUNTIME_INCONSISTENCY: i32 = -2;
    pub(crate) const UNIMPLEMENTED: i32 = -6;
    pub(crate) const BAD_ARGUMENTS: i32 = -8;
    pub(crate) const NO_NODE: i32 = -101;
    pub(crate) const NO_AUTH: i32 = -102;
    pub(crate) const BAD_VERSION: i32 = -103;
    pub(crate) const NO_CHILDREN_FOR_EPHEMERALS: i32 = -108;
    pub(crate) const NODE_EXISTS: i32 = -110;
    pub(crate) const NOT_EMPTY: i32 = -111;
    pub(crate) const SESSION_EXPIRED: i32 = -112;
    pub(crate) const INVALID_ACL: i32 = -114;
    pub(crate) const AUTH_FAILED: i32 = -115;
    pub(crate) const SESSION_MOVED: i32 = -118;
    pub(crate) const NO_WATCHER: i32 = -121;
    pub(crate) const THROTTLED: i32 = -127;
}

/// The number of messages that a server sends without a request.
pub(crate) const EVENT: i32 = -1;
/// The number of a ping.
pub(crate) const PING: i32 = -2;

/// The first message of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Connect {
    pub(crate) last_zxid: i64,
    pub(crate) timeout: i32,
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
}

/// One entry of an access list: permissions, scheme and id.
pub(crate) type Acl = (i32, String, String);

/// A request without its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Create { op: i32, path: String, data: Vec<u8>, acl: Vec<Acl>, flags: i32, ttl: i64 },
    Delete { path: String, version: i32 },
    Exists { path: String, watch: bool },
    GetData { path: String, watch: bool },
    SetData { path: String, data: Vec<u8>, version: i32 },
    GetChildren { op: i32, path: String, watch: bool },
    Sync { path: String },
    Ping,
    Check { path: String, version: i32 },
    Multi(Vec<Request>),
    MultiRead(Vec<Request>),
    RemoveWatches { path: String, kind: i32 },
    SetWatches { op: i32, since: i64, lists: Vec<Vec<String>> },
    AddWatch { path: String, mode: i32 },
    Auth { scheme: String, auth: Vec<u8> },
    Close,
    Other(i32),
}

impl Connect {
    pub(crate) fn read(message: &[u8]) -> Option<Self> {
        let mut reader = Reader(message);
        let _version = reader.int()?;
        let (last_zxid, timeout, session) = (reader.long()?, reader.int()?, reader.long()?);
        Some(Self { last_zxid, timeout, session, password: reader.bytes()?.to_vec() })
    }

    /// The answer: the session, its negotiated time and its password. Session 0 is over.
    pub(crate) fn answer(session: i64, timeout: i32, password: &[u8]) -> Vec<u8> {
        let writer = Writer::default().int(0).int(timeout).long(session);
        writer.bytes(password).boolean(false).frame()
    }
}

impl Request {
    /// The number and the rest of a request.
    pub(crate) fn read(message: &[u8]) -> Option<(i32, Self)> {
        let mut reader = Reader(message);
        let (xid, op) = (reader.int()?, reader.int()?);
        Some((xid, Self::of(op, &mut reader)?))
    }

    fn of(op: i32, reader: &mut Reader<'_>) -> Option<Self> {
        Some(match op {
            op::CREATE | op::CREATE_2 | op::CREATE_CONTAINER | op::CREATE_TTL => {
                let (path, data) = (reader.text()?, reader.bytes()?.to_vec());
                let acl = reader.list(|acl| Some((acl.int()?, acl.text()?, acl.text()?)))?;
                let flags = reader.int()?;
                let ttl = if op == op::CREATE_TTL { reader.long()? } else { 0 };
                Self::Create { op, path, data, acl, flags, ttl }
            }
            op::DELETE => Self::Delete { path: reader.text()?, version: reader.int()? },
            op::EXISTS => Self::Exists { path: reader.text()?, watch: reader.boolean()? },
            op::GET_DATA => Self::GetData { path: reader.text()?, watch: reader.boolean()? },
            op::SET_DATA => {
                let (path, data) = (reader.text()?, reader.bytes()?.to_vec());
                Self::SetData { path, data, version: reader.int()? }
            }
            op::GET_CHILDREN | op::GET_CHILDREN_2 => {
                Self::GetChildren { op, path: reader.text()?, watch: reader.boolean()? }
            }
            op::SYNC => Self::Sync { path: reader.text()? },
            op::PING => Self::Ping,
            op::CHECK => Self::Check { path: reader.text()?, version: reader.int()? },
            op::MULTI => Self::Multi(Self::several(reader)?),
            op::MULTI_READ => Self::MultiRead(Self::several(reader)?),
            op::REMOVE_WATCHES => Self::RemoveWatches { path: reader.text()?, kind: reader.int()? },
            op::SET_WATCHES | op::SET_WATCHES_2 => {
                let since = reader.long()?;
                let lists = if op == op::SET_WATCHES { 3 } else { 5 };
                let lists = (0..lists).map(|_| reader.list(Reader::text)).collect::<Option<_>>()?;
                Self::SetWatches { op, since, lists }
            }
            op::ADD_WATCH => Self::AddWatch { path: reader.text()?, mode: reader.int()? },
            op::AUTH => {
                let _kind = reader.int()?;
                Self::Auth { scheme: reader.text()?, auth: reader.bytes()?.to_vec() }
            }
            op::CLOSE => Self::Close,
            op => Self::Other(op),
        })
    }

    /// The operations of a multi.
    fn several(reader: &mut Reader<'_>) -> Option<Vec<Self>> {
        let mut all = Vec::new();
        loop {
            let (op, done, error) = (reader.int()?, reader.boolean()?, reader.int()?);
            if done {
                // A server ignores these numbers. Its own client sends them.
                return (op == -1 && error == -1).then_some(all);
            }
            if error != -1 {
                return None;
            }
            all.push(Self::of(op, reader)?);
        }
    }

    /// Its number on the wire.
    pub(crate) fn op(&self) -> i32 {
        match self {
            Self::Create { op, .. }
            | Self::GetChildren { op, .. }
            | Self::SetWatches { op, .. }
            | Self::Other(op) => *op,
            Self::Delete { .. } => op::DELETE,
            Self::Exists { .. } => op::EXISTS,
            Self::GetData { .. } => op::GET_DATA,
            Self::SetData { .. } => op::SET_DATA,
            Self::Sync { .. } => op::SYNC,
            Self::Ping => op::PING,
            Self::Check { .. } => op::CHECK,
            Self::Multi(_) => op::MULTI,
            Self::MultiRead(_) => op::MULTI_READ,
            Self::RemoveWatches { .. } => op::REMOVE_WATCHES,
            Self::AddWatch { .. } => op::ADD_WATCH,
            Self::Auth { .. } => op::AUTH,
            Self::Close => op::CLOSE,
        }
    }

    /// The path that it is about; for several operations, that of the first.
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Create { path, .. }
            | Self::Delete { path, .. }
            | Self::Exists { path, .. }
            | Self::GetData { path, .. }
            | Self::SetData { path, .. }
            | Self::GetChildren { path, .. }
            | Self::Sync { path }
            | Self::Check { path, .. }
            | Self::RemoveWatches { path, .. }
            | Self::AddWatch { path, .. } => path,
            Self::Multi(all) | Self::MultiRead(all) => all.first().map_or("", Self::path),
            _ => "",
        }
    }

    /// Returns `true` if the leader decides about the request.
    pub(crate) fn is_write(&self) -> bool {
        matches!(
            self,
            Self::Create { .. }
                | Self::Delete { .. }
                | Self::SetData { .. }
                | Self::Multi(_)
                | Self::Close
        )
    }

    /// The request as a client sends it.
    pub(crate) fn frame(&self, xid: i32) -> Vec<u8> {
        self.write(Writer::default().int(xid).int(self.op())).frame()
    }

    fn write(&self, to: Writer) -> Writer {
        match self {
            Self::Create { op, path, data, acl, flags, ttl } => {
                let to = to.text(path).bytes(data);
                let count = i32::try_from(acl.len()).expect("few");
                let to = acl.iter().fold(to.int(count), |to, (permissions, scheme, id)| {
                    to.int(*permissions).text(scheme).text(id)
                });
                let to = to.int(*flags);
                if *op == op::CREATE_TTL { to.long(*ttl) } else { to }
            }
            Self::Delete { path, version } | Self::Check { path, version } => {
                to.text(path).int(*version)
            }
            Self::Exists { path, watch }
            | Self::GetData { path, watch }
            | Self::GetChildren { path, watch, .. } => to.text(path).boolean(*watch),
            Self::SetData { path, data, version } => to.text(path).bytes(data).int(*version),
            Self::Sync { path } => to.text(path),
            Self::RemoveWatches { path, kind: number } | Self::AddWatch { path, mode: number } => {
                to.text(path).int(*number)
            }
            Self::Multi(all) | Self::MultiRead(all) => {
                let to = all
                    .iter()
                    .fold(to, |to, one| one.write(to.int(one.op()).boolean(false).int(-1)));
                to.int(-1).boolean(true).int(-1)
            }
            Self::SetWatches { since, lists, .. } => {
                lists.iter().fold(to.long(*since), Writer::texts)
            }
            Self::Auth { scheme, auth } => to.int(0).text(scheme).bytes(auth),
            Self::Ping | Self::Close | Self::Other(_) => to,
        }
    }
}

/// An answer as a server sends it.
pub(crate) fn answer(xid: i32, zxid: i64, response: &Result<Vec<u8>, i32>) -> Vec<u8> {
    let head = Writer::default().int(xid).long(zxid);
    match response {
        Ok(body) => head.int(0).raw(body).frame(),
        Err(error) => head.int(*error).frame(),
    }
}

/// An event as a server sends it, with the number of its transaction. Servers before 3.9 send -1
/// instead.
pub(crate) fn event(kind: i32, path: &str, zxid: i64) -> Vec<u8> {
    const CONNECTED: i32 = 3;

    Writer::default().int(EVENT).long(zxid).int(0).int(kind).int(CONNECTED).text(path).frame()
}

/// Appends a stat.
pub(crate) fn stat(to: Writer, stat: &Stat) -> Writer {
    to.long(stat.czxid)
        .long(stat.mzxid)
        .long(stat.ctime)
        .long(stat.mtime)
        .int(stat.version)
        .int(stat.cversion)
        .int(stat.aversion)
        .long(stat.owner)
        .int(stat.length)
        .int(stat.children)
        .long(stat.pzxid)
}
