//! [`Endpoints`]: the members of the cluster, one connection each, and the order in which they are
//! called.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use synod_core::error::{Error, Result};
use synod_core::random::Random;
use synod_core::store::{CurrentServer, ServerList};
use tokio::time::{Instant, timeout_at};

use crate::error::{judge, other_cluster, translate, unanswered};
use crate::error_help::{Member, is_no_server};
use crate::link::Link;
use crate::options::EtcdOptions;

mod endpoint;
mod members;

pub(crate) use endpoint::Endpoint;
use members::Members;

/// The members of a cluster. Each process has an order of its own, and calls one member until that
/// one fails.
pub(crate) struct Endpoints {
    options: EtcdOptions,
    list: ServerList,
    members: Mutex<Members>,
    /// The cluster whose members were reported; zero before that.
    cluster: AtomicU64,
    server: CurrentServer,
    random: Random,
}

/// The name of a call, and whether it changes anything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) doing: &'static str,
    pub(crate) write: bool,
    /// The deadline of the call.
    pub(crate) end: Instant,
    /// The time that one member has to answer before another is called: at least this long for a
    /// write, and at most this long otherwise.
    first: Duration,
}

impl Call {
    pub(crate) fn read(doing: &'static str, limit: Duration) -> Self {
        Self { doing, write: false, end: Instant::now() + limit, first: Duration::MAX }
    }

    /// A read that calls another member after `first` at the latest.
    pub(crate) fn urgent(self, first: Duration) -> Self {
        Self { first, ..self }
    }

    /// A write without an answer is not sent again: after `first` later calls go to another member,
    /// and this one is waited for until the end.
    pub(crate) fn write(doing: &'static str, limit: Duration) -> Self {
        let first = (limit / 3).max(Duration::from_secs(1));
        Self { write: true, first, ..Self::read(doing, limit) }
    }

    /// The same call, which may take so long from now on.
    pub(crate) fn prolonged(self, limit: Duration) -> Self {
        Self { end: self.end.max(Instant::now() + limit), ..self }
    }

    /// The same call for a part of it whose effects do not matter.
    pub(crate) fn harmless(self) -> Self {
        Self { write: false, first: Duration::MAX, ..self }
    }
}

/// The progress of one attempt at a call.
#[derive(Default)]
struct Progress(OnceLock<Sent>);

/// A request that may have been sent.
struct Sent {
    at: Instant,
    link: Arc<Link>,
}

impl Endpoints {
    pub(crate) fn new(options: EtcdOptions, random: &Random) -> Result<Self> {
        let list = options.server_list()?;
        let options = options.with_encryption()?;
        let (members, server) = (Mutex::default(), CurrentServer::default());
        let (cluster, random) = (AtomicU64::new(0), random.clone());
        let endpoints = Self { options, list, members, cluster, server, random };
        // The order of the members is the first choice of a run, whichever call is the first.
        drop(endpoints.members());
        Ok(endpoints)
    }

    /// The list of the members.
    pub(crate) fn list(&self) -> &ServerList {
        &self.list
    }

    /// Takes the client URLs of the members of this cluster, or the reason that they are not known.
    pub(crate) fn report(&self, cluster: u64, urls: Result<Vec<String>, String>) {
        self.cluster.store(cluster, Ordering::Relaxed);
        let scheme = self.scheme();
        self.list.report(urls.map(|urls| {
            let hosts = urls.iter().filter_map(|url| url.strip_prefix(scheme));
            hosts.map(|host| host.trim_end_matches('/').to_owned()).collect()
        }));
    }

    /// Fails unless a member that others have reported is of their cluster: its address may be that
    /// of another machine from here, or that of another cluster by now.
    async fn check_cluster(&self, place: &Endpoint, link: &Link) -> Result<(), etcd_client::Error> {
        if !place.is_reported {
            return Ok(());
        }
        let cluster = link.cluster_id().await?;
        if cluster == self.cluster.load(Ordering::Relaxed) { Ok(()) } else { Err(other_cluster()) }
    }

    /// The members of the current list.
    fn members(&self) -> MutexGuard<'_, Members> {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.follow(&self.list, &self.options, &self.random);
        members
    }

    fn current(&self) -> Arc<Endpoint> {
        self.members().current()
    }

    /// True if a member is called by no later call: it is not in the list any more, and another one
    /// answers.
    pub(crate) fn is_gone(&self, place: &Arc<Endpoint>) -> bool {
        !self.members().contains(place)
    }

    /// The beginning of the URLs of the members.
    pub(crate) fn scheme(&self) -> &'static str {
        self.options.scheme()
    }

    /// The member that answered last.
    pub(crate) fn server(&self) -> CurrentServer {
        self.server.clone()
    }

    /// The upper limit for any call.
    pub(crate) fn timeout(&self) -> Duration {
        self.options.timeout
    }

    /// Calls a member, and the next one if the first cannot have done what was requested: a read is
    /// repeated, a write only if the first attempt certainly has no effect.
    ///
    /// A member that is slow to answer a read may still answer while another is called, and keeps
    /// its connection, so that a slow cluster does not get more load.
    pub(crate) async fn call<T, F>(
        &self,
        call: Call,
        ask: impl Fn(Arc<Link>) -> F + Sync,
    ) -> Result<T>
    where
        F: Future<Output = Result<T, etcd_client::Error>> + Send,
    {
        // A connection that broke while idle is noticed by the first call on it.
        let mut tries = self.members().len().max(2);
        let mut heard = Vec::new();
        let mut no_server = true;
        let mut asked = Vec::new();
        loop {
            let place = self.current();
            let progress = Arc::<Progress>::default();
            // Requests of this crate are large: boxed, they are not copied through every call
            // above.
            asked.push(Box::pin(self.once(call, place.clone(), progress.clone(), &ask)));
            let until = self.until(call, &place);
            let failed = match timeout_at(until, first(&mut asked)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(failed)) => {
                    tries -= 1;
                    failed
                }
                Err(_elapsed) => match self.silent(call, &place, &progress) {
                    unclear if call.write && !unclear.refused => {
                        // It must not be sent again, so giving up before the end of the call would
                        // gain nothing. Later calls already go to another member.
                        match timeout_at(call.end, first(&mut asked)).await {
                            Ok(Ok(answer)) => return Ok(answer),
                            Ok(Err(failed)) => {
                                tries -= 1;
                                failed
                            }
                            Err(_elapsed) => unclear,
                        }
                    }
                    silent => silent,
                },
            };
            let again = failed.again && (failed.refused || !call.write);
            if call.write {
                // An attempt that was not sent yet must not be sent concurrently with the next.
                asked.clear();
            }
            no_server &= failed.no_server;
            let error = failed.heard_among(&mut heard);
            let error = if no_server { error.with_no_server() } else { error };
            if again && tries > 0 && Instant::now() < call.end {
                continue;
            }
            // Earlier attempts may still be answered.
            while again && !asked.is_empty() {
                match timeout_at(call.end, first(&mut asked)).await {
                    Ok(Ok(answer)) => return Ok(answer),
                    Ok(Err(_failed)) => {}
                    Err(_elapsed) => break,
                }
            }
            return Err(error);
        }
    }

    /// The time until which only this member is called.
    fn until(&self, call: Call, place: &Endpoint) -> Instant {
        /// The remaining time of a call is not divided into smaller pieces than this.
        const PIECE: Duration = Duration::from_millis(100);

        if self.members().len() == 1 {
            // The only member gets all the time.
            return call.end;
        }
        let now = Instant::now();
        let learnt = place.patience.now();
        let left = call.end.saturating_duration_since(now);
        let patience = if call.write {
            learnt.max(call.first)
        } else {
            learnt.min(call.first).min((left / 2).max(PIECE))
        };
        call.end.min(now + patience.min(left))
    }

    async fn once<T, F>(
        &self,
        call: Call,
        place: Arc<Endpoint>,
        progress: Arc<Progress>,
        ask: &(impl Fn(Arc<Link>) -> F + Sync),
    ) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, etcd_client::Error>> + Send,
    {
        let link = match place.held() {
            Some(link) => link,
            None => match place.open(&self.options).await {
                Ok(link) => link,
                Err(error) => return Err(self.failed(call, false, &place, None, error)),
            },
        };
        if call.write
            && let Err(error) = link.connect().await
        {
            return Err(self.failed(call, false, &place, Some(&link), error));
        }
        if let Err(error) = self.check_cluster(&place, &link).await {
            return Err(self.failed(call, false, &place, Some(&link), error));
        }
        let at = Instant::now();
        let _first = progress.0.set(Sent { at, link: link.clone() }).is_ok();
        match ask(link.clone()).await {
            Ok(answer) => {
                link.prove();
                place.patience.answered(at.elapsed());
                if self.members().answered(&place) {
                    let member = Member { url: &place.url, proven: true };
                    self.server.set(member.host());
                }
                Ok(answer)
            }
            Err(error) => Err(self.failed(call, call.write, &place, Some(&link), error)),
        }
    }

    fn failed(
        &self,
        call: Call,
        write: bool,
        place: &Arc<Endpoint>,
        link: Option<&Arc<Link>>,
        error: etcd_client::Error,
    ) -> Failed {
        let verdict = judge(&error);
        if verdict.elsewhere {
            self.pass_over(place);
        }
        if let Some(link) = link.filter(|_| verdict.reconnect) {
            place.forget(link);
        }
        let told = place.error_text(link, &error);
        let no_server = is_no_server(&error);
        let error = translate(call.doing, write, error);
        let refused = verdict.refused || !write;
        let again = verdict.elsewhere || verdict.reconnect;
        Failed { error, told, refused, again, no_server }
    }

    /// The error for a member that did not answer in its time.
    fn silent(&self, call: Call, place: &Arc<Endpoint>, progress: &Progress) -> Failed {
        place.patience.silent();
        self.pass_over(place);
        let error = unanswered(call.doing);
        let told = place.silence();
        let sent = progress.0.get();
        if let Some(sent) = sent {
            sent.link.doubt_since(sent.at);
        }
        // Nothing was sent before the connection was open, except user and password.
        let unclear = call.write && sent.is_some();
        let error = if unclear { error.with_unknown_effect() } else { error };
        Failed { error, told, refused: !unclear, again: true, no_server: false }
    }

    /// The current member, and the connection to it.
    pub(crate) fn link(
        &self,
    ) -> (Arc<Endpoint>, impl Future<Output = Result<Arc<Link>, etcd_client::Error>> + use<'_>)
    {
        let place = self.current();
        (place.clone(), async move {
            let link = place.open(&self.options).await?;
            self.check_cluster(&place, &link).await?;
            Ok(link)
        })
    }

    /// Makes the next member the current one, whichever is the current one.
    pub(crate) fn move_on(&self) {
        self.pass_over(&self.current());
    }

    /// Makes the next member the current one, unless another call did so already.
    pub(crate) fn pass_over(&self, place: &Arc<Endpoint>) {
        // The list may name other members already.
        self.list.request_refresh();
        self.members().pass_over(place);
    }

    /// Called when the current member has been silent since `since` although requests were sent. If
    /// that is longer than its answers take, or longer than `most`, later calls use a new
    /// connection.
    pub(crate) fn doubt(&self, since: Instant, most: Duration) {
        let endpoint = self.current();
        if since.elapsed() >= endpoint.patience.now().min(most)
            && let Some(link) = endpoint.held()
        {
            link.doubt_since(since);
        }
    }
}

/// Waits for the first of these futures to complete, and removes it.
async fn first<F: Future + Unpin>(asked: &mut Vec<F>) -> F::Output {
    poll_fn(|context| {
        for place in 0..asked.len() {
            if let Poll::Ready(answer) = Pin::new(&mut asked[place]).poll(context) {
                let _done = asked.swap_remove(place);
                return Poll::Ready(answer);
            }
        }
        Poll::Pending
    })
    .await
}

/// A call that one member failed.
struct Failed {
    error: Error,
    /// The text for a person.
    told: String,
    refused: bool,
    /// True if another member, or the same one on a new connection, may succeed.
    again: bool,
    /// True if the member refused the connection, or its name has no address.
    no_server: bool,
}

impl Failed {
    /// The error, with the texts of earlier errors from other members: only a person can decide
    /// which of them matters.
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

#[cfg(test)]
mod tests;
