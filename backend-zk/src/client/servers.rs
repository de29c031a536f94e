//! [`Servers`]: the choice of the next server, and the time of the next attempt.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use synod_core::random::Random;
use tokio::time::{Instant, sleep_until, timeout_at};

/// The servers' addresses in a random order. Each is tried once; after [`Servers::repeat`] they are
/// tried again and again, each round later. The names are resolved for each round, and each address
/// of a name counts as a server.
#[derive(Debug)]
pub(super) struct Servers {
    names: Vec<String>,
    /// The addresses of each name, as last resolved.
    resolved: Vec<Vec<SocketAddr>>,
    resolver: Resolver,
    /// The servers of this round that were not tried yet.
    untried: VecDeque<Server>,
    /// The number of servers of this round.
    size: usize,
    /// The number of rounds since the last connection.
    rounds: usize,
    /// The server of the last connection.
    last: Option<SocketAddr>,
    last_was_silent: bool,
    repeats: bool,
    random: Random,
}

/// One address of a server's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    /// `host:port`, which a certificate is checked against.
    pub(super) name: String,
    pub(super) address: SocketAddr,
}

/// Shows the name, and the address if the name is another text.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address.to_string();
        if self.name == address {
            f.write_str(&address)
        } else {
            write!(f, "{} ({address})", self.name)
        }
    }
}

/// Finds the addresses of a name.
#[derive(Clone)]
pub(super) struct Resolver(Arc<Resolve>);

type Resolve = dyn Fn(&str) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync;

/// The pause between two attempts of one round, and the maximum pause between two rounds.
const STEP: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The limit of the random part of a pause, in milliseconds.
const MAX_JITTER: u64 = 50;

impl Servers {
    /// Creates the list of these servers, each `host:port`.
    pub(super) fn new(names: Vec<String>, resolver: Resolver, random: Random) -> Self {
        Self {
            resolved: vec![Vec::new(); names.len()],
            names,
            resolver,
            untried: VecDeque::new(),
            size: 0,
            rounds: 0,
            last: None,
            last_was_silent: false,
            repeats: false,
            random,
        }
    }

    /// Removes the limit of one round.
    pub(super) fn repeat(&mut self) {
        self.repeats = true;
    }

    /// The number of servers of this round that were not tried yet.
    pub(super) fn untried(&self) -> usize {
        self.untried.len()
    }

    /// Records that the search was successful at this server: the next search begins with a round
    /// in another order, in which this server is the last.
    pub(super) fn connected(&mut self, server: &Server) {
        self.last = Some(server.address);
        self.last_was_silent = false;
        self.rounds = 0;
        self.untried.clear();
    }

    /// Records that the server of the last connection fell silent. If its leader did, all other
    /// servers did so too at this moment, and their clients must not all search at the same time.
    pub(super) fn record_silence(&mut self) {
        self.last_was_silent = true;
    }

    /// The next server, after a pause. `None` after the last one, and if no server was found before
    /// `end`. A round does not wait beyond `limit` for names that were resolved before.
    pub(super) async fn next(&mut self, limit: Instant, end: Instant) -> Option<Server> {
        loop {
            if self.untried.is_empty() {
                if self.rounds > 0 && !self.repeats {
                    return None;
                }
                self.begin_round(limit, end).await;
            }
            let place = self.size - self.untried.len();
            let pause = self.pause(self.rounds - 1, place);
            if !pause.is_zero() {
                sleep_until((Instant::now() + pause).min(end)).await;
            }
            if let Some(next) = self.untried.pop_front() {
                return Some(next);
            }
            if Instant::now() >= end {
                return None;
            }
        }
    }

    async fn begin_round(&mut self, limit: Instant, end: Instant) {
        self.resolve(limit, end).await;
        let all = self.names.iter().zip(&self.resolved);
        let mut all: Vec<Server> = all
            .flat_map(|(name, resolved)| {
                resolved.iter().map(|address| Server { name: name.clone(), address: *address })
            })
            .collect();
        for last in (1..all.len()).rev() {
            let other = self.random.below(u64::try_from(last + 1).unwrap_or(1));
            all.swap(last, usize::try_from(other).unwrap_or(0));
        }
        let is_last = |server: &Server| Some(server.address) == self.last;
        all.sort_by_key(is_last);
        self.untried = all.into();
        self.size = self.untried.len();
        self.rounds += 1;
    }

    /// Resolves all names concurrently. A name without an answer in time keeps its addresses.
    async fn resolve(&mut self, limit: Instant, end: Instant) {
        let lookups = self.names.iter().enumerate();
        let mut lookups: FuturesUnordered<_> = lookups
            .map(|(place, name)| {
                let lookup = (self.resolver.0)(name);
                async move { (place, lookup.await) }
            })
            .collect();
        loop {
            let is_known = self.resolved.iter().any(|resolved| !resolved.is_empty());
            match timeout_at(if is_known { limit } else { end }, lookups.next()).await {
                Ok(Some((_, Ok(resolved)))) if resolved.is_empty() => {}
                Ok(Some((place, Ok(mut resolved)))) => {
                    resolved.sort_unstable();
                    resolved.dedup();
                    self.resolved[place] = resolved;
                }
                Ok(Some((place, Err(error)))) => {
                    tracing::debug!(name = self.names[place], %error, "no address is resolved");
                }
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// The pause before an attempt: zero in the first round, except where all clients begin at the
    /// same moment; and at the beginning of each later round twice as long as before.
    fn pause(&self, round: usize, place: usize) -> Duration {
        let whole = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let pause = match (round, place) {
            (0, 0) if self.last_was_silent => Duration::ZERO,
            (0, _) => return Duration::ZERO,
            (_, 0) => {
                let servers = STEP.saturating_mul(whole(self.size.max(1)));
                servers.saturating_mul(2 << (whole(round) - 1).min(8))
            }
            (_, place) => STEP.saturating_mul(whole(place)),
        };
        pause.min(MAX_PAUSE) + Duration::from_millis(self.random.below(MAX_JITTER))
    }
}

impl Resolver {
    pub(super) fn new(
        resolve: impl Fn(&str) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self(Arc::new(resolve))
    }

    /// The resolver of this machine.
    pub(super) fn of_system() -> Self {
        Self::new(|name| {
            let name = name.to_owned();
            Box::pin(async move { Ok(tokio::net::lookup_host(name).await?.collect()) })
        })
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
