//! The errors of a keeper, and the checks that cause them.

use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::Query;

/// The operation of a keeper, in errors.
pub(crate) const DOING: &str = "keeping a node";

/// The reason for the refusal of a path that another client uses.
pub(crate) const OTHER_CLIENT: &str = "another client has a node there";
/// The reason for the refusal of a path that the same client uses.
pub(crate) const OTHER_OWNER: &str = "another owner of this client has a node there";

/// The error while the node cannot be created.
pub(crate) fn refused(path: &Path, why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Refused, DOING).at(path).because(why.into())
}

/// Fails if there are nodes below a path without a node.
pub(crate) async fn nothing_is_below(session: &Session, path: &Path) -> Result<()> {
    let below = session.read(Query::children(path).names_only()).await?;
    if below.nodes.is_empty() { Ok(()) } else { Err(refused(path, "there are nodes below it")) }
}

/// The error if the effect of a create is unknown.
pub(crate) fn in_doubt(path: &Path, rest: &str) -> Error {
    Error::new(ErrorKind::Unreachable, DOING)
        .at(path)
        .because(format!("an earlier request to create the node was not answered; its node {rest}"))
        .with_unknown_effect()
}

/// Returns `true` if the store will always reject this data, but may accept other data.
pub(crate) fn is_about_data(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::Invalid) && !error.has_unknown_effect()
}
