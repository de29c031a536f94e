//! [`inspect`]: the holders and the waiters at a path.

use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;

use crate::line::contender::{Contender, contenders};
use crate::line::marks::Capacity;

#[cfg_attr(not(doctest), doc = include_str!("../docs/inspect.md"))]
///
/// # Errors
///
/// As every verb of a [`Client`].
///
/// # Cancel safety
///
/// Cancel safe: it only reads.
pub async fn inspect(client: &Client, path: impl Into<Path>) -> Result<Vec<Contender>> {
    contenders(client, &path.into(), Capacity::One).await
}
