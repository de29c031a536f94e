//! [`Endpoints`]: the members of the cluster, one connection each, and whom to ask.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions, KvClient, LeaseClient, WatchClient};
use synod_core::error::{Error, Result};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::error::{judge, translate, unanswered};
use crate::options::EtcdOptions;

/// The largest answer that is taken in one piece.
const LARGEST: usize = 64 << 20;

/// The members of a cluster. All ask the same one, until it fails them.
pub(crate) struct Endpoints {
    options: EtcdOptions,
    all: Vec<Endpoint>,
    current: AtomicUsize,
}

struct Endpoint {
    url: String,
    link: Mutex<Option<Arc<Link>>>,
}

/// A connection to one member. Its parts are cloned for every call.
pub(crate) struct Link {
    pub(crate) kv: KvClient,
    pub(crate) lease: LeaseClient,
    pub(crate) watch: WatchClient,
}

/// What is being done, and whether it changes anything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) doing: &'static str,
    pub(crate) write: bool,
    /// When it must have come to an end.
    pub(crate) end: Instant,
    /// How long the first who is asked has to answer. Whoever is asked after a silence has twice
    /// as long.
    pub(crate) first: Duration,
}

impl Call {
    pub(crate) fn read(doing: &'static str, limit: Duration) -> Self {
        let first = Duration::from_millis(500);
        Self { doing, write: false, end: Instant::now() + limit, first }
    }

    /// A write that is not answered is not sent again, so there is more time for the answer.
    pub(crate) fn write(doing: &'static str, limit: Duration) -> Self {
        let first = (limit / 3).max(Duration::from_secs(1));
        Self { write: true, first, ..Self::read(doing, limit) }
    }

    /// Something that is done again soon: whoever is asked has all the time.
    pub(crate) fn beat(doing: &'static str, limit: Duration) -> Self {
        Self { first: limit, ..Self::read(doing, limit) }
    }
}

impl Endpoints {
    pub(crate) fn new(options: EtcdOptions) -> Result<Self> {
        let all = options.urls()?.into_iter();
        let all = all.map(|url| Endpoint { url, link: Mutex::default() }).collect();
        Ok(Self { options, all, current: AtomicUsize::new(0) })
    }

    /// How long any call may take, at most.
    pub(crate) fn timeout(&self) -> Duration {
        self.options.timeout
    }

    /// Asks a member, and the next if that cannot have done what was asked: what changes nothing
    /// is asked again, a write only if it certainly never happens.
    pub(crate) async fn call<T, F>(&self, call: Call, ask: impl Fn(Arc<Link>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        // A connection that broke while nobody used it is noticed by the first to use it.
        let mut tries = self.all.len().max(2);
        let mut patience = call.first;
        loop {
            let failed = match self.once(call, patience, &ask).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            if failed.silent {
                patience *= 2;
            } else {
                tries -= 1;
            }
            let again = failed.elsewhere && (failed.refused || !call.write);
            if tries == 0 || !again || Instant::now() >= call.end {
                return Err(failed.error);
            }
        }
    }

    async fn once<T, F>(
        &self,
        call: Call,
        patience: Duration,
        ask: &impl Fn(Arc<Link>) -> F,
    ) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        // Where nobody else can be asked, all the time is there for the one.
        let end =
            if self.all.len() == 1 { call.end } else { call.end.min(Instant::now() + patience) };
        let place = self.current.load(Ordering::Relaxed);
        let link = match timeout_at(end, self.link_to(place)).await {
            Ok(Ok(link)) => link,
            Ok(Err(error)) => return Err(self.failed(call, false, place, None, error)),
            // Nothing was sent yet but who we are.
            Err(_elapsed) => return Err(self.silent(Call { write: false, ..call }, place)),
        };
        // Requests of this crate are large: on the heap, they are not copied through every call above.
        match timeout_at(end, Box::pin(ask(link.clone()))).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.failed(call, call.write, place, Some(&link), error)),
            Err(_elapsed) => {
                self.forget(place, Some(&link));
                Err(self.silent(call, place))
            }
        }
    }

    fn failed(
        &self,
        call: Call,
        write: bool,
        place: usize,
        link: Option<&Arc<Link>>,
        error: etcd_client::Error,
    ) -> Failed {
        let verdict = judge(&error);
        if verdict.elsewhere {
            self.pass_over(place);
        }
        if verdict.reconnect {
            self.forget(place, link);
        }
        let error = translate(call.doing, write, error);
        let refused = verdict.refused || !write;
        Failed { error, refused, elsewhere: verdict.elsewhere, silent: false }
    }

    fn silent(&self, call: Call, place: usize) -> Failed {
        self.pass_over(place);
        let error = unanswered(call.doing);
        let error = if call.write { error.with_unknown_effect() } else { error };
        Failed { error, refused: !call.write, elsewhere: true, silent: true }
    }

    /// The connection to whoever is asked now, and the member's place.
    pub(crate) async fn link(&self) -> Result<(usize, Arc<Link>), etcd_client::Error> {
        let place = self.current.load(Ordering::Relaxed);
        Ok((place, self.link_to(place).await?))
    }

    async fn link_to(&self, place: usize) -> Result<Arc<Link>, etcd_client::Error> {
        let endpoint = &self.all[place];
        let mut held = endpoint.link.lock().await;
        if let Some(link) = &*held {
            return Ok(link.clone());
        }
        // Large, and seldom needed.
        let client = Box::pin(self.connect(&endpoint.url)).await?;
        let link = Arc::new(Link {
            kv: client.kv_client().max_decoding_message_size(LARGEST),
            lease: client.lease_client(),
            watch: client.watch_client().max_decoding_message_size(LARGEST),
        });
        Ok(held.insert(link).clone())
    }

    async fn connect(&self, url: &str) -> Result<Client, etcd_client::Error> {
        match &self.options.tls {
            Some(tls) => tls.connect(url, self.connect_options()).await,
            None => Client::connect([url], Some(self.connect_options())).await,
        }
    }

    fn connect_options(&self) -> ConnectOptions {
        // No keep-alive of HTTP/2: servers close connections over one that is faster than theirs,
        // and every call here has a time limit of its own.
        let mut options = ConnectOptions::new()
            .with_require_leader(true)
            .with_connect_timeout(self.options.timeout)
            .with_tcp_keepalive(Duration::from_secs(30));
        if let Some((name, password)) = self.options.secrets() {
            options = options.with_user(name, password).with_auto_token_refresh(true);
        }
        options
    }

    /// Asks the next member from now on, unless somebody saw to that already.
    pub(crate) fn pass_over(&self, place: usize) {
        let next = (place + 1) % self.all.len();
        let swap = self.current.compare_exchange(place, next, Ordering::Relaxed, Ordering::Relaxed);
        if swap.is_ok() && next != place {
            let (from, to) = (&self.all[place].url, &self.all[next].url);
            tracing::debug!(from, to, "asking another member");
        }
    }

    /// Makes a new connection the next time, unless there is a newer one than `link` already.
    pub(crate) fn forget(&self, place: usize, link: Option<&Arc<Link>>) {
        // Whoever holds it for longer is making a new one.
        let Ok(mut held) = self.all[place].link.try_lock() else { return };
        if let (Some(held_link), Some(link)) = (&*held, link)
            && Arc::ptr_eq(held_link, link)
        {
            *held = None;
        }
    }
}

/// A call that one member did not answer well.
struct Failed {
    error: Error,
    refused: bool,
    elsewhere: bool,
    /// Whether it did not answer at all.
    silent: bool,
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoints").field("options", &self.options).finish_non_exhaustive()
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}
