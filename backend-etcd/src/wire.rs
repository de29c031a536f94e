//! Writes each request to the connection in one piece, and concurrent requests together.
//!
//! The client library writes the start of a request, its message, its end and the answers to the
//! server's pings separately: three or four system calls per request, and as many needless wake-ups
//! of the server. [`MarkedEnd`] marks the last piece of a message, and [`WriteBatching`] holds
//! written bytes until the other ready tasks have run.

use std::sync::Arc;

use etcd_client::Channel;
use http::{Request, Uri};
use tonic::transport::Endpoint;
use tower::ServiceBuilder;
use tower::util::BoxCloneSyncService;

use self::marked_end::MarkedEnd;
use self::write_batching::WriteBatching;

#[cfg(any(test, feature = "scripted"))]
pub(crate) use self::connect::Io;
pub(crate) use self::connect::{Connect, Numbered, Sockets};
pub(crate) use self::direct::Direct;

mod connect;
mod direct;
mod marked_end;
mod write_batching;

/// A connection, as the client library takes it.
pub(crate) fn channel(straight: Direct) -> Channel {
    let sending = tower::service_fn(move |request| straight.clone().send(request));
    Channel::Custom(BoxCloneSyncService::new(sending))
}

/// Like [`channel`], with the encryption of `endpoint`.
pub(crate) fn encrypted(endpoint: &Endpoint, way: Arc<dyn Connect>) -> Channel {
    let gathering = tower::service_fn(move |uri: Uri| {
        let way = way.clone();
        async move { Ok::<_, tower::BoxError>(WriteBatching::new(way.connect(uri).await?)) }
    });
    let channel = endpoint.connect_with_connector_lazy(gathering);
    let whole = |request: Request<tonic::body::Body>| {
        request.map(|body| tonic::body::Body::new(MarkedEnd::new(body)))
    };
    let service = ServiceBuilder::new().map_request(whole).map_err(Into::into).service(channel);
    Channel::Custom(BoxCloneSyncService::new(service))
}
