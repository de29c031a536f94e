//! [`Session`]: the task that has a session, and its connection to whichever server answers.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::client::answer::Reply;
use crate::client::event::{SessionState, WatchedEvent};
use crate::client::granted::Granted;
use crate::client::identity::Identity;
use crate::client::jute::Decoder;
use crate::client::line::{Call, Head, Line, xid};
use crate::client::request::{Message, Order, op};
use crate::client::servers::Servers;
use crate::client::stream::Encryption;
use crate::client::watches::{Removal, Watches};
use crate::client::zk_error::ZkError;

/// A session as its task has it.
pub(super) struct Session {
    pub(super) servers: Servers,
    pub(super) identity: Identity,
    pub(super) encryption: Option<Encryption>,
    /// Zero before the first connection.
    pub(super) id: i64,
    pub(super) password: Vec<u8>,
    pub(super) granted: Granted,
    /// The last change that an answer has shown.
    pub(super) newest: i64,
    /// The number of the last request.
    last_xid: i32,
    /// When something was received the last time, and sent.
    pub(super) heard: Instant,
    pub(super) said: Instant,
    /// When the first thing was sent since then, which is not answered yet.
    pub(super) asked: Option<Instant>,
    state: SessionState,
    states: watch::Sender<SessionState>,
    pub(super) watches: Watches,
    #[cfg(feature = "sasl")]
    pub(super) login: crate::client::sasl::DigestMd5,
}

type Orders = mpsc::UnboundedReceiver<Order>;

impl Session {
    /// One that does not exist yet.
    pub(super) fn new(
        (servers, watches): (Servers, Watches),
        identity: Identity,
        encryption: Option<Encryption>,
        timeout: Duration,
    ) -> Self {
        let (heard, state) = (Instant::now(), SessionState::Disconnected);
        Self {
            servers,
            identity,
            encryption,
            id: 0,
            password: vec![0; 16],
            granted: Granted::new(timeout),
            newest: 0,
            last_xid: 0,
            heard,
            said: heard,
            asked: None,
            state,
            states: watch::Sender::new(state),
            watches,
            #[cfg(feature = "sasl")]
            login: crate::client::sasl::DigestMd5::default(),
        }
    }

    pub(super) fn id(&self) -> i64 {
        self.id
    }

    pub(super) fn granted(&self) -> Granted {
        self.granted.clone()
    }

    pub(super) fn states(&self) -> watch::Receiver<SessionState> {
        self.states.subscribe()
    }

    /// After so much silence a connection counts as lost: two other servers can be tried before the session is over.
    pub(super) fn silence(&self) -> Duration {
        self.granted.get() * 2 / 5
    }

    /// After so much time without a request the server is asked whether it is there.
    fn pause(&self) -> Duration {
        (self.granted.get() * 3 / 20).min(Duration::from_secs(10))
    }

    /// When a connection counts as lost on which nothing more is heard. A server that was not asked has nothing to say: where
    /// this process stood still, the server has the rest of that time once it is asked.
    fn end_of_silence(&self) -> Option<Instant> {
        let asked = self.asked?;
        Some((self.heard + self.silence()).max(asked + self.silence().saturating_sub(self.pause())))
    }

    /// Serves requests until the session is over.
    pub(super) async fn run(mut self, first: Line, mut orders: Orders) {
        self.servers.repeat();
        let mut line = Some(first);
        while !self.state.is_terminated() {
            let mut current = match line.take() {
                Some(line) => line,
                None => match self.start().await {
                    Ok(line) => line,
                    Err(error) => {
                        tracing::debug!(%error, "no server has the session any more");
                        self.turn(state_without_server(&error));
                        break;
                    }
                },
            };
            let error = poll_fn(|cx| self.serve(&mut current, &mut orders, cx)).await;
            tracing::debug!(%error, session = self.id, "the connection has ended");
            self.turn(state_after(&error));
            self.watches.disconnected();
            // What the connection ended with is no answer to a request.
            let error = if error.ends_session() { error } else { ZkError::ConnectionLoss };
            current.fail(&error);
        }
        let error = self.state.error();
        orders.close();
        while let Ok(order) = orders.try_recv() {
            if let Order::Send(request) = order {
                let _waited_for = request.reply.send(Err(error.clone())).is_ok();
            }
        }
    }

    pub(super) fn turn(&mut self, state: SessionState) {
        if state == self.state || self.state.is_terminated() {
            return;
        }
        self.state = state;
        self.watches.report(state);
        self.states.send_replace(state);
    }

    /// Serves the connection until it ends. Returns why.
    fn serve(
        &mut self,
        line: &mut Line,
        orders: &mut Orders,
        cx: &mut Context<'_>,
    ) -> Poll<ZkError> {
        match self.step(line, Some(orders), cx) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(error),
        }
    }

    /// Does all that can be done without waiting. What has come is read first, so that the time that this task itself was late does
    /// not count as the server's silence.
    pub(super) fn step(
        &mut self,
        line: &mut Line,
        orders: Option<&mut Orders>,
        cx: &mut Context<'_>,
    ) -> Result<(), ZkError> {
        while let Poll::Ready(read) = line.poll_read(cx) {
            if read.map_err(|error| lost(&error))? == 0 {
                return Err(ZkError::ConnectionLoss);
            }
            (self.heard, self.asked) = (Instant::now(), None);
            while let Some(frame) = line.next_frame()? {
                self.receive(line, frame)?;
            }
            if line.is_closing && line.is_idle() {
                return Err(ZkError::ClientClosed);
            }
        }
        if let Some(orders) = orders {
            self.follow(line, orders, cx);
        }
        while line.timer.as_mut().poll(cx).is_ready() {
            self.look_at_the_time(line)?;
        }
        if line.poll_write(cx).map_err(|error| lost(&error))? {
            self.said = Instant::now();
            self.asked = self.asked.or(Some(self.said));
        }
        Ok(())
    }

    /// Takes what this task was ordered to do. Without any client left it ends the session.
    fn follow(&mut self, line: &mut Line, orders: &mut Orders, cx: &mut Context<'_>) {
        while !line.is_closing
            && let Poll::Ready(order) = orders.poll_recv(cx)
        {
            match order {
                Some(Order::Send(request)) => {
                    if let Some(asked) = &request.watch {
                        self.watches.ask(asked);
                    }
                    let call = Call::Request(request.watch, request.reply);
                    self.call(line, request.message, call);
                }
                Some(Order::Unwatch(id)) => {
                    let removal = self.watches.unwatch(id);
                    self.remove(line, removal);
                }
                None => {
                    self.call(line, Message::new(op::CLOSE_SESSION), Call::Ignored);
                    line.is_closing = true;
                }
            }
        }
    }

    pub(super) fn call(&mut self, line: &mut Line, message: Message, call: Call) {
        // Those below zero have another meaning.
        self.last_xid = self.last_xid.checked_add(1).unwrap_or(1);
        line.call(self.last_xid, message, call);
    }

    fn remove(&mut self, line: &mut Line, removals: impl IntoIterator<Item = Removal>) {
        for (path, removes) in removals {
            let mut message = Message::new(op::REMOVE_WATCHES);
            message.body().text(&path).int(removes as i32);
            self.call(line, message, Call::Ignored);
        }
    }

    fn look_at_the_time(&mut self, line: &mut Line) -> Result<(), ZkError> {
        let now = Instant::now();
        if self.end_of_silence().is_some_and(|end| now >= end) {
            return Err(ZkError::Timeout);
        }
        if line.unnumbered.pings == 0 && now >= self.said + self.pause() {
            line.ping();
            self.said = now;
        }
        // What was just asked is not written yet: its end is looked for later.
        let end = self.end_of_silence().unwrap_or(now + self.pause());
        let ask = (line.unnumbered.pings == 0).then(|| self.said + self.pause());
        line.timer.as_mut().reset(ask.map_or(end, |ask| ask.min(end)));
        Ok(())
    }

    fn receive(&mut self, line: &mut Line, mut frame: Bytes) -> Result<(), ZkError> {
        if !line.is_connected {
            return self.begin(line, &frame);
        }
        let head = Head::take(&mut frame)?;
        if let Some(error) = ZkError::of(head.code)
            && matches!(error, ZkError::SessionExpired | ZkError::AuthFailed)
        {
            return Err(error);
        }
        let of_these = match head.xid {
            xid::EVENT => {
                let event = WatchedEvent::read(head.zxid, &frame)?;
                let removal = self.watches.event(&event);
                self.remove(line, removal);
                return Ok(());
            }
            xid::PING => &mut line.unnumbered.pings,
            xid::AUTH => &mut line.unnumbered.logins,
            xid::SET_WATCHES => &mut line.unnumbered.watches,
            number => {
                self.newest = self.newest.max(head.zxid);
                let call = line.answered(number)?;
                self.take_answer(line, call, head.code, frame)?;
                return Ok(());
            }
        };
        *of_these = of_these.checked_sub(1).ok_or(ZkError::Malformed("it answers no message"))?;
        Ok(())
    }

    #[cfg_attr(
        not(feature = "sasl"),
        expect(clippy::unnecessary_wraps, reason = "a login may fail")
    )]
    fn take_answer(
        &mut self,
        line: &mut Line,
        call: Call,
        code: i32,
        body: Bytes,
    ) -> Result<(), ZkError> {
        match call {
            Call::Request(asked, reply) => {
                let answered = asked.map(|asked| self.watches.answered(asked, code));
                let (watch, removals) = answered.unwrap_or_default();
                let _waited_for = reply.send(Ok(Reply { code, body, watch })).is_ok();
                self.remove(line, removals);
            }
            #[cfg(feature = "sasl")]
            Call::Login => self.log_in(line, &body)?,
            Call::Ignored => {}
        }
        Ok(())
    }

    /// Takes over what the first message of a connection says.
    fn begin(&mut self, line: &mut Line, frame: &[u8]) -> Result<(), ZkError> {
        let mut reading = Decoder::new(frame);
        let (_version, timeout, id) = (reading.int()?, reading.int()?, reading.long()?);
        if id == 0 || timeout <= 0 {
            return Err(ZkError::SessionExpired);
        }
        let password = reading.buffer()?.to_vec();
        if !reading.is_empty() && reading.flag()? {
            return Err(ZkError::NotReadOnly);
        }
        (self.id, self.password) = (id, password);
        self.granted.set(Duration::from_millis(timeout.unsigned_abs().into()));
        line.is_connected = true;
        self.turn(SessionState::SyncConnected);
        Ok(())
    }
}

/// Why a connection was lost is for a person only.
pub(super) fn lost(error: &io::Error) -> ZkError {
    tracing::debug!(%error, "the connection failed");
    ZkError::ConnectionLoss
}

/// The state after a connection that ended so.
fn state_after(error: &ZkError) -> SessionState {
    match error {
        ZkError::SessionExpired | ZkError::SessionMoved => SessionState::Expired,
        ZkError::AuthFailed => SessionState::AuthFailed,
        ZkError::ClientClosed => SessionState::Closed,
        _ => SessionState::Disconnected,
    }
}

/// The state after a search for a server that ended so.
fn state_without_server(error: &ZkError) -> SessionState {
    match state_after(error) {
        SessionState::Disconnected => SessionState::Expired,
        state => state,
    }
}

#[cfg(test)]
mod tests {
    use synod_core::chance::Chance;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::time::advance;

    use super::*;
    use crate::client::jute::Encoder;
    use crate::client::watcher::Forget;

    const TTL: Duration = Duration::from_secs(10);

    /// A session on a connection whose other end does what the test says.
    fn session() -> (Session, Line, DuplexStream) {
        let (ours, theirs) = duplex(1 << 16);
        let parts = (Servers::new(vec![], Chance::seeded(1)), Watches::new(Forget::new(|_| {})));
        let mut line = Line::new(Box::new(ours));
        line.is_connected = true;
        (Session::new(parts, Identity::Nobody, None, TTL), line, theirs)
    }

    /// One step of its task: whether the connection is still there.
    async fn step(session: &mut Session, line: &mut Line) -> Result<(), ZkError> {
        poll_fn(|cx| Poll::Ready(session.step(line, None, cx))).await
    }

    #[test]
    fn only_what_ends_a_session_is_its_end() {
        let table = [
            (ZkError::SessionExpired, SessionState::Expired),
            (ZkError::SessionMoved, SessionState::Expired),
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
        for ((timeout, id, reads_only), said) in table {
            let (mut session, mut line, _theirs) = session();
            line.is_connected = false;
            let mut answer = Encoder::default();
            answer.int(0).int(timeout).long(id).buffer(&[7; 16]);
            if let Some(flag) = reads_only {
                answer.flag(flag);
            }
            assert_eq!(session.begin(&mut line, &answer.finish()), said, "{timeout} {id}");
            assert_eq!(line.is_connected, said.is_ok());
            let state =
                if said.is_ok() { SessionState::SyncConnected } else { SessionState::Disconnected };
            assert_eq!((session.state, session.id == 7), (state, said.is_ok()), "{timeout} {id}");
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
            session.turn(state);
            assert_eq!(states.has_changed().expect("it lives"), is_new, "{state:?}");
            states.mark_unchanged();
        }
    }

    #[tokio::test]
    async fn a_connection_is_idle_when_nothing_is_awaited_on_it() {
        let (_session, mut line, _theirs) = session();
        assert!(line.is_idle());
        for (pings, logins, watches) in [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (1, 0, 1)] {
            line.unnumbered.pings = pings;
            (line.unnumbered.logins, line.unnumbered.watches) = (logins, watches);
            assert!(!line.is_idle(), "{pings} {logins} {watches}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_has_all_the_time_to_answer_what_is_asked_at_once() {
        let (mut session, mut line, _theirs) = session();
        line.ping();
        assert_eq!(step(&mut session, &mut line).await, Ok(()));
        advance(TTL * 39 / 100).await;
        assert_eq!(step(&mut session, &mut line).await, Ok(()));
        advance(TTL / 100).await;
        assert_eq!(step(&mut session, &mut line).await, Err(ZkError::Timeout));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_asked_and_then_given_up() {
        let (mut session, mut line, mut theirs) = session();
        assert_eq!(step(&mut session, &mut line).await, Ok(()));
        advance(TTL * 3 / 20).await;
        assert_eq!(step(&mut session, &mut line).await, Ok(()));
        let mut ping = [0; 12];
        theirs.read_exact(&mut ping).await.expect("it was asked");
        assert_eq!(ping[4..], [255, 255, 255, 254, 0, 0, 0, 11]);
        advance(TTL * 24 / 100).await;
        assert_eq!(step(&mut session, &mut line).await, Ok(()));
        assert!(line.timer.deadline() > Instant::now(), "nothing is to be done before the end");
        advance(TTL / 100).await;
        assert_eq!(step(&mut session, &mut line).await, Err(ZkError::Timeout));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_not_asked_while_this_process_stood_still_is_asked_first() {
        let (mut session, mut line, mut theirs) = session();
        assert_eq!(step(&mut session, &mut line).await, Ok(()));
        advance(TTL * 3).await;
        assert_eq!(step(&mut session, &mut line).await, Ok(()));
        let pong = [&16_i32.to_be_bytes()[..], &xid::PING.to_be_bytes(), &[0; 12]].concat();
        theirs.write_all(&pong).await.expect("it is open");
        advance(TTL / 20).await;
        assert_eq!(step(&mut session, &mut line).await, Ok(()));
        assert!(line.is_idle());
        advance(TTL * 3).await;
        assert_eq!(step(&mut session, &mut line).await, Ok(()));
        advance(TTL * 24 / 100).await;
        assert_eq!(step(&mut session, &mut line).await, Ok(()));
        advance(TTL / 100).await;
        assert_eq!(step(&mut session, &mut line).await, Err(ZkError::Timeout));
    }
}
