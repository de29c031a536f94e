//! [`Endpoints`]: the members of the cluster, one connection each, and whom to ask.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use synod_core::error::{Error, Result};
use tokio::time::{Instant, timeout_at};

use crate::advice::{Member, told};
use crate::error::{judge, translate, unanswered};
use crate::link::Link;
use crate::options::EtcdOptions;

/// The members of a cluster. All ask the same one, until it fails them.
pub(crate) struct Endpoints {
    options: EtcdOptions,
    all: Vec<Endpoint>,
    current: AtomicUsize,
}

struct Endpoint {
    url: String,
    link: Mutex<Option<Arc<Link>>>,
    /// Held by whoever opens a link: the others wait for it.
    opening: tokio::sync::Mutex<()>,
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
}

impl Endpoints {
    pub(crate) fn new(options: EtcdOptions) -> Result<Self> {
        let all = options.urls()?.into_iter();
        let endpoint =
            |url| Endpoint { url, link: Mutex::default(), opening: tokio::sync::Mutex::default() };
        let all = all.map(endpoint).collect();
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
        let mut heard = Vec::new();
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
            let again = failed.again && (failed.refused || !call.write);
            let error = failed.heard_among(&mut heard);
            if tries == 0 || !again || Instant::now() >= call.end {
                return Err(error);
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
        let link = match self.all[place].held() {
            Some(link) => link,
            None => match timeout_at(end, self.link_to(place)).await {
                Ok(Ok(link)) => link,
                Ok(Err(error)) => return Err(self.failed(call, false, place, None, error)),
                // Nothing was sent yet but who we are.
                Err(_elapsed) => return Err(self.silent(Call { write: false, ..call }, place)),
            },
        };
        // Requests of this crate are large: on the heap, they are not copied through every call above.
        match timeout_at(end, Box::pin(ask(link.clone()))).await {
            Ok(Ok(answer)) => {
                link.prove();
                Ok(answer)
            }
            Ok(Err(error)) => Err(self.failed(call, call.write, place, Some(&link), error)),
            Err(_elapsed) => {
                self.forget(place, &link);
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
        if let Some(link) = link.filter(|_| verdict.reconnect) {
            self.forget(place, link);
        }
        let told = self.told(place, link, &error);
        let error = translate(call.doing, write, error);
        let refused = verdict.refused || !write;
        let again = verdict.elsewhere || verdict.reconnect;
        Failed { error, told, refused, again, silent: false }
    }

    fn silent(&self, call: Call, place: usize) -> Failed {
        self.pass_over(place);
        let error = unanswered(call.doing);
        let error = if call.write { error.with_unknown_effect() } else { error };
        let told = self.silence(place);
        Failed { error, told, refused: !call.write, again: true, silent: true }
    }

    /// What a person should know of an error.
    pub(crate) fn told(
        &self,
        place: usize,
        link: Option<&Arc<Link>>,
        error: &etcd_client::Error,
    ) -> String {
        let proven = link.is_some_and(|link| link.is_proven());
        told(error, Member { url: &self.all[place].url, proven })
    }

    /// What there is to say of a member that does not answer.
    fn silence(&self, place: usize) -> String {
        let member = Member { url: &self.all[place].url, proven: false };
        format!("{} does not answer in time", member.host())
    }

    /// The place of whoever is asked now, and the connection there.
    pub(crate) fn link(
        &self,
    ) -> (usize, impl Future<Output = Result<Arc<Link>, etcd_client::Error>> + use<'_>) {
        let place = self.current.load(Ordering::Relaxed);
        (place, self.link_to(place))
    }

    async fn link_to(&self, place: usize) -> Result<Arc<Link>, etcd_client::Error> {
        let endpoint = &self.all[place];
        if let Some(link) = endpoint.held() {
            return Ok(link);
        }
        let _alone = endpoint.opening.lock().await;
        if let Some(link) = endpoint.held() {
            return Ok(link);
        }
        // Large, and seldom needed.
        let link = Arc::new(Box::pin(Link::open(&self.options, &endpoint.url)).await?);
        *endpoint.lock() = Some(link.clone());
        Ok(link)
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

    /// Whoever is asked now is slow. Who is asked next is asked on another connection.
    pub(crate) fn doubt(&self) {
        let place = self.current.load(Ordering::Relaxed);
        *self.all[place].lock() = None;
        self.pass_over(place);
    }

    /// Makes a new connection the next time, unless there is a newer one than `link` already.
    pub(crate) fn forget(&self, place: usize, link: &Arc<Link>) {
        let mut held = self.all[place].lock();
        if held.as_ref().is_some_and(|held| Arc::ptr_eq(held, link)) {
            *held = None;
        }
    }
}

impl Endpoint {
    fn held(&self) -> Option<Arc<Link>> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Link>>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that one member did not answer well.
struct Failed {
    error: Error,
    /// What a person should know of it.
    told: String,
    refused: bool,
    /// Whether another member, or the same one on a new connection, may answer better.
    again: bool,
    /// Whether it did not answer at all.
    silent: bool,
}

impl Failed {
    /// The error, with what was heard before from other members: which of them matters, only a
    /// person can tell.
    fn heard_among(self, heard: &mut Vec<String>) -> Error {
        if !heard.contains(&self.told) {
            heard.push(self.told);
        }
        self.error.because(heard.join("; "))
    }
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoints").field("options", &self.options).finish_non_exhaustive()
    }
}
