//! [`SeatId`]: the number of a seat, in the names of its files.

use std::ffi::{CStr, CString};
use std::fmt;

/// The number of a seat. No two handles have the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SeatId(u64);

impl SeatId {
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }

    pub(crate) fn file(self, part: &str) -> CString {
        CString::new(format!("{self}.{part}")).unwrap_or_default()
    }

    /// Reads the id that `Display` shows.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let number = u64::from_str_radix(text, 16).ok()?;
        (text.len() == 16).then_some(Self(number))
    }

    pub(crate) fn of_lock_file(name: &CStr) -> Option<Self> {
        Self::parse(name.to_str().ok()?.strip_suffix(".lock")?)
    }
}

impl fmt::Display for SeatId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for SeatId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SeatId({self})")
    }
}
