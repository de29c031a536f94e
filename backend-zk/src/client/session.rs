//! [`Session`]: the task that has a session, and its connection to whichever server answers.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::task::unconstrained;
use tokio::time::Instant;

use crate::client::answer::Reply;
use crate::client::event::{SessionState, WatchedEvent};
use crate::client::granted::{Certain, Granted};
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
    pub(super) certain: Certain,
    pub(super) max_answer: usize,
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
    /// An event of an unknown kind was logged already.
    warned: bool,
    #[cfg(feature = "sasl")]
    pub(super) login: crate::client::sasl::DigestMd5,
}

/// The most reads, and the most orders, between two writes.
const READS: usize = 16;
const ORDERS: usize = 256;

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
            certain: Certain::default(),
            max_answer: usize::MAX,
            newest: 0,
            last_xid: 0,
            heard,
            said: heard,
            asked: None,
            state,
            states: watch::Sender::new(state),
            watches,
            warned: false,
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

    pub(super) fn certain(&self) -> Certain {
        self.certain.clone()
    }

    pub(super) fn states(&self) -> watch::Receiver<SessionState> {
        self.states.subscribe()
    }

    /// After so much silence a connection counts as lost. What is left of the time for which the session is certain is shared by the
    /// servers that can be tried then: see [`Session::start`].
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
            // Each step is of limited length. With tokio's budget, reading could use up that of writing.
            let serving = poll_fn(|cx| self.serve(&mut current, &mut orders, cx));
            let error = unconstrained(serving).await;
            tracing::debug!(%error, session = self.id, "the connection has ended");
            self.turn(state_after(&error));
            if error == ZkError::Timeout {
                self.servers.fell_silent();
            }
            current.fail(error);
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

    /// Does what can be done without waiting, or a part of each kind of it. What has come is read first, so that the time that this
    /// task itself was late does not count as the server's silence.
    pub(super) fn step(
        &mut self,
        line: &mut Line,
        orders: Option<&mut Orders>,
        cx: &mut Context<'_>,
    ) -> Result<(), ZkError> {
        let mut is_more = self.read(line, cx)?;
        if let Some(orders) = orders {
            is_more |= self.follow(line, orders, cx);
        }
        while line.timer.as_mut().poll(cx).is_ready() {
            self.look_at_the_time(line, is_more)?;
        }
        if line.poll_write(cx).map_err(|error| lost(&error))? {
            self.said = Instant::now();
            self.asked = self.asked.or(Some(self.said));
        }
        if is_more {
            cx.waker().wake_by_ref();
        }
        Ok(())
    }

    /// Takes messages that have come. Returns whether there may be more. A part of a message is no sign that the server will answer
    /// anything: heartbeats are answered after it.
    fn read(&mut self, line: &mut Line, cx: &mut Context<'_>) -> Result<bool, ZkError> {
        for _ in 0..READS {
            let Poll::Ready(read) = line.poll_read(cx) else { return Ok(false) };
            if read.map_err(|error| lost(&error))? == 0 {
                return Err(ZkError::ConnectionLoss);
            }
            while let Some(frame) = line.next_frame()? {
                (self.heard, self.asked) = (Instant::now(), None);
                self.receive(line, frame)?;
            }
            if line.is_closing && line.is_idle() {
                return Err(ZkError::ClientClosed);
            }
        }
        Ok(true)
    }

    /// Takes what this task was ordered to do, and returns whether there may be more. Without any client left it ends the session.
    fn follow(&mut self, line: &mut Line, orders: &mut Orders, cx: &mut Context<'_>) -> bool {
        for _ in 0..ORDERS {
            if line.is_closing {
                return false;
            }
            let Poll::Ready(order) = orders.poll_recv(cx) else { return false };
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
        true
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

    fn look_at_the_time(&mut self, line: &mut Line, is_more: bool) -> Result<(), ZkError> {
        let now = Instant::now();
        // What has come and is not read yet may be an answer.
        let end = self.end_of_silence().filter(|_| !is_more);
        if end.is_some_and(|end| now >= end) {
            return Err(ZkError::Timeout);
        }
        if line.unnumbered.pings == 0 && now >= self.said + self.pause() {
            line.ping();
            self.said = now;
        }
        // What was just asked is not written yet: its end is looked for later.
        let end = end.unwrap_or(now + self.pause());
        let ask = (line.unnumbered.pings == 0).then(|| self.said + self.pause());
        line.timer.as_mut().reset(ask.map_or(end, |ask| ask.min(end)));
        Ok(())
    }

    fn receive(&mut self, line: &mut Line, mut frame: Bytes) -> Result<(), ZkError> {
        if !line.is_connected {
            return self.begin(line, &frame);
        }
        let head = Head::take(&mut frame)?;
        let error = ZkError::of(head.code);
        if let Some(error @ (ZkError::SessionExpired | ZkError::AuthFailed)) = error {
            return Err(error);
        }
        let of_these = match head.xid {
            xid::EVENT => {
                match WatchedEvent::read(head.zxid, &frame)? {
                    Some(event) => {
                        let removal = self.watches.event(&event);
                        self.remove(line, removal);
                    }
                    None if self.warned => {}
                    None => {
                        tracing::warn!(session = self.id, "events of an unknown kind are skipped");
                        self.warned = true;
                    }
                }
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
        // A login or watches that a busy server did not take: only the next connection repeats them.
        match error {
            Some(error) if head.xid != xid::PING => Err(error),
            _ => Ok(()),
        }
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
        // A server that does not know the session opens another one, if it is not Apache's.
        if self.id != 0 && id != self.id {
            return Err(ZkError::SessionExpired);
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
        ZkError::SessionExpired => SessionState::Expired,
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
mod tests;
