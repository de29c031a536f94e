//! The metrics of [`trace`](super::trace), without the feature: nothing is counted.

use std::time::Duration;

use crate::store::{Kind, SessionEnd};

pub(super) const fn called(_verb: &'static str, _outcome: &'static str, _took: Duration) {}

pub(super) const fn changed(_kind: Kind) {}

pub(super) const fn resynced() {}

pub(super) const fn ended() {}

pub(super) const fn session_lost(_why: SessionEnd) {}
