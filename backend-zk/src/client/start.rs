//! The connections of a session: its first one, and the next after each that was lost.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio::task::unconstrained;
use tokio::time::{Instant, timeout_at};

use crate::client::event::SessionState;
use crate::client::identity::{Identity, UserPassword};
use crate::client::jute::Encoder;
use crate::client::request::{Message, op};
use crate::client::server_connection::{ServerConnection, xid};
use crate::client::servers::Server;
use crate::client::session::{Session, lost};
use crate::client::stream::connect;
use crate::client::zk_error::ZkError;

/// The maximum number of bytes of paths in one message. Servers accept a million.
const MAX_PATH_BYTES: usize = 128 * 1024;

/// The minimum share of an attempt: a busy server may need as much.
const MIN_SHARE: Duration = Duration::from_millis(250);

impl Session {
    /// Connects to a server that accepts the session, or creates it there if there is none yet.
    pub(super) async fn start(&mut self) -> Result<ServerConnection, ZkError> {
        // The servers may have received the last message of this client after the client received
        // their last message.
        let timeout = self.granted.get();
        let end = self.last_received + if self.id == 0 { timeout } else { timeout * 7 / 5 };
        loop {
            let limit = self.limit(end);
            let Some(server) = self.servers.next(limit, end).await else {
                return Err(if Instant::now() < end { ZkError::NoHosts } else { ZkError::Timeout });
            };
            match self.start_at(&server, self.limit(end)).await {
                Ok(connection) => {
                    self.servers.connected(&server);
                    self.server.set(server.to_string());
                    tracing::debug!(?server, session = self.id, "connected");
                    return Ok(connection);
                }
                Err(error) => {
                    tracing::debug!(?server, %error, "no session at this server");
                    // A session that is resumed is unknown to any server of another ensemble, too.
                    let is_final = self.is_resuming || self.servers.is_proven(&server);
                    if error.ends_session() && is_final {
                        return Err(error);
                    }
                    self.set_state(SessionState::Disconnected);
                    if Instant::now() >= end {
                        return Err(ZkError::Timeout);
                    }
                }
            }
        }
    }

    /// The end of an attempt: a server that accepts the connection and stays silent leaves an equal
    /// share of the time to each server that was not tried. If the shares would be very short, some
    /// servers get enough time and the others none.
    fn limit(&self, end: Instant) -> Instant {
        let now = Instant::now();
        // Without an owner that is certain of the session, the session is only created or closed.
        let left = self.certain.left().unwrap_or_else(|| end.saturating_duration_since(now));
        let servers = u32::try_from(self.servers.untried() + 1).unwrap_or(u32::MAX);
        let (silence, least) = (self.silence(), MIN_SHARE.max(self.granted.get() / 20));
        end.min(now + (left / servers).clamp(least.min(silence), silence))
    }

    async fn start_at(
        &mut self,
        server: &Server,
        limit: Instant,
    ) -> Result<ServerConnection, ZkError> {
        let connecting = timeout_at(limit, connect(server, self.encryption.as_ref()));
        let stream =
            connecting.await.map_err(|_late| ZkError::Timeout)?.map_err(|error| lost(&error))?;
        let mut connection = ServerConnection::new(stream, self.max_answer);
        self.set_up(&mut connection, limit).await?;
        Ok(connection)
    }

    /// Moves the session to a new connection, or creates it there, before `limit`; then logs in and
    /// sets the watches again.
    async fn set_up(
        &mut self,
        connection: &mut ServerConnection,
        limit: Instant,
    ) -> Result<(), ZkError> {
        (self.last_received, self.last_sent, self.unanswered_since) =
            (Instant::now(), Instant::now(), None);
        self.greet(connection);
        match self.identity.clone() {
            Identity::Nobody => {}
            Identity::Digest(login) => push_login(connection, &login),
            #[cfg(feature = "sasl")]
            Identity::Sasl(_, _) => self.log_in_by_sasl(connection, limit).await?,
        }
        for login in &self.identities {
            push_login(connection, login);
        }
        self.watch_again(connection);
        // A server that rejects sessions without a login does so at the first request. A server
        // counts as found only after it has answered a request.
        connection.ping();
        self.taken_over(connection, limit).await?;
        self.until(connection, ServerConnection::is_idle).await
    }

    /// Waits for the answer to the greeting.
    async fn taken_over(
        &mut self,
        connection: &mut ServerConnection,
        limit: Instant,
    ) -> Result<(), ZkError> {
        let connected =
            timeout_at(limit, self.until(connection, |connection| connection.is_connected));
        connected.await.unwrap_or(Err(ZkError::Timeout))
    }

    /// Serves the connection until the condition holds.
    async fn until(
        &mut self,
        connection: &mut ServerConnection,
        holds: impl Fn(&ServerConnection) -> bool,
    ) -> Result<(), ZkError> {
        unconstrained(poll_fn(|cx| match self.step(connection, None, cx) {
            Err(error) => Poll::Ready(Err(error)),
            Ok(()) if holds(connection) => Poll::Ready(Ok(())),
            Ok(()) => Poll::Pending,
        }))
        .await
    }

    fn greet(&self, connection: &mut ServerConnection) {
        let mut greeting = Encoder::default();
        let timeout = i32::try_from(self.granted.get().as_millis()).unwrap_or(i32::MAX);
        // This client never accepts a server that allows only reads.
        greeting.int(0).long(self.newest).int(timeout).long(self.id);
        greeting.buffer(&self.password).flag(false);
        connection.greet(&greeting.finish());
    }

    #[cfg(feature = "sasl")]
    async fn log_in_by_sasl(
        &mut self,
        connection: &mut ServerConnection,
        limit: Instant,
    ) -> Result<(), ZkError> {
        self.login = crate::client::sasl::DigestMd5::default();
        self.taken_over(connection, limit).await?;
        self.push_token(connection, &[]);
        // Any earlier request would have no identity.
        self.until(connection, ServerConnection::is_idle).await
    }

    #[cfg(feature = "sasl")]
    fn push_token(&mut self, connection: &mut ServerConnection, token: &[u8]) {
        let mut message = Message::new(op::SASL);
        message.body().buffer(token);
        self.call(connection, message, crate::client::server_connection::Call::Login);
    }

    /// Takes the next step of a login by SASL.
    #[cfg(feature = "sasl")]
    pub(super) fn log_in(
        &mut self,
        connection: &mut ServerConnection,
        body: &[u8],
    ) -> Result<(), ZkError> {
        use crate::client::jute::Decoder;
        use crate::client::sasl::Step;

        let Identity::Sasl(login, random) = &self.identity else { return Ok(()) };
        let step = self.login.step(login.parts(), Decoder::new(body).buffer()?, &random.id())?;
        match step {
            Step::Respond(token) => self.push_token(connection, &token),
            Step::Done => {}
        }
        Ok(())
    }

    /// Sets watches for one event again. The server answers with the events that were missed.
    fn watch_again(&self, connection: &mut ServerConnection) {
        let [data, absent, children] = self.watches.paths_to_set();
        let kinds = [data, absent, children].into_iter().enumerate();
        let all = kinds.flat_map(|(kind, paths)| paths.into_iter().map(move |path| (kind, path)));
        let (mut parts, mut bytes) = ([vec![], vec![], vec![]], 0);
        for (kind, path) in all {
            if bytes + path.len() > MAX_PATH_BYTES {
                self.push_watches(connection, &std::mem::take(&mut parts));
                bytes = 0;
            }
            bytes += path.len();
            parts[kind].push(path);
        }
        if bytes > 0 {
            self.push_watches(connection, &parts);
        }
    }

    fn push_watches(&self, connection: &mut ServerConnection, parts: &[Vec<&str>; 3]) {
        let mut message = Message::new(op::SET_WATCHES);
        message.body().long(self.newest);
        for paths in parts {
            message.body().texts(paths.iter().copied());
        }
        connection.push(xid::SET_WATCHES, message);
        connection.unnumbered.watches += 1;
    }
}

fn push_login(connection: &mut ServerConnection, login: &UserPassword) {
    let mut message = Message::new(op::AUTH);
    message.body().int(0).text("digest").buffer(&login.plain());
    connection.push(xid::AUTH, message);
    connection.unnumbered.logins += 1;
}

#[cfg(test)]
mod tests;
