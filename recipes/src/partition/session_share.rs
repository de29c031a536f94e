//! [`SessionShare`]: a member of a partition in one session.
//!
//! # Decisions that are easy to undo by mistake
//!
//! - **Views decide on the division, never on ownership.** Members with different views may claim
//!   the wrong items and give them back; the create of the claim excludes the others.
//! - **The division stays the same while members act on it.** A member keeps the first of its
//!   items, and free items go to members below their share in a fixed order. So all members
//!   converge, each with its own last view.
//! - **Every transaction on claims expects the version of the member's own node**, and that node is
//!   written after each unanswered one. Otherwise a delayed delete could remove the next claim at
//!   the path, possibly of another member: on ZooKeeper it has the same version.
//! - **A leaving member announces it first**, by a weight of zero; then it removes its claims, then
//!   its node. So no delayed request can be applied after the node is gone.
//! - **The node of a member has a new name in each session**, so that it is found when the answer
//!   to its create is lost, and a claim of an earlier session is never mistaken for a current one.
//! - **An awaited item is claimed as soon as its deletion is reported**, without a read. The
//!   members and claims are read a little later, with one read for all changes.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, join_all, pending, poll_immediate, select};
use synod_core::clock::{self, Instant};
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{
    Change, Commit, Event, Expect, Kind, Lifetime, OpResult, Outcome, Txn, Version, Watch,
};

use crate::mutant::mistake;
use crate::partition::division::Holders;
use crate::partition::roster::{PartitionPaths, Roster};
use crate::partition::share_state::ShareShared;

/// The parameters of a member.
#[derive(Debug)]
pub(super) struct PartitionTerms {
    pub(super) paths: PartitionPaths,
    pub(super) items: BTreeSet<String>,
    /// The prefix of the paths of this member's nodes.
    pub(super) prefix: Path,
    pub(super) weight: u32,
}

/// A member in one session. Only its task writes, one step after the other.
pub(super) struct SessionShare {
    session: Session,
    terms: Arc<PartitionTerms>,
    shared: Arc<ShareShared>,
    /// The node of the member.
    member: Option<OpResult>,
    /// The names of its nodes; all but the last were removed by other clients.
    names: Vec<String>,
    watch: Option<Watch>,
    /// The events that are not processed yet.
    events: Vec<Event>,
    roster: Option<Roster>,
    target: Holders,
    /// True if the next step must be a read of the roster.
    is_stale: bool,
    /// The latest time of the next read.
    due: Option<Instant>,
    /// The items whose claim was sent, unless a later view shows that there is no claim.
    sent: BTreeSet<String>,
    /// True if a transaction was not answered. It may still be applied, as long as the node of the
    /// member has its version.
    in_doubt: bool,
}

/// A transaction on claims, and the items that it concerns.
struct ClaimTxn {
    txn: Txn,
    items: Vec<String>,
    creates: bool,
}

impl SessionShare {
    pub(super) fn new(
        session: &Session,
        terms: &Arc<PartitionTerms>,
        shared: &Arc<ShareShared>,
    ) -> Self {
        Self {
            session: session.clone(),
            terms: terms.clone(),
            shared: shared.clone(),
            member: None,
            names: Vec::new(),
            watch: None,
            events: Vec::new(),
            roster: None,
            target: Holders::new(),
            is_stale: true,
            due: None,
            sent: BTreeSet::new(),
            in_doubt: false,
        }
    }

    /// Becomes a member, unless it already is one.
    pub(super) async fn join(&mut self) -> Result<()> {
        if self.member.is_some() {
            return Ok(());
        }
        let (weight, prefix) = (self.weight().to_string(), &self.terms.prefix);
        let node = self.session.create_sequential(prefix, weight, Lifetime::Session).await?;
        let node = node.required()?;
        self.names.push(node.path.name().to_owned());
        self.shared.enter_session(&self.session, &node.path);
        (self.member, self.is_stale) = (Some(node), true);
        Ok(())
    }

    /// Takes the next step, or waits for it. Returns `true` if the member has left.
    pub(super) async fn step(&mut self) -> Result<bool> {
        if self.is_stale {
            return self.read().await.map(|()| false);
        }
        if self.names.is_empty() && self.shared.is_over() {
            return Ok(true);
        }
        let (Some(roster), Some(member)) = (&self.roster, &self.member) else {
            return self.join().await.map(|()| false);
        };
        let name = member.path.name().to_owned();
        let Some(version) = roster.version(&name) else {
            // Another client has removed the node. Its items are released, and a new node joins.
            self.member = None;
            return self.join().await.map(|()| false);
        };
        // Another client may have written to it.
        if self.in_doubt || roster.weight(&name) != Some(self.weight()) {
            return self.renew(version).await.map(|()| false);
        }
        self.update(&name);
        let txns = self.txns(&name, version)?;
        if !txns.is_empty() {
            return self.commit(txns).await.map(|()| false);
        }
        if self.shared.is_over() {
            return self.leave().await.map(|()| true);
        }
        self.wait().await;
        Ok(false)
    }

    /// Requires a read before the next step.
    pub(super) fn set_stale(&mut self) {
        self.is_stale = true;
    }

    async fn read(&mut self) -> Result<()> {
        let query = self.terms.paths.query();
        let view = if self.watch.is_some() {
            self.session.read(query).await?
        } else {
            let (view, watch) = self.session.watch(query).await?;
            self.watch = Some(watch);
            view
        };
        self.roster = Some(Roster::of(&self.terms.paths, view));
        (self.is_stale, self.due) = (false, None);
        Ok(())
    }

    /// Replaces the version of this member's node, so that no earlier transaction can still be
    /// applied.
    async fn renew(&mut self, version: Version) -> Result<()> {
        let Some(member) = &self.member else { return Ok(()) };
        let weight = self.weight();
        let txn = Txn::new().set(&member.path, weight.to_string(), Expect::Version(version));
        // If this is rejected, the version has already changed, or the node is gone.
        let replaced = self.session.commit(txn).await?.ok();
        let stat = replaced.and_then(|commit| commit.results.first()?.stat);
        match (stat, &mut self.roster) {
            (Some(stat), Some(roster)) if !self.in_doubt => {
                roster.renew(member.path.name(), stat.version, weight);
            }
            // The unanswered transactions can no longer be applied, and their effects must be read.
            _ => self.is_stale = true,
        }
        self.in_doubt = false;
        Ok(())
    }

    /// The weight in this member's node: a leaving member gets no items.
    fn weight(&self) -> u32 {
        if self.shared.is_over() { 0 } else { self.terms.weight }
    }

    fn update(&mut self, name: &str) {
        let Some(roster) = &self.roster else { return };
        let own = roster.own(&self.names, self.session.info().id, &self.sent);
        self.sent.retain(|item| own.contains_key(item));
        self.target = roster.target(&self.terms.items);
        let is_settled = roster.is_settled(&self.terms.items, &self.target);
        self.shared.update(&own, name, &self.target, is_settled);
    }

    /// The transactions to send now. Each checks the version of this member's node, so that a
    /// delayed one is not applied after the version was replaced.
    fn txns(&self, name: &str, version: Version) -> Result<Vec<ClaimTxn>> {
        let (Some(roster), Some(member)) = (&self.roster, &self.member) else {
            return Ok(Vec::new());
        };
        let leaving = self.shared.leaving();
        let lacks = |item: &str| !roster.has(item) && !self.shared.is_over();
        let wanted = self.target.iter().filter(|(item, it)| *it == name && lacks(item));
        let wanted: Vec<_> = wanted.map(|(item, _)| item.clone()).collect();
        let max_items = self.session.info().limits.operations.saturating_sub(1).max(1);
        let mut txns = Vec::new();
        for (items, creates) in [(leaving, false), (wanted, true)] {
            for items in items.chunks(max_items) {
                let mut txn = Txn::new().check(&member.path, Expect::Version(version));
                for item in items {
                    let path = self.terms.paths.claim(item)?;
                    txn = if creates {
                        txn.create(path, name.to_owned(), Lifetime::Session)
                    } else {
                        txn.delete(path, Expect::Any)
                    };
                }
                txns.push(ClaimTxn { txn, items: items.to_vec(), creates });
            }
        }
        Ok(txns)
    }

    /// Commits them concurrently. Uncertain results are read afterwards.
    async fn commit(&mut self, txns: Vec<ClaimTxn>) -> Result<()> {
        let creates = txns.iter().filter(|it| it.creates);
        self.sent.extend(creates.flat_map(|it| it.items.iter().cloned()));
        let (session, mut failed) = (&self.session, None);
        let commits = txns.iter().map(|it| session.commit_tracked(it.txn.clone()));
        let outcomes = join_all(commits).await;
        for (it, outcome) in txns.into_iter().zip(outcomes) {
            match outcome {
                Ok((Outcome::Committed(commit), requests)) => {
                    self.in_doubt |= !requests.is_settled();
                    self.record_commit(it, &commit);
                }
                Ok((Outcome::Rejected(_), requests)) => {
                    self.in_doubt |= !requests.is_settled();
                    self.is_stale = true;
                }
                Err(error) => {
                    self.in_doubt |= error.has_unknown_effect();
                    failed = Some(error);
                }
            }
        }
        self.is_stale |= self.in_doubt || failed.is_some();
        mistake!(LateClaimsTrusted: {
            (self.in_doubt, self.is_stale) = (false, false);
            return Ok(());
        });
        failed.map_or(Ok(()), Err)
    }

    /// Records a commit. Only this task changes the claims of this member, so no read is needed.
    fn record_commit(&mut self, it: ClaimTxn, commit: &Commit) {
        let (Some(roster), Some(name)) = (&mut self.roster, self.names.last()) else { return };
        if !it.creates {
            it.items.iter().for_each(|item| roster.forget(item, None));
            return self.shared.record_removed(&it.items);
        }
        // The first operation is the check.
        let created = |index: usize| commit.results.get(index)?.stat.map(|stat| stat.created);
        let held: Vec<_> =
            it.items.into_iter().zip(1..).map(|(item, index)| (item, created(index))).collect();
        for (item, created) in &held {
            roster.claim(item, name, self.session.info().id, *created);
        }
        self.shared.hold(held);
        self.read_later();
    }

    /// Removes this member's node, which has no claims left.
    async fn leave(&mut self) -> Result<()> {
        match &self.member {
            Some(member) => self.session.remove(member).await,
            None => Ok(()),
        }
    }

    /// Waits for the next event, request or read.
    async fn wait(&mut self) {
        let (session, shared, due) = (self.session.clone(), self.shared.clone(), self.due);
        let read = async {
            match due {
                Some(due) => clock::sleep_until(due).await,
                None => pending().await,
            }
        };
        let (lost, leaving, read) =
            (pin!(session.lost()), pin!(shared.until_leaving()), pin!(read));
        let prompts = select(lost, select(leaving, read));
        let is_due = match select(pin!(self.next_events()), prompts).await {
            Either::Right((Either::Right((Either::Right(_), _)), _)) => true,
            Either::Left(_) | Either::Right(_) => false,
        };
        self.is_stale |= is_due;
        for event in std::mem::take(&mut self.events) {
            self.record_event(event);
        }
    }

    /// Waits for the next event, and for events shortly after it: several members may act on the
    /// same change.
    async fn next_events(&mut self) {
        const TOGETHER: Duration = Duration::from_millis(2);
        let Some(watch) = &mut self.watch else { return self.events.push(Event::Resync) };
        let Some(event) = watch.next().await else {
            self.watch = None;
            return self.events.push(Event::Resync);
        };
        self.events.push(event);
        clock::sleep(TOGETHER).await;
        while let Some(Some(event)) = poll_immediate(watch.next()).await {
            self.events.push(event);
        }
    }

    fn record_event(&mut self, event: Event) {
        match event {
            Event::Changed(change) => self.record_change(&change),
            Event::Resync => self.is_stale = true,
            Event::Ended(_) => (self.watch, self.is_stale) = (None, true),
        }
    }

    /// A free item that is assigned to this member can be claimed immediately. Other claims are
    /// read a little later, together with the following ones: they do not affect the next step of
    /// this member.
    fn record_change(&mut self, change: &Change) {
        let Some(roster) = &mut self.roster else { return };
        if change.revision.is_some_and(|revision| revision <= roster.revision) {
            return;
        }
        let Some(item) = self.terms.paths.item(&change.path) else { return self.is_stale = true };
        let is_deleted = change.kind == Kind::Deleted;
        if is_deleted && self.shared.is_own(&item) {
            return self.is_stale = true;
        }
        let is_own = |it: &String| self.names.last() == Some(it);
        if is_deleted && self.target.get(&item).is_some_and(is_own) {
            roster.forget(&item, change.revision);
        }
        self.read_later();
    }

    /// Reads the roster after a random part of a short time, together with all changes until then.
    fn read_later(&mut self) {
        const MAX_MILLIS: u64 = 50;
        let moment = Duration::from_millis(self.session.random().below(MAX_MILLIS));
        self.due = self.due.or(Some(clock::now() + moment));
    }
}
