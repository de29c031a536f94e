//! The errors of a keeper and of the calls that wait for what its task does.

use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::Query;

/// What a keeper fails while doing.
pub(crate) const DOING: &str = "keeping a node";

/// The reason to refuse a path.
pub(crate) const OTHER_CLIENT: &str = "another client has a node there";
/// The reason to refuse a path that the client itself uses.
pub(crate) const OTHER_OWNER: &str = "another owner of this client has a node there";

/// The task has ended.
pub(crate) fn closed(doing: &'static str, path: &Path) -> Error {
    Error::new(ErrorKind::SessionLost, doing).at(path).because("the client is closed")
}

/// The task had no answer in the time of a call, and goes on.
pub(crate) fn late(doing: &'static str, path: &Path) -> Error {
    Error::new(ErrorKind::Unreachable, doing)
        .at(path)
        .because("the store did not answer in time")
        .with_unknown_effect()
}

/// The node cannot be made for now.
pub(crate) fn refused(path: &Path, why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Refused, DOING).at(path).because(why.into())
}

/// Refuses a path that has no node, but nodes below it.
pub(crate) async fn nothing_is_below(session: &Session, path: &Path) -> Result<()> {
    let below = session.read(Query::children(path).names_only()).await?;
    if below.nodes.is_empty() { Ok(()) } else { Err(refused(path, "there are nodes below it")) }
}

/// The effect of a create is unknown.
pub(crate) fn in_doubt(path: &Path, rest: &str) -> Error {
    Error::new(ErrorKind::Unreachable, DOING)
        .at(path)
        .because(format!(
            "an earlier request to make the node was not answered; what it makes {rest}"
        ))
        .with_unknown_effect()
}

/// True if the store refuses the data for good, and may take a node with other data.
pub(crate) fn is_about_data(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::Invalid) && !error.has_unknown_effect()
}
