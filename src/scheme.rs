//! [`Scheme`]: the kind of store that a URL names; and the error for a URL that is wrong.

use std::borrow::Cow;

use synod_core::error::{Error, ErrorKind};

/// The kind of store that an [`Address`](crate::Address) names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scheme {
    /// `mem`: memory.
    Mem,
    /// `file`: a directory of this machine.
    File,
    /// `zk`, or `zks` with TLS: ZooKeeper.
    ZooKeeper {
        /// `true` for `zks`.
        tls: bool,
    },
    /// `etcd`, or `etcds` with TLS: etcd.
    Etcd {
        /// `true` for `etcds`.
        tls: bool,
    },
    /// The scheme of a store that this program added with [`register`](crate::register).
    Registered(&'static str),
}

impl Scheme {
    /// The scheme of one of synod's own stores.
    pub(crate) fn built_in(text: &str) -> Option<Self> {
        Some(match text {
            "mem" => Self::Mem,
            "file" => Self::File,
            "zk" => Self::ZooKeeper { tls: false },
            "zks" => Self::ZooKeeper { tls: true },
            "etcd" => Self::Etcd { tls: false },
            "etcds" => Self::Etcd { tls: true },
            _ => return None,
        })
    }

    /// The feature of this crate that enables the store; `None` for a registered store.
    pub fn feature(self) -> Option<&'static str> {
        match self {
            Self::Mem => Some("mem"),
            Self::File => Some("file"),
            Self::ZooKeeper { .. } => Some("zookeeper"),
            Self::Etcd { .. } => Some("etcd"),
            Self::Registered(_) => None,
        }
    }

    /// Returns `true` if the text after a colon in a host is a port. A registered store interprets
    /// it itself.
    pub(crate) fn has_ports(self) -> bool {
        matches!(self, Self::ZooKeeper { .. } | Self::Etcd { .. })
    }

    /// Returns `true` if the connection uses TLS.
    pub fn is_secure(self) -> bool {
        matches!(self, Self::ZooKeeper { tls: true } | Self::Etcd { tls: true })
    }

    /// The scheme as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mem => "mem",
            Self::File => "file",
            Self::ZooKeeper { tls: false } => "zk",
            Self::ZooKeeper { tls: true } => "zks",
            Self::Etcd { tls: false } => "etcd",
            Self::Etcd { tls: true } => "etcds",
            Self::Registered(scheme) => scheme,
        }
    }
}

/// An error without any part of the URL: in a malformed URL the password can be anywhere.
pub(crate) fn invalid(why: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Invalid, "reading the store's URL").because(why)
}
