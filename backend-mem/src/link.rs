//! [`Link`]: what lies between a session and its store. Perfect, until somebody says otherwise.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// How a [`Link`] behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a plain description, made by whoever tests")]
pub struct Weather {
    /// Nothing gets through in either direction.
    pub cut: bool,
    /// How long a request takes.
    pub there: Duration,
    /// How long an answer takes.
    pub back: Duration,
}

/// The way of one session's requests, and of the answers to them.
#[derive(Debug)]
pub(crate) struct Link {
    /// Whether the weather was ever anything but perfect. Most links never ask further.
    troubled: AtomicBool,
    weather: Mutex<Weather>,
    changed: watch::Sender<()>,
}

/// Which way something goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    There,
    Back,
}

impl Link {
    pub(crate) fn new() -> Self {
        Self {
            troubled: AtomicBool::new(false),
            weather: Mutex::default(),
            changed: watch::Sender::new(()),
        }
    }

    pub(crate) fn set(&self, weather: Weather) {
        *self.weather.lock().unwrap_or_else(PoisonError::into_inner) = weather;
        self.troubled.store(true, Ordering::Release);
        self.changed.send_replace(());
    }

    /// Whether everything gets across at once.
    pub(crate) fn is_clear(&self) -> bool {
        !self.troubled.load(Ordering::Acquire)
    }

    /// Takes something across, however long that takes.
    pub(crate) async fn cross(&self, way: Way) {
        if self.is_clear() {
            return;
        }
        let mut changed = self.changed.subscribe();
        while self.weather().cut {
            // The sender lives as long as this link does.
            let _changed = changed.changed().await.is_ok();
        }
        let weather = self.weather();
        tokio::time::sleep(if way == Way::There { weather.there } else { weather.back }).await;
    }

    fn weather(&self) -> Weather {
        *self.weather.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
