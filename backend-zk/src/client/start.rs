//! How a session gets a connection: its first one, and the next after each that was lost.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio::task::unconstrained;
use tokio::time::{Instant, timeout_at};

use crate::client::event::SessionState;
use crate::client::identity::Identity;
use crate::client::jute::Encoder;
use crate::client::line::{Line, xid};
use crate::client::request::{Message, op};
use crate::client::servers::Server;
use crate::client::session::{Session, lost};
use crate::client::stream::connect;
use crate::client::zk_error::ZkError;

/// How many bytes of paths are sent in one message. Servers take a million.
const PATHS: usize = 128 * 1024;

/// The shortest share of an attempt: a server that works, and has much to do, may need as much.
const SHARE: Duration = Duration::from_millis(250);

impl Session {
    /// Connects to a server that has the session, or creates it there if there is none yet.
    pub(super) async fn start(&mut self) -> Result<Line, ZkError> {
        // The servers may have heard of this client later than it has heard of them.
        let timeout = self.granted.get();
        let end = self.heard + if self.id == 0 { timeout } else { timeout * 7 / 5 };
        loop {
            let limit = self.limit(end);
            let Some(server) = self.servers.next(limit, end).await else {
                return Err(if Instant::now() < end { ZkError::NoHosts } else { ZkError::Timeout });
            };
            match self.start_at(&server, self.limit(end)).await {
                Ok(line) => {
                    self.servers.connected(&server);
                    tracing::debug!(?server, session = self.id, "connected");
                    return Ok(line);
                }
                Err(error) => {
                    tracing::debug!(?server, %error, "no session at this server");
                    if error.ends_session() {
                        return Err(error);
                    }
                    self.turn(SessionState::Disconnected);
                    if Instant::now() >= end {
                        return Err(ZkError::Timeout);
                    }
                }
            }
        }
    }

    /// The end of an attempt: a server that accepts the connection and says nothing leaves an equal share of the time to each server
    /// that was not tried. Where that is very little, some servers have enough and the others nothing.
    fn limit(&self, end: Instant) -> Instant {
        let now = Instant::now();
        // Without an owner that is certain of the session, it is only created or closed.
        let left = self.certain.left().unwrap_or_else(|| end.saturating_duration_since(now));
        let servers = u32::try_from(self.servers.untried() + 1).unwrap_or(u32::MAX);
        let (silence, least) = (self.silence(), SHARE.max(self.granted.get() / 20));
        end.min(now + (left / servers).clamp(least.min(silence), silence))
    }

    async fn start_at(&mut self, server: &Server, limit: Instant) -> Result<Line, ZkError> {
        let connecting = timeout_at(limit, connect(server, self.encryption.as_ref()));
        let stream =
            connecting.await.map_err(|_late| ZkError::Timeout)?.map_err(|error| lost(&error))?;
        let mut line = Line::new(stream, self.max_answer);
        self.set_up(&mut line, limit).await?;
        Ok(line)
    }

    /// Has a server take the session over on a new connection, or create it, by this time; then logs in and sets watches again.
    async fn set_up(&mut self, line: &mut Line, limit: Instant) -> Result<(), ZkError> {
        (self.heard, self.said, self.asked) = (Instant::now(), Instant::now(), None);
        self.greet(line);
        match self.identity.clone() {
            Identity::Nobody => {}
            Identity::Digest(login) => {
                let mut message = Message::new(op::AUTH);
                message.body().int(0).text("digest").buffer(&login.plain());
                line.push(xid::AUTH, message);
                line.unnumbered.logins += 1;
            }
            #[cfg(feature = "sasl")]
            Identity::Sasl(_, _) => self.log_in_by_sasl(line, limit).await?,
        }
        self.watch_again(line);
        // A server that refuses sessions without a login does so when it gets a request. One that takes the session over and then
        // answers nothing is no server that was found.
        line.ping();
        self.taken_over(line, limit).await?;
        self.until(line, Line::is_idle).await
    }

    /// Waits for the answer to the greeting.
    async fn taken_over(&mut self, line: &mut Line, limit: Instant) -> Result<(), ZkError> {
        let connected = timeout_at(limit, self.until(line, |line| line.is_connected));
        connected.await.unwrap_or(Err(ZkError::Timeout))
    }

    /// Serves the connection until this holds of it.
    async fn until(
        &mut self,
        line: &mut Line,
        holds: impl Fn(&Line) -> bool,
    ) -> Result<(), ZkError> {
        unconstrained(poll_fn(|cx| match self.step(line, None, cx) {
            Err(error) => Poll::Ready(Err(error)),
            Ok(()) if holds(line) => Poll::Ready(Ok(())),
            Ok(()) => Poll::Pending,
        }))
        .await
    }

    fn greet(&self, line: &mut Line) {
        let mut greeting = Encoder::default();
        let timeout = i32::try_from(self.granted.get().as_millis()).unwrap_or(i32::MAX);
        // It is no use that a server lets this client read alone.
        greeting.int(0).long(self.newest).int(timeout).long(self.id);
        greeting.buffer(&self.password).flag(false);
        line.greet(&greeting.finish());
    }

    #[cfg(feature = "sasl")]
    async fn log_in_by_sasl(&mut self, line: &mut Line, limit: Instant) -> Result<(), ZkError> {
        self.login = crate::client::sasl::DigestMd5::default();
        self.push_token(line, &[]);
        self.taken_over(line, limit).await?;
        // Whatever else is sent before would have no identity.
        self.until(line, Line::is_idle).await
    }

    #[cfg(feature = "sasl")]
    fn push_token(&mut self, line: &mut Line, token: &[u8]) {
        let mut message = Message::new(op::SASL);
        message.body().buffer(token);
        self.call(line, message, crate::client::line::Call::Login);
    }

    /// Takes the next step of a login by SASL.
    #[cfg(feature = "sasl")]
    pub(super) fn log_in(&mut self, line: &mut Line, body: &[u8]) -> Result<(), ZkError> {
        use crate::client::jute::Decoder;
        use crate::client::sasl::Step;

        let Identity::Sasl(login, random) = &self.identity else { return Ok(()) };
        let step = self.login.step(login.parts(), Decoder::new(body).buffer()?, &random.id())?;
        match step {
            Step::Respond(token) => self.push_token(line, &token),
            Step::Done => {}
        }
        Ok(())
    }

    /// Watches for one event are set again. The server answers with those events that were missed.
    fn watch_again(&self, line: &mut Line) {
        let [data, absent, children] = self.watches.to_set_again();
        let kinds = [data, absent, children].into_iter().enumerate();
        let all = kinds.flat_map(|(kind, paths)| paths.into_iter().map(move |path| (kind, path)));
        let (mut parts, mut bytes) = ([vec![], vec![], vec![]], 0);
        for (kind, path) in all {
            if bytes + path.len() > PATHS {
                self.push_watches(line, &std::mem::take(&mut parts));
                bytes = 0;
            }
            bytes += path.len();
            parts[kind].push(path);
        }
        if bytes > 0 {
            self.push_watches(line, &parts);
        }
    }

    fn push_watches(&self, line: &mut Line, parts: &[Vec<&str>; 3]) {
        let mut message = Message::new(op::SET_WATCHES);
        message.body().long(self.newest);
        for paths in parts {
            message.body().texts(paths.iter().copied());
        }
        line.push(xid::SET_WATCHES, message);
        line.unnumbered.watches += 1;
    }
}

#[cfg(test)]
mod tests;
