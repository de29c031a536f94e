//! [`Progress`]: a bar for whatever takes longer than a second, on standard error, for people only.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::{Instant, sleep};

/// How far something is. It shows nothing before a second is over, nor where nobody looks.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    since: Instant,
}

impl Progress {
    /// Of `total` steps, or of nobody knows how many.
    pub(crate) fn new(what: &'static str, total: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        let template = match total {
            Some(_) => "{msg} {wide_bar} {pos}/{len} {eta}",
            None => "{spinner} {msg} {elapsed}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what);
        Self { bar, since: Instant::now() }
    }

    /// Waits for `work`, and shows that it does.
    pub(crate) async fn waiting<T>(what: &'static str, work: impl Future<Output = T>) -> T {
        let progress = Self::new(what, None);
        let ticking = async {
            loop {
                sleep(Duration::from_millis(100)).await;
                progress.show();
                progress.bar.tick();
            }
        };
        match select(pin!(work), pin!(ticking)).await {
            Either::Left((done, _)) => done,
            Either::Right((never, _)) => never,
        }
    }

    /// As [`Progress::new`], and tells how many a second.
    pub(crate) fn of_many(what: &'static str, total: u64) -> Self {
        let progress = Self::new(what, Some(total));
        let template = "{msg} {wide_bar} {pos}/{len} {per_sec} {eta}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            progress.bar.set_style(style);
        }
        progress
    }

    /// How long it has been.
    pub(crate) fn taken(&self) -> Duration {
        self.since.elapsed()
    }

    /// So many more are done.
    pub(crate) fn advance(&self, steps: u64) {
        self.show();
        self.bar.inc(steps);
    }

    /// Shows itself once it has been long enough.
    fn show(&self) {
        if self.bar.is_hidden() && self.since.elapsed() > Duration::from_secs(1) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// Prints a line without tearing the bar.
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
