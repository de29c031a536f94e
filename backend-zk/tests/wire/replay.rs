//! Compares the peer with a real server: for the same random requests, the answers and events are
//! equal byte by byte.
//!
//! Times, sessions and the first transaction number may differ, and the order of children; nothing
//! else.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join;
use synod_core::random::Random;
use synod_servers::zookeeper::{Ensemble, TICK};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::jute::{Reader, Writer};
use crate::peer::Peer;
use crate::protocol::{Acl, EVENT, Request, op};
use crate::tree::open_acl;

/// The number of clients in a program.
const CLIENTS: usize = 2;
/// The number of requests in a program.
const STEPS: u64 = 30;
const PATIENCE: Duration = Duration::from_secs(20);

/// A client of the protocol, without any logic of its own.
struct Raw {
    stream: TcpStream,
    session: i64,
    password: Vec<u8>,
    xid: i32,
    /// The last transaction number that it has seen.
    seen: i64,
}

/// One of the two stores.
struct Side {
    name: &'static str,
    at: SocketAddr,
    clients: Vec<Raw>,
    /// The transaction that opened the first session: all others are counted from there.
    base: Option<i64>,
}

impl Raw {
    async fn connect(at: SocketAddr, last: i64, session: i64, password: &[u8]) -> Self {
        const ASKED: i32 = 30_000;

        let mut stream = TcpStream::connect(at).await.expect("it listens");
        stream.set_nodelay(true).expect("it is a socket");
        let head = Writer::default().int(0).long(last).int(ASKED).long(session);
        let message = head.bytes(password).boolean(false).frame();
        stream.write_all(&message).await.expect("it takes it");
        let welcome = frame(&mut stream).await.expect("it answers");
        let mut reader = Reader(&welcome);
        let (_version, _granted) = (reader.int(), reader.int());
        let session = reader.long().expect("it has a session");
        let password = reader.bytes().expect("and a password").to_vec();
        Self { stream, session, password, xid: 0, seen: last }
    }

    /// Sends a request, and receives all messages up to its answer.
    async fn ask(&mut self, request: &Request) -> (Vec<Vec<u8>>, Vec<u8>) {
        self.xid += 1;
        self.stream.write_all(&request.frame(self.xid)).await.expect("it takes it");
        let mut events = Vec::new();
        loop {
            let message = frame(&mut self.stream).await.expect("it answers");
            if number(&message) != EVENT {
                self.seen = self.seen.max(Reader(&message[4..]).long().unwrap_or(0));
                return (events, message);
            }
            events.push(message);
        }
    }

    /// The same session on a new connection.
    async fn reconnect(&mut self, at: SocketAddr) {
        let again = Self::connect(at, self.seen, self.session, &self.password).await;
        assert_eq!(again.session, self.session);
        *self = Self { xid: self.xid, ..again };
    }
}

fn number(message: &[u8]) -> i32 {
    Reader(message).int().expect("it has a number")
}

async fn frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let read = async {
        let length = stream.read_u32().await.ok()?;
        let mut message = vec![0; usize::try_from(length).ok()?];
        stream.read_exact(&mut message).await.ok()?;
        Some(message)
    };
    timeout(PATIENCE, read).await.expect("in time")
}

impl Side {
    async fn new(name: &'static str, at: SocketAddr) -> Self {
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(Raw::connect(at, 0, 0, &[0; 16]).await);
        }
        Self { name, at, clients, base: None }
    }

    /// The answer to a request, as text that does not depend on the store.
    async fn answer_text(&mut self, step: &Step) -> Vec<String> {
        let mut output = Vec::new();
        match step {
            Step::Ask(who, request) => {
                let (events, answer) = self.clients[*who].ask(request).await;
                let mut received: Vec<_> =
                    events.iter().map(|message| self.event(message)).collect();
                // The server sends the events of one transaction in no particular order.
                received.sort();
                output.extend(received);
                output.push(self.answer(request, &answer));
            }
            Step::Reconnect(who) => {
                let at = self.at;
                self.clients[*who].reconnect(at).await;
            }
        }
        // The events of the other clients arrive before the answer to their next request.
        for who in (0..CLIENTS).filter(|who| *who != step.who()) {
            let probe = Request::Exists { path: "/".to_owned(), watch: false };
            let (events, _) = self.clients[who].ask(&probe).await;
            let mut received: Vec<_> =
                events.iter().map(|message| format!("{who} {}", self.event(message))).collect();
            received.sort();
            output.extend(received);
        }
        output
    }

    /// The number of transactions since the first.
    fn since(&mut self, zxid: i64) -> i64 {
        let base = *self.base.get_or_insert(zxid);
        if zxid == 0 || zxid == -1 { zxid } else { zxid - base }
    }

    fn event(&mut self, message: &[u8]) -> String {
        let mut reader = Reader(message);
        let (xid, zxid, error) = (reader.int(), reader.long(), reader.int());
        let head = (xid, zxid.map(|zxid| self.since(zxid)), error);
        format!("event {head:?} {:?} {:?} {:?}", reader.int(), reader.int(), reader.text())
    }

    fn answer(&mut self, request: &Request, message: &[u8]) -> String {
        let mut reader = Reader(message);
        let (xid, zxid) = (reader.int().unwrap_or(0), reader.long().unwrap_or(0));
        let error = reader.int().expect("an answer has a head");
        let zxid = self.since(zxid);
        let mut output = format!("answer {xid} at {zxid} error {error}");
        if error == 0 {
            self.body(request, &mut reader, &mut output);
        }
        let _ = write!(output, " and {} bytes more", reader.0.len());
        output
    }

    fn body(&mut self, request: &Request, reader: &mut Reader<'_>, output: &mut String) {
        match request {
            Request::Create { op, .. } => {
                let _ = write!(output, " {:?}", reader.text());
                if *op != op::CREATE {
                    self.stat(reader, output);
                }
            }
            Request::Exists { .. } | Request::SetData { .. } => self.stat(reader, output),
            Request::GetData { .. } => {
                let _ = write!(output, " {:?}", reader.bytes());
                self.stat(reader, output);
            }
            Request::GetChildren { op, .. } => {
                let mut names = reader.list(Reader::text).unwrap_or_default();
                names.sort();
                let _ = write!(output, " {names:?}");
                if *op == op::GET_CHILDREN_2 {
                    self.stat(reader, output);
                }
            }
            Request::Multi(all) | Request::MultiRead(all) => self.results(all, reader, output),
            Request::Sync { .. } => {
                let _ = write!(output, " {:?}", reader.text());
            }
            Request::AddWatch { .. } => {
                let _ = write!(output, " {:?}", reader.int());
            }
            _ => {}
        }
    }

    fn results(&mut self, all: &[Request], reader: &mut Reader<'_>, output: &mut String) {
        for one in all {
            let head = (reader.int().unwrap_or(0), reader.boolean(), reader.int());
            let _ = write!(output, " [{head:?}");
            match head.0 {
                op::ERROR => {
                    let _ = write!(output, " {:?}", reader.int());
                }
                op::CREATE | op::CREATE_2 => {
                    let _ = write!(output, " {:?}", reader.text());
                    if head.0 == op::CREATE_2 {
                        self.stat(reader, output);
                    }
                }
                op::CHECK | op::DELETE => {}
                _ => self.body(one, reader, output),
            }
            output.push(']');
        }
        let end = (reader.int(), reader.boolean(), reader.int());
        let _ = write!(output, " {end:?}");
    }

    fn stat(&mut self, reader: &mut Reader<'_>, output: &mut String) {
        let mut long = || reader.long().unwrap_or(i64::MIN);
        let (czxid, mzxid, ctime, mtime) = (long(), long(), long(), long());
        let mut int = || reader.int().unwrap_or(i32::MIN);
        let (version, cversion, aversion) = (int(), int(), int());
        let owner = reader.long().unwrap_or(i64::MIN);
        let (length, children) = (reader.int(), reader.int());
        let pzxid = reader.long().unwrap_or(i64::MIN);
        let [czxid, mzxid, pzxid] = [czxid, mzxid, pzxid].map(|zxid| self.since(zxid));
        let owner = self.clients.iter().position(|client| client.session == owner);
        let _ = write!(
            output,
            " (c{czxid} m{mzxid} p{pzxid} v{version} {cversion} {aversion} {owner:?} {length:?} \
             {children:?} written {})",
            mtime > ctime
        );
    }
}

/// One step of one client.
#[derive(Clone, Debug)]
enum Step {
    Ask(usize, Request),
    Reconnect(usize),
}

impl Step {
    fn who(&self) -> usize {
        match self {
            Self::Ask(who, _) | Self::Reconnect(who) => *who,
        }
    }
}

/// A program from a seed: few paths, so that many requests concern each of them.
fn program(random: &Random, dir: &str) -> Vec<Step> {
    let mut steps = vec![Step::Ask(0, create(op::CREATE_2, dir.to_owned(), 0))];
    steps.extend((0..STEPS).map(|_| {
        let who = usize::try_from(random.below(CLIENTS as u64)).unwrap_or(0);
        if random.below(25) == 0 { Step::Reconnect(who) } else { Step::Ask(who, any(random, dir)) }
    }));
    steps
}

fn create(op: i32, path: String, flags: i32) -> Request {
    let ttl = if op == op::CREATE_TTL { 3_600_000 } else { 0 };
    Request::Create { op, path, data: b"made".to_vec(), acl: open_acl(), flags, ttl }
}

fn place(random: &Random, dir: &str) -> String {
    const PLACES: [&str; 6] = ["", "/a", "/b", "/a/x", "/a/y", "/a/x/z"];

    let index = usize::try_from(random.below(PLACES.len() as u64)).unwrap_or(0);
    format!("{dir}{}", PLACES[index])
}

fn write(random: &Random, dir: &str) -> Request {
    let (path, version) =
        (place(random, dir), [-1, -1, 0, 1][usize::try_from(random.below(4)).unwrap_or(0)]);
    match random.below(9) {
        0 | 1 => create(op::CREATE_2, path, 0),
        2 => create(op::CREATE_2, path, 1),
        3 => create(op::CREATE_2, format!("{path}/t-"), if random.below(2) == 0 { 2 } else { 3 }),
        4 => create(op::CREATE_CONTAINER, path, 4),
        5 => match random.below(4) {
            0 => create(op::CREATE_TTL, path, 5),
            1 => with_acl(create(op::CREATE_2, path, 0), vec![(31 - 2, "world", "anyone")]),
            2 => with_acl(create(op::CREATE_2, path, 0), vec![]),
            _ => create(op::CREATE, path, 0),
        },
        6 => Request::SetData { path, data: b"set".to_vec(), version },
        _ => Request::Delete { path, version },
    }
}

fn with_acl(request: Request, list: Vec<(i32, &str, &str)>) -> Request {
    let list = list.into_iter().map(|(may, scheme, id)| (may, scheme.to_owned(), id.to_owned()));
    let list: Vec<Acl> = list.collect();
    match request {
        Request::Create { op, path, data, flags, ttl, .. } => {
            Request::Create { op, path, data, acl: list, flags, ttl }
        }
        other => other,
    }
}

fn read(random: &Random, dir: &str, watch: bool) -> Request {
    let path = place(random, dir);
    match random.below(4) {
        0 => Request::Exists { path, watch },
        1 => Request::GetData { path, watch },
        2 => Request::GetChildren { op: op::GET_CHILDREN, path, watch },
        _ => Request::GetChildren { op: op::GET_CHILDREN_2, path, watch },
    }
}

fn any(random: &Random, dir: &str) -> Request {
    match random.below(20) {
        0..=6 => write(random, dir),
        7..=9 => {
            let all = (0..=random.below(4)).map(|_| match random.below(4) {
                0 => Request::Check { path: place(random, dir), version: -1 },
                _ => write(random, dir),
            });
            Request::Multi(all.collect())
        }
        10..=13 => read(random, dir, random.below(2) == 0),
        14 => {
            let all = (0..2).map(|_| match random.below(2) {
                0 => Request::GetData { path: place(random, dir), watch: false },
                _ => Request::GetChildren {
                    op: op::GET_CHILDREN,
                    path: place(random, dir),
                    watch: false,
                },
            });
            Request::MultiRead(all.collect())
        }
        15 => Request::Sync { path: "/".to_owned() },
        16 | 17 => {
            let mode = i32::try_from(random.below(2)).unwrap_or(0);
            Request::AddWatch { path: place(random, dir), mode }
        }
        18 => {
            let kind = 1 + i32::try_from(random.below(3)).unwrap_or(0);
            Request::RemoveWatches { path: place(random, dir), kind }
        }
        _ => {
            let list = || (0..random.below(3)).map(|_| place(random, dir)).collect();
            // The client has missed either all changes or none.
            let since = if random.below(2) == 0 { 0 } else { i64::MAX };
            let (op, lists) =
                if random.below(2) == 0 { (op::SET_WATCHES, 3) } else { (op::SET_WATCHES_2, 5) };
            Request::SetWatches { op, since, lists: (0..lists).map(|_| list()).collect() }
        }
    }
}

/// As many programs as `SYNOD_PROGRAMS` says, or two hundred.
pub(crate) async fn the_peer_and_a_server_say_the_same() {
    let variable = |name| std::env::var(name).ok();
    let programs = variable("SYNOD_PROGRAMS").and_then(|text| text.parse().ok()).unwrap_or(200);
    let seed = variable("SYNOD_SEED")
        .and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok());
    let seed = seed.unwrap_or(0x5EED);
    // The server collects nothing during the programs, which may take an hour, and makes no writes
    // of its own.
    let quiet = ["-Dznode.container.checkIntervalMs=86400000"];
    let server = Ensemble::start_with(1, &quiet, &[]).expect("the list does not run without it");
    let peer = Peer::start_with(1, TICK).expect("there are ports");
    let version = server.version().expect("it runs");
    peer.change(|world| {
        world.collects = false;
        world.servers[0].follow(&version);
    });
    for number in 0..programs {
        let seed = if number == 0 { seed } else { synod_core::random::mix(seed ^ number) };
        let steps = program(&Random::seeded(seed), &format!("/replay{number}"));
        let mut real = Side::new("server", server.addresses()[0]).await;
        let mut ours = Side::new("peer", peer.addresses()[0]).await;
        let mut before: BTreeMap<usize, &Step> = BTreeMap::new();
        for (index, step) in steps.iter().enumerate() {
            let (theirs, own) = join(real.answer_text(step), ours.answer_text(step)).await;
            before.insert(index, step);
            assert_eq!(
                theirs, own,
                "{} and {} differ behind {before:?}\nrepeat it with SYNOD_SEED={seed:#x}",
                real.name, ours.name
            );
        }
        for side in [real, ours] {
            for mut client in side.clients {
                let _closed = client.ask(&Request::Close).await;
            }
        }
    }
}
