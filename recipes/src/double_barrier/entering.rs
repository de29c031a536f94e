//! [`Entering`]: a member that waits for its round.

use std::collections::BTreeSet;

use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Change, Expect, Kind, Lifetime, Node, Outcome, Query, Txn, View};

use crate::double_barrier::inside::Entered;
use crate::double_barrier::member::{ENTERING, GivenUp, MemberNode, is_our_name, parties_of};
use crate::double_barrier::member_watch::{BarrierPlace, MemberWatch, News, OnLoss};
use crate::double_barrier::present::{NextStep, Present, Round};
use crate::layout::barrier::READY;
use crate::mutant::mistake;
use crate::support::retry::OutageBackoff;

/// A waiting member, in one session.
pub(super) struct Entering<'a> {
    place: &'a BarrierPlace,
    /// The prefixes of the names of its nodes, including nodes of earlier sessions: the store may
    /// keep those for a while.
    own: &'a mut Vec<String>,
    watch: MemberWatch,
    /// The known members.
    present: Present,
    /// The last known round.
    last: Option<Round>,
    /// True after this member sent a request to begin a round, and its effect is unknown.
    in_doubt: bool,
}

/// The reason for which a member reads again.
enum Reason {
    /// A round has begun or ended: as an event reported. Contains the round, if the event has it.
    Ready(Option<Round>),
    /// This member tried to begin a round, but failed or does not know the effect.
    Begun,
    /// There may be enough members now.
    Others,
    /// Another member gave up before the round was full.
    GivenUp(String),
}

impl<'a> Entering<'a> {
    pub(super) fn new(place: &'a BarrierPlace, own: &'a mut Vec<String>) -> Self {
        Self {
            place,
            own,
            watch: place.watch(),
            present: Present::default(),
            last: None,
            in_doubt: false,
        }
    }

    /// Waits until the member is inside. `None` if its node is removed before that.
    pub(super) async fn run(mut self, delays: &mut OutageBackoff) -> Result<Option<Entered>> {
        let session = self.place.client.session().await?;
        self.watch.open(&session).await?;
        if self.place.same_parties {
            // A member that joins and fails would be counted in the meantime.
            self.check_earlier(&session, None).await?;
        }
        let reads = !self.watch.is_known();
        let BarrierPlace { client, path, parties, .. } = self.place;
        let joined = MemberNode::join(client, &session, path, *parties, self.own, reads).await?;
        let (mut member, mut view) = joined;
        let mut reported = if reads { None } else { self.watch.until_there(member.name()).await };
        let mut reason = Reason::Others;
        loop {
            let step = self.read_and_step(&mut member, view.take(), reported.take(), &reason).await;
            if session.is_lost() {
                return Ok(None);
            }
            reason = match step {
                Ok(Some(NextStep::Gone)) => return Ok(None),
                Ok(Some(NextStep::Enter(round))) => {
                    return Ok(Some(self.inside(member, &round, None)));
                }
                Ok(Some(NextStep::Begin(_))) => {
                    let round = self.last.take().unwrap_or_default();
                    return Ok(Some(self.inside(member, &round, Some(round.clone()))));
                }
                Ok(Some(NextStep::Wait)) => {
                    if let Reason::GivenUp(name) = &reason
                        && !self.has_entered(name)
                    {
                        return Err(given_up(name));
                    }
                    delays.reset();
                    let woken = self.reason(&member).await;
                    mistake!(EntersOnAnyEvent: {
                        return Ok(Some(self.inside(member, &Round::default(), None)));
                    });
                    woken
                }
                // Another member has begun a round, or it is unknown whether this one has.
                Ok(None) => Reason::Begun,
                Err(error) => {
                    delays.wait(error).await?;
                    Reason::Others
                }
            }
        }
    }

    fn inside(self, member: MemberNode, round: &Round, began: Option<Round>) -> Entered {
        let others = round.others(member.name(), self.present.names());
        Entered::new(self.place.clone(), member, self.watch, others, began)
    }

    /// Reads, decides, and begins the round if this member has to. `None` if it must read again.
    async fn read_and_step(
        &mut self,
        member: &mut MemberNode,
        view: Option<View>,
        reported: Option<Present>,
        reason: &Reason,
    ) -> Result<Option<NextStep>> {
        if !reported.is_some_and(|reported| self.use_reported(member, reported)) {
            self.read(member, view, reason).await?;
        }
        self.check_parties(member).await?;
        self.step(member).await
    }

    /// Uses the members that were reported when this member arrived, if there are enough. This
    /// member is then the last one, and begins a round only if the others still exist. Returns
    /// false if a read is required.
    fn use_reported(&mut self, member: &MemberNode, reported: Present) -> bool {
        self.present = reported.placed(member.name(), member.place());
        self.discount(member);
        let parties = self.place.parties.get() as usize;
        self.last = None;
        !self.present.is_ready()
            && self.present.count_all()
            && !self.present.has_at_least(parties + 1)
    }

    /// Fails if an earlier member specified another number of parties. Of two members that disagree
    /// the later one fails.
    async fn check_parties(&self, member: &mut MemberNode) -> Result<()> {
        if !self.place.same_parties || !self.present.counted().any(|(name, _)| self.differs(name)) {
            return Ok(());
        }
        // The known members may lag, and those that were reported by events have no position.
        let checked = self.check_earlier(member.session(), Some(member)).await;
        if checked.as_ref().is_err_and(|error| error.kind() == ErrorKind::Refused) {
            // A failed removal continues in the background.
            let _removed = member.leave(None).await.is_ok();
        }
        checked
    }

    /// Reads the members, and fails if one specified another number of parties: one that is earlier
    /// than `me`, if there is one.
    async fn check_earlier(&self, session: &Session, me: Option<&MemberNode>) -> Result<()> {
        let BarrierPlace { client, path, .. } = self.place;
        let view = session.read(Query::children(path)).await?;
        let mut present = Present::of(&view);
        present.discount(&client.local::<GivenUp>(), path);
        present.discount_former(me.map_or("", MemberNode::name), self.own);
        let other = view.nodes.iter().find(|node| {
            let name = node.path.name();
            let is_earlier = me.is_none_or(|me| node.sequence < me.place());
            node.stat.is_some() && is_earlier && self.differs(name) && present.counts(name)
        });
        let own = self.place.parties.get();
        other.map_or(Ok(()), |other| Err(other_parties(path, own, other)))
    }

    fn differs(&self, name: &str) -> bool {
        parties_of(name).is_some_and(|parties| parties != self.place.parties.get())
    }

    /// Excludes the members that will not enter.
    fn discount(&mut self, member: &MemberNode) {
        let given_up = self.place.client.local::<GivenUp>();
        self.present.discount(&given_up, &self.place.path);
        self.present.discount_former(member.name(), self.own);
        if let Some(gone) = self.watch.gone() {
            self.present.discount_gone(gone);
        }
    }

    /// Reads the last round and the members.
    async fn read(
        &mut self,
        member: &MemberNode,
        view: Option<View>,
        reason: &Reason,
    ) -> Result<()> {
        if let Reason::Ready(_) | Reason::Begun = reason {
            let ready = Query::node(self.ready()?);
            self.last = match reason {
                Reason::Ready(Some(round)) => Some(round.clone()),
                Reason::Ready(None) => read_round(member.session(), ready.local()).await?,
                _ => read_round(member.session(), ready).await?,
            };
            if self.last.as_ref().is_some_and(|round| round.has(member.name())) {
                return Ok(());
            }
        }
        self.present = self.watch.present(view).await?;
        self.last = self.round_of_present(member).await?;
        // The round may have ended between the two reads. In that case its members have not given
        // up.
        while self.place.on_loss == OnLoss::Fail && self.present.is_ready() {
            self.present = self.watch.present(None).await?;
            let round = self.round_of_present(member).await?;
            let is_same = round == self.last;
            self.last = round;
            if is_same {
                break;
            }
        }
        self.discount(member);
        Ok(())
    }

    /// Reads the round that has begun, if the view of the members has one.
    async fn round_of_present(&self, member: &MemberNode) -> Result<Option<Round>> {
        if !self.present.is_ready() {
            return Ok(None);
        }
        // The session has already observed the round, so this read is not older.
        read_round(member.session(), Query::node(self.ready()?).local()).await
    }

    /// Returns `true` if a member that left was inside: its round may be reported after that.
    fn has_entered(&self, name: &str) -> bool {
        let members = self.last.as_ref().and_then(Round::members);
        members.is_some_and(|members| members.contains(name))
    }

    fn ready(&self) -> Result<Path> {
        Ok(self.place.path.join(READY)?)
    }

    async fn step(&mut self, member: &MemberNode) -> Result<Option<NextStep>> {
        let parties = self.place.parties.get() as usize;
        let step = self.present.step(member.name(), parties, self.last.as_ref());
        if self.in_doubt && !matches!(step, NextStep::Enter(_)) {
            // The request may still begin a round at any time, but is rejected if this member's
            // node is gone.
            return Ok(Some(NextStep::Gone));
        }
        let NextStep::Begin(members) = &step else { return Ok(Some(step)) };
        let version = match member.session().commit(self.begin(member, members)?).await {
            Ok(Outcome::Committed(commit)) => {
                commit.results.last().and_then(|done| done.stat).map(|stat| stat.version)
            }
            Ok(Outcome::Rejected(_)) => return Ok(None),
            Err(error) if error.has_unknown_effect() => {
                self.in_doubt = true;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        self.last = Some(Round::new(members.clone(), version));
        Ok(Some(step))
    }

    /// Begins the round of these members, unless one of them has left, or another round has begun
    /// since this member's read. If this request is delayed, a check of the node `ready` alone does
    /// not show that: the node may have been removed and created again with the same version. But
    /// these members are first in the order, so another round would have been their round, and
    /// would end only when they leave.
    fn begin(&self, member: &MemberNode, members: &BTreeSet<String>) -> Result<Txn> {
        let (ready, data) = (self.ready()?, Round::data(members));
        // A write instead of a check: the node of a dropped create would be removed again, but
        // other members rely on it.
        let begin = Txn::new().set(member.path(), "", Expect::Any);
        // The two writes are extra operations. In a larger round not every member is checked.
        let room = member.session().info().limits.operations.saturating_sub(2);
        let others = members.iter().filter(|name| *name != member.name()).take(room);
        let begin = others
            .map(|name| self.place.path.join(name))
            .try_fold(begin, |begin, path| path.map(|path| begin.check(path, Expect::Any)))?;
        Ok(match &self.last {
            Some(last) => begin.set(ready, data, last.expected()),
            None => begin.create(ready, data, Lifetime::Persistent),
        })
    }

    /// Waits for a reason to read again.
    async fn reason(&mut self, member: &MemberNode) -> Reason {
        let inside =
            self.last.as_ref().map(|last| last.others(member.name(), self.present.names()));
        let inside = inside.unwrap_or_default();
        loop {
            let News::Changed(change) = self.watch.news().await else { return Reason::Others };
            if let Some(reason) = self.reason_of(member, &inside, &change) {
                return reason;
            }
        }
    }

    fn reason_of(
        &mut self,
        member: &MemberNode,
        inside: &BTreeSet<String>,
        change: &Change,
    ) -> Option<Reason> {
        let name = change.path.name();
        let parties = self.place.parties.get() as usize;
        match change.kind {
            _ if name == READY => Some(Reason::Ready(change.node.as_ref().map(Round::of))),
            // The member that arrives last begins the round.
            Kind::Created if is_our_name(name) => {
                self.present.record_arrival(name);
                None
            }
            Kind::Deleted => {
                let was_there = self.present.record_departure(name);
                if was_there && self.place.on_loss == OnLoss::Fail && !inside.contains(name) {
                    return Some(Reason::GivenUp(name.to_owned()));
                }
                let may_begin = !self.present.has_any(inside) && self.present.has_at_least(parties);
                (may_begin || name == member.name()).then_some(Reason::Others)
            }
            Kind::Updated if self.present.has(name) => None,
            // A member of another library may have arrived.
            _ => Some(Reason::Others),
        }
    }
}

async fn read_round(session: &Session, ready: Query) -> Result<Option<Round>> {
    let view = session.read(ready).await?;
    Ok(view.node().map(Round::of))
}

fn other_parties(path: &Path, own: u32, other: &Node) -> Error {
    let name = other.path.name();
    let parties = parties_of(name).unwrap_or_default();
    let owner = other.stat.and_then(|stat| stat.owner);
    let session = owner.map(|id| format!(" of session {id}")).unwrap_or_default();
    Error::new(ErrorKind::Refused, ENTERING).at(path).because(format!(
        "this member enters with {own} parties, but the earlier member {name}{session} with \
         {parties}"
    ))
}

fn given_up(name: &str) -> Error {
    Error::new(ErrorKind::Refused, ENTERING)
        .because(format!("another member gave up before all were there: {name}"))
}
