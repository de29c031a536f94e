//! [`Inside`]: a member that has entered, and how it leaves.

use std::collections::BTreeSet;
use std::fmt;

use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{Kind, Txn, View};
use tracing::Instrument;

use crate::cell::patience::Patience;
use crate::double_barrier::barrier_place::BarrierPlace;
use crate::double_barrier::member::{MemberNode, is_our_name};
use crate::double_barrier::member_watch::{MemberWatch, News};
use crate::double_barrier::round::{READY, Round};
use crate::mutant::mistake;

/// A member of a round that has begun. If it is dropped it leaves, and does not wait.
#[must_use = "a member that is dropped has left"]
pub struct Inside {
    place: BarrierPlace,
    member: MemberNode,
    watch: MemberWatch,
    /// The other members of the round.
    others: BTreeSet<String>,
    /// The round, if this member began it.
    began: Option<Round>,
}

impl Inside {
    pub(super) fn new(
        place: BarrierPlace,
        member: MemberNode,
        watch: MemberWatch,
        others: BTreeSet<String>,
        began: Option<Round>,
    ) -> Self {
        Self { place, member, watch, others, began }
    }

    /// The node of this member.
    pub fn path(&self) -> &Path {
        self.member.path()
    }

    /// Whether the others certainly wait for this member to leave. False once its session may be over: then they may have
    /// left.
    pub fn is_inside(&self) -> bool {
        self.member.session().is_certain()
    }

    /// Waits until the session of this member is lost. For the others it has left then.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches.
    pub async fn lost(&self) {
        let _why = self.member.session().lost().await;
    }

    /// Leaves, and waits until all other members of the round have left or died.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`](synod_core::error::ErrorKind::SessionLost) if the session was lost before, or once the client is closed, and
    /// [`ErrorKind::Unreachable`](synod_core::error::ErrorKind::Unreachable) if the store does not answer in time that this
    /// member has left: it leaves in the background then. An outage after that is no error: the wait goes on.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has left, or leaves in the background, and does not wait.
    pub async fn leave(mut self) -> Result<()> {
        let (recipe, path) = ("double barrier", self.place.path.clone());
        let span = tracing::debug_span!("leaving", recipe, %path);
        // On the heap, so that the future of a caller with many waits stays small.
        Box::pin(async move {
            match self.began.take() {
                Some(round) if round.is_ours() => self.leave_last(&round).await?,
                _ => self.leave_first().await?,
            }
            let Self { place, watch, .. } = self;
            place.keep(watch);
            Ok(())
        })
        .instrument(span)
        .await
    }

    /// Leaves, and waits for the others. In other libraries the first by name leaves last, and the node that begins a round is
    /// removed by every member.
    async fn leave_first(&mut self) -> Result<()> {
        let look_in = (!self.forget_those_gone()).then_some(&self.place.path);
        let seen = self.member.leave(look_in).await?;
        mistake!(LeavesAlone: return Ok(()));
        self.until_all_have_left(seen).await
    }

    /// Waits for the others, and then leaves and ends the round at once: a request that ends a round later, when there is
    /// another one, is refused because the member is gone.
    async fn leave_last(&mut self, round: &Round) -> Result<()> {
        self.until_all_have_left(None).await?;
        let ready = self.place.path.join(READY)?;
        let end = Txn::new().delete(ready, round.expected());
        self.member.leave_with(end).await
    }

    async fn until_all_have_left(&mut self, mut seen: Option<View>) -> Result<()> {
        let mut delays = Patience::new(&self.place.client);
        // All of them were there after the watch began.
        let mut knows = seen.is_none() && self.forget_those_gone();
        loop {
            if knows && self.until_they_have_left().await {
                return Ok(());
            }
            match self.watch.present(seen.take()).await {
                Ok(present) => {
                    self.others.retain(|name| present.has(name));
                    delays.begin_anew();
                    knows = true;
                }
                Err(error) => {
                    delays.rest(error).await?;
                    knows = false;
                }
            }
        }
    }

    /// Does not wait for those any more that are gone. False if it may not have been notified of all of them.
    fn forget_those_gone(&mut self) -> bool {
        let Some(gone) = self.watch.gone() else { return false };
        self.others.retain(|name| !gone.contains(name));
        self.others.iter().all(|name| is_our_name(name))
    }

    /// Waits until all of them are reported as gone. False if it has to look.
    async fn until_they_have_left(&mut self) -> bool {
        while !self.others.is_empty() {
            let News::Changed(change) = self.watch.news().await else { return false };
            let name = change.path.name();
            match change.kind {
                Kind::Deleted if is_our_name(name) => drop(self.others.remove(name)),
                // The name of a member of another library may have been used before, and the report be of that.
                Kind::Deleted if self.others.contains(name) => return false,
                Kind::Children => return false,
                _ => {}
            }
        }
        true
    }
}

impl fmt::Debug for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inside").field("path", self.path()).finish_non_exhaustive()
    }
}
