//! [`Watches`]: the watches of a session, on one stream that is opened again when it breaks.

use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use etcd_client::{ResponseHeader, WatchRequestSender, WatchResponse, WatchResponseStream};
use futures_util::future::{Either, select, try_join_all};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::random::Random;
use synod_core::store::{Feed, Life, Query, SessionEnd, Watch};
use synod_core::task::{Task, spawn};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::endpoints::{Call, Endpoint};
use crate::error::{judge, lagging, proxy, refused_again, removed, translate, unanswered};
use crate::history::is_before;
use crate::link::Link;
use crate::reader::Reader;
use crate::registry::{Consequence, Registry, Request};
use crate::version::Version;
use crate::watched_range::{Listener, Subject, covers};

/// The number of events that a watch keeps for a slow reader.
const EVENTS: usize = 4_096;
/// The time for which a watch without a listener may rest: the name of a ticket is reused within a
/// second or not at all.
const REST: Duration = Duration::from_secs(1);
/// The pauses between attempts to open the stream: the first and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The number of streams in succession that may be refused. Each has a new token.
const REFUSALS: u32 = 4;

/// The watches of a session.
pub(crate) struct Watches {
    orders: mpsc::UnboundedSender<Order>,
    life: Arc<Life<i64>>,
    next: AtomicI64,
    _task: Task,
}

/// A registered watch.
pub(crate) struct Opened {
    /// Every event after this revision is delivered.
    pub(crate) revision: i64,
    ids: Vec<i64>,
}

/// A request to the task that owns the stream.
enum Order {
    Open(Subject, Listener),
    Double(i64),
    Close(i64),
}

/// Ends a watch at the server when its reader drops it.
struct Unwatch {
    orders: mpsc::UnboundedSender<Order>,
    life: Arc<Life<i64>>,
    ids: Vec<i64>,
}

impl Watches {
    pub(crate) fn start(reader: Arc<Reader>, life: Arc<Life<i64>>, random: Random) -> Self {
        let (orders, taken) = mpsc::unbounded_channel();
        let beat = (life.ttl() / 3).clamp(Duration::from_millis(300), Duration::from_secs(10));
        let task = Watcher {
            reader,
            life: life.clone(),
            orders: taken,
            registry: Registry::default(),
            beat,
            random,
            refusals: 0,
        };
        let (task, lost) = (task.run(), life.clone());
        // The stream, and with it all watches at the server, ends with the session.
        let task = spawn(async move {
            let _first = select(pin!(lost.lost()), pin!(task)).await;
        });
        Self { orders, life, next: AtomicI64::new(1), _task: task }
    }

    /// Starts to watch the ranges of a query. The future returns the revision from which events are
    /// delivered.
    pub(crate) fn open(
        &self,
        query: &Query,
    ) -> (impl Future<Output = Result<Opened>> + use<>, Watch) {
        let (feed, watch) = Feed::new(EVENTS);
        let mut ids = Vec::new();
        let mut created = Vec::new();
        for covered in covers(query) {
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            let (ready, answer) = oneshot::channel();
            let listener = Listener::new(id, &covered, feed.clone(), ready);
            let _sent = self.orders.send(Order::Open(covered.subject, listener)).is_ok();
            ids.push(id);
            created.push(answer);
        }
        if let Some(first) = ids.first() {
            self.life.keep(*first, feed);
        }
        let guard =
            Unwatch { orders: self.orders.clone(), life: self.life.clone(), ids: ids.clone() };
        let limit = self.life.ttl();
        let opening = async move {
            let each = created.into_iter().map(|answer| async move {
                // The task ends, and drops the sender, only with the session.
                answer.await.unwrap_or_else(|_gone| Err(unanswered("watch")))
            });
            let all = timeout(limit, try_join_all(each)).await;
            let all = all.unwrap_or_else(|_elapsed| Err(unanswered("watch")))?;
            Ok(Opened { revision: all.into_iter().max().unwrap_or_default(), ids })
        };
        (opening, watch.with_guard(guard))
    }

    /// Call this if the server has written at about the time of the request for this watch.
    pub(crate) fn double(&self, opened: &Opened) {
        for id in &opened.ids {
            let _sent = self.orders.send(Order::Double(*id)).is_ok();
        }
    }
}

impl Drop for Unwatch {
    fn drop(&mut self) {
        for id in &self.ids {
            let _sent = self.orders.send(Order::Close(*id)).is_ok();
            self.life.forget(id);
        }
    }
}

/// The task that owns the stream.
struct Watcher {
    reader: Arc<Reader>,
    life: Arc<Life<i64>>,
    orders: mpsc::UnboundedReceiver<Order>,
    registry: Registry,
    /// The maximum silence on the stream.
    beat: Duration,
    random: Random,
    /// The number of streams in succession that were refused.
    refusals: u32,
}

/// One stream to one member.
struct MemberStream {
    place: Arc<Endpoint>,
    link: Arc<Link>,
    requests: WatchRequestSender,
    answers: WatchResponseStream,
    /// The time to request progress, or to give up after such a request.
    next: Instant,
    /// The time since which a request for progress has been unanswered.
    asked: Option<Instant>,
    /// True if all events up to the revision in the answer arrive before that answer.
    tells_progress: bool,
    /// The highest revision that the history of the store was found to contain.
    confirmed: i64,
    due: Due,
    /// True if the member lags behind the store.
    lags: bool,
}

/// A revision that the member of a stream must reach.
#[derive(Clone, Copy)]
struct Due {
    revision: i64,
    /// The time at which the store was known to have reached the revision.
    since: Instant,
}

/// The maximum number of successive timeouts of a stream while the member answers other calls.
/// Newer members do not answer a request for progress while a watch still has old events to report.
const SILENCES: u32 = 10;

impl MemberStream {
    /// Requests progress, to see whether the stream is alive.
    async fn ask_for_progress(&mut self) -> Result<(), etcd_client::Error> {
        let version = self.link.version().await?;
        self.tells_progress = version.is_some_and(Version::tells_progress);
        self.requests.request_progress().await
    }

    /// Returns `true` if the stream may be alive although nothing was received on it since `asked`.
    fn may_wait(&self, asked: Instant, beat: Duration) -> bool {
        let recent = asked.elapsed() < beat * SILENCES;
        self.tells_progress && recent && self.link.heard_since(asked)
    }

    /// Records a revision that the member has reached, and whether the member lags behind the store
    /// for too long. A member whose disk stalls answers from memory, but reports no events.
    fn record_revision(&mut self, revision: i64, reached: i64, limit: Duration) {
        if is_before(revision, self.due.revision) {
            self.lags = self.due.since.elapsed() >= limit;
        } else {
            self.due = Due { revision: reached, since: Instant::now() };
        }
    }
}

/// The next event on a stream.
enum Next {
    Order(Option<Order>),
    Sent(Result<(), etcd_client::Error>),
    Message(Box<Result<Option<WatchResponse>, etcd_client::Error>>),
    Silence,
}

/// The reason that the stream has ended.
enum Broken {
    /// No watch is left.
    Idle,
    Stream(Error, Arc<Endpoint>),
    /// The member rejects the stream or its watches, possibly because of the token.
    Refused(Error, Arc<Endpoint>),
}

impl Watcher {
    async fn run(mut self) {
        let mut pause = PAUSES.0;
        loop {
            while self.registry.is_empty() {
                let Some(order) = self.orders.recv().await else { return };
                self.take(order);
            }
            let begun = Instant::now();
            let broken = match self.dial().await {
                Ok(stream) => self.serve(stream).await,
                Err(broken) => broken,
            };
            match broken {
                Broken::Idle => return,
                Broken::Stream(error, place) => {
                    tracing::debug!(%error, "the stream of watches broke; opening it again");
                    self.reader.endpoints.pass_over(&place);
                }
                Broken::Refused(error, place) => self.refused(&error, &place),
            }
            if begun.elapsed() > PAUSES.1 {
                // The stream lasted longer than the longest pause.
                pause = PAUSES.0;
            }
            // When a member fails, its clients connect to the next one at different times.
            sleep(jittered(pause, &self.random)).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// The next stream has a new token. If the member rejects that token as well, another member is
    /// tried. Too many rejections in succession end the watches.
    fn refused(&mut self, error: &Error, place: &Arc<Endpoint>) {
        tracing::debug!(%error, "opening the stream of watches with a new token");
        self.refusals += 1;
        if self.refusals > 1 {
            self.reader.endpoints.pass_over(place);
        }
        if self.refusals >= REFUSALS {
            self.refusals = 0;
            self.registry.refuse(error);
        }
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Open(subject, listener) => self.registry.add(subject, listener),
            Order::Double(id) => self.registry.double(id),
            Order::Close(id) => self.registry.remove(id, Instant::now() + REST),
        }
    }

    /// Opens a stream, with the first request on it.
    async fn dial(&mut self) -> Result<MemberStream, Broken> {
        self.registry.hang_up();
        let Some(Request::Create(key, options)) = self.registry.request() else {
            return Err(Broken::Stream(unanswered("watch"), Arc::default()));
        };
        self.registry.sent();
        let endpoints = self.reader.endpoints.clone();
        let mut at = Arc::default();
        let dialling = async {
            let (place, link) = endpoints.link();
            at = place.clone();
            let link = link.await.map_err(|error| (place.error_text(None, &error), error))?;
            match link.watch.clone().watch(key, Some(options)).await {
                Ok(stream) => Ok((link, stream)),
                Err(error) => {
                    if judge(&error).reconnect {
                        place.forget(&link);
                    }
                    Err((place.error_text(Some(&link), &error), error))
                }
            }
        };
        match timeout(self.beat, dialling).await {
            Ok(Ok((link, stream))) => {
                let (requests, answers) = stream.split();
                let next = Instant::now() + self.beat;
                let (asked, tells_progress, confirmed) = (None, false, 0);
                let due = Due { revision: self.reader.history.reached(), since: Instant::now() };
                Ok(MemberStream {
                    place: at,
                    link,
                    requests,
                    answers,
                    next,
                    asked,
                    tells_progress,
                    confirmed,
                    due,
                    lags: false,
                })
            }
            Ok(Err((text, error))) => {
                let error = translate("watch", false, error).because(text);
                let denied = error.kind() == ErrorKind::Denied;
                Err(if denied { Broken::Refused(error, at) } else { Broken::Stream(error, at) })
            }
            Err(_elapsed) => Err(Broken::Stream(unanswered("watch"), at)),
        }
    }

    /// Serves the stream until it breaks.
    async fn serve(&mut self, mut stream: MemberStream) -> Broken {
        loop {
            self.registry.wake(Instant::now());
            if let Some(reason) = self.reason_to_leave(&stream) {
                return Broken::Stream(reason, stream.place);
            }
            let broken = match self.next(&mut stream).await {
                Next::Order(None) => return Broken::Idle,
                Next::Order(Some(order)) => {
                    self.take(order);
                    continue;
                }
                Next::Sent(Ok(())) => {
                    self.registry.sent();
                    continue;
                }
                Next::Silence if Instant::now() < stream.next => continue,
                Next::Silence if self.registry.is_empty() => {
                    stream.next = Instant::now() + self.beat;
                    continue;
                }
                Next::Silence
                    if stream.asked.is_some_and(|asked| !stream.may_wait(asked, self.beat)) =>
                {
                    unanswered("watch")
                }
                Next::Silence => {
                    stream.asked.get_or_insert(Instant::now());
                    stream.next = Instant::now() + self.beat;
                    let asking = timeout(self.beat, stream.ask_for_progress()).await;
                    match asking {
                        Ok(Ok(())) => continue,
                        Ok(Err(error)) => translate("watch", false, error),
                        Err(_elapsed) => unanswered("watch"),
                    }
                }
                Next::Message(message) => match *message {
                    Ok(Some(response)) => {
                        stream.asked = None;
                        stream.next = Instant::now() + self.beat;
                        let (history, header) = (&self.reader.history, response.header());
                        let cluster = header.map_or(0, ResponseHeader::cluster_id);
                        if history.same_cluster(cluster).is_err() {
                            self.life.lose(SessionEnd::Expired);
                        }
                        let revision = header.map_or(0, ResponseHeader::revision);
                        stream.record_revision(revision, history.reached(), self.beat);
                        match self.registry.receive(response) {
                            Consequence::Fine => {
                                self.refusals = 0;
                                continue;
                            }
                            Consequence::Ahead => match self.confirm_history(&mut stream).await {
                                Ok(()) => continue,
                                Err(error) => error,
                            },
                            Consequence::Behind(revision, key) => {
                                self.reader.saw(revision);
                                self.registry.resync(key);
                                continue;
                            }
                            Consequence::Progress(revision) => {
                                if stream.tells_progress {
                                    self.registry.progress(revision);
                                }
                                continue;
                            }
                            Consequence::Proxied => {
                                let text = stream.place.error_text(None, &proxy());
                                let error = translate("watch", false, proxy()).because(text);
                                self.registry.refuse(&error);
                                error
                            }
                            Consequence::Stale(reason) => {
                                stream.place.forget(&stream.link);
                                return Broken::Refused(refused_again(&reason), stream.place);
                            }
                        }
                    }
                    Ok(None) => unanswered("watch"),
                    Err(error) => {
                        let error = translate("watch", false, error);
                        if error.kind() == ErrorKind::TooLarge {
                            // Otherwise the event would be sent again.
                            self.registry.miss();
                        }
                        error
                    }
                },
                Next::Sent(Err(error)) => translate("watch", false, error),
            };
            return Broken::Stream(broken, stream.place);
        }
    }

    /// The reason to leave a stream that otherwise works.
    fn reason_to_leave(&self, stream: &MemberStream) -> Option<Error> {
        // Answers arrive in order: if later answers arrive, a missing one is lost.
        let oldest = self.registry.unanswered_since();
        if oldest.is_some_and(|sent| sent.elapsed() > self.beat * 2) {
            return Some(unanswered("watch"));
        }
        if self.reader.endpoints.is_gone(&stream.place) {
            return Some(removed());
        }
        stream.lags.then(lagging)
    }

    /// Determines whether the member lags, or the store has lost the changes that the watches
    /// reported.
    async fn confirm_history(&self, stream: &mut MemberStream) -> Result<()> {
        let reported = self.registry.reported();
        if stream.confirmed < reported {
            let call = Call::read("watch", self.beat);
            let confirmed = self.reader.confirm_history(call, reported).await;
            if confirmed.as_ref().is_err_and(|error| error.kind() == ErrorKind::SessionLost) {
                self.life.lose(SessionEnd::Expired);
            }
            confirmed?;
            stream.confirmed = reported;
        }
        Ok(())
    }

    /// Waits for the first event. Each of these futures can be dropped without loss.
    async fn next(&mut self, stream: &mut MemberStream) -> Next {
        let sending = async {
            match self.registry.request() {
                Some(Request::Create(key, options)) => {
                    stream.requests.watch(key, Some(options)).await
                }
                Some(Request::Cancel(name)) => stream.requests.cancel(name).await,
                None => pending().await,
            }
        };
        let (order, sending) = (pin!(self.orders.recv()), pin!(sending));
        let until = self.registry.rests_until().map_or(stream.next, |until| until.min(stream.next));
        let (message, silence) = (pin!(stream.answers.message()), pin!(sleep_until(until)));
        match select(select(order, sending), select(message, silence)).await {
            Either::Left((Either::Left((order, _)), _)) => Next::Order(order),
            Either::Left((Either::Right((sent, _)), _)) => Next::Sent(sent),
            Either::Right((Either::Left((message, _)), _)) => Next::Message(Box::new(message)),
            Either::Right((Either::Right(_), _)) => Next::Silence,
        }
    }
}

/// Between half the pause and one and a half times the pause.
fn jittered(pause: Duration, random: &Random) -> Duration {
    let micros = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
    pause / 2 + Duration::from_micros(random.below(micros))
}

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watches")
    }
}
