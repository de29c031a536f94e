//! A proxy between one client and its servers, for any protocol: [`Pipe`].

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{join, select};
use synod_core::task::{Task, spawn};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use synod_testkit::link::Link;

/// A proxy in front of each of some servers, for one client: its link can be cut and slowed, it can
/// be moved from one server to another, and one request or its answer can be lost.
#[derive(Debug)]
pub struct Pipe {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    _listening: Vec<Task>,
}

/// The state that all connections share.
#[derive(Debug)]
pub(super) struct Shared {
    link: watch::Sender<Link>,
    /// The only server that accepts connections, if set; all others refuse and close them.
    only: watch::Sender<Option<usize>>,
    trap: Mutex<Option<Trap>>,
    /// Bytes that clients send, and their replacement.
    replaced: Mutex<Option<(Vec<u8>, Vec<u8>)>>,
    /// The number of requests and answers that were lost.
    closed: watch::Sender<usize>,
    /// The number of bytes carried, in both directions together.
    carried: AtomicU64,
}

/// The part of a call that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a request and its answer are all there is to lose")]
pub enum Lost {
    /// The request: the server never receives it.
    Request,
    /// The answer: the server has received the request.
    Reply,
}

/// Waits for a request that contains these bytes.
#[derive(Clone, Debug)]
struct Trap {
    bytes: Vec<u8>,
    lost: Lost,
}

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    There,
    Back,
}

/// The time after the answer within which further bytes of the connection are lost with it.
const LINGER: Duration = Duration::from_millis(50);
/// The maximum time to wait for an answer.
const NO_ANSWER: Duration = Duration::from_secs(1);

impl Pipe {
    /// Starts to listen, within a tokio runtime. Connections last as long as this does.
    ///
    /// # Errors
    ///
    /// If the operating system has no port left.
    pub fn start(servers: &[SocketAddr]) -> io::Result<Self> {
        let shared = Arc::new(Shared::open());
        let (mut addresses, mut listening) = (Vec::new(), Vec::new());
        for (place, server) in servers.iter().enumerate() {
            let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            listener.set_nonblocking(true)?;
            addresses.push(listener.local_addr()?);
            let listener = TcpListener::from_std(listener)?;
            listening.push(spawn(listen(listener, *server, place, shared.clone())));
        }
        Ok(Self { shared, addresses, _listening: listening })
    }

    /// Returns the address of the proxy of each server.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the number of bytes carried so far, in both directions together.
    pub fn carried(&self) -> u64 {
        self.shared.carried.load(Ordering::Relaxed)
    }

    /// Changes the link, for present and future connections.
    pub fn set(&self, link: Link) {
        self.shared.set(link);
    }

    /// Refuses connections except to this server, and breaks every other one; `None` accepts all
    /// again.
    pub fn only(&self, server: Option<usize>) {
        self.shared.only.send_replace(server);
    }

    /// Loses the next request that contains these bytes, or its answer, and the connection with it.
    /// Without bytes, any request matches.
    pub fn lose(&self, lost: Lost, bytes: impl Into<Vec<u8>>) {
        let trap = Trap { bytes: bytes.into(), lost };
        *self.shared.trap.lock().unwrap_or_else(PoisonError::into_inner) = Some(trap);
    }

    /// Cancels [`Pipe::lose`]; returns `true` if nothing was lost yet.
    pub fn lose_nothing(&self) -> bool {
        self.shared.trap.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }

    /// Replaces these bytes in the requests of clients, where one read has all of them.
    ///
    /// # Panics
    ///
    /// If the two have different lengths: the lengths in a message would be wrong.
    pub(super) fn replace(&self, old: &str, new: &str) {
        assert_eq!(old.len(), new.len(), "{old} is to become {new}");
        let replaced = Some((old.as_bytes().to_vec(), new.as_bytes().to_vec()));
        *self.shared.replaced.lock().unwrap_or_else(PoisonError::into_inner) = replaced;
    }

    /// Returns the number of losses so far.
    pub fn lost(&self) -> usize {
        *self.shared.closed.borrow()
    }
}

impl Shared {
    pub(super) fn open() -> Self {
        Self {
            link: watch::Sender::new(Link::Open),
            only: watch::Sender::new(None),
            trap: Mutex::default(),
            replaced: Mutex::default(),
            closed: watch::Sender::new(0),
            carried: AtomicU64::new(0),
        }
    }

    pub(super) fn set(&self, link: Link) {
        self.link.send_replace(link);
    }

    /// Returns the part that is lost with these bytes, if any is.
    fn trapped(&self, bytes: &[u8]) -> Option<Lost> {
        let mut trap = self.trap.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = trap.as_ref()?;
        let is_wanted = |window: &[u8]| window == waiting.bytes;
        let caught = match waiting.bytes.len() {
            0 => true,
            length => bytes.windows(length).any(is_wanted),
        };
        if caught { trap.take().map(|trap| trap.lost) } else { None }
    }

    /// Returns the bytes that arrive in place of these bytes of a client.
    fn rewritten(&self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let replaced = self.replaced.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((old, new)) = &*replaced {
            let is_old = |place: &usize| bytes[*place..].starts_with(old);
            let places: Vec<_> = (0..bytes.len()).filter(is_old).collect();
            for place in places {
                bytes[place..place + new.len()].copy_from_slice(new);
            }
        }
        bytes
    }

    fn length(&self) -> usize {
        let trap = self.trap.lock().unwrap_or_else(PoisonError::into_inner);
        trap.as_ref().map_or(0, |trap| trap.bytes.len())
    }
}

async fn listen(listener: TcpListener, server: SocketAddr, place: usize, shared: Arc<Shared>) {
    let mut connections: Vec<Task> = Vec::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.retain(|connection| !connection.is_finished());
        connections.push(spawn(connect(client, server, place, shared.clone())));
    }
}

/// Carries one connection until either side closes it, or its server is barred.
async fn connect(client: TcpStream, server: SocketAddr, place: usize, shared: Arc<Shared>) {
    let mut only = shared.only.subscribe();
    let barred = only.wait_for(|only| only.is_some_and(|only| only != place));
    let carried = carry_both(client, server, shared.clone());
    let _first = select(pin!(barred), pin!(carried)).await;
}

pub(super) async fn carry_both(client: TcpStream, server: SocketAddr, shared: Arc<Shared>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
        return;
    }
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    let doomed = Arc::new(AtomicBool::new(false));
    let there = Carrier { way: Way::There, shared: shared.clone(), doomed: doomed.clone() };
    let back = Carrier { way: Way::Back, shared, doomed };
    let there = there.carry(client_read, server_write);
    let back = back.carry(server_read, client_write);
    // The end of one direction ends both.
    let _ended = select(pin!(there), pin!(back)).await;
}

/// Carries one direction of one connection.
struct Carrier {
    way: Way,
    shared: Arc<Shared>,
    /// Set when an answer that is to be lost, or anything after it, is in flight.
    doomed: Arc<AtomicBool>,
}

impl Carrier {
    async fn carry(self, from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut link = self.shared.link.subscribe();
        let (sender, mut receiver) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
        let writing = async {
            while let Some((taken, bytes)) = receiver.recv().await {
                let Some(delay) = delay(self.way, &mut link).await else { return };
                if !delay.is_zero() {
                    sleep_until(taken + delay).await;
                }
                if to.write_all(&bytes).await.is_err() {
                    return;
                }
                self.shared.carried.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
        };
        // Bytes that were read are still written after the end.
        join(self.take(from, sender), writing).await;
    }

    async fn take(&self, mut from: OwnedReadHalf, to: mpsc::UnboundedSender<(Instant, Vec<u8>)>) {
        let mut bytes = vec![0; 64 << 10];
        let mut tail = Vec::new();
        while let Ok(count @ 1..) = from.read(&mut bytes).await {
            let bytes = &bytes[..count];
            if self.way == Way::Back && self.doomed.load(Ordering::Acquire) {
                sleep(LINGER).await;
                self.close();
                return;
            }
            let caught = if self.way == Way::There { self.caught(&mut tail, bytes) } else { None };
            if caught == Some(Lost::Request) {
                self.close();
                return;
            }
            if caught == Some(Lost::Reply) {
                self.doomed.store(true, Ordering::Release);
            }
            let bytes = match self.way {
                Way::There => self.shared.rewritten(bytes),
                Way::Back => bytes.to_vec(),
            };
            if to.send((Instant::now(), bytes)).is_err() {
                return;
            }
            if caught == Some(Lost::Reply) {
                // The other direction ends both when the answer arrives.
                sleep(NO_ANSWER).await;
                self.close();
                return;
            }
        }
    }

    /// Returns the part that is lost with these bytes. The match may begin in earlier bytes.
    fn caught(&self, tail: &mut Vec<u8>, bytes: &[u8]) -> Option<Lost> {
        tail.extend_from_slice(bytes);
        let caught = self.shared.trapped(tail);
        let kept = tail.len().min(self.shared.length());
        tail.drain(..tail.len() - kept);
        caught
    }

    fn close(&self) {
        self.shared.closed.send_modify(|closed| *closed += 1);
    }
}

/// Returns the delay of bytes in that direction, once any arrive; `None` when the pipe is gone.
async fn delay(way: Way, link: &mut watch::Receiver<Link>) -> Option<Duration> {
    loop {
        let now = *link.borrow_and_update();
        match (now, way) {
            (Link::Cut, _) | (Link::Deaf, Way::Back) => {}
            (Link::Slow { there, .. }, Way::There) => return Some(there),
            (Link::Slow { back, .. }, Way::Back) => return Some(back),
            _ => return Some(Duration::ZERO),
        }
        link.changed().await.ok()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_bytes_arrive_in_place_of_the_old_ones() {
        let shared = Shared::open();
        assert_eq!(shared.rewritten(b"at :1000!"), b"at :1000!");
        *shared.replaced.lock().expect("not poisoned") = Some((b":1000".into(), b":2000".into()));
        assert_eq!(shared.rewritten(b"at :1000 or :1000!"), b"at :2000 or :2000!");
        assert_eq!(shared.rewritten(b":100"), b":100");
    }

    /// A server that answers every byte with the next one, and the bytes that it received.
    async fn server() -> (SocketAddr, Task, Arc<Mutex<Vec<u8>>>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let received = Arc::<Mutex<Vec<u8>>>::default();
        let log = received.clone();
        let serving = spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut byte = [0];
                while let Ok(1) = stream.read(&mut byte).await {
                    log.lock().expect("not poisoned").push(byte[0]);
                    if stream.write_all(&[byte[0] + 1]).await.is_err() {
                        break;
                    }
                }
            }
        });
        (address, serving, received)
    }

    async fn ask(stream: &mut TcpStream, bytes: &[u8]) -> Option<u8> {
        stream.write_all(bytes).await.ok()?;
        let mut answer = [0];
        stream.read_exact(&mut answer).await.ok()?;
        Some(answer[0])
    }

    #[tokio::test]
    async fn exactly_one_request_or_answer_is_lost() {
        let (address, _serving, received) = server().await;
        let pipe = Pipe::start(&[address]).expect("a free port");
        let open = async || TcpStream::connect(pipe.addresses()[0]).await.expect("it listens");
        let mut stream = open().await;
        assert_eq!(ask(&mut stream, b"a").await, Some(b'b'));

        pipe.lose(Lost::Request, "k");
        assert_eq!(ask(&mut stream, b"c").await, Some(b'd'));
        assert_eq!((ask(&mut stream, b"k").await, pipe.lost()), (None, 1));
        assert_eq!(*received.lock().expect("not poisoned"), b"ac");

        let mut stream = open().await;
        pipe.lose(Lost::Reply, "k");
        assert_eq!((ask(&mut stream, b"k").await, pipe.lost()), (None, 2));
        assert_eq!(*received.lock().expect("not poisoned"), b"ack");
        assert_eq!(ask(&mut open().await, b"k").await, Some(b'l'));
        assert!(!pipe.lose_nothing());
    }

    #[tokio::test]
    async fn a_client_is_sent_to_another_server() {
        let ((one, _one, _), (other, _other, _)) = (server().await, server().await);
        let pipe = Pipe::start(&[one, other]).expect("free ports");
        let open = async |at: usize| TcpStream::connect(pipe.addresses()[at]).await.expect("open");
        let mut stream = open(0).await;
        assert_eq!(ask(&mut stream, b"a").await, Some(b'b'));

        pipe.only(Some(1));

        assert_eq!(ask(&mut stream, b"a").await, None);
        assert_eq!(ask(&mut open(0).await, b"a").await, None);
        assert_eq!(ask(&mut open(1).await, b"a").await, Some(b'b'));
        pipe.only(None);
        assert_eq!(ask(&mut open(0).await, b"a").await, Some(b'b'));
    }
}
