//! The etcd backend of synod: real servers, of version 3.4 or later.
//!
//! A session is a lease. A node is a key in the encoding of `src/key.rs`; other keys in the same
//! cluster are not touched.
//!
//! Building this needs `protoc` and the well-known protocol files: on Debian, the packages
//! `protobuf-compiler` and `libprotobuf-dev`.
//!
//! Start reading with `src/store.rs`, then the modules that it uses.

mod backend;
mod committing;
mod encryption;
mod endpoints;
mod error;
mod error_help;
mod fetch;
mod heartbeat;
mod history;
mod key;
mod lease;
mod link;
mod member_list;
mod member_status;
mod options;
mod patience;
mod plan;
mod portions;
mod reader;
mod registry;
#[cfg(feature = "scripted")]
#[doc(hidden)]
pub mod scripted;
mod single_operation;
mod store;
mod tickets;
mod tls;
mod version;
mod view_builder;
mod watched_range;
mod watches;
mod wire;
mod writer;

pub use backend::EtcdBackend;
pub use member_status::{MemberAlarm, MemberStatus};
pub use options::EtcdOptions;
pub use tls::Tls;
