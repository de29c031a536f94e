//! [`inspect`]: the holders and the waiters at a path.

use synod_core::client::Client;
use synod_core::error::Result;
use synod_core::path::Path;

use crate::line::order::{Contender, contenders};
use crate::line::ticket_name::Capacity;

#[cfg_attr(not(doctest), doc = include_str!("../docs/inspect.md"))]
///
/// # Errors
///
/// The errors common to all calls of a [`Client`].
///
/// # Cancel safety
///
/// Cancel safe: it only reads.
pub async fn inspect(client: &Client, path: impl Into<Path>) -> Result<Vec<Contender>> {
    contenders(client, &path.into(), Capacity::One).await
}
