//! [`Session`]: the task that owns a session, and its connection to any server that answers.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use synod_core::store::CurrentServer;
use tokio::sync::{mpsc, watch};
use tokio::task::unconstrained;
use tokio::time::Instant;

use crate::client::answer::Reply;
use crate::client::departure::{Credentials, Departure};
use crate::client::encryption::Encryption;
use crate::client::event::{SessionState, WatchedEvent};
use crate::client::granted::{Certain, Granted};
use crate::client::identity::{Identity, UserPassword};
use crate::client::jute::Decoder;
use crate::client::request::{Message, Order, op};
use crate::client::server_connection::{Call, Head, ServerConnection, xid};
use crate::client::servers::Servers;
use crate::client::watches::{Removal, Watches};
use crate::client::zk_error::ZkError;

/// The session, owned by its task.
pub(super) struct Session {
    pub(super) servers: Servers,
    pub(super) identity: Identity,
    /// Further identities.
    pub(super) identities: Vec<UserPassword>,
    pub(super) encryption: Option<Encryption>,
    /// Zero before the first connection.
    pub(super) id: i64,
    pub(super) password: Vec<u8>,
    pub(super) granted: Granted,
    pub(super) certain: Certain,
    pub(super) max_answer: usize,
    /// Set at each connection.
    pub(super) server: CurrentServer,
    /// The last change that an answer has shown.
    pub(super) newest: i64,
    /// True until another client's session was continued.
    pub(super) is_resuming: bool,
    pub(super) departure: Departure,
    /// The number of the last request.
    last_xid: i32,
    /// The times at which something was last received and sent.
    pub(super) last_received: Instant,
    pub(super) last_sent: Instant,
    /// The time of the first message since then that is not answered yet.
    pub(super) unanswered_since: Option<Instant>,
    state: SessionState,
    states: watch::Sender<SessionState>,
    pub(super) watches: Watches,
    /// An event of an unknown kind was logged already.
    has_warned: bool,
    #[cfg(feature = "sasl")]
    pub(super) login: crate::client::sasl::DigestMd5,
}

/// The maximum number of reads, and of orders, between two writes.
const MAX_READS: usize = 16;
const MAX_ORDERS: usize = 256;

type Orders = mpsc::UnboundedReceiver<Order>;

impl Session {
    /// Creates a session that no server has yet.
    pub(super) fn new(
        (servers, watches): (Servers, Watches),
        identity: Identity,
        encryption: Option<Encryption>,
        timeout: Duration,
    ) -> Self {
        let (now, state) = (Instant::now(), SessionState::Disconnected);
        Self {
            servers,
            identity,
            identities: Vec::new(),
            encryption,
            id: 0,
            password: vec![0; 16],
            granted: Granted::new(timeout),
            certain: Certain::default(),
            max_answer: usize::MAX,
            server: CurrentServer::default(),
            newest: 0,
            is_resuming: false,
            departure: Departure::default(),
            last_xid: 0,
            last_received: now,
            last_sent: now,
            unanswered_since: None,
            state,
            states: watch::Sender::new(state),
            watches,
            has_warned: false,
            #[cfg(feature = "sasl")]
            login: crate::client::sasl::DigestMd5::default(),
        }
    }

    /// Continues the session of another client.
    pub(super) fn resume(&mut self, credentials: Credentials) {
        (self.id, self.password) = (credentials.id, credentials.password);
        (self.newest, self.is_resuming) = (credentials.newest, true);
        self.departure.saw(self.newest);
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

    /// A connection that is silent for this long counts as lost. The servers that can be tried
    /// after that share the remaining certain time of the session: see [`Session::start`].
    pub(super) fn silence(&self) -> Duration {
        self.granted.get() * 2 / 5
    }

    /// After this time without a request the server is pinged.
    fn pause(&self) -> Duration {
        (self.granted.get() * 3 / 20).min(Duration::from_secs(10))
    }

    /// The time at which the connection counts as lost if nothing more is received. A server need
    /// not send anything while it has no request. So if this process was stalled, the server still
    /// gets its full answer time after the next request.
    fn silence_ends_at(&self) -> Option<Instant> {
        let since = self.unanswered_since?;
        Some(
            (self.last_received + self.silence())
                .max(since + self.silence().saturating_sub(self.pause())),
        )
    }

    /// Serves requests until the session is over.
    pub(super) async fn run(mut self, first: ServerConnection, mut orders: Orders) {
        self.servers.repeat();
        let departure = self.departure.clone();
        let mut departs = pin!(departure.requested());
        let mut connection = Some(first);
        while !self.state.is_terminated() {
            let mut current = match connection.take() {
                Some(connection) => connection,
                None => match self.start_unless(departs.as_mut()).await {
                    Ok(connection) => connection,
                    Err(error) => {
                        tracing::debug!(%error, "no server has the session any more");
                        self.set_state(state_without_server(&error));
                        break;
                    }
                },
            };
            // Each step is short. With tokio's budget, reads could use up the budget of writes.
            let mut left = Box::pin(self.servers.left());
            let serving = poll_fn(|cx| {
                current.is_leaving = current.is_leaving || left.as_mut().poll(cx).is_ready();
                self.serve(&mut current, &mut orders, cx)
            });
            let error = match select(pin!(unconstrained(serving)), departs.as_mut()).await {
                Either::Left((error, _)) => error,
                Either::Right(_) => ZkError::ClientClosed,
            };
            tracing::debug!(%error, session = self.id, "the connection has ended");
            self.set_state(state_after(&error));
            if error == ZkError::Timeout {
                self.servers.record_silence();
            }
            current.fail(error);
        }
        let error = self.state.error();
        orders.close();
        while let Ok(order) = orders.try_recv() {
            if let Order::Send(request) = order {
                let _delivered = request.reply.send(Err(error.clone())).is_ok();
            }
        }
    }

    /// Searches for a server, unless the session is left to another client.
    async fn start_unless(
        &mut self,
        departs: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<ServerConnection, ZkError> {
        match select(pin!(self.start()), departs).await {
            Either::Left((started, _)) => started,
            Either::Right(_) => Err(ZkError::ClientClosed),
        }
    }

    pub(super) fn set_state(&mut self, state: SessionState) {
        if state == self.state || self.state.is_terminated() {
            return;
        }
        self.state = state;
        self.watches.report(state);
        self.states.send_replace(state);
    }

    /// Serves the connection until it ends. Returns the reason.
    fn serve(
        &mut self,
        connection: &mut ServerConnection,
        orders: &mut Orders,
        cx: &mut Context<'_>,
    ) -> Poll<ZkError> {
        match self.step(connection, Some(orders), cx) {
            // Every request on it is answered, and later ones wait for the next connection.
            Ok(()) if connection.is_leaving && connection.is_idle() => {
                Poll::Ready(ZkError::ConnectionLoss)
            }
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(error),
        }
    }

    /// Does everything that can be done without waiting, or a part of each kind of work. Input is
    /// read first, so that a delay of this task is not mistaken for silence of the server.
    pub(super) fn step(
        &mut self,
        connection: &mut ServerConnection,
        orders: Option<&mut Orders>,
        cx: &mut Context<'_>,
    ) -> Result<(), ZkError> {
        let mut is_more = self.read(connection, cx)?;
        if let Some(orders) = orders {
            is_more |= self.take_orders(connection, orders, cx);
        }
        while connection.timer.as_mut().poll(cx).is_ready() {
            self.check_silence(connection, is_more)?;
        }
        if connection.poll_write(cx).map_err(|error| lost(&error))? {
            self.last_sent = Instant::now();
            self.unanswered_since = self.unanswered_since.or(Some(self.last_sent));
        }
        if is_more {
            cx.waker().wake_by_ref();
        }
        Ok(())
    }

    /// Takes messages that have arrived. Returns whether there may be more. A part of a message
    /// does not show that the server will answer: heartbeats are answered after it.
    fn read(
        &mut self,
        connection: &mut ServerConnection,
        cx: &mut Context<'_>,
    ) -> Result<bool, ZkError> {
        for _ in 0..MAX_READS {
            let Poll::Ready(read) = connection.poll_read(cx) else { return Ok(false) };
            if read.map_err(|error| lost(&error))? == 0 {
                return Err(ZkError::ConnectionLoss);
            }
            while let Some(frame) = connection.next_frame()? {
                (self.last_received, self.unanswered_since) = (Instant::now(), None);
                self.receive(connection, frame)?;
            }
            if connection.is_closing && connection.is_idle() {
                return Err(ZkError::ClientClosed);
            }
        }
        Ok(true)
    }

    /// Takes orders, and returns whether there may be more. When the last client is gone, it ends
    /// the session.
    fn take_orders(
        &mut self,
        connection: &mut ServerConnection,
        orders: &mut Orders,
        cx: &mut Context<'_>,
    ) -> bool {
        for _ in 0..MAX_ORDERS {
            if connection.is_closing || connection.is_leaving {
                return false;
            }
            let Poll::Ready(order) = orders.poll_recv(cx) else { return false };
            match order {
                Some(Order::Send(request)) => {
                    if let Some(watch) = &request.watch {
                        self.watches.request_sent(watch);
                    }
                    let call = Call::Request(request.watch, request.reply);
                    self.call(connection, request.message, call);
                }
                Some(Order::Unwatch(id)) => {
                    let removal = self.watches.unwatch(id);
                    self.remove(connection, removal);
                }
                None => {
                    self.call(connection, Message::new(op::CLOSE_SESSION), Call::Ignored);
                    connection.is_closing = true;
                }
            }
        }
        true
    }

    pub(super) fn call(&mut self, connection: &mut ServerConnection, message: Message, call: Call) {
        // Negative numbers have another meaning.
        self.last_xid = self.last_xid.checked_add(1).unwrap_or(1);
        connection.call(self.last_xid, message, call);
    }

    fn remove(
        &mut self,
        connection: &mut ServerConnection,
        removals: impl IntoIterator<Item = Removal>,
    ) {
        for (path, removes) in removals {
            let mut message = Message::new(op::REMOVE_WATCHES);
            message.body().text(&path).int(removes as i32);
            self.call(connection, message, Call::Ignored);
        }
    }

    fn check_silence(
        &mut self,
        connection: &mut ServerConnection,
        is_more: bool,
    ) -> Result<(), ZkError> {
        let now = Instant::now();
        // Input that is not read yet may contain an answer.
        let end = self.silence_ends_at().filter(|_| !is_more);
        if end.is_some_and(|end| now >= end) {
            return Err(ZkError::Timeout);
        }
        if connection.unnumbered.pings == 0 && now >= self.last_sent + self.pause() {
            connection.ping();
            self.last_sent = now;
        }
        // The ping is not written yet: its deadline is checked later.
        let end = end.unwrap_or(now + self.pause());
        let ask = (connection.unnumbered.pings == 0).then(|| self.last_sent + self.pause());
        connection.timer.as_mut().reset(ask.map_or(end, |ask| ask.min(end)));
        Ok(())
    }

    fn receive(
        &mut self,
        connection: &mut ServerConnection,
        mut frame: Bytes,
    ) -> Result<(), ZkError> {
        // Netty's servers, as for TLS, may answer a login before they report the session.
        let is_login = frame.starts_with(&xid::AUTH.to_be_bytes());
        if !connection.is_connected && !is_login {
            return self.begin(connection, &frame);
        }
        let head = Head::take(&mut frame)?;
        let error = ZkError::of(head.code);
        if let Some(error @ (ZkError::SessionExpired | ZkError::AuthFailed)) = error {
            return Err(error);
        }
        let count = match head.xid {
            xid::EVENT => {
                match WatchedEvent::read(head.zxid, &frame)? {
                    Some(event) => {
                        let removal = self.watches.event(&event);
                        self.remove(connection, removal);
                    }
                    None if self.has_warned => {}
                    None => {
                        tracing::warn!(session = self.id, "events of an unknown kind are skipped");
                        self.has_warned = true;
                    }
                }
                return Ok(());
            }
            xid::PING => &mut connection.unnumbered.pings,
            xid::AUTH => &mut connection.unnumbered.logins,
            xid::SET_WATCHES => &mut connection.unnumbered.watches,
            number => {
                self.newest = self.newest.max(head.zxid);
                self.departure.saw(self.newest);
                let call = connection.answered(number)?;
                self.take_answer(connection, call, head.code, frame)?;
                return Ok(());
            }
        };
        *count = count.checked_sub(1).ok_or(ZkError::Malformed("an answer without a message"))?;
        // A busy server has rejected a login or watches: only the next connection repeats them.
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
        connection: &mut ServerConnection,
        call: Call,
        code: i32,
        body: Bytes,
    ) -> Result<(), ZkError> {
        match call {
            Call::Request(request, reply) => {
                let answered = request.map(|request| self.watches.answered(request, code));
                let (watch, removals) = answered.unwrap_or_default();
                let _delivered = reply.send(Ok(Reply { code, body, watch })).is_ok();
                self.remove(connection, removals);
            }
            #[cfg(feature = "sasl")]
            Call::Login => self.log_in(connection, &body)?,
            Call::Ignored => {}
        }
        Ok(())
    }

    /// Takes over the content of the first message of a connection.
    fn begin(&mut self, connection: &mut ServerConnection, frame: &[u8]) -> Result<(), ZkError> {
        let mut reading = Decoder::new(frame);
        let (_version, timeout, id) = (reading.int()?, reading.int()?, reading.long()?);
        if id == 0 || timeout <= 0 {
            return Err(ZkError::SessionExpired);
        }
        let password = reading.buffer()?.to_vec();
        if !reading.is_empty() && reading.flag()? {
            return Err(ZkError::NotReadOnly);
        }
        // A server that does not know the session opens another one, unless it is Apache's.
        if self.id != 0 && id != self.id {
            return Err(ZkError::SessionExpired);
        }
        self.departure.set_owner(id, &password);
        (self.id, self.password, self.is_resuming) = (id, password, false);
        self.granted.set(Duration::from_millis(timeout.unsigned_abs().into()));
        connection.is_connected = true;
        self.set_state(SessionState::SyncConnected);
        Ok(())
    }
}

/// Logs the reason for the loss of a connection.
pub(super) fn lost(error: &io::Error) -> ZkError {
    tracing::debug!(%error, "the connection failed");
    ZkError::ConnectionLoss
}

/// The state after a connection that ended with this error.
fn state_after(error: &ZkError) -> SessionState {
    match error {
        ZkError::SessionExpired => SessionState::Expired,
        ZkError::AuthFailed => SessionState::AuthFailed,
        ZkError::ClientClosed => SessionState::Closed,
        _ => SessionState::Disconnected,
    }
}

/// The state after a search for a server that ended with this error.
fn state_without_server(error: &ZkError) -> SessionState {
    match state_after(error) {
        SessionState::Disconnected => SessionState::Expired,
        state => state,
    }
}

#[cfg(test)]
mod tests;
