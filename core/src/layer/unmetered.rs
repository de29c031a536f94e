//! The metrics of [`trace`](super::trace), without the feature: nothing is counted.

use std::time::Duration;

use crate::store::{Kind, SessionEnd};

pub(super) const fn record_call(_verb: &'static str, _outcome: &'static str, _took: Duration) {}

pub(super) const fn record_change(_kind: Kind) {}

pub(super) const fn record_resync() {}

pub(super) const fn record_end() {}

pub(super) const fn record_session_loss(_why: SessionEnd) {}

pub(super) const fn add_sessions(_server: &str, _count: f64) {}
