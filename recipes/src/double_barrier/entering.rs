//! [`Entering`]: a member that waits for its round.

use std::collections::BTreeSet;

use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Change, Expect, Kind, Lifetime, Outcome, Query, Txn, View};

use crate::cell::patience::Patience;
use crate::double_barrier::barrier_place::{BarrierPlace, OnLoss};
use crate::double_barrier::inside::Inside;
use crate::double_barrier::member::{ENTERING, GivenUp, MemberNode, is_our_name};
use crate::double_barrier::member_watch::{MemberWatch, News};
use crate::double_barrier::present::{NextStep, Present};
use crate::double_barrier::round::{READY, Round};
use crate::mutant::mistake;

/// A member that waits, in one session.
pub(super) struct Entering<'a> {
    place: &'a BarrierPlace,
    /// What the names of its nodes begin with, those of earlier sessions too: the store may keep these for a while.
    own: &'a mut Vec<String>,
    watch: MemberWatch,
    /// The members, as far as is known.
    present: Present,
    /// The round that began last, as far as is known.
    last: Option<Round>,
    /// Whether it is not known if this member has begun a round.
    in_doubt: bool,
}

/// Why a member looks again.
enum Reason {
    /// A round has begun, or is over: the session was notified of that. With the round, if the store reported it.
    Ready(Option<Round>),
    /// This member was to begin a round, and has not, or does not know.
    Begun,
    /// The others may be enough now.
    Others,
    /// Another member gave up before all were there.
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

    /// Waits until it is inside. `None` if its node is gone before.
    pub(super) async fn run(mut self, delays: &mut Patience) -> Result<Option<Inside>> {
        let session = self.place.client.session().await?;
        self.watch.open(&session).await?;
        let (path, looks) = (&self.place.path, !self.watch.knows());
        let (member, mut seen) = MemberNode::join(&session, path, self.own, looks).await?;
        let mut heard = if looks { None } else { self.watch.until_there(member.name()).await };
        let mut reason = Reason::Others;
        loop {
            let step = self.look_and_step(&member, seen.take(), heard.take(), &reason).await;
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
                    delays.begin_anew();
                    let woken = self.reason(&member).await;
                    mistake!(EntersOnAnyEvent: {
                        return Ok(Some(self.inside(member, &Round::default(), None)));
                    });
                    woken
                }
                // Another member has begun a round, or it is not known whether this one has.
                Ok(None) => Reason::Begun,
                Err(error) => {
                    delays.rest(error).await?;
                    Reason::Others
                }
            }
        }
    }

    fn inside(self, member: MemberNode, round: &Round, began: Option<Round>) -> Inside {
        let others = round.others(member.name(), self.present.names());
        Inside::new(self.place.clone(), member, self.watch, others, began)
    }

    /// Looks, decides, and begins the round if that is up to this member. `None` if it has to look again.
    async fn look_and_step(
        &mut self,
        member: &MemberNode,
        seen: Option<View>,
        heard: Option<Present>,
        reason: &Reason,
    ) -> Result<Option<NextStep>> {
        if !heard.is_some_and(|heard| self.believe(member, heard)) {
            self.look(member, seen, reason).await?;
        }
        self.step(member).await
    }

    /// Takes over the members that were reported when this one came, if that is enough. It is the last of them, and begins a round
    /// with them only if they are still there. False if it has to look.
    fn believe(&mut self, member: &MemberNode, heard: Present) -> bool {
        self.present = heard.placed(member.name(), member.place());
        self.discount(member);
        let parties = self.place.parties.get() as usize;
        self.last = None;
        !self.present.is_ready() && self.present.count_all() && !self.present.are(parties + 1)
    }

    /// Does not count the members that will not enter.
    fn discount(&mut self, member: &MemberNode) {
        let given_up = member.session().local::<GivenUp>();
        self.present.discount(&given_up, &self.place.path);
        self.present.discount_former(member.name(), self.own);
        if let Some(gone) = self.watch.gone() {
            self.present.discount_gone(gone);
        }
    }

    /// Finds out which round began last, and which members are there.
    async fn look(
        &mut self,
        member: &MemberNode,
        seen: Option<View>,
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
        self.present = self.watch.present(seen).await?;
        self.last = self.round_of_present(member).await?;
        // The round may have ended between the two reads. Those that were inside have not given up then.
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

    /// Reads the round that has begun, if the members were seen with one.
    async fn round_of_present(&self, member: &MemberNode) -> Result<Option<Round>> {
        if !self.present.is_ready() {
            return Ok(None);
        }
        // The session has seen it, so this is not older.
        read_round(member.session(), Query::node(self.ready()?).local()).await
    }

    /// True if a member that went was inside: its round may be reported after that.
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
            // The request may still begin a round, at any time. Without this member it is refused.
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

    /// Begins the round of these, unless one of them has gone, or another round has begun since this member looked. The node `ready`
    /// alone does not show that, if this request is late: it may have been removed, and made again with the same version. But these
    /// come first, so another round would have been theirs, and it is over only when they are gone.
    fn begin(&self, member: &MemberNode, members: &BTreeSet<String>) -> Result<Txn> {
        let (ready, data) = (self.ready()?, Round::data(members));
        // A write instead of a check: what a call that is dropped only created would be removed again, and others rely on it.
        let begin = Txn::new().set(member.path(), "", Expect::Any);
        // Besides these two writes. Of a larger round not all are checked.
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

    /// Waits for a reason to look again.
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
            // The member that comes last begins the round.
            Kind::Created if is_our_name(name) => {
                self.present.came(name);
                None
            }
            Kind::Deleted => {
                let was_there = self.present.went(name);
                if was_there && self.place.on_loss == OnLoss::Fail && !inside.contains(name) {
                    return Some(Reason::GivenUp(name.to_owned()));
                }
                let may_begin = !self.present.has_any(inside) && self.present.are(parties);
                (may_begin || name == member.name()).then_some(Reason::Others)
            }
            Kind::Updated if self.present.has(name) => None,
            // Perhaps a member of another library came.
            _ => Some(Reason::Others),
        }
    }
}

async fn read_round(session: &Session, ready: Query) -> Result<Option<Round>> {
    let view = session.read(ready).await?;
    Ok(view.node().map(Round::of))
}

fn given_up(name: &str) -> Error {
    Error::new(ErrorKind::Refused, ENTERING)
        .because(format!("another member gave up before all were there: {name}"))
}
