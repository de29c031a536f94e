//! [`Link`]: the connection between a session and its store, which works unless a test changes it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use synod_core::clock;
use tokio::sync::watch;

/// The behaviour of a link: the delay of messages, or their loss. A message that does not arrive
/// waits until the link recovers, or its sender gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a plain description, made by tests")]
pub struct Weather {
    /// The time that a request takes; `None` if it does not arrive.
    pub there: Option<Duration>,
    /// The time that an answer takes; `None` if it does not arrive.
    pub back: Option<Duration>,
}

impl Weather {
    /// Everything arrives immediately.
    pub const CLEAR: Self = Self { there: Some(Duration::ZERO), back: Some(Duration::ZERO) };
    /// Nothing arrives.
    pub const CUT: Self = Self { there: None, back: None };
    /// Requests arrive and are applied; no answer comes back.
    pub const DEAF: Self = Self { there: Some(Duration::ZERO), back: None };
}

/// The path of one session's requests, and of the answers to them.
#[derive(Debug)]
pub(crate) struct Link {
    /// True if the link was ever changed. Most calls check only this.
    troubled: AtomicBool,
    weather: Mutex<Weather>,
    changed: watch::Sender<()>,
}

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToStore,
    ToSession,
}

impl Link {
    pub(crate) fn new() -> Self {
        Self {
            troubled: AtomicBool::new(false),
            weather: Mutex::new(Weather::CLEAR),
            changed: watch::Sender::new(()),
        }
    }

    pub(crate) fn set(&self, weather: Weather) {
        *self.weather.lock().unwrap_or_else(PoisonError::into_inner) = weather;
        self.troubled.store(true, Ordering::Release);
        self.changed.send_replace(());
    }

    /// Returns `true` if every message arrives immediately.
    pub(crate) fn is_clear(&self) -> bool {
        !self.troubled.load(Ordering::Acquire)
    }

    /// Waits without a limit until a message has crossed.
    pub(crate) async fn cross(&self, direction: Direction) {
        if self.is_clear() {
            return;
        }
        let mut changed = self.changed.subscribe();
        loop {
            if let Some(delay) = self.delay(direction) {
                return clock::sleep(delay).await;
            }
            // The sender lives as long as this link does.
            let _changed = changed.changed().await.is_ok();
        }
    }

    fn delay(&self, direction: Direction) -> Option<Duration> {
        let weather = self.weather();
        match direction {
            Direction::ToStore => weather.there,
            Direction::ToSession => weather.back,
        }
    }

    fn weather(&self) -> Weather {
        *self.weather.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
