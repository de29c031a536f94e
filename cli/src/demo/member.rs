//! [`Member`]: a client that is in the group as long as its session lives.

use std::time::Duration;

use futures_util::future::try_join3;
use synod::path::Path;
use synod::store::{Event, Loss, Outcome, SessionId};
use synod::{Client, Connection, Lifetime, Query, Txn};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::demo::teller::Teller;
use crate::failure::Failure;

/// A member of the group.
#[derive(Debug)]
pub(crate) struct Member {
    name: &'static str,
    client: Client,
    group: Path,
    teller: Teller,
    called: Notify,
}

impl Member {
    pub(crate) fn new(name: &'static str, client: Client, group: Path, teller: Teller) -> Self {
        Self { name, client, group, teller, called: Notify::new() }
    }

    /// Makes the member join the group.
    pub(crate) fn come(&self) {
        self.called.notify_one();
    }

    /// Makes the member leave, and ends its tasks.
    pub(crate) async fn leave(&self) -> Result<(), Failure> {
        Ok(self.client.close().await?)
    }

    /// The member's current session.
    pub(crate) async fn session(&self) -> Result<SessionId, Failure> {
        Ok(self.client.session().await?.info().id)
    }

    /// Runs the member until it leaves.
    pub(crate) async fn live(&self) -> Result<(), Failure> {
        self.called.notified().await;
        try_join3(self.belong(), self.look(), self.listen()).await?;
        Ok(())
    }

    /// Stays in the group, with a new session after each that is lost.
    async fn belong(&self) -> Result<(), Failure> {
        // Ends when the client is closed, with an error.
        while let Ok(session) = self.client.session().await {
            let node = self.group.join(self.name)?;
            let mut waits = false;
            loop {
                let join = Txn::new().create(&node, "", Lifetime::Session);
                match session.commit(join).await {
                    Ok(Outcome::Committed(_)) => break self.tell("joins")?,
                    Ok(Outcome::Rejected(_)) if !waits => {
                        waits = true;
                        self.tell("waits: the node of its old session is not gone yet")?;
                    }
                    Ok(Outcome::Rejected(_)) => sleep(Duration::from_millis(20)).await,
                    Err(_) => break,
                }
            }
            match session.lost().await {
                Loss::Closed => self.tell("leaves")?,
                _ => self.tell("has lost its session, and all that hung on it")?,
            }
        }
        Ok(())
    }

    /// Watches the group.
    async fn look(&self) -> Result<(), Failure> {
        let group = Query::children(&self.group).names_only();
        let (mut view, mut watch) = self.client.watch(group.clone()).await?;
        let mut seen = Vec::new();
        loop {
            let names = view.nodes.iter().map(|node| node.path.name().to_owned());
            let names = names.collect::<Vec<_>>();
            if names != seen {
                self.teller.tell(self.name, "", Some(&names))?;
                seen = names;
            }
            let Some(Event::Changed(_) | Event::Resync) = watch.next().await else { return Ok(()) };
            // Events are hints only: the group is what the next read returns.
            if let Ok(now) = self.client.read(group.clone()).await {
                view = now;
            }
        }
    }

    /// Reports changes of the connection.
    async fn listen(&self) -> Result<(), Failure> {
        let mut state = self.client.state();
        let mut before = Connection::Connected;
        loop {
            let now = *state.borrow_and_update();
            match now {
                Connection::Suspended => {
                    self.tell("hears nothing from the store; what it holds is still its own")?;
                }
                Connection::Reconnected if before == Connection::Suspended => {
                    self.tell("is connected again, with the same session")?;
                }
                Connection::Closed => return Ok(()),
                _ => {}
            }
            before = now;
            if state.changed().await.is_err() {
                return Ok(());
            }
        }
    }

    fn tell(&self, what: &str) -> Result<(), Failure> {
        self.teller.tell(self.name, what, None)
    }
}
