//! Connections to members without sockets, for the tests of this crate.
//!
//! Exists with the feature `scripted` only, and is not part of the public interface.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use http::Uri;
use hyper_util::rt::TokioIo;
use synod_core::error::Result;
use synod_core::random::Random;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::BoxError;

use crate::backend::EtcdBackend;
use crate::options::EtcdOptions;
use crate::wire::{Connect, Io};

/// A backend that opens connections by `dial`, given `host:port`, and takes its ids from `random`.
///
/// # Errors
///
/// As [`EtcdBackend::new`].
pub fn backend<D, F, T>(options: EtcdOptions, random: Random, dial: D) -> Result<EtcdBackend>
where
    D: Fn(String) -> F + Send + Sync + 'static,
    F: Future<Output = io::Result<T>> + Send + 'static,
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    EtcdBackend::over(options.over(Arc::new(Dialled(dial))), random)
}

struct Dialled<D>(D);

#[async_trait]
impl<D, F, T> Connect for Dialled<D>
where
    D: Fn(String) -> F + Send + Sync,
    F: Future<Output = io::Result<T>> + Send,
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    async fn connect(&self, to: Uri) -> Result<Box<dyn Io>, BoxError> {
        let to = to.authority().map(ToString::to_string).unwrap_or_default();
        let io = (self.0)(to).await?;
        Ok(Box::new(TokioIo::new(io)))
    }
}
