//! [`SessionShare`]: a member of a partition in one session.

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
use crate::partition::share_page::SharePage;

/// What a member is for.
#[derive(Debug)]
pub(super) struct PartitionTerms {
    pub(super) paths: PartitionPaths,
    pub(super) items: BTreeSet<String>,
    /// The start of the paths of the nodes of this member.
    pub(super) prefix: Path,
    pub(super) weight: u32,
}

/// A member in one session. Only its task writes, one step after the other.
pub(super) struct SessionShare {
    session: Session,
    terms: Arc<PartitionTerms>,
    page: Arc<SharePage>,
    /// The node of the member, and the names of those before it that were removed by other clients.
    member: Option<OpResult>,
    names: Vec<String>,
    watch: Option<Watch>,
    /// The events that are not taken note of yet.
    heard: Vec<Event>,
    roster: Option<Roster>,
    target: Holders,
    /// Whether the roster has to be read before anything else.
    is_stale: bool,
    /// When it is to be read at the latest.
    due: Option<Instant>,
    /// The items whose claim was sent, unless a later view shows that there is none.
    sent: BTreeSet<String>,
    /// Whether a transaction was not answered. It may still be applied, as long as the node of the member has its version.
    in_doubt: bool,
}

/// A transaction on claims, and the items that it is about.
struct ClaimTxn {
    txn: Txn,
    items: Vec<String>,
    creates: bool,
}

impl SessionShare {
    pub(super) fn new(
        session: &Session,
        terms: &Arc<PartitionTerms>,
        page: &Arc<SharePage>,
    ) -> Self {
        Self {
            session: session.clone(),
            terms: terms.clone(),
            page: page.clone(),
            member: None,
            names: Vec::new(),
            watch: None,
            heard: Vec::new(),
            roster: None,
            target: Holders::new(),
            is_stale: true,
            due: None,
            sent: BTreeSet::new(),
            in_doubt: false,
        }
    }

    /// Becomes a member, unless it is one.
    pub(super) async fn join(&mut self) -> Result<()> {
        if self.member.is_some() {
            return Ok(());
        }
        let (weight, prefix) = (self.weight().to_string(), &self.terms.prefix);
        let made = self.session.create_sequential(prefix, weight, Lifetime::Session).await?;
        let made = made.required()?;
        self.names.push(made.path.name().to_owned());
        self.page.enters(&self.session, &made.path);
        (self.member, self.is_stale) = (Some(made), true);
        Ok(())
    }

    /// Does what is to be done next, or waits for it. Returns whether it has left.
    pub(super) async fn step(&mut self) -> Result<bool> {
        if self.is_stale {
            return self.read().await.map(|()| false);
        }
        if self.names.is_empty() && self.page.is_over() {
            return Ok(true);
        }
        let (Some(roster), Some(member)) = (&self.roster, &self.member) else {
            return self.join().await.map(|()| false);
        };
        let name = member.path.name().to_owned();
        let Some(version) = roster.version(&name) else {
            // Another client has removed it. Its items are given away, and a new one takes part.
            self.member = None;
            return self.join().await.map(|()| false);
        };
        // Another client may have written to it.
        if self.in_doubt || roster.weight(&name) != Some(self.weight()) {
            return self.renew(version).await.map(|()| false);
        }
        self.learn(&name);
        let txns = self.txns(&name, version)?;
        if !txns.is_empty() {
            return self.commit(txns).await.map(|()| false);
        }
        if self.page.is_over() {
            return self.leave().await.map(|()| true);
        }
        self.wait().await;
        Ok(false)
    }

    /// What was noticed must be confirmed by a read.
    pub(super) fn doubts(&mut self) {
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

    /// Replaces the version of the own node, so that no earlier transaction can still be applied.
    async fn renew(&mut self, version: Version) -> Result<()> {
        let Some(member) = &self.member else { return Ok(()) };
        let weight = self.weight();
        let txn = Txn::new().set(&member.path, weight.to_string(), Expect::Version(version));
        // Of what is rejected the version is another one already, or the node is gone.
        let replaced = self.session.commit(txn).await?.ok();
        let stat = replaced.and_then(|commit| commit.results.first()?.stat);
        match (stat, &mut self.roster) {
            (Some(stat), Some(roster)) if !self.in_doubt => {
                roster.renew(member.path.name(), stat.version, weight);
            }
            // What was in doubt is settled now, and has to be read.
            _ => self.is_stale = true,
        }
        self.in_doubt = false;
        Ok(())
    }

    /// What the own node says: a member that leaves is to get nothing.
    fn weight(&self) -> u32 {
        if self.page.is_over() { 0 } else { self.terms.weight }
    }

    fn learn(&mut self, name: &str) {
        let Some(roster) = &self.roster else { return };
        let own = roster.own(&self.names, self.session.info().id, &self.sent);
        self.sent.retain(|item| own.contains_key(item));
        self.target = roster.target(&self.terms.items);
        let is_settled = roster.is_settled(&self.terms.items, &self.target);
        self.page.learn(&own, name, &self.target, is_settled);
    }

    /// The transactions that are to be made now: each at the version of the own node, so that no late one is applied after
    /// it has been replaced.
    fn txns(&self, name: &str, version: Version) -> Result<Vec<ClaimTxn>> {
        let (Some(roster), Some(member)) = (&self.roster, &self.member) else {
            return Ok(Vec::new());
        };
        let leaving = self.page.leaving();
        let lacks = |item: &str| !roster.has(item) && !self.page.is_over();
        let wanted = self.target.iter().filter(|(item, it)| *it == name && lacks(item));
        let wanted: Vec<_> = wanted.map(|(item, _)| item.clone()).collect();
        let most = self.session.info().limits.operations.saturating_sub(1).max(1);
        let mut txns = Vec::new();
        for (items, creates) in [(leaving, false), (wanted, true)] {
            for items in items.chunks(most) {
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

    /// Commits them all at once. What is not certain is read afterwards.
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
                    self.done(it, &commit);
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

    /// Takes note of what was committed. Only this task changes the own claims, so that needs no read.
    fn done(&mut self, it: ClaimTxn, commit: &Commit) {
        let (Some(roster), Some(name)) = (&mut self.roster, self.names.last()) else { return };
        if !it.creates {
            it.items.iter().for_each(|item| roster.forget(item, None));
            return self.page.are_gone(&it.items);
        }
        // The first operation is the check.
        let created = |index: usize| commit.results.get(index)?.stat.map(|stat| stat.created);
        let held: Vec<_> =
            it.items.into_iter().zip(1..).map(|(item, index)| (item, created(index))).collect();
        for (item, created) in &held {
            roster.claim(item, name, self.session.info().id, *created);
        }
        self.page.hold(held);
        self.reads_later();
    }

    /// Removes the own node, now that it has no claim.
    async fn leave(&mut self) -> Result<()> {
        match &self.member {
            Some(member) => self.session.remove(member).await,
            None => Ok(()),
        }
    }

    /// Waits until something is to be done.
    async fn wait(&mut self) {
        let (session, page, due) = (self.session.clone(), self.page.clone(), self.due);
        let read = async {
            match due {
                Some(due) => clock::sleep_until(due).await,
                None => pending().await,
            }
        };
        let (lost, given, read) = (pin!(session.lost()), pin!(page.has_given()), pin!(read));
        let prompts = select(lost, select(given, read));
        let is_due = match select(pin!(self.events()), prompts).await {
            Either::Right((Either::Right((Either::Right(_), _)), _)) => true,
            Either::Left(_) | Either::Right(_) => false,
        };
        self.is_stale |= is_due;
        for event in std::mem::take(&mut self.heard) {
            self.hear(event);
        }
    }

    /// Waits for the next event, and for those that come together with it: several members act on one change.
    async fn events(&mut self) {
        const TOGETHER: Duration = Duration::from_millis(2);
        let Some(watch) = &mut self.watch else { return self.heard.push(Event::Resync) };
        let Some(event) = watch.next().await else {
            self.watch = None;
            return self.heard.push(Event::Resync);
        };
        self.heard.push(event);
        clock::sleep(TOGETHER).await;
        while let Some(Some(event)) = poll_immediate(watch.next()).await {
            self.heard.push(event);
        }
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Changed(change) => self.hear_change(&change),
            Event::Resync => self.is_stale = true,
            Event::Ended(_) => (self.watch, self.is_stale) = (None, true),
        }
    }

    /// An item that was waited for can be claimed at once. Other claims are read a little later, together with those that follow
    /// them: what they are does not change what this member has to do.
    fn hear_change(&mut self, change: &Change) {
        let Some(roster) = &mut self.roster else { return };
        if change.revision.is_some_and(|revision| revision <= roster.revision) {
            return;
        }
        let Some(item) = self.terms.paths.item(&change.path) else { return self.is_stale = true };
        let is_deleted = change.kind == Kind::Deleted;
        if is_deleted && self.page.is_own(&item) {
            return self.is_stale = true;
        }
        let is_own = |it: &String| self.names.last() == Some(it);
        if is_deleted && self.target.get(&item).is_some_and(is_own) {
            roster.forget(&item, change.revision);
        }
        self.reads_later();
    }

    /// Reads the roster after a random part of a short time, together with what changes until then.
    fn reads_later(&mut self) {
        const MOST: u64 = 50;
        let moment = Duration::from_millis(self.session.random().below(MOST));
        self.due = self.due.or(Some(clock::now() + moment));
    }
}
