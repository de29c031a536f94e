//! [`LastingTask`]: keeps a node with a time to live, by writing it before its time is over.
//!
//! - **Its incarnation says whose the node is.** No session owns it. The task knows the revision of each of its creates, also where the
//!   answer was lost ([`LastingCreate`]), and the node at the path is its own if it was created then. It writes and removes no other, unless it
//!   was asked to take over.
//! - **Sessions do not matter to the node.** The task reads, writes and watches by the client, in whatever session.
//! - **What is in doubt ends by itself.** A create whose effect stays unknown makes a node that goes when its time
//!   is over. The end of the task then says that its effect is unknown.

use std::sync::Arc;
use std::time::Duration;

use synod_core::client::Client;
use synod_core::clock::{self, sleep};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::session::Session;
use synod_core::store::{
    Expect, Lifetime, OpResult, Outcome, Query, RejectReason, Revision, Stat, Txn,
};

use crate::keeper::asked::Asked;
use crate::keeper::doubts::Doubts;
use crate::keeper::failures::{
    DOING, OTHER_CLIENT, closed, in_doubt, is_about_data, nothing_is_below, refused,
};
use crate::keeper::keeping::Keeping;
use crate::keeper::kept::Cause;
use crate::keeper::occupant::Occupied;
use crate::keeper::page::KeeperPage;
use crate::mutant::mistake;
use crate::persistent_node::lasting_create::{Creation, LastingCreate};
use crate::persistent_node::lasting_node::LastingNode;

/// Makes a node with a time to live, and writes it again and again.
pub(super) struct LastingTask {
    client: Client,
    path: Path,
    /// Where the marks of its creates are.
    marks: Path,
    ttl: Duration,
    occupied: Occupied,
    page: Arc<KeeperPage>,
    node: Option<LastingNode>,
    doubts: Doubts,
    /// When the last node that it has made was created.
    last: Option<Revision>,
}

/// The shortest time to live. The task writes its node three times in it, and waits for the answers.
const SHORTEST: Duration = Duration::from_millis(100);

impl LastingTask {
    pub(super) fn new(
        client: &Client,
        path: &Path,
        ttl: Duration,
        occupied: Occupied,
        page: Arc<KeeperPage>,
    ) -> Result<Self> {
        if ttl < SHORTEST {
            return Err(Error::new(ErrorKind::Invalid, DOING)
                .at(path)
                .because(format!("a time to live that is kept is at least {SHORTEST:?}")));
        }
        let marks = Path::new(&format!("{path}.synod"))?;
        let (client, path, doubts) = (client.clone(), path.clone(), Doubts::default());
        Ok(Self { client, path, marks, ttl, occupied, page, node: None, doubts, last: None })
    }

    /// Creates the node.
    async fn make(&mut self, asked: &mut Asked) -> Result<()> {
        let Some(session) = asked.or(self.client.session()).await else { return Ok(()) };
        let session = session?;
        self.doubts.forget_ended(&self.client, &session).await;
        let (wanted, sent) = (self.page.wanted(), clock::now());
        let create = LastingCreate { client: &self.client, path: &self.path, marks: &self.marks };
        let made = create.send(&session, wanted.data.clone(), Lifetime::Ttl(self.ttl)).await;
        match made {
            Ok(Creation::Created(stat)) => {
                self.page.is_stored(&wanted);
                self.keeps(self.node(stat).written(sent, &wanted));
                Ok(())
            }
            Ok(Creation::Rejected(no)) if no.reason == RejectReason::Exists => {
                self.meets(&session, asked).await
            }
            Ok(Creation::Rejected(no)) => Err(refused(&self.path, no.reason.to_string())),
            Ok(Creation::Nothing) => {
                asked.pause(&self.client).await;
                Ok(())
            }
            Err(error) => {
                if error.has_unknown_effect() {
                    self.doubts.add(&session);
                }
                // The node can be made with the data before it.
                if is_about_data(&error) && self.page.record_refused(wanted.number, &error) {
                    return Ok(());
                }
                Err(error)
            }
        }
    }
    /// Goes on where there is a node already.
    async fn meets(&mut self, session: &Session, asked: &mut Asked) -> Result<()> {
        let found = session.read(Query::node(&self.path)).await?.into_node();
        let Some(stat) = found.as_ref().and_then(|node| node.stat) else {
            nothing_is_below(session, &self.path).await?;
            asked.pause(&self.client).await;
            return Ok(());
        };
        let is_own = self.last == Some(stat.created);
        mistake!(SameDataIsOwn: let is_own = found.is_some_and(|it| it.data == self.page.wanted().data));
        if is_own {
            self.keeps(self.node(stat));
            return Ok(());
        }
        if self.occupied == Occupied::Refuse {
            return Err(refused(&self.path, OTHER_CLIENT));
        }
        let txn = Txn::new().delete(&self.path, Expect::Version(stat.version));
        match session.commit(txn).await? {
            Outcome::Rejected(no) if no.reason == RejectReason::HasChildren => {
                Err(refused(&self.path, no.reason.to_string()))
            }
            // Whatever became of it, the next create finds out.
            _ => Ok(()),
        }
    }

    fn node(&self, stat: Stat) -> LastingNode {
        LastingNode::new(&self.client, &self.path, self.ttl, stat)
    }

    fn keeps(&mut self, node: LastingNode) {
        self.last = Some(node.stat.created);
        self.page.is_made(node.stat.created, node.lasts());
        self.node = Some(node);
    }

    /// Reads the node, and goes on watching it.
    async fn look(&mut self, asked: &mut Asked) -> Result<()> {
        let Some(node) = &mut self.node else { return Ok(()) };
        let wanted = self.page.wanted();
        if !node.look(&wanted).await? {
            self.lost();
        } else if node.stored == wanted.number {
            self.page.is_stored(&wanted);
        } else {
            asked.contend(&self.client).await;
        }
        Ok(())
    }

    /// Writes the data that is wanted, which begins the time of the node anew.
    async fn write(&mut self, asked: &mut Asked) -> Result<()> {
        let Some(node) = &mut self.node else { return Ok(()) };
        let wanted = self.page.wanted();
        let is_stored = node.stored == wanted.number;
        match node.write(&wanted).await {
            Ok(true) => {
                self.page.is_stored(&wanted);
                self.page.lasts(node.lasts());
            }
            Ok(false) => asked.contend(&self.client).await,
            // It may be written, or be written later: the node is read again, and written again if need be.
            Err(error) if error.kind().is_outage() || error.has_unknown_effect() || is_stored => {
                return Err(error);
            }
            Err(error) => {
                let _other = self.page.record_refused(wanted.number, &error);
            }
        }
        Ok(())
    }

    /// Waits until something happens to the node or to the data that is wanted, or until it is to be written.
    async fn stay(&mut self, asked: &mut Asked) {
        let Some(node) = &mut self.node else { return };
        match asked.or(node.cause(&self.page)).await {
            Some(Cause::Changed) => node.may_have_changed(),
            Some(Cause::Outage | Cause::Lost) => {
                node.may_have_changed();
                mistake!(LastingMadeAnew: {
                    let _gone = self.removes().await;
                    self.lost();
                });
                asked.pause(&self.client).await;
            }
            None | Some(Cause::Wanted) => {}
        }
    }

    /// Records that the node is gone.
    fn lost(&mut self) {
        self.node = None;
        self.page.is_gone();
    }

    /// Removes what it has made, if it is there.
    async fn removes(&mut self) -> Result<()> {
        let Some(last) = self.last else { return Ok(()) };
        let mut delays = Retry::until_elapsed(self.client.timeout()).delays(self.client.random());
        loop {
            let Err(error) = self.remove(last).await else { return Ok(()) };
            if !self.client.is_transient(&error) {
                return Err(error);
            }
            let Some(delay) = delays.next() else { return Err(error.with_unknown_effect()) };
            sleep(delay).await;
        }
    }

    /// Removes the node that was created then, in the session that lives now.
    async fn remove(&mut self, created: Revision) -> Result<()> {
        let session = self.client.session().await?;
        let node = session.read(Query::node(&self.path)).await?.into_node();
        let Some(stat) = node.and_then(|node| node.stat).filter(|stat| stat.created == created)
        else {
            return Ok(());
        };
        session.remove(&OpResult::new(self.path.clone()).with_stat(stat)).await
    }
}

impl Keeping for LastingTask {
    async fn turn(&mut self, asked: &mut Asked) -> Result<()> {
        let Some(node) = &self.node else { return Box::pin(self.make(asked)).await };
        let is_right = !node.is_due() && node.stored == self.page.wanted().number;
        if !node.is_known() {
            Box::pin(self.look(asked)).await?;
            if self.node.is_none() {
                asked.pause(&self.client).await;
            }
        } else if is_right {
            self.stay(asked).await;
        } else {
            Box::pin(self.write(asked)).await?;
        }
        Ok(())
    }

    fn has_node(&self) -> bool {
        self.node.is_some()
    }

    fn was_made(&mut self) {
        self.occupied = Occupied::Refuse;
    }

    /// What an unanswered create makes goes when its time is over.
    async fn leave(mut self) -> Result<()> {
        mistake!(CloseForgetsNode: return Ok(()));
        if self.client.is_closed() {
            let nothing = self.last.is_none();
            return if nothing {
                Ok(())
            } else {
                Err(closed(DOING, &self.path).with_unknown_effect())
            };
        }
        self.removes().await?;
        if self.doubts.settle().await.is_empty() {
            return Ok(());
        }
        Err(in_doubt(&self.path, "goes when its time is over"))
    }
}
