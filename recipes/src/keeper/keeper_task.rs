//! [`KeeperTask`]: makes the node of a keeper, again and again, and removes it in the end.

use std::sync::{Arc, Weak};

use synod_core::client::Client;
use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::session::Session;
use synod_core::store::{
    Commit, Expect, Lifetime, Node, Outcome, Query, RejectReason, Revision, SessionId, Stat, Txn,
};

use crate::keeper::asked::Asked;
use crate::keeper::doubts::Doubts;
use crate::keeper::failures::{
    DOING, OTHER_CLIENT, OTHER_OWNER, in_doubt, is_about_data, nothing_is_below, refused,
};
use crate::keeper::keeping::Keeping;
use crate::keeper::kept::{Cause, Kept, Shown};
use crate::keeper::occupant::{Mine, Occupant, Occupied};
use crate::keeper::own_nodes::OwnNodes;
use crate::keeper::page::{KeeperPage, Lasts};
use crate::mutant::mistake;

/// How many of its last sessions a keeper knows.
const SESSIONS: usize = 16;

/// The number of times that a keeper waits for the removal of a node by an owner of its session that has given it up.
const WAITS: u32 = 16;

/// Makes and watches the node of a keeper.
pub(super) struct KeeperTask {
    client: Client,
    path: Path,
    occupied: Occupied,
    page: Arc<KeeperPage>,
    /// The owner, as long as it wants the node.
    owner: Weak<()>,
    kept: Option<Kept>,
    doubts: Doubts,
    /// The sessions in which it has sent a create.
    sessions: Vec<SessionId>,
    /// The last node that it had.
    last: Option<Revision>,
    /// The number of times that it still waits for the removal of a node by the owner that has given it up.
    waits_left: u32,
}

impl KeeperTask {
    pub(super) fn new(
        client: &Client,
        path: &Path,
        occupied: Occupied,
        page: Arc<KeeperPage>,
        owner: Weak<()>,
    ) -> Self {
        let (client, path) = (client.clone(), path.clone());
        let (doubts, sessions, waits_left) = (Doubts::default(), Vec::new(), WAITS);
        let (kept, last) = (None, None);
        Self { client, path, occupied, page, owner, kept, doubts, sessions, last, waits_left }
    }

    /// Waits until something happens to the node, to its session, or to the data that is wanted.
    async fn stay(&mut self, asked: &mut Asked) -> Result<()> {
        let Some(kept) = &mut self.kept else { return Ok(()) };
        match asked.or(kept.cause(&self.page)).await {
            None | Some(Cause::Wanted) => {}
            Some(Cause::Lost) => {
                self.lost();
                asked.pause(&self.client).await;
            }
            Some(Cause::Changed) => kept.is_read = false,
            Some(Cause::Outage) => {
                kept.is_read = false;
                self.doubts.record_outage();
                asked.pause(&self.client).await;
            }
        }
        Ok(())
    }

    /// Creates the node in the session that lives now.
    async fn make(&mut self, asked: &mut Asked) -> Result<()> {
        let Some(session) = asked.or(self.client.session()).await else { return Ok(()) };
        let session = session?;
        self.doubts.forget_ended(&self.client, &session).await;
        self.enters(session.info().id);
        let wanted = self.page.wanted();
        let txn = Txn::new().create(&self.path, wanted.data.clone(), Lifetime::Session);
        // Until its answer is recorded, no job of the session takes the node for one that came late.
        let own = session.local::<OwnNodes>();
        let _under_way = own.making(&self.path);
        match session.commit_tracked(txn).await {
            Ok((Outcome::Committed(commit), requests)) => {
                if !requests.is_settled() {
                    self.doubts.add(&session);
                }
                let stat = stat_of(commit)?;
                // The one that made it is not in doubt; another one may be.
                own.add(stat.created, &self.owner);
                self.page.is_stored(&wanted);
                self.keeps(Kept::new(&session, &self.path, stat, wanted.number));
                Ok(())
            }
            Ok((Outcome::Rejected(no), _)) if no.reason == RejectReason::Exists => {
                self.meets(&session, asked).await
            }
            Ok((Outcome::Rejected(no), _)) => Err(self.refused(no.reason.to_string())),
            Err(error) => {
                if error.has_unknown_effect() {
                    self.doubts.add(&session);
                }
                mistake!(CreateInDoubtForgotten: self.doubts = Doubts::default());
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
        let node = session.read(Query::node(&self.path)).await?.into_node();
        let id = session.info().id;
        let before: Vec<_> = self.sessions.iter().copied().filter(|it| *it != id).collect();
        let mine = Mine { session: id, in_doubt: self.doubts.has(id), before: &before };
        let found = Occupant::of(node.as_ref(), mine);
        mistake!(ExistsIsMade: let found = {
            node.as_ref().and_then(|node| node.stat).map_or(found, Occupant::Own)
        });
        match found {
            Occupant::Own(stat) => return self.adopts(session, node.as_ref(), stat),
            Occupant::Remnant(stat) => {
                self.meets_own(&stat);
                self.removes(session, Expect::Version(stat.version)).await?;
            }
            // Another owner of this client has just given it up, or may not have it yet.
            Occupant::Foreign(stat) if self.waits_left > 0 && self.may_go(session, &stat) => {
                self.waits_left -= 1;
                asked.pause(&self.client).await;
            }
            // Its owner cannot remove it: the runtime has ended.
            Occupant::Foreign(stat) if is_given_up(session, &stat) => {
                self.removes(session, Expect::Version(stat.version)).await?;
            }
            Occupant::Foreign(stat) if self.occupied == Occupied::TakeOver => {
                self.removes(session, Expect::Version(stat.version)).await?;
            }
            Occupant::Foreign(stat) => {
                let whose = if stat.owner == Some(id) { OTHER_OWNER } else { OTHER_CLIENT };
                return Err(self.refused(whose.to_owned()));
            }
            Occupant::Nothing => {
                nothing_is_below(session, &self.path).await?;
                asked.pause(&self.client).await;
            }
        }
        Ok(())
    }

    /// True if a node is one of this session that may be about to go.
    fn may_go(&self, session: &Session, stat: &Stat) -> bool {
        let is_own = stat.owner == Some(session.info().id);
        is_own && session.local::<OwnNodes>().may_go(&self.path, stat.created)
    }

    /// Takes the node of an earlier request for its own.
    fn adopts(&mut self, session: &Session, node: Option<&Node>, stat: Stat) -> Result<()> {
        if !session.local::<OwnNodes>().add(stat.created, &self.owner) {
            return Err(self.refused(OTHER_OWNER.to_owned()));
        }
        self.doubts.was_seen(session.info().id);
        let wanted = self.page.wanted();
        let is_stored = node.is_some_and(|node| node.data == wanted.data);
        if is_stored {
            self.page.is_stored(&wanted);
        }
        let stored = if is_stored { wanted.number } else { 0 };
        self.keeps(Kept::new(session, &self.path, stat, stored));
        Ok(())
    }

    fn keeps(&mut self, kept: Kept) {
        self.waits_left = WAITS;
        self.last = Some(kept.stat.created);
        self.page.is_made(kept.stat.created, Lasts::Session(kept.session.clone()));
        self.kept = Some(kept);
    }

    /// Reads the node, and goes on watching it.
    async fn look(&mut self, asked: &mut Asked) -> Result<()> {
        let Some(kept) = &mut self.kept else { return Ok(()) };
        let wanted = self.page.wanted();
        match kept.look(&self.path, &wanted).await? {
            Shown::Stored => self.page.is_stored(&wanted),
            Shown::Other => asked.contend(&self.client).await,
            Shown::Gone => self.lost(),
        }
        Ok(())
    }

    /// Writes the data that is wanted.
    async fn store(&mut self, asked: &mut Asked) -> Result<()> {
        let Some(kept) = &mut self.kept else { return Ok(()) };
        let wanted = self.page.wanted();
        match kept.store(&self.path, &wanted).await {
            Ok(true) => self.page.is_stored(&wanted),
            Ok(false) => asked.contend(&self.client).await,
            // It may be stored, or be stored later: the node is read again, and written again if need be.
            Err(error) if error.kind().is_outage() || error.has_unknown_effect() => {
                return Err(error);
            }
            Err(error) => {
                let _other = self.page.record_refused(wanted.number, &error);
            }
        }
        Ok(())
    }

    /// Records that the node is gone, or goes with its session.
    fn lost(&mut self) {
        if let Some(kept) = self.kept.take() {
            kept.session.local::<OwnNodes>().leave(kept.stat.created);
        }
        self.page.is_gone();
    }

    /// Removes a node at the path.
    async fn removes(&self, session: &Session, expect: Expect) -> Result<()> {
        let txn = Txn::new().delete(&self.path, expect);
        // Whatever became of it, the next create finds out.
        let _removed = session.commit(txn).await?;
        Ok(())
    }

    fn enters(&mut self, session: SessionId) {
        if self.sessions.last() != Some(&session) {
            self.sessions.push(session);
        }
        if self.sessions.len() > SESSIONS {
            self.sessions.remove(0);
        }
    }

    fn refused(&self, why: String) -> Error {
        refused(&self.path, why)
    }

    /// Removes the node in its session. Returns whether there was one.
    async fn removes_kept(&mut self) -> Result<bool> {
        let Some(kept) = self.kept.take() else { return Ok(false) };
        kept.session.local::<OwnNodes>().leave(kept.stat.created);
        match kept.remove(&self.path).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::SessionLost => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes what it has made, if it is there, in whatever session.
    async fn removes_remnant(&mut self) -> Result<()> {
        let mut delays = Retry::until_elapsed(self.client.timeout()).delays(self.client.random());
        loop {
            let error = match self.remove_remnant().await {
                Ok(true) => return Ok(()),
                Ok(false) => self.refused("the node changes all the time".to_owned()),
                Err(error) if !self.client.is_transient(&error) => return Err(error),
                Err(error) => error,
            };
            let Some(delay) = delays.next() else { return Err(error.with_unknown_effect()) };
            sleep(delay).await;
        }
    }

    /// Whether nothing of it is there, now that it was removed if it was there.
    async fn remove_remnant(&mut self) -> Result<bool> {
        let session = self.client.session().await?;
        let view = session.read(Query::node(&self.path)).await?;
        let Some(stat) = view.node().and_then(|node| node.stat) else { return Ok(true) };
        let Some(owner) = stat.owner.filter(|owner| self.sessions.contains(owner)) else {
            return Ok(true);
        };
        // Of this session it is another keeper's, unless a create of this one is in doubt.
        let is_now = owner == session.info().id;
        let is_others = session.local::<OwnNodes>().has(stat.created) || !self.doubts.has(owner);
        if is_now && is_others {
            return Ok(true);
        }
        let txn = Txn::new().delete(&self.path, Expect::Version(stat.version));
        let removed = matches!(session.commit(txn).await?, Outcome::Committed(_));
        if removed {
            self.meets_own(&stat);
        }
        Ok(removed)
    }

    /// Records that a node of its own was seen: that of a create in doubt, unless it had this one before.
    fn meets_own(&mut self, stat: &Stat) {
        if let Some(owner) = stat.owner.filter(|_| self.last != Some(stat.created)) {
            self.doubts.was_seen(owner);
            self.last = Some(stat.created);
        }
    }
}

impl Keeping for KeeperTask {
    async fn turn(&mut self, asked: &mut Asked) -> Result<()> {
        match &self.kept {
            None => Box::pin(self.make(asked)).await,
            Some(kept) if kept.session.is_lost() => {
                self.lost();
                asked.pause(&self.client).await;
                Ok(())
            }
            Some(kept) if !kept.is_read => {
                Box::pin(self.look(asked)).await?;
                if self.kept.is_none() {
                    // Its session may be over, and that not known yet: then all others are gone, too.
                    asked.pause(&self.client).await;
                }
                Ok(())
            }
            Some(kept) if kept.stored != self.page.wanted().number => {
                Box::pin(self.store(asked)).await
            }
            Some(_) => self.stay(asked).await,
        }
    }

    fn has_node(&self) -> bool {
        self.kept.is_some()
    }

    fn was_made(&mut self) {
        self.occupied = Occupied::Refuse;
    }

    /// What an unanswered create makes later is removed, too.
    async fn leave(mut self) -> Result<()> {
        let removed = self.removes_kept().await;
        mistake!(CloseForgetsCreate: return Ok(()));
        if self.client.is_closed() {
            // The client has closed its last session, and says whether that is over.
            return Ok(());
        }
        let removed = match removed {
            Ok(false) if !self.sessions.is_empty() => self.removes_remnant().await,
            removed => removed.map(drop),
        };
        let open = self.doubts.settle().await;
        for session in &open {
            let own = session.local::<OwnNodes>();
            let path = self.path.clone();
            session.remove_created_in_background(self.path.clone(), move |created| {
                own.knows(&path, created)
            });
        }
        if open.is_empty() {
            return removed;
        }
        Err(in_doubt(&self.path, "is removed"))
    }
}

fn stat_of(commit: Commit) -> Result<Stat> {
    let done = commit.results.into_iter().next();
    done.and_then(|done| done.stat).ok_or_else(|| {
        Error::new(ErrorKind::Backend, DOING).because("the store did not report what it created")
    })
}

/// True if a node is one of this session that its owner does not want any more.
fn is_given_up(session: &Session, stat: &Stat) -> bool {
    let is_own = stat.owner == Some(session.info().id);
    is_own && session.local::<OwnNodes>().is_given_up(stat.created)
}
