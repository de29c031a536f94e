//! [`Progress`]: a progress bar on standard error for work that takes longer than a second.

use std::pin::{Pin, pin};
use std::time::Duration;

use futures_util::future::{Either, select};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use synod_core::client::Deletion;
use synod_core::store::Loaded;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// A progress bar. It is shown only after a second, and only on a terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    since: Instant,
}

impl Progress {
    /// Creates a bar with `total` steps, or without a known end.
    pub(crate) fn new(what: &'static str, total: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        let template = match total {
            Some(_) => "{msg} {wide_bar} {pos}/{len} {per_sec} {eta}",
            None => "{spinner} {msg} {elapsed}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what);
        Self { bar, since: Instant::now() }
    }

    /// Waits for `work`, with a bar that moves.
    pub(crate) async fn waiting<T>(what: &'static str, work: impl Future<Output = T>) -> T {
        let progress = Self::new(what, None);
        progress.until_done(pin!(work), || progress.bar.tick()).await
    }

    /// Waits for `work`, with a bar of the number of nodes read, among the nodes found so far.
    pub(crate) async fn reading<T>(
        what: &'static str,
        loaded: watch::Receiver<Loaded>,
        work: impl Future<Output = T>,
    ) -> T {
        let progress = Self::new(what, Some(0));
        let update = || {
            let loaded = *loaded.borrow();
            progress.bar.set_length(as_steps(loaded.found));
            progress.bar.set_position(as_steps(loaded.read));
        };
        progress.until_done(pin!(work), update).await
    }

    /// Waits for `work`, with a bar of the number of deleted nodes, among the nodes found so far.
    pub(crate) async fn deleting<T>(
        deletion: watch::Receiver<Deletion>,
        work: impl Future<Output = T>,
    ) -> T {
        let progress = Self::new("deleting", Some(0));
        let update = || {
            let deletion = *deletion.borrow();
            progress.bar.set_length(as_steps(deletion.found));
            progress.bar.set_position(as_steps(deletion.deleted));
        };
        progress.until_done(pin!(work), update).await
    }

    /// Waits for `work`, and updates the bar during the wait.
    async fn until_done<T>(&self, work: Pin<&mut impl Future<Output = T>>, update: impl Fn()) -> T {
        let updating = async {
            loop {
                sleep(Duration::from_millis(100)).await;
                self.show();
                update();
            }
        };
        match select(work, pin!(updating)).await {
            Either::Left((done, _)) => done,
            Either::Right((never, _)) => never,
        }
    }

    /// Advances the bar by `steps`.
    pub(crate) fn advance(&self, steps: u64) {
        self.show();
        self.bar.inc(steps);
    }

    /// Shows the bar after a second.
    fn show(&self) {
        if self.bar.is_hidden() && self.since.elapsed() > Duration::from_secs(1) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// Prints a line without disturbing the bar.
    #[cfg(any(feature = "bench", feature = "conformance"))]
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}

fn as_steps(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
