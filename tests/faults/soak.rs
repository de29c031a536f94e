//! Whatever happens, for as long as one likes.

use crate::scene::Scene;

/// How long, if anybody asked for it.
pub(crate) fn minutes() -> Option<u64> {
    std::env::var("SYNOD_SOAK").ok()?.parse().ok()
}

pub(crate) async fn anything(_scene: &mut Scene) {}
