//! [`Script`]: disturbances, by the request that they affect, or by a seed.

use std::collections::BTreeMap;
use std::time::Duration;

use synod_core::random::Random;

use crate::protocol::{Request, code, op};

/// The treatment of one request by the peer.
#[derive(Clone, Debug)]
pub(crate) enum Deed {
    /// The request is applied and answered.
    Proceed,
    /// The request is not applied, and this error is the answer.
    Refuse(i32),
    /// The request is applied, and this error is the answer.
    Deny(i32),
    /// The connection is closed instead.
    CloseBefore,
    /// The request is applied, and the connection is closed instead of an answer.
    CloseAfter,
    /// The request waits this long before it is processed, and so does every later request.
    Hold(Duration),
    /// The answer is sent this much later, and so is everything that the server sends after it.
    Late(Duration),
    /// The request is applied, and from then on the server sends nothing on this connection.
    Mute,
    /// The answer is sent twice.
    Twice,
    /// The answer has a number that belongs to no request.
    Misnumber,
    /// The body of the answer cannot be decoded.
    Garble,
    /// The answer is sent byte by byte, with this pause between them.
    Dribble(Duration),
    /// Half of the answer is sent, and the connection is closed.
    Halve,
    /// Other clients write this just before it is applied.
    Meanwhile(Vec<Request>),
    /// Other clients write this just after it was applied.
    Afterwards(Vec<Request>),
}

/// An action of the script, and the requests that trigger it.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    op: Option<i32>,
    path: Option<String>,
    session: Option<i64>,
    times: usize,
    deed: Deed,
}

/// Random disturbance.
#[derive(Debug)]
struct Chaos {
    random: Random,
    per_mille: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Script {
    rules: Vec<Rule>,
    chaos: Option<Chaos>,
    /// The number of disturbances of each session. A test without a disturbance is useless.
    played: BTreeMap<i64, usize>,
}

impl Rule {
    /// Performs the action at the next request of any kind.
    pub(crate) fn new(deed: Deed) -> Self {
        Self { op: None, path: None, session: None, times: 1, deed }
    }

    /// Only for requests with this operation code.
    pub(crate) fn op(mut self, op: i32) -> Self {
        self.op = Some(op);
        self
    }

    /// Only for requests about a path with this prefix.
    pub(crate) fn at(mut self, path: &str) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// Only for requests of this session.
    pub(crate) fn of(mut self, session: u64) -> Self {
        self.session = Some(session.cast_signed());
        self
    }

    /// For this many requests in a row.
    pub(crate) fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    fn fits(&self, session: i64, request: &Request) -> bool {
        self.op.is_none_or(|op| op == request.op())
            && self.path.as_ref().is_none_or(|path| request.path().starts_with(path))
            && self.session.is_none_or(|own| own == session)
    }
}

impl Script {
    pub(crate) fn add(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// Disturbs random requests from now on, at this rate in thousandths.
    pub(crate) fn disturb(&mut self, random: Random, per_mille: u64) {
        self.chaos = Some(Chaos { random, per_mille });
    }

    /// Ends all disturbance.
    pub(crate) fn calm(&mut self) {
        self.rules.clear();
        self.chaos = None;
    }

    /// The action for this request.
    pub(crate) fn decide(&mut self, session: i64, request: &Request) -> Deed {
        let mut found = None;
        for rule in self.rules.iter_mut().filter(|rule| rule.fits(session, request)) {
            if rule.times > 0 {
                rule.times -= 1;
                found = Some(rule.deed.clone());
                break;
            }
        }
        let random = || self.chaos.as_ref().and_then(|chaos| chaos.draw(request));
        let deed = found.or_else(random).unwrap_or(Deed::Proceed);
        *self.played.entry(session).or_default() += usize::from(!matches!(deed, Deed::Proceed));
        deed
    }

    /// The number of actions performed in this session.
    pub(crate) fn played(&self, session: u64) -> usize {
        self.played.get(&session.cast_signed()).copied().unwrap_or(0)
    }

    /// The number of all actions performed.
    pub(crate) fn played_to_all(&self) -> usize {
        self.played.values().sum()
    }
}

impl Chaos {
    fn draw(&self, request: &Request) -> Option<Deed> {
        if self.random.below(1_000) >= self.per_mille || request.op() == op::AUTH {
            return None;
        }
        let few = || Duration::from_millis(1 + self.random.below(120));
        Some(match self.random.below(14) {
            0 | 1 => Deed::CloseBefore,
            2..=4 => Deed::CloseAfter,
            5 => Deed::Hold(few()),
            6 => Deed::Late(few()),
            7 => Deed::Mute,
            8 => Deed::Twice,
            9 => Deed::Misnumber,
            10 => Deed::Garble,
            11 => Deed::Halve,
            12 if request.op() != op::CLOSE => Deed::Refuse(code::THROTTLED),
            // Error codes that the client does not know, for requests that were applied.
            13 if request.is_write() && request.op() != op::CLOSE => Deed::Deny(-4),
            _ => return None,
        })
    }
}
