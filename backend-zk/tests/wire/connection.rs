//! One connection over loopback: bytes in, bytes out, and the state of its link.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use futures_util::future::{join, select};
use synod_conformance::harness::Link;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use crate::peer::Shared;
use crate::protocol::{Connect, Request};
use crate::script::Deed;
use crate::serve::Taken;
use crate::watches::Line;
use crate::world::{Conn, Out};

/// Longer messages are refused, as servers do.
const MAX_MESSAGE: usize = 1_048_575;

/// A message and when it arrived; `None` is the end.
type Message = (Instant, Option<Vec<u8>>);

struct Connection {
    shared: Arc<Shared>,
    server: usize,
    line: Line,
    session: AtomicI64,
}

/// Serves one connection until either side closes it.
pub(crate) async fn serve(shared: Arc<Shared>, server: usize, stream: TcpStream) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let (out, outgoing) = mpsc::unbounded_channel();
    let line = {
        let mut world = shared.world();
        if world.servers[server].down {
            return;
        }
        let (line, identities) = (world.number(), Vec::new());
        let conn = Conn { out, session: 0, identities, mute: false, held: None };
        world.servers[server].conns.insert(line, conn);
        line
    };
    let connection = Connection { shared, server, line, session: AtomicI64::new(0) };
    let (from, to) = stream.into_split();
    let (taken, incoming) = mpsc::unbounded_channel();
    let reading = read(from, taken);
    let working = std::pin::pin!(connection.work(incoming));
    let writing = std::pin::pin!(connection.write(outgoing, to));
    // Requests that were read are processed even when the client has gone; closing the connection
    // ends everything.
    let _ended = select(std::pin::pin!(join(reading, working)), writing).await;
    connection.shared.world().servers[server].close(line);
}

async fn read(mut from: OwnedReadHalf, taken: mpsc::UnboundedSender<Message>) {
    loop {
        let message = next(&mut from).await.ok();
        let over = message.is_none();
        if taken.send((Instant::now(), message)).is_err() || over {
            return;
        }
    }
}

async fn next(from: &mut OwnedReadHalf) -> io::Result<Vec<u8>> {
    let mut head = [0; 4];
    from.read_exact(&mut head).await?;
    if head.iter().all(u8::is_ascii_lowercase) {
        return Ok(head.to_vec());
    }
    let length = usize::try_from(u32::from_be_bytes(head)).unwrap_or(usize::MAX);
    if length >= MAX_MESSAGE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; length];
    from.read_exact(&mut message).await?;
    Ok(message)
}

impl Connection {
    async fn work(&self, mut incoming: mpsc::UnboundedReceiver<Message>) {
        let mut first = true;
        while let Some((came, message)) = incoming.recv().await {
            let connect = message.as_deref().filter(|_| first).and_then(Connect::read);
            if let Some(connect) = &connect {
                self.session.store(connect.session, Ordering::Relaxed);
            }
            self.arrives(came).await;
            let Some(message) = message else { return };
            if message.len() == 4 {
                self.answer_command(&message);
                return;
            }
            if first {
                let Some(connect) = connect else { return };
                first = false;
                self.until_taken(|| self.world_connect(&connect)).await;
                continue;
            }
            let Some(request) = Request::read(&message) else { return };
            let deed = {
                let session = self.session.load(Ordering::Relaxed);
                self.shared.world().script.decide(session, &request.1)
            };
            self.shared.changed();
            if let Deed::Hold(delay) = deed {
                sleep(delay).await;
            }
            let take = || self.shared.world().take(self.server, self.line, &request, &deed);
            self.until_taken(take).await;
        }
    }

    fn world_connect(&self, connect: &Connect) -> Taken {
        let mut world = self.shared.world();
        let taken = world.connect(self.server, self.line, connect);
        if let Some(conn) = world.servers[self.server].conns.get(&self.line) {
            self.session.store(conn.session, Ordering::Relaxed);
        }
        taken
    }

    /// Waits while a message that needs the leader cannot reach it.
    async fn until_taken(&self, take: impl Fn() -> Taken) {
        let mut changed = self.shared.watch();
        loop {
            changed.mark_unchanged();
            if take() == Taken::Yes {
                return;
            }
            // The sender is part of the state that all connections share.
            let _changed = changed.changed().await.is_ok();
        }
    }

    /// Waits until a message that arrived then has crossed the link.
    async fn arrives(&self, came: Instant) {
        let mut changed = self.shared.watch();
        loop {
            changed.mark_unchanged();
            match self.link() {
                Link::Cut => {
                    let _changed = changed.changed().await.is_ok();
                }
                Link::Slow { there, .. } => return sleep_until(came + there).await,
                _ => return,
            }
        }
    }

    async fn write(&self, mut outgoing: mpsc::UnboundedReceiver<Out>, mut to: OwnedWriteHalf) {
        while let Some(out) = outgoing.recv().await {
            let Out::Bytes(ready, delay, bytes) = out else { break };
            sleep_until(ready + delay).await;
            self.leaves(ready).await;
            if to.write_all(&bytes).await.is_err() {
                break;
            }
        }
        // The end crosses the link, too.
        self.leaves(Instant::now()).await;
    }

    async fn leaves(&self, ready: Instant) {
        let mut changed = self.shared.watch();
        loop {
            changed.mark_unchanged();
            match self.link() {
                Link::Cut | Link::Deaf => {
                    let _changed = changed.changed().await.is_ok();
                }
                Link::Slow { back, .. } => return sleep_until(ready + back).await,
                _ => return,
            }
        }
    }

    fn link(&self) -> Link {
        self.shared.world().link(self.session.load(Ordering::Relaxed))
    }

    /// Answers the four-letter commands that clients send.
    fn answer_command(&self, command: &[u8]) {
        let mut world = self.shared.world();
        let mode = if self.server == world.leader { "leader" } else { "follower" };
        let text = match command {
            b"srvr" => format!("Zookeeper version: 3.8.0-peer\nMode: {mode}\n"),
            b"isro" => "rw".to_owned(),
            _ => String::new(),
        };
        let this = &mut world.servers[self.server];
        this.send(self.line, std::time::Duration::ZERO, text.into_bytes());
        this.close(self.line);
    }
}
