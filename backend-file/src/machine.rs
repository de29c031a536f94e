//! [`Machine`]: the clock of the machine since it was started, by which nodes with a time to live
//! end.

use rustix::time::{ClockId, clock_gettime};
use synod_core::random::Random;

/// The clock of the machine, and its name. Two processes with clocks of one name read the same
/// time.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    boot: Option<String>,
    clock: String,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let namespace = std::fs::read_link("/proc/self/ns/time");
        // A clock that cannot be named is a clock of its own.
        let boot = boot.ok().map(|boot| boot.trim().to_owned());
        let clock = match (&boot, namespace) {
            (Some(boot), Ok(namespace)) => format!("{boot} {}", namespace.display()),
            _ => Random::from_system().id(),
        };
        Self { boot, clock }
    }

    /// Returns the id of the start of the machine; nothing, if the system does not report it.
    pub(crate) fn boot(&self) -> &str {
        self.boot.as_deref().unwrap_or_default()
    }

    /// Returns the name of the clock.
    pub(crate) fn clock(&self) -> &str {
        &self.clock
    }

    /// Returns the milliseconds since the machine was started, suspended or not.
    #[expect(clippy::unused_self, reason = "the time is one by this clock")]
    pub(crate) fn now(&self) -> u64 {
        let now = clock_gettime(ClockId::Boottime);
        let (seconds, nanos) = (now.tv_sec, now.tv_nsec);
        u64::try_from(seconds).unwrap_or(0) * 1_000 + u64::try_from(nanos).unwrap_or(0) / 1_000_000
    }
}
