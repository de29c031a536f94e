//! [`Servers`]: the choice of the next server, and the time of the next attempt.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use synod_core::random::Random;
use synod_core::store::ServerList;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

/// The servers' addresses in a random order. Each is tried once; after [`Servers::repeat`] they are
/// tried in rounds, with growing pauses. The names are resolved for each round, and each address of
/// a name counts as a server.
///
/// The list may change: a round has the servers of its beginning, and a search begins another round
/// when the list has changed. The server of the last connection stays the last one of each round
/// even if it is no longer in the list, so that a wrong list does not end a session.
///
/// A list that the servers report may name a server of another ensemble, as seen from here, and
/// none that can be reached. So the configured hosts follow in each round, a new session begins
/// with them, and a server that never had this session is not believed that it is over.
#[derive(Debug)]
pub(super) struct Servers {
    list: ServerList,
    changes: watch::Receiver<Arc<[String]>>,
    names: Arc<[String]>,
    /// The names of the list, and those of the last resort that are not in it.
    all: Vec<String>,
    /// The addresses of each of them, as last resolved.
    resolved: Vec<Vec<SocketAddr>>,
    resolver: Resolver,
    /// The servers of this round that were not tried yet.
    untried: VecDeque<Server>,
    /// The number of servers of this round.
    size: usize,
    /// The number of rounds since the last connection.
    rounds: usize,
    /// The server of the last connection.
    last: Option<Server>,
    /// The names of the servers that had the session.
    proven: BTreeSet<String>,
    /// The number of connections in succession to a server that is not in the list.
    vain: u32,
    last_was_silent: bool,
    repeats: bool,
    random: Random,
}

/// One address of a server's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// `host:port`, which a certificate is checked against.
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
}

/// Shows the name, and the address if it differs from the name.
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
    /// The servers of this list, each `host:port`.
    pub(super) fn new(list: &ServerList, resolver: Resolver, random: Random) -> Self {
        let mut changes = list.subscribe();
        let names = changes.borrow_and_update().clone();
        let all = with_last_resort(&names, list);
        Self {
            resolved: vec![Vec::new(); all.len()],
            list: list.clone(),
            changes,
            names,
            all,
            resolver,
            untried: VecDeque::new(),
            size: 0,
            rounds: 0,
            last: None,
            proven: BTreeSet::new(),
            vain: 0,
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
        let is_listed = self.names.contains(&server.name);
        self.vain = if is_listed { 0 } else { self.vain.saturating_add(1) };
        self.last = Some(server.clone());
        if self.list.is_of_ensemble() {
            let _known = self.proven.insert(server.name.clone());
        }
        self.last_was_silent = false;
        self.rounds = 0;
        self.untried.clear();
    }

    /// Returns `true` if this server is of the ensemble of the session: then its word counts that
    /// the session is over.
    pub(super) fn is_proven(&self, server: &Server) -> bool {
        !self.list.is_of_ensemble()
            || self.list.last_resort().contains(&server.name)
            || self.proven.contains(&server.name)
    }

    /// Completes when the server of the last connection is no longer in the list. If it was already
    /// missing when the connection was made, no other server was reachable: the next attempt
    /// follows when the list changes, or after a growing number of readings of the same list.
    ///
    /// A server that answers is not left for a list that the servers report: it may be right, and
    /// of no use here.
    pub(super) fn left(&self) -> impl Future<Output = ()> + Send + use<> {
        /// The exponent of the maximum number of readings.
        const MAX_VAIN: u32 = 5;

        let (mut changes, names) = (self.changes.clone(), self.names.clone());
        let last = self.last.clone().filter(|_| !self.list.is_of_ensemble());
        let mut readings = 1_u32 << self.vain.min(MAX_VAIN);
        async move {
            let Some(last) = last else { return pending().await };
            while changes.changed().await.is_ok() {
                let now = changes.borrow_and_update().clone();
                readings -= 1;
                if !now.contains(&last.name) && (now != names || readings == 0) {
                    return;
                }
                readings = readings.max(1);
            }
            pending::<()>().await;
        }
    }

    /// Records that the server of the last connection stopped answering. If its leader is the
    /// cause, all servers have stopped at the same moment, and their clients must not all search at
    /// the same time.
    pub(super) fn record_silence(&mut self) {
        self.last_was_silent = true;
    }

    /// The next server, after a pause. `None` after the last one, and if no server was found before
    /// `end`. A round does not wait beyond `limit` for names that were resolved before.
    pub(super) async fn next(&mut self, limit: Instant, end: Instant) -> Option<Server> {
        loop {
            if self.repeats && *self.changes.borrow() != self.names {
                self.untried.clear();
            }
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
        // The list is the same if its source does not answer in time.
        let _read = timeout_at(limit, self.list.refresh()).await.is_ok();
        self.take_list();
        self.resolve(limit, end).await;
        let all = self.all.iter().zip(&self.resolved);
        let mut all: Vec<Server> = all
            .flat_map(|(name, resolved)| {
                resolved.iter().map(|address| Server { name: name.clone(), address: *address })
            })
            .collect();
        for last in (1..all.len()).rev() {
            let other = self.random.below(u64::try_from(last + 1).unwrap_or(1));
            all.swap(last, usize::try_from(other).unwrap_or(0));
        }
        match &self.last {
            Some(last) => {
                if !self.all.contains(&last.name) {
                    all.push(last.clone());
                }
                all.sort_by_key(|server| {
                    (server.address == last.address, !self.names.contains(&server.name))
                });
            }
            // The ensemble of a new session is that of the configured hosts.
            None => all.sort_by_key(|server| !self.is_proven(server)),
        }
        self.untried = all.into();
        self.size = self.untried.len();
        self.rounds += 1;
    }

    /// Takes the current list. A name that stays keeps its addresses.
    fn take_list(&mut self) {
        let names = self.changes.borrow_and_update().clone();
        if names == self.names {
            return;
        }
        let all = with_last_resort(&names, &self.list);
        let old = |name: &String| self.all.iter().position(|old| old == name);
        let resolved = all.iter().map(|name| match old(name) {
            Some(place) => self.resolved[place].clone(),
            None => Vec::new(),
        });
        self.resolved = resolved.collect();
        (self.names, self.all) = (names, all);
    }

    /// Resolves all names concurrently. A name without an answer in time keeps its addresses.
    async fn resolve(&mut self, limit: Instant, end: Instant) {
        let lookups = self.all.iter().enumerate();
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
                    tracing::debug!(name = self.all[place], %error, "no address is resolved");
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

/// The names of a list, and those of its last resort that are not in it.
pub(crate) fn with_last_resort(names: &[String], list: &ServerList) -> Vec<String> {
    let others = list.last_resort().iter().filter(|host| !names.contains(host));
    names.iter().chain(others).cloned().collect()
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
