use std::net::SocketAddr;
use std::pin::pin;

use futures_util::FutureExt as _;
use synod_core::random::Random;
use synod_core::store::ServerList;
use synod_core::task::{Task, spawn};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{advance, sleep};

use super::*;
use crate::client::servers::{Resolver, Servers};
use crate::client::watcher::Forget;
use crate::client::watches::Watches;

const TTL: Duration = Duration::from_secs(10);

/// A session that does not exist yet, and whose servers have one name with these addresses.
fn session(addresses: Vec<SocketAddr>, ttl: Duration) -> Session {
    let resolver = Resolver::new(move |_name| {
        let found = addresses.clone();
        Box::pin(async { Ok(found) })
    });
    let servers =
        Servers::new(&ServerList::fixed(vec!["zk:2181".to_owned()]), resolver, Random::seeded(7));
    let parts = (servers, Watches::new(Forget::new(|_| {})));
    Session::new(parts, Identity::Nobody, None, ttl)
}

/// The servers may count the session's time from a later moment than this client.
#[tokio::test(start_paused = true)]
async fn a_server_is_looked_for_until_the_session_is_over_everywhere() {
    // Nothing listens there.
    let mut session = session(vec![([127, 0, 0, 1], 1).into()], TTL);
    let began = Instant::now();
    assert_eq!(session.start().await.err(), Some(ZkError::NoHosts), "each is asked once");
    assert!(began.elapsed() < TTL / 2);

    (session.id, session.last_received) = (7, Instant::now());
    session.servers.repeat();
    let began = Instant::now();
    assert_eq!(session.start().await.err(), Some(ZkError::Timeout));
    let searched = began.elapsed();
    assert!((TTL * 7 / 5..TTL * 3 / 2).contains(&searched), "{searched:?}");
}

/// The conduct of a listener.
#[derive(Clone, Copy, Debug)]
enum Manner {
    Serves,
    /// Knows no session, as a server of another ensemble.
    Expires,
    IsSilent,
    Closes,
}

/// The address of a listener, which lives as long as the task does.
async fn listen(manner: Manner) -> (SocketAddr, Task) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let accept = async move {
        let mut open = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            match manner {
                Manner::Serves => open.push(spawn(answer_all(stream))),
                Manner::Expires => open.push(spawn(expire(stream))),
                Manner::IsSilent => open.push(spawn(async move {
                    let _open = stream;
                    std::future::pending::<()>().await;
                })),
                Manner::Closes => {}
            }
        }
    };
    (address, spawn(accept))
}

/// Accepts a session, and answers all requests.
async fn answer_all(mut stream: TcpStream) {
    let mut is_first = true;
    while let Ok(length) = stream.read_i32().await {
        let mut frame = vec![0; usize::try_from(length).expect("a length")];
        if stream.read_exact(&mut frame).await.is_err() {
            return;
        }
        let answer = if is_first { granted() } else { pong(&frame[..4]) };
        is_first = false;
        if stream.write_all(&answer).await.is_err() {
            return;
        }
    }
}

/// Answers that the session is over.
async fn expire(mut stream: TcpStream) {
    let mut answer = Encoder::default();
    answer.int(37).int(0).int(0).long(0).buffer(&[0; 16]).flag(false);
    let _sent = stream.write_all(&answer.finish()).await.is_ok();
    std::future::pending::<()>().await;
}

/// Other servers may run at an address that the ensemble reports, as seen from here.
#[tokio::test]
async fn only_a_server_that_is_known_to_be_of_the_ensemble_ends_a_session() {
    let (stranger, _stranger) = listen(Manner::Expires).await;
    let (ours, _ours) = listen(Manner::Serves).await;
    let find = async |configured: SocketAddr, reported: SocketAddr| {
        let list = ServerList::of_ensemble(vec![configured.to_string()], |name| Ok(name.into()));
        list.report(Ok(vec![reported.to_string()]));
        let servers = Servers::new(&list, Resolver::of_system(), Random::seeded(7));
        let parts = (servers, Watches::new(Forget::new(|_| {})));
        let mut session = Session::new(parts, Identity::Nobody, None, TTL);
        // The configured host had the session, so it is the last of the round.
        session.servers.connected(&Server { name: configured.to_string(), address: configured });
        (session.id, session.last_received) = (7, Instant::now());
        session.servers.repeat();
        session.start().await.map(|_connection| session.id())
    };
    assert_eq!(find(ours, stranger).await, Ok(7));
    let closed = ([127, 0, 0, 1], 1).into();
    assert_eq!(find(stranger, closed).await, Err(ZkError::SessionExpired));
}

/// The answer to a greeting.
fn granted() -> Vec<u8> {
    let mut answer = Encoder::default();
    answer.int(37).int(0).int(10_000).long(7).buffer(&[1; 16]).flag(false);
    answer.finish()
}

/// An answer without a body.
fn pong(xid: &[u8]) -> Vec<u8> {
    [&16_i32.to_be_bytes()[..], xid, &[0; 12]].concat()
}

/// The other addresses of the name are silent or closed, and are tried in any order.
#[tokio::test]
async fn each_address_of_a_name_is_tried() {
    let mut listeners = Vec::new();
    for manner in [Manner::IsSilent, Manner::Closes, Manner::Serves] {
        listeners.push(listen(manner).await);
    }
    let addresses: Vec<SocketAddr> = listeners.iter().map(|(address, _)| *address).collect();
    let opened = (0..8).map(async |_| {
        let mut session = session(addresses.clone(), Duration::from_secs(6));
        session.start().await.map(|_line| session.id())
    });
    for opened in futures_util::future::join_all(opened).await {
        assert_eq!(opened, Ok(7));
    }
}

/// Silent servers that accept the connection leave enough time for the last one.
#[tokio::test]
async fn each_server_has_a_share_of_the_time_for_which_the_session_is_certain() {
    // Less than a server has to fall silent.
    const CERTAIN: Duration = Duration::from_millis(3_900);

    let mut listeners = Vec::new();
    for manner in [Manner::IsSilent, Manner::IsSilent, Manner::Serves] {
        listeners.push(listen(manner).await);
    }
    let addresses: Vec<SocketAddr> = listeners.iter().map(|(address, _)| *address).collect();
    let taken = (0..8).map(async |_| {
        let mut session = session(addresses.clone(), TTL);
        session.id = 7;
        let began = Instant::now();
        session.certain.set(move || CERTAIN.checked_sub(began.elapsed()));
        session.start().await.expect("one of them serves");
        began.elapsed()
    });
    for took in futures_util::future::join_all(taken).await {
        assert!(took < CERTAIN, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_share_is_neither_too_short_to_be_of_use_nor_longer_than_a_silence() {
    let share_of = |ttl, remaining: Option<u64>, end: u64| {
        let session = session(vec![], ttl);
        session.certain.set(move || remaining.map(Duration::from_millis));
        let now = Instant::now();
        (session.limit(now + Duration::from_millis(end)) - now).as_millis()
    };
    let share = |remaining, end| share_of(TTL, remaining, end);
    assert_eq!(share(Some(2_800), 9_000), 2_800);
    assert_eq!(share(Some(9_000), 9_000), 4_000);
    assert_eq!(share(Some(100), 9_000), 500);
    assert_eq!(share(Some(100), 300), 300);
    assert_eq!(share(None, 3_000), 3_000);
    assert_eq!(share(Some(0), 3_000), 3_000);
    assert_eq!(share_of(TTL / 5, Some(100), 9_000), 250);
    assert_eq!(share_of(TTL / 20, Some(100), 9_000), 200);
}

/// A session on a connection whose other end is played by the test.
fn connected() -> (Session, ServerConnection, DuplexStream) {
    let (ours, theirs) = duplex(1 << 16);
    let session = session(vec![], TTL);
    let connection = ServerConnection::new(Box::new(ours), session.max_answer);
    (session, connection, theirs)
}

#[tokio::test]
async fn a_greeting_has_all_that_a_server_needs_to_take_the_session_over() {
    let (mut session, mut connection, mut theirs) = connected();
    (session.id, session.newest, session.password) = (7, 42, vec![9; 16]);
    session.granted.set(Duration::from_secs(6));
    session.greet(&mut connection);
    poll_fn(|cx| Poll::Ready(connection.poll_write(cx))).await.expect("there is room");

    let mut greeting = [0; 49];
    theirs.read_exact(&mut greeting).await.expect("it is sent");
    let mut expected = Encoder::default();
    expected.int(45).int(0).long(42).int(6_000).long(7).buffer(&[9; 16]).flag(false);
    assert_eq!(greeting[..], expected.finish());
}

/// A connection on which only the greeting is answered does not count.
#[tokio::test(start_paused = true)]
async fn a_server_is_found_when_it_has_answered_a_request() {
    let (mut session, mut connection, mut theirs) = connected();
    let limit = Instant::now() + TTL;
    let mut found = pin!(session.set_up(&mut connection, limit));
    theirs.write_all(&granted()).await.expect("there is room");
    assert!(found.as_mut().now_or_never().is_none());
    theirs.write_all(&pong(&xid::PING.to_be_bytes())).await.expect("there is room");
    assert_eq!(found.now_or_never(), Some(Ok(())));
}

/// Its silence begins with the connection, and not with that of the last one.
#[tokio::test(start_paused = true)]
async fn a_server_has_its_share_from_the_beginning_of_its_connection() {
    for (after, found) in [(30, Ok(())), (45, Err(ZkError::Timeout))] {
        let (mut session, mut connection, mut theirs) = connected();
        advance(TTL * 3).await;
        let limit = Instant::now() + session.silence();
        let answers = async {
            sleep(TTL * after / 100).await;
            theirs.write_all(&granted()).await.expect("there is room");
            theirs.write_all(&pong(&xid::PING.to_be_bytes())).await.expect("there is room");
        };
        let (result, ()) =
            futures_util::future::join(session.set_up(&mut connection, limit), answers).await;
        assert_eq!(result, found, "after {after} % of the time to live");
    }
}
