//! How a session gets a connection: its first one, and the next after each that was lost.

use std::future::poll_fn;
use std::task::Poll;

use tokio::time::{Instant, timeout_at};

use crate::client::event::SessionState;
use crate::client::identity::Identity;
use crate::client::jute::Encoder;
use crate::client::line::{Line, xid};
use crate::client::request::{Message, op};
use crate::client::session::{Session, lost};
use crate::client::stream::connect;
use crate::client::zk_error::ZkError;

/// How many bytes of paths are sent in one message. Servers take a million.
const PATHS: usize = 128 * 1024;

impl Session {
    /// Connects to a server that has the session, or creates it there if there is none yet.
    pub(super) async fn start(&mut self) -> Result<Line, ZkError> {
        // The servers may have heard of this client later than it has heard of them.
        let timeout = self.granted.get();
        let end = self.heard + if self.id == 0 { timeout } else { timeout * 7 / 5 };
        loop {
            let Some(host) = self.servers.next(end).await else { return Err(ZkError::NoHosts) };
            match self.start_at(&host, end).await {
                Ok(line) => {
                    self.servers.connected();
                    tracing::debug!(%host, session = self.id, "connected");
                    return Ok(line);
                }
                Err(error) => {
                    tracing::debug!(%host, %error, "no session at this server");
                    if error.ends_session() {
                        return Err(error);
                    }
                    self.turn(SessionState::Disconnected);
                    self.watches.disconnected();
                    if Instant::now() >= end {
                        return Err(ZkError::Timeout);
                    }
                }
            }
        }
    }

    async fn start_at(&mut self, host: &str, end: Instant) -> Result<Line, ZkError> {
        let end = end.min(Instant::now() + self.silence());
        let connecting = timeout_at(end, connect(host, self.encryption.as_ref()));
        let stream =
            connecting.await.map_err(|_late| ZkError::Timeout)?.map_err(|error| lost(&error))?;
        let mut line = Line::new(stream);
        (self.heard, self.said, self.asked) = (Instant::now(), Instant::now(), None);
        self.greet(&mut line);
        match self.identity.clone() {
            Identity::Nobody => {}
            Identity::Digest(login) => {
                let mut message = Message::new(op::AUTH);
                message.body().int(0).text("digest").buffer(&login.plain());
                line.push(xid::AUTH, message);
                line.unnumbered.logins += 1;
            }
            #[cfg(feature = "sasl")]
            Identity::Sasl(_, _) => self.log_in_by_sasl(&mut line).await?,
        }
        self.watch_again(&mut line);
        // A server that refuses sessions without a login does so when it gets a request.
        line.ping();
        self.until(&mut line, |line| line.is_connected && line.is_idle()).await?;
        Ok(line)
    }

    /// Serves the connection until this holds of it.
    async fn until(
        &mut self,
        line: &mut Line,
        holds: impl Fn(&Line) -> bool,
    ) -> Result<(), ZkError> {
        poll_fn(|cx| match self.step(line, None, cx) {
            Err(error) => Poll::Ready(Err(error)),
            Ok(()) if holds(line) => Poll::Ready(Ok(())),
            Ok(()) => Poll::Pending,
        })
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
    async fn log_in_by_sasl(&mut self, line: &mut Line) -> Result<(), ZkError> {
        self.login = crate::client::sasl::DigestMd5::default();
        self.push_token(line, &[]);
        // Whatever else is sent before would have no identity.
        self.until(line, |line| line.is_connected && line.is_idle()).await
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

        let Identity::Sasl(login, chance) = &self.identity else { return Ok(()) };
        let step = self.login.step(login.parts(), Decoder::new(body).buffer()?, &chance.id())?;
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
mod tests {
    use std::time::Duration;

    use synod_core::chance::Chance;

    use super::*;
    use crate::client::servers::Servers;
    use crate::client::watcher::Forget;
    use crate::client::watches::Watches;

    const TTL: Duration = Duration::from_secs(10);

    /// The servers may count the session's time from later on than this client does.
    #[tokio::test(start_paused = true)]
    async fn a_server_is_looked_for_until_the_session_is_over_everywhere() {
        // Nothing listens there.
        let servers = Servers::new(vec!["127.0.0.1:1".to_owned()], Chance::seeded(7));
        let parts = (servers, Watches::new(Forget::new(|_| {})));
        let mut session = Session::new(parts, Identity::Nobody, None, TTL);
        let began = Instant::now();
        assert_eq!(session.start().await.err(), Some(ZkError::NoHosts), "each is asked once");
        assert!(began.elapsed() < TTL / 2);

        (session.id, session.heard) = (7, Instant::now());
        session.servers.repeat();
        let began = Instant::now();
        assert_eq!(session.start().await.err(), Some(ZkError::Timeout));
        let searched = began.elapsed();
        assert!((TTL * 7 / 5..TTL * 3 / 2).contains(&searched), "{searched:?}");
    }
}
