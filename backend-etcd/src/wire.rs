//! Writes each request to the connection in one piece, and concurrent requests together.
//!
//! The client library writes the start of a request, its message, its end and the answers to the
//! server's pings separately: three or four system calls per request, and as many needless wake-ups
//! of the server. [`Direct`] marks the last piece of a message as the last, and `WriteBatching`
//! holds written bytes until the other tasks that are ready have run.

use etcd_client::Channel;
use tower::util::BoxCloneSyncService;

pub(crate) use self::connect::{Connect, Io, Numbered, Sockets};
pub(crate) use self::direct::Direct;

mod connect;
mod direct;
mod write_batching;

/// A connection, as the client library takes it.
pub(crate) fn channel(straight: Direct) -> Channel {
    let sending = tower::service_fn(move |request| straight.clone().send(request));
    Channel::Custom(BoxCloneSyncService::new(sending))
}
