//! A secret, and the full text of errors, which must not contain it.

use std::error::Error as _;
use std::fmt::Write as _;

use synod::Error;

/// A password that no output may contain.
pub(crate) const CANARY: &str = "canary-7f3a91";

/// The full text of an error, with its causes.
pub(crate) fn shown(error: &Error) -> String {
    let mut shown = format!("{error} {error:?} {error:#?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        write!(shown, " {error} {error:?}").expect("a string has room");
        cause = error.source();
    }
    shown
}
