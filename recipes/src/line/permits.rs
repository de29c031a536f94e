//! How a [`Ticket`] for permits waits: its grant depends on more than its predecessor.

use std::time::Duration;

use synod_core::clock::timeout;
use synod_core::store::{Change, Event, Kind, Node, Query, Watch};

use crate::line::marks::Capacity;
use crate::line::order::{POSTED, Turn};
use crate::line::ticket::{Ticket, WaitError, Waited};
use crate::mutant::mistake;

impl Ticket {
    /// Whether the predecessor waits itself, and will write to its ticket when it is granted. One that has written
    /// already does not write again. One that was created before the number of permits was changed may have been
    /// granted before that change, when there was no later waiter to notify.
    pub(super) async fn will_tell(&mut self, ahead: &Node) -> Result<bool, WaitError> {
        let Some(stat) = ahead.stat else { return Ok(false) };
        if stat.modified != stat.created {
            return Ok(false);
        }
        let (Capacity::Posted, Some(permits)) = (self.form().capacity, self.last.permits) else {
            return Ok(true);
        };
        let Ok(posted) = self.line.dir().join(&format!("{POSTED}{permits}")) else {
            return Ok(false);
        };
        let session = self.node.session().clone();
        let query = Query::node(posted).names_only();
        let view = self.insist(|| session.read(query.clone())).await?;
        let changed = view.node().and_then(|node| node.stat).map(|stat| stat.created);
        let changed_before = changed.is_some_and(|changed| changed < stat.created);
        mistake!(LimitChangeIgnored: let changed_before = true);
        Ok(changed_before)
    }

    /// Waits until something in the line differs from the last look.
    ///
    /// If nothing changes for long, it searches for containers: a container that counts as a ticket may never go.
    pub(super) async fn until_anything(
        &mut self,
        kept: &mut Option<Watch>,
    ) -> Result<Waited, WaitError> {
        let mut line_watch = if let Some(watch) = kept.take() {
            watch
        } else {
            let all = Query::children(self.line.dir().clone()).names_only();
            let (view, watch) = self.watch(all).await?;
            if !matches!(self.think(&view).0, Turn::Next | Turn::After(_)) {
                self.seen = Some(view);
                return Ok(Waited::Change(None));
            }
            watch
        };
        let sweeps = self.last.unsure && !self.swept;
        let limit = match self.node.session().info().ttl / 3 {
            _ if sweeps && self.last.suspects => Duration::ZERO,
            long if sweeps => long,
            _ => Duration::MAX,
        };
        let changed = async {
            loop {
                match line_watch.next().await {
                    Some(Event::Changed(change)) if is_arrival(&change) => {}
                    Some(Event::Ended(_)) | None => return Waited::Nothing,
                    _ => return Waited::Change(None),
                }
            }
        };
        let Ok(waited) = self.unless_lost(timeout(limit, changed)).await? else {
            *kept = Some(line_watch);
            self.sweep().await?;
            return Ok(Waited::Change(None));
        };
        if matches!(waited, Waited::Change(_)) {
            self.swept = false;
            // The watch also reports what changes during the next look.
            *kept = Some(line_watch);
        }
        Ok(waited)
    }

    /// Notifies the later waiters of the grant, if there are any and it matters to them. This happens in the
    /// background: the holder does not wait for it.
    pub(super) fn notify_later_waiters(&self) {
        let told = self.form().capacity != Capacity::One && self.last.followed;
        // A ticket that is checked by its version was written to when it was created, once for all.
        mistake!(CallUntold: let told = false);
        if told && !self.node.counts_by_version() {
            let (path, label) = (self.node.path().clone(), self.line.label().clone());
            self.node.session().rewrite(path, label);
        }
    }
}

/// Whether a ticket was created or written to: neither brings any waiter closer to its grant. If a ticket is created
/// again, it was removed before, which the watch reports, too.
fn is_arrival(change: &Change) -> bool {
    let is_ticket = !change.path.name().starts_with(POSTED);
    is_ticket && matches!(change.kind, Kind::Created | Kind::Updated)
}
