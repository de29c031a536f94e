//! Proxies between ZooKeeper sessions and their servers: [`Links`].
//!
//! There is a proxy for each server, which parses the traffic: ZooKeeper's messages carry their
//! length, the first message of each direction names the session, and requests have numbers. So the
//! link of each session can be cut and slowed separately, and exactly one answer can be lost.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use synod_core::store::SessionId;
use synod_core::task::{Task, spawn};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::child_watches::ChildWatches;
use crate::verb::Verb;
use synod_testkit::link::Link;

/// A proxy in front of each of some servers.
#[derive(Debug)]
pub struct Links {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    _listening: Vec<Task>,
}

/// The state that all connections share.
#[derive(Debug)]
struct Shared {
    servers: Vec<SocketAddr>,
    sessions: Mutex<BTreeMap<SessionId, Session>>,
    /// The link of the session that is opened next.
    next: Mutex<Option<Link>>,
    changed: watch::Sender<()>,
}

/// The state of a session.
#[derive(Clone, Debug)]
struct Session {
    link: Link,
    password: Vec<u8>,
    /// The kind of request whose next answer is lost, and the connection with it.
    lose: Option<Verb>,
    /// The limit in bytes per second and direction, if there is one.
    rate: Option<u32>,
    /// The requests in order, if they are recorded.
    requests: Option<Vec<Verb>>,
    /// The number of events that it received.
    events: u64,
    nursery: ChildWatches,
}

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    There,
    Back,
}

impl Links {
    /// Starts to listen, within a tokio runtime. The links exist as long as this does.
    ///
    /// # Errors
    ///
    /// If the operating system has no port left.
    pub fn start(servers: &[SocketAddr]) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            servers: servers.to_vec(),
            sessions: Mutex::default(),
            next: Mutex::default(),
            changed: watch::Sender::new(()),
        });
        let (mut addresses, mut listening) = (Vec::new(), Vec::new());
        for server in servers {
            let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            listener.set_nonblocking(true)?;
            addresses.push(listener.local_addr()?);
            let listener = TcpListener::from_std(listener)?;
            listening.push(spawn(listen(shared.clone(), listener, *server)));
        }
        Ok(Self { shared, addresses, _listening: listening })
    }

    /// Returns the address of the proxy of each server.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the password that the server gave a session: any client with it can take over the
    /// session.
    pub fn password(&self, session: SessionId) -> Option<Vec<u8>> {
        self.shared.sessions().get(&session).map(|session| session.password.clone())
    }

    /// Returns the sessions that were opened through the proxies so far.
    pub fn sessions(&self) -> Vec<SessionId> {
        self.shared.sessions().keys().copied().collect()
    }

    /// Changes the link of a session, for its present and future connections.
    pub fn set(&self, session: SessionId, link: Link) {
        if let Some(session) = self.shared.sessions().get_mut(&session) {
            session.link = link;
        }
        self.shared.changed.send_replace(());
    }

    /// Sets the link of the session that is opened next, already during its opening.
    pub fn set_next(&self, link: Link) {
        *self.shared.next() = Some(link);
    }

    /// Limits the bytes per second and direction of an open link; `None` removes the limit.
    pub fn throttle(&self, session: SessionId, rate: Option<u32>) {
        if let Some(session) = self.shared.sessions().get_mut(&session) {
            session.rate = rate;
        }
        self.shared.changed.send_replace(());
    }

    /// Returns the requests of the session since the last call, in order; recording starts with the
    /// first call.
    pub fn take_requests(&self, session: SessionId) -> Vec<Verb> {
        let mut sessions = self.shared.sessions();
        let session = sessions.get_mut(&session);
        session.and_then(|session| session.requests.replace(Vec::new())).unwrap_or_default()
    }

    /// Returns the number of events that servers have sent to the session.
    pub fn events(&self, session: SessionId) -> u64 {
        self.shared.sessions().get(&session).map_or(0, |session| session.events)
    }

    /// Returns the number of child watches at the servers for all sessions, which no server
    /// reports.
    pub fn child_watches(&self) -> usize {
        self.shared.sessions().values().map(|session| session.nursery.len()).sum()
    }

    /// Waits until the session has sent this many requests since
    /// [`take_requests`](Self::take_requests), without pings and heartbeats.
    pub async fn asks(&self, session: SessionId, count: usize) {
        let mut changed = self.shared.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let sent = self.shared.sessions().get(&session).map_or(0, |session| {
                let sent = session.requests.iter().flatten();
                sent.filter(|verb| !matches!(verb, Verb::Ping | Verb::Exists)).count()
            });
            if sent >= count {
                return;
            }
            // The links share the sender.
            let _changed = changed.changed().await.is_ok();
        }
    }

    /// Loses the answer to the session's next request of this kind, and the connection with it. The
    /// server has processed the request.
    pub fn lose_reply(&self, session: SessionId, verb: Verb) {
        if let Some(session) = self.shared.sessions().get_mut(&session) {
            session.lose = Some(verb);
        }
    }

    /// Ends a session at its server, as its own client would do. When this returns, its ephemeral
    /// nodes are gone.
    ///
    /// # Errors
    ///
    /// If no server ends the session.
    pub async fn expire(&self, id: SessionId) -> io::Result<()> {
        let Some(session) = self.shared.sessions().get(&id).cloned() else {
            return Err(io::Error::other("no such session"));
        };
        // So that its client cannot reconnect in the meantime.
        self.set(id, Link::Cut);
        let ended = end_session(&self.shared.servers, id, &session.password).await;
        self.set(id, session.link);
        ended
    }
}

impl Shared {
    fn sessions(&self) -> MutexGuard<'_, BTreeMap<SessionId, Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> MutexGuard<'_, Option<Link>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learn(&self, id: SessionId, password: &[u8]) {
        let mut sessions = self.sessions();
        let session = sessions.entry(id).or_insert_with(|| Session {
            link: self.next().take().unwrap_or(Link::Open),
            password: Vec::new(),
            lose: None,
            rate: None,
            requests: None,
            events: 0,
            nursery: ChildWatches::default(),
        });
        session.password = password.to_vec();
    }

    /// Parses a message.
    fn note(&self, session: Option<SessionId>, way: Way, message: &[u8]) {
        let mut sessions = self.sessions();
        let Some(session) = session.and_then(|id| sessions.get_mut(&id)) else { return };
        match way {
            Way::There => session.nursery.request(message),
            Way::Back => {
                session.nursery.answer(message);
                session.events += u64::from(ChildWatches::is_event(message));
            }
        }
    }

    fn link(&self, session: Option<SessionId>) -> Link {
        let sessions = self.sessions();
        match session {
            Some(id) => sessions.get(&id).map_or(Link::Open, |session| session.link),
            // The session is being opened.
            None => self.next().unwrap_or(Link::Open),
        }
    }

    /// Returns the delay of a message in that direction; `None` while none arrives.
    fn delay(&self, session: Option<SessionId>, way: Way) -> Option<Duration> {
        match (self.link(session), way) {
            (Link::Cut, _) | (Link::Deaf, Way::Back) => None,
            (Link::Slow { there, .. }, Way::There) => Some(there),
            (Link::Slow { back, .. }, Way::Back) => Some(back),
            _ => Some(Duration::ZERO),
        }
    }

    /// Returns the time that a message of this size takes at the limited rate.
    fn width(&self, session: Option<SessionId>, size: usize) -> Duration {
        let sessions = self.sessions();
        let rate = session.and_then(|id| sessions.get(&id)?.rate);
        let Some(rate) = rate else { return Duration::ZERO };
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        Duration::from_secs(1) * size / rate.max(1)
    }

    /// Records a request. Returns `true` if its answer is to be lost.
    fn loses(&self, session: Option<SessionId>, verb: Verb) -> bool {
        let mut sessions = self.sessions();
        let Some(session) = session.and_then(|id| sessions.get_mut(&id)) else { return false };
        if let Some(requests) = &mut session.requests {
            requests.push(verb);
        }
        let lost = session.lose == Some(verb);
        if lost {
            session.lose = None;
        }
        drop(sessions);
        self.changed.send_replace(());
        lost
    }
}

/// One connection.
#[derive(Debug)]
struct Connection {
    shared: Arc<Shared>,
    session: watch::Sender<Option<SessionId>>,
    /// The numbers of requests whose answer is to be lost.
    lost: Mutex<BTreeSet<i32>>,
}

async fn listen(shared: Arc<Shared>, listener: TcpListener, server: SocketAddr) {
    let mut connections: Vec<Task> = Vec::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.retain(|connection| !connection.is_finished());
        connections.push(spawn(connect(shared.clone(), client, server)));
    }
}

/// Carries one connection until either side closes it.
async fn connect(shared: Arc<Shared>, client: TcpStream, server: SocketAddr) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
        return;
    }
    let connection =
        Arc::new(Connection { shared, session: watch::Sender::new(None), lost: Mutex::default() });
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    let there = carry(connection.clone(), Way::There, client_read, server_write);
    let back = carry(connection.clone(), Way::Back, server_read, client_write);
    // The end of one direction ends both.
    let (there, back) = (std::pin::pin!(there), std::pin::pin!(back));
    let _ended = futures_util::future::select(there, back).await;
    connection.end();
}

/// Carries messages in one direction.
async fn carry(connection: Arc<Connection>, way: Way, from: OwnedReadHalf, to: OwnedWriteHalf) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let reading = std::pin::pin!(take(&connection, way, from, sender));
    let writing = std::pin::pin!(give(&connection, way, receiver, to));
    // Messages that were read are still written after the end.
    futures_util::future::join(reading, writing).await;
}

type Message = (Instant, Vec<u8>);

async fn take(
    connection: &Connection,
    way: Way,
    mut from: OwnedReadHalf,
    sender: mpsc::UnboundedSender<Message>,
) {
    let mut first = true;
    while let Some(message) = next_message(&mut from).await {
        if std::mem::take(&mut first) {
            connection.introduce(way, &message);
        } else if !connection.passes(way, &message) {
            return;
        }
        if sender.send((Instant::now(), message)).is_err() {
            return;
        }
    }
}

/// Reads one message, including its length.
async fn next_message(from: &mut OwnedReadHalf) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length).await.ok()?;
    let body = usize::try_from(i32::from_be_bytes(length)).ok()?;
    let mut message = vec![0; 4 + body];
    message[..4].copy_from_slice(&length);
    from.read_exact(&mut message[4..]).await.ok()?;
    Some(message)
}

async fn give(
    connection: &Connection,
    way: Way,
    mut receiver: mpsc::UnboundedReceiver<Message>,
    mut to: OwnedWriteHalf,
) {
    let mut changed = connection.shared.changed.subscribe();
    let mut last = Instant::now();
    while let Some((taken, message)) = receiver.recv().await {
        loop {
            let session = *connection.session.borrow();
            let Some(delay) = connection.shared.delay(session, way) else {
                // The connection shares the sender.
                let _changed = changed.changed().await.is_ok();
                continue;
            };
            let width = connection.shared.width(session, message.len());
            if !(delay + width).is_zero() {
                sleep_until((taken + delay).max(last) + width).await;
            }
            break;
        }
        last = Instant::now();
        if to.write_all(&message).await.is_err() {
            return;
        }
    }
}

impl Connection {
    /// The first message of each direction names the session.
    fn introduce(&self, way: Way, message: &[u8]) {
        let (id, password) = match way {
            // Length, version, last zxid, time, id, password.
            Way::There => (number(message, 20), message.get(32..48)),
            // Length, version, time, id, password.
            Way::Back => (number(message, 12), message.get(24..40)),
        };
        let (Some(id), Some(password)) = (id, password) else { return };
        if id != 0 {
            let id = SessionId::new(id);
            self.shared.learn(id, password);
            self.session.send_replace(Some(id));
        }
    }

    /// The state that the server kept for the connection ends with it.
    fn end(&self) {
        let (session, mut sessions) = (*self.session.borrow(), self.shared.sessions());
        if let Some(session) = session.and_then(|id| sessions.get_mut(&id)) {
            session.nursery.clear();
        }
    }

    /// Returns `true` if a message is passed on. Otherwise the connection is closed.
    fn passes(&self, way: Way, message: &[u8]) -> bool {
        let (Some(xid), Some(code)) = (small(message, 4), small(message, 8)) else { return true };
        self.shared.note(*self.session.borrow(), way, message);
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        match way {
            Way::There => {
                if self
                    .shared
                    .loses(*self.session.borrow(), Verb::of(code, message.last().copied()))
                {
                    lost.insert(xid);
                }
                true
            }
            Way::Back => !lost.contains(&xid),
        }
    }
}

fn number(message: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(message.get(at..at + 8)?.try_into().ok()?))
}

fn small(message: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(message.get(at..at + 4)?.try_into().ok()?))
}

/// Takes over a session and closes it.
async fn end_session(servers: &[SocketAddr], id: SessionId, password: &[u8]) -> io::Result<()> {
    let mut connect = Vec::new();
    connect.extend(0_i32.to_be_bytes());
    connect.extend(0_i64.to_be_bytes());
    connect.extend(10_000_i32.to_be_bytes());
    connect.extend(id.get().to_be_bytes());
    connect.extend(i32::try_from(password.len()).map_err(io::Error::other)?.to_be_bytes());
    connect.extend(password);
    connect.push(0);
    let close = [1_i32.to_be_bytes(), (-11_i32).to_be_bytes()].concat();
    let mut last = io::Error::other("no servers");
    for server in servers {
        let talk = async {
            let (mut from, mut to) = TcpStream::connect(server).await?.into_split();
            for message in [&connect, &close] {
                let length = i32::try_from(message.len()).map_err(io::Error::other)?;
                to.write_all(&length.to_be_bytes()).await?;
                to.write_all(message).await?;
            }
            // The answers to both requests; for a session that has ended already, only the first.
            let _welcome = next_message(&mut from).await.ok_or(io::ErrorKind::UnexpectedEof)?;
            let _closed = next_message(&mut from).await;
            Ok(())
        };
        match tokio::time::timeout(Duration::from_secs(2), talk).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => last = error,
            Err(elapsed) => last = io::Error::other(elapsed),
        }
    }
    Err(last)
}
