//! [`Entered`]: a member that has entered, and its departure.

use std::collections::BTreeSet;
use std::fmt;

use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{Kind, Txn, View};
use tracing::Instrument;

use crate::double_barrier::member::{MemberNode, is_our_name};
use crate::double_barrier::member_watch::{BarrierPlace, MemberWatch, News};
use crate::double_barrier::present::Round;
use crate::layout::barrier::READY;
use crate::mutant::mistake;
use crate::support::retry::OutageBackoff;

/// A member of a round that has begun. Dropping it makes it leave without a wait for the others.
#[must_use = "dropping this leaves the round"]
pub struct Entered {
    place: BarrierPlace,
    member: MemberNode,
    watch: MemberWatch,
    /// The other members of the round.
    others: BTreeSet<String>,
    /// The round, if this member began it.
    began: Option<Round>,
}

impl Entered {
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

    /// Returns `true` if the other members certainly wait for this member to leave. Returns `false`
    /// once its session may have ended: the others may then have left.
    pub fn is_inside(&self) -> bool {
        self.member.session().is_certain()
    }

    /// Waits until the session of this member is lost. The other members then treat it as having
    /// left.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches.
    pub async fn lost(&self) {
        let _why = self.member.session().lost().await;
    }

    /// Leaves, and waits until all other members of the round have left or have lost their
    /// sessions.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SessionLost`](synod_core::error::ErrorKind::SessionLost) if the session was
    /// lost before, or once the client is closed, and
    /// [`ErrorKind::Unreachable`](synod_core::error::ErrorKind::Unreachable) if the store does not
    /// confirm in time that this member has left: it then leaves in the background. A later outage
    /// is not an error: the wait continues.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has left, or leaves in the background, and does not wait.
    pub async fn leave(mut self) -> Result<()> {
        let (recipe, path) = ("double barrier", self.place.path.clone());
        let span = tracing::debug_span!("leaving", recipe, %path);
        // Boxed, so that the future of a caller with many waits stays small.
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

    /// Leaves, and waits for the others. In other libraries the first member by name leaves last,
    /// and every member removes the node that begins a round.
    async fn leave_first(&mut self) -> Result<()> {
        let read_in = (!self.forget_those_gone()).then_some(&self.place.path);
        let view = self.member.leave(read_in).await?;
        mistake!(LeavesAlone: return Ok(()));
        self.until_all_have_left(view).await
    }

    /// Waits for the others, and then leaves and ends the round in one transaction: a late request,
    /// during another round, is rejected because the member is gone.
    async fn leave_last(&mut self, round: &Round) -> Result<()> {
        self.until_all_have_left(None).await?;
        let ready = self.place.path.join(READY)?;
        let end = Txn::new().delete(ready, round.expected());
        self.member.leave_with(end).await
    }

    async fn until_all_have_left(&mut self, mut view: Option<View>) -> Result<()> {
        let mut delays = OutageBackoff::new(&self.place.client);
        // All of them existed when the watch began.
        let mut is_known = view.is_none() && self.forget_those_gone();
        loop {
            if is_known && self.until_they_have_left().await {
                return Ok(());
            }
            match self.watch.present(view.take()).await {
                Ok(present) => {
                    self.others.retain(|name| present.has(name));
                    delays.reset();
                    is_known = true;
                }
                Err(error) => {
                    delays.wait(error).await?;
                    is_known = false;
                }
            }
        }
    }

    /// Stops waiting for members that are gone. Returns false if an event for one of them may be
    /// missing.
    fn forget_those_gone(&mut self) -> bool {
        let Some(gone) = self.watch.gone() else { return false };
        self.others.retain(|name| !gone.contains(name));
        self.others.iter().all(|name| is_our_name(name))
    }

    /// Waits until all of them are reported as gone. Returns false if a read is needed.
    async fn until_they_have_left(&mut self) -> bool {
        while !self.others.is_empty() {
            let News::Changed(change) = self.watch.news().await else { return false };
            let name = change.path.name();
            match change.kind {
                Kind::Deleted if is_our_name(name) => drop(self.others.remove(name)),
                // The name of a member of another library may have been used before, and the event
                // may be about the earlier node.
                Kind::Deleted if self.others.contains(name) => return false,
                Kind::Children => return false,
                _ => {}
            }
        }
        true
    }
}

impl fmt::Debug for Entered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entered").field("path", self.path()).finish_non_exhaustive()
    }
}
