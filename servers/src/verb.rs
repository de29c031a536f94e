//! The kind of a request to ZooKeeper: [`Verb`].

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Verb {
    /// Any kind of create.
    Create,
    /// A delete.
    Delete,
    /// The stat of a node.
    Exists,
    /// The stat of a node, and a watch for one event.
    ExistsWatch,
    /// The data of a node.
    Get,
    /// A set.
    Set,
    /// The children of a node.
    List,
    /// The children of a node, and a watch for one event.
    ListWatch,
    /// A wait until the server has applied every earlier write.
    Sync,
    /// Several writes as one.
    Multi,
    /// Several reads as one.
    MultiRead,
    /// A persistent watch.
    Watch,
    /// The end of a watch.
    Unwatch,
    /// Watches set again on the next connection.
    Rewatch,
    /// A ping.
    Ping,
    /// The login of the session.
    Auth,
    /// The end of the session.
    Close,
    /// Another kind, by its number.
    Other(i32),
}

impl Verb {
    /// Parses the number that the kind has on the wire, and the byte that it ends with.
    pub(crate) fn of(code: i32, end: Option<u8>) -> Self {
        match code {
            1 | 15 | 19 | 21 => Self::Create,
            2 => Self::Delete,
            3 if end == Some(1) => Self::ExistsWatch,
            3 => Self::Exists,
            4 => Self::Get,
            5 => Self::Set,
            8 | 12 if end == Some(1) => Self::ListWatch,
            8 | 12 => Self::List,
            9 => Self::Sync,
            11 => Self::Ping,
            14 => Self::Multi,
            18 => Self::Unwatch,
            22 => Self::MultiRead,
            100 | 102 => Self::Auth,
            101 | 105 => Self::Rewatch,
            106 => Self::Watch,
            -11 => Self::Close,
            other => Self::Other(other),
        }
    }
}
