//! [`ItemWait`]: the metrics and the span of a wait for an item.

use synod_core::clock;
use synod_core::error::Result;
use synod_core::path::Path;
use tracing::Instrument;
use tracing::field::{Empty, debug};

use crate::line::meter;

/// What a wait for an item has come to.
pub(crate) struct ItemWait {
    /// How often it tried to get an item.
    pub(crate) tries: u32,
}

impl ItemWait {
    /// Measures a wait, which is a span.
    pub(crate) async fn measured<T>(
        recipe: &'static str,
        path: &Path,
        work: impl AsyncFnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let span = tracing::debug_span!("waiting", recipe, %path, waited = Empty, calls = Empty);
        let (since, mut wait) = (clock::now(), Self { tries: 0 });
        let result = work(&mut wait).instrument(span.clone()).await;
        let waited = clock::elapsed(since);
        span.record("waited", debug(waited));
        span.record("calls", wait.tries);
        if result.is_ok() {
            meter::granted(recipe, waited, wait.tries);
        }
        result
    }
}
