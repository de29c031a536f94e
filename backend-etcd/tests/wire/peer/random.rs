//! [`Storm`]: random faults.

use std::time::Duration;

use h2::Reason;
use synod_core::random::Random;
use tonic::Code;

use super::refusal::Refusal;
use super::script::{Act, Kind};

/// Plays an act on one request in `one_in`.
///
/// Each network has its own random source: the requests of one client do not shift the acts on
/// another's.
#[derive(Clone, Debug)]
pub(crate) struct Storm {
    each: Vec<Random>,
    one_in: u64,
}

/// The random faults of one network.
struct Gust<'a> {
    random: &'a Random,
}

impl Storm {
    pub(crate) fn new(random: &Random, networks: u64, one_in: u64) -> Self {
        Self { each: (0..networks).map(|network| random.fork(network)).collect(), one_in }
    }

    pub(crate) fn act(&self, kind: Kind, network: usize) -> Option<Act> {
        let random = self.each.get(network)?;
        if random.below(self.one_in) != 0 {
            return None;
        }
        let gust = Gust { random };
        Some(match kind {
            Kind::Watch => gust.of_opening(),
            Kind::Create | Kind::Cancel | Kind::Progress => gust.of_watching(),
            Kind::Push => gust.of_push(),
            _ => gust.of_request(),
        })
    }
}

impl Gust<'_> {
    fn pause(&self) -> Duration {
        // Mostly short delays; some are longer than any limit of the backend.
        let longest = [5, 50, 500, 5_000][usize::try_from(self.random.below(4)).unwrap_or(0)];
        Duration::from_millis(self.random.below(longest))
    }

    fn reason(&self) -> Reason {
        let reasons = [
            Reason::CANCEL,
            Reason::INTERNAL_ERROR,
            Reason::REFUSED_STREAM,
            Reason::ENHANCE_YOUR_CALM,
            Reason::NO_ERROR,
        ];
        reasons[usize::try_from(self.random.below(5)).unwrap_or(0)]
    }

    /// An error that etcd returns when it does not know whether the request was applied.
    fn doubtful(&self) -> Refusal {
        match self.random.below(6) {
            0 => Refusal::etcd(Code::Unavailable, "request timed out"),
            1 => Refusal::etcd(
                Code::Unavailable,
                "request timed out, possibly due to previous leader failure",
            ),
            2 => Refusal::etcd(Code::Unavailable, "leader changed"),
            3 => Refusal::etcd(Code::ResourceExhausted, "mvcc: database space exceeded"),
            4 => Refusal::etcd(Code::Unavailable, "server stopped"),
            _ => Refusal::new(Code::DeadlineExceeded, "context deadline exceeded"),
        }
    }

    /// An error that etcd returns only if the request was not applied.
    fn certain(&self) -> Refusal {
        match self.random.below(3) {
            0 => Refusal::etcd(Code::Unavailable, "no leader"),
            1 => Refusal::etcd(Code::ResourceExhausted, "too many requests"),
            _ => Refusal::etcd(Code::Unavailable, "rpc not supported for learner"),
        }
    }

    fn of_request(&self) -> Act {
        let applied = self.random.below(2) == 0;
        match self.random.below(11) {
            0 => Act::Refuse(self.certain()),
            1 => Act::Refuse(self.doubtful()),
            2 => Act::ApplyAndRefuse(self.doubtful()),
            3 => Act::Ignore,
            4 => Act::Mute,
            5 => Act::Cut { applied },
            6 => Act::Reset { applied, reason: self.reason() },
            7 => Act::GoAway,
            8 => Act::Late(self.pause()),
            9 => Act::Twice,
            _ => Act::Slow(self.pause()),
        }
    }

    fn of_opening(&self) -> Act {
        match self.random.below(5) {
            0 => Act::Refuse(self.certain()),
            1 => Act::Ignore,
            2 => Act::Cut { applied: false },
            3 => Act::Reset { applied: false, reason: self.reason() },
            _ => Act::Slow(self.pause()),
        }
    }

    /// A stream is ordered and complete: each message on it is answered, or the stream breaks.
    fn of_watching(&self) -> Act {
        match self.random.below(4) {
            0 => Act::Cut { applied: true },
            1 => Act::Reset { applied: true, reason: self.reason() },
            2 => Act::End,
            _ => Act::Slow(self.pause()),
        }
    }

    fn of_push(&self) -> Act {
        match self.random.below(6) {
            0 => Act::Cut { applied: self.random.below(2) == 0 },
            1 => Act::Reset { applied: true, reason: self.reason() },
            2 => Act::End,
            3 => Act::Twice,
            4 => Act::Fragment,
            _ => Act::Slow(self.pause()),
        }
    }
}
