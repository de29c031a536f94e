//! [`Connector`]: opens sessions.

use std::fmt;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use synod_core::chance::Chance;
use synod_core::task::spawn;
use tokio::sync::mpsc;

use crate::client::calls::Client;
use crate::client::event::StateWatcher;
use crate::client::servers::Servers;
use crate::client::session::Session;
pub(crate) use crate::client::stream::Encryption;
use crate::client::zk_error::ZkError;

/// Where a session is opened, and as whom.
#[derive(Debug)]
pub(crate) struct Connector {
    /// Each `host:port`.
    pub(crate) hosts: Vec<String>,
    pub(crate) identity: Identity,
    pub(crate) encryption: Option<Encryption>,
    /// The time to live that is requested.
    pub(crate) timeout: Duration,
}

/// Who a client is to the servers.
#[derive(Clone, Debug)]
pub(crate) enum Identity {
    Nobody,
    /// User and password in plain text.
    Digest(UserPassword),
    /// By SASL, with a source of numbers that are never used again.
    #[cfg(feature = "sasl")]
    Sasl(UserPassword, Chance),
}

/// `Debug` hides the password.
#[derive(Clone)]
pub(crate) struct UserPassword(pub(crate) String, pub(crate) SecretString);

impl UserPassword {
    pub(super) fn plain(&self) -> Vec<u8> {
        let Self(user, password) = self;
        format!("{user}:{}", password.expose_secret()).into_bytes()
    }

    #[cfg(feature = "sasl")]
    pub(super) fn parts(&self) -> (&str, &str) {
        (&self.0, self.1.expose_secret())
    }
}

impl Connector {
    /// Opens a session at the first server that lets this client in. Each is tried once.
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves a session that a server may have created, which expires.
    pub(crate) async fn connect(self) -> Result<Client, ZkError> {
        let (sender, orders) = mpsc::unbounded_channel();
        let servers = Servers::new(self.hosts, Chance::from_system());
        let weak = sender.downgrade();
        let mut session = Session::new(servers, self.identity, self.encryption, self.timeout, weak);
        let line = session.start().await?;
        let states = StateWatcher::new(session.states());
        let client = Client::new(sender, session.id(), session.granted(), states);
        // It ends when the client is dropped, or the session is over.
        spawn(session.run(line, orders)).let_go();
        Ok(client)
    }
}

impl fmt::Debug for UserPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UserPassword").field(&self.0).finish_non_exhaustive()
    }
}
