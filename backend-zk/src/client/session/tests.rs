use std::pin::Pin;
use std::sync::{Arc, Mutex};
use synod_core::random::Random;
use synod_core::store::ServerList;

use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex,
};
use tokio::sync::oneshot;
use tokio::time::advance;

use super::*;
use crate::client::jute::Encoder;
use crate::client::request::Request;
use crate::client::servers::Resolver;
use crate::client::watcher::Forget;

const TTL: Duration = Duration::from_secs(10);

/// A session on a connection whose other end is played by the test.
fn session() -> (Session, ServerConnection, DuplexStream) {
    let (ours, theirs) = duplex(1 << 16);
    let servers = Servers::new(&ServerList::default(), Resolver::of_system(), Random::seeded(1));
    let parts = (servers, Watches::new(Forget::new(|_| {})));
    let mut connection = ServerConnection::new(Box::new(ours), usize::MAX);
    connection.is_connected = true;
    (Session::new(parts, Identity::Nobody, None, TTL), connection, theirs)
}

/// One step of the task: `Ok` while the connection lives.
async fn step(session: &mut Session, connection: &mut ServerConnection) -> Result<(), ZkError> {
    poll_fn(|cx| Poll::Ready(session.step(connection, None, cx))).await
}

#[test]
fn only_what_ends_a_session_is_its_end() {
    let table = [
        (ZkError::SessionExpired, SessionState::Expired),
        (ZkError::SessionMoved, SessionState::Disconnected),
        (ZkError::AuthFailed, SessionState::AuthFailed),
        (ZkError::ClientClosed, SessionState::Closed),
        (ZkError::ConnectionLoss, SessionState::Disconnected),
        (ZkError::NoAuth, SessionState::Disconnected),
    ];
    for (error, state) in table {
        assert_eq!(state_after(&error), state, "{error}");
    }
}

#[tokio::test]
async fn a_session_begins_only_as_a_server_says_so() {
    let table = [
        ((4_000, 7, None), Ok(())),
        ((4_000, 7, Some(false)), Ok(())),
        ((4_000, 7, Some(true)), Err(ZkError::NotReadOnly)),
        ((4_000, 0, Some(false)), Err(ZkError::SessionExpired)),
        ((0, 7, Some(false)), Err(ZkError::SessionExpired)),
        ((-1, 7, Some(false)), Err(ZkError::SessionExpired)),
        ((0, 0, Some(false)), Err(ZkError::SessionExpired)),
    ];
    for ((timeout, id, reads_only), expected) in table {
        let (mut session, mut connection, _theirs) = session();
        connection.is_connected = false;
        let mut answer = Encoder::default();
        answer.int(0).int(timeout).long(id).buffer(&[7; 16]);
        if let Some(flag) = reads_only {
            answer.flag(flag);
        }
        assert_eq!(session.begin(&mut connection, &answer.finish()), expected, "{timeout} {id}");
        assert_eq!(connection.is_connected, expected.is_ok());
        let state =
            if expected.is_ok() { SessionState::SyncConnected } else { SessionState::Disconnected };
        assert_eq!((session.state, session.id == 7), (state, expected.is_ok()), "{timeout} {id}");
    }
}

#[tokio::test]
async fn a_state_is_reported_once_and_none_after_the_last() {
    let (mut session, _line, _theirs) = session();
    let mut states = session.states();
    for (state, is_new) in [
        (SessionState::Disconnected, false),
        (SessionState::SyncConnected, true),
        (SessionState::SyncConnected, false),
        (SessionState::Expired, true),
        (SessionState::SyncConnected, false),
    ] {
        session.set_state(state);
        assert_eq!(states.has_changed().expect("it lives"), is_new, "{state:?}");
        states.mark_unchanged();
    }
}

#[tokio::test]
async fn a_connection_is_idle_when_nothing_is_awaited_on_it() {
    let (_session, mut connection, _theirs) = session();
    assert!(connection.is_idle());
    for (pings, logins, watches) in [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (1, 0, 1)] {
        connection.unnumbered.pings = pings;
        (connection.unnumbered.logins, connection.unnumbered.watches) = (logins, watches);
        assert!(!connection.is_idle(), "{pings} {logins} {watches}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_has_all_the_time_to_answer_what_is_asked_at_once() {
    let (mut session, mut connection, _theirs) = session();
    connection.ping();
    assert_eq!(step(&mut session, &mut connection).await, Ok(()));
    advance(TTL * 39 / 100).await;
    assert_eq!(step(&mut session, &mut connection).await, Ok(()));
    advance(TTL / 100).await;
    assert_eq!(step(&mut session, &mut connection).await, Err(ZkError::Timeout));
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_asked_and_then_given_up() {
    let (mut session, mut connection, mut theirs) = session();
    assert_eq!(step(&mut session, &mut connection).await, Ok(()));
    advance(TTL * 3 / 20).await;
    assert_eq!(step(&mut session, &mut connection).await, Ok(()));
    let mut ping = [0; 12];
    theirs.read_exact(&mut ping).await.expect("it was asked");
    assert_eq!(ping[4..], [255, 255, 255, 254, 0, 0, 0, 11]);
    advance(TTL * 24 / 100).await;
    assert_eq!(step(&mut session, &mut connection).await, Ok(()));
    assert!(connection.timer.deadline() > Instant::now(), "nothing is to be done before the end");
    advance(TTL / 100).await;
    assert_eq!(step(&mut session, &mut connection).await, Err(ZkError::Timeout));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_not_asked_while_this_process_stood_still_is_asked_first() {
    let (mut session, mut connection, mut theirs) = session();
    assert_eq!(step(&mut session, &mut connection).await, Ok(()));
    advance(TTL * 3).await;
    assert_eq!(step(&mut session, &mut connection).await, Ok(()));
    let pong = [&16_i32.to_be_bytes()[..], &xid::PING.to_be_bytes(), &[0; 12]].concat();
    theirs.write_all(&pong).await.expect("it is open");
    advance(TTL / 20).await;
    assert_eq!(step(&mut session, &mut connection).await, Ok(()));
    assert!(connection.is_idle());
    advance(TTL * 3).await;
    assert_eq!(step(&mut session, &mut connection).await, Ok(()));
    advance(TTL * 24 / 100).await;
    assert_eq!(step(&mut session, &mut connection).await, Ok(()));
    advance(TTL / 100).await;
    assert_eq!(step(&mut session, &mut connection).await, Err(ZkError::Timeout));
}

/// The frame of a message that a server sends.
fn message(xid: i32, zxid: i64, code: i32, body: &[u8]) -> Vec<u8> {
    let mut frame = Encoder::default();
    frame.int(i32::try_from(16 + body.len()).expect("short")).int(xid).long(zxid).int(code);
    [frame.finish(), body.to_vec()].concat()
}

fn event(kind: i32) -> Vec<u8> {
    let mut body = Encoder::default();
    body.int(kind).int(3).text("/a");
    message(xid::EVENT, 99, 0, &body.finish())
}

#[tokio::test]
async fn a_session_with_another_id_is_not_the_same_one() {
    for (id, expected) in [(7, Ok(())), (8, Err(ZkError::SessionExpired))] {
        let (mut session, mut connection, _theirs) = session();
        (session.id, session.password) = (7, vec![1; 16]);
        connection.is_connected = false;
        let mut answer = Encoder::default();
        answer.int(0).int(4_000).long(id).buffer(&[7; 16]);
        assert_eq!(session.begin(&mut connection, &answer.finish()), expected, "{id}");
        let password = if expected.is_ok() { 7 } else { 1 };
        assert_eq!((session.id, session.password), (7, vec![password; 16]));
    }
}

/// A transaction may have several events. After the first event the session has not seen the whole
/// transaction.
#[tokio::test]
async fn only_answers_raise_what_the_session_has_seen() {
    let (mut session, mut connection, mut theirs) = session();
    for kind in [1, 4, 5] {
        theirs.write_all(&event(kind)).await.expect("there is room");
    }
    assert_eq!(step(&mut session, &mut connection).await, Ok(()));
    assert_eq!(session.newest, 0);

    session.call(&mut connection, Message::new(op::SYNC), Call::Ignored);
    theirs.write_all(&message(1, 42, 0, &[])).await.expect("there is room");
    assert_eq!(step(&mut session, &mut connection).await, Ok(()));
    assert_eq!(session.newest, 42);
}

#[tokio::test]
async fn an_answer_ends_the_session_if_its_code_says_so() {
    for (code, expected) in [
        (-112, Err(ZkError::SessionExpired)),
        (-115, Err(ZkError::AuthFailed)),
        (-124, Err(ZkError::AuthFailed)),
        (-118, Ok(())),
        (-101, Ok(())),
    ] {
        let (mut session, mut connection, mut theirs) = session();
        session.call(&mut connection, Message::new(op::SYNC), Call::Ignored);
        theirs.write_all(&message(1, 1, code, &[])).await.expect("there is room");
        assert_eq!(step(&mut session, &mut connection).await, expected, "{code}");
    }
}

#[tokio::test]
async fn a_login_or_watches_that_are_not_taken_end_the_connection() {
    for (xid, expected) in [
        (xid::AUTH, Err(ZkError::Throttled)),
        (xid::SET_WATCHES, Err(ZkError::Throttled)),
        (xid::PING, Ok(())),
    ] {
        let (mut session, mut connection, mut theirs) = session();
        let ServerConnection { unnumbered, .. } = &mut connection;
        (unnumbered.pings, unnumbered.logins, unnumbered.watches) = (1, 1, 1);
        theirs.write_all(&message(xid, 1, -127, &[])).await.expect("there is room");
        assert_eq!(step(&mut session, &mut connection).await, expected, "{xid}");
    }
}

#[tokio::test]
async fn a_login_may_be_answered_before_the_session_is_reported() {
    for (code, expected) in [(0, Ok(())), (-115, Err(ZkError::AuthFailed))] {
        let (mut session, mut connection, mut theirs) = session();
        connection.is_connected = false;
        connection.unnumbered.logins = 1;
        theirs.write_all(&message(xid::AUTH, 0, code, &[])).await.expect("there is room");
        assert_eq!(step(&mut session, &mut connection).await, expected, "{code}");
        assert!(!connection.is_connected);
        let mut answer = Encoder::default();
        answer.int(37).int(0).int(4_000).long(7).buffer(&[7; 16]).flag(false);
        theirs.write_all(&answer.finish()).await.expect("there is room");
        if expected.is_ok() {
            assert_eq!(step(&mut session, &mut connection).await, Ok(()));
            assert!(connection.is_connected && connection.unnumbered.logins == 0);
            assert_eq!(session.id, 7);
        }
    }
}

/// Otherwise the session and its nodes may still exist.
#[tokio::test]
async fn a_session_is_closed_when_a_server_has_answered_that() {
    let (mut session, mut connection, mut theirs) = session();
    session.call(&mut connection, Message::new(op::SYNC), Call::Ignored);
    let (orders, mut no_more) = mpsc::unbounded_channel();
    drop(orders);
    let mut step = async |connection: &mut ServerConnection| {
        poll_fn(|cx| Poll::Ready(session.step(connection, Some(&mut no_more), cx))).await
    };
    assert_eq!(step(&mut connection).await, Ok(()));
    assert!(connection.is_closing);
    theirs.write_all(&message(1, 1, 0, &[])).await.expect("there is room");
    assert_eq!(step(&mut connection).await, Ok(()), "the answer to an earlier request");
    theirs.write_all(&message(2, 1, 0, &[])).await.expect("there is room");
    assert_eq!(step(&mut connection).await, Err(ZkError::ClientClosed));
}

#[tokio::test(start_paused = true)]
async fn a_part_of_an_answer_is_no_sign_of_life() {
    let (mut session, mut connection, mut theirs) = session();
    connection.ping();
    theirs.write_all(&1_000_i32.to_be_bytes()).await.expect("there is room");
    for _ in 0..39 {
        theirs.write_all(b"x").await.expect("there is room");
        assert_eq!(step(&mut session, &mut connection).await, Ok(()));
        advance(TTL / 100).await;
    }
    advance(TTL / 100).await;
    assert_eq!(step(&mut session, &mut connection).await, Err(ZkError::Timeout));
}

/// A connection on which there is always something to read.
struct Flood {
    events: Vec<u8>,
    at: usize,
    written: Arc<Mutex<Vec<u8>>>,
}

impl AsyncRead for Flood {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let rest = &self.events[self.at..];
        let count = rest.len().min(into.remaining());
        into.put_slice(&rest[..count]);
        self.at = (self.at + count) % self.events.len();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Flood {
    fn poll_write(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.written.lock().expect("no panic").extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Neither a server that sends events all the time nor a user with many requests prevents a request
/// or a ping from being sent.
#[tokio::test(start_paused = true)]
async fn reading_leaves_time_for_writing() {
    const MANY: usize = 10_000;

    let (mut session, _line, _theirs) = session();
    let written = Arc::<Mutex<Vec<u8>>>::default();
    let flood = Flood { events: event(1).repeat(1_000), at: 0, written: Arc::clone(&written) };
    let mut connection = ServerConnection::new(Box::new(flood), usize::MAX);
    connection.is_connected = true;
    let (sender, mut orders) = mpsc::unbounded_channel();
    for _ in 0..MANY {
        let request =
            Request { message: Message::new(op::SYNC), watch: None, reply: oneshot::channel().0 };
        sender.send(Order::Send(request)).expect("it is open");
    }
    let (mut steps, mut sent) = (0, 0);
    while sent < MANY {
        poll_fn(|cx| Poll::Ready(session.step(&mut connection, Some(&mut orders), cx)))
            .await
            .expect("the connection is excellent");
        steps += 1;
        let now = written.lock().expect("no panic").len() / 12;
        assert!(now > sent, "each step sends something");
        sent = now;
        advance(Duration::from_millis(1)).await;
    }
    assert!(steps < 100, "{steps}");
    advance(TTL).await;
    written.lock().expect("no panic").clear();
    poll_fn(|cx| Poll::Ready(session.step(&mut connection, Some(&mut orders), cx)))
        .await
        .expect("something came");
    assert_eq!(written.lock().expect("no panic")[4..8], xid::PING.to_be_bytes());
}
