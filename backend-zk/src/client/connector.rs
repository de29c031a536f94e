//! [`Connector`]: opens sessions.

use std::time::Duration;

use synod_core::random::Random;
use synod_core::store::{CurrentServer, ServerList};
use synod_core::task::spawn;
use tokio::sync::mpsc;

use crate::client::calls::Client;
use crate::client::departure::Credentials;
use crate::client::encryption::Encryption;
use crate::client::event::StateWatcher;
use crate::client::identity::{Identity, UserPassword};
use crate::client::outbox::Outbox;
use crate::client::request::Order;
use crate::client::servers::{Resolver, Servers};
use crate::client::session::Session;
use crate::client::watcher::Forget;
use crate::client::watches::Watches;
use crate::client::zk_error::ZkError;

/// The default of the maximum length of an answer.
pub(crate) const MAX_ANSWER: usize = 1 << 28;

/// The servers of a session, and the identity with which it is opened.
#[derive(Debug)]
pub(crate) struct Connector {
    /// Each `host:port`.
    pub(crate) servers: ServerList,
    pub(crate) identity: Identity,
    /// Further identities of the session.
    pub(crate) identities: Vec<UserPassword>,
    pub(crate) encryption: Option<Encryption>,
    /// The time to live that is requested.
    pub(crate) timeout: Duration,
    /// The maximum length of an answer.
    pub(crate) max_answer: usize,
    /// Set at each connection.
    pub(crate) server: CurrentServer,
    /// The session to continue; `None` opens one.
    pub(crate) resume: Option<Credentials>,
}

impl Connector {
    /// Opens or continues a session at the first server that accepts this client. Each address of
    /// each host is tried once.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may leave a session at the servers, which expires.
    pub(crate) async fn connect(self) -> Result<Client, ZkError> {
        let (sender, orders) = mpsc::unbounded_channel();
        let servers = Servers::new(&self.servers, Resolver::of_system(), Random::from_system());
        let weak = sender.downgrade();
        let forget = Forget::new(move |watcher| {
            if let Some(orders) = weak.upgrade() {
                // Without the task there is no watch.
                let _sent = orders.send(Order::Unwatch(watcher)).is_ok();
            }
        });
        let parts = (servers, Watches::new(forget));
        let mut session = Session::new(parts, self.identity, self.encryption, self.timeout);
        session.identities = self.identities;
        session.max_answer = self.max_answer;
        session.server = self.server;
        if let Some(credentials) = self.resume {
            session.resume(credentials);
        }
        let connection = session.start().await?;
        let states = StateWatcher::new(session.states());
        let times = (session.granted(), session.certain());
        let client = Client::new(Outbox::new(sender, states), session.id(), times)
            .departing(session.departure.clone());
        // The task ends when the client is dropped, or when the session is over.
        spawn(session.run(connection, orders)).let_go();
        Ok(client)
    }
}
