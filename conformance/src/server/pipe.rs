//! [`Pipe`]: what lies between one client and its servers, whatever they say to each other.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{join, select};
use synod_core::task::{Task, spawn};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::harness::Link;

/// A proxy in front of each of some servers, for one client: its link can be cut and slowed.
#[derive(Debug)]
pub struct Pipe {
    link: watch::Sender<Link>,
    carried: Arc<AtomicU64>,
    addresses: Vec<SocketAddr>,
    _listening: Vec<Task>,
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    There,
    Back,
}

impl Pipe {
    /// Starts to listen, within a tokio runtime. What goes through lasts as long as this does.
    ///
    /// # Errors
    ///
    /// If the operating system has no port left.
    pub fn start(servers: &[SocketAddr]) -> io::Result<Self> {
        let link = watch::Sender::new(Link::Open);
        let carried = Arc::new(AtomicU64::new(0));
        let (mut addresses, mut listening) = (Vec::new(), Vec::new());
        for server in servers {
            let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            listener.set_nonblocking(true)?;
            addresses.push(listener.local_addr()?);
            let listener = TcpListener::from_std(listener)?;
            let wire = Wire { link: link.subscribe(), carried: carried.clone() };
            listening.push(spawn(listen(listener, *server, wire)));
        }
        Ok(Self { link, carried, addresses, _listening: listening })
    }

    /// Where it listens, for each server.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// How many bytes it has carried so far, both ways together.
    pub fn carried(&self) -> u64 {
        self.carried.load(Ordering::Relaxed)
    }

    /// Changes what it does, for connections that are and that will be.
    pub fn set(&self, link: Link) {
        self.link.send_replace(link);
    }
}

/// What every connection needs of its pipe.
#[derive(Clone, Debug)]
struct Wire {
    link: watch::Receiver<Link>,
    carried: Arc<AtomicU64>,
}

async fn listen(listener: TcpListener, server: SocketAddr, wire: Wire) {
    let mut connections: Vec<Task> = Vec::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.retain(|connection| !connection.is_finished());
        connections.push(spawn(connect(client, server, wire.clone())));
    }
}

/// Carries one connection until either side closes it.
async fn connect(client: TcpStream, server: SocketAddr, wire: Wire) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
        return;
    }
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    let there = carry(Way::There, client_read, server_write, wire.clone());
    let back = carry(Way::Back, server_read, client_write, wire);
    // The end of one is the end of both.
    let _ended = select(pin!(there), pin!(back)).await;
}

async fn carry(way: Way, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, wire: Wire) {
    let Wire { mut link, carried } = wire;
    let (sender, mut receiver) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let reading = async move {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes).await {
            if sender.send((Instant::now(), bytes[..count].to_vec())).is_err() {
                return;
            }
        }
    };
    let writing = async move {
        while let Some((taken, bytes)) = receiver.recv().await {
            let Some(delay) = delay(way, &mut link).await else { return };
            if !delay.is_zero() {
                sleep_until(taken + delay).await;
            }
            if to.write_all(&bytes).await.is_err() {
                return;
            }
            carried.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
    };
    // What was taken is still given when there is no more.
    join(reading, writing).await;
}

/// How late something that way arrives, once anything does; `None` when the pipe is gone.
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
