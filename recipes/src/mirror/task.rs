//! [`MirrorTask`]: the task that makes a mirror follow the store.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::mem::take;
use std::pin::pin;
use std::sync::Arc;
use std::thread;

use futures_util::future::{Either, select};
use synod_core::client::{Client, ConnectionState};
use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::retry::{Delays, Retry};
use synod_core::session::Session;
use synod_core::store::{Change, End, Event, Query, Revision, View, Watch};
use tokio::sync::watch;

use crate::mirror::extent::Extent;
use crate::mirror::shared::MirrorShared;
use crate::mutant::mistake;

/// The limit of nodes that are read in one request after incomplete events.
const MAX_BATCH: usize = 50;

/// Reads the whole extent in each session and after each outage, and follows the events in between.
pub(super) struct MirrorTask {
    steps: MirrorSteps,
    connection: watch::Receiver<ConnectionState>,
}

/// The state of the task between two steps. A dropped step is repeated.
struct MirrorSteps {
    client: Client,
    shared: Arc<MirrorShared>,
    /// `None` if the last observation ended.
    observation: Option<Observation>,
    pending: PendingChanges,
    /// The nodes that must be read.
    unread: BTreeSet<Path>,
    /// The nodes that were read and are gone, until all are read.
    gone: BTreeMap<Path, Revision>,
    /// The number of nodes that are read in one request.
    batch: usize,
    /// True if the store does not respond, or the session has ended.
    cut: bool,
    delays: Option<Delays>,
}

/// A session, and a watch in it.
struct Observation {
    session: Session,
    watch: Watch,
}

impl Observation {
    /// Reads the whole extent, and records the events that arrive during the read. `None` if the
    /// watch ends first.
    async fn read(
        &mut self,
        shared: &MirrorShared,
        meanwhile: &mut PendingChanges,
    ) -> Result<Option<View>> {
        let mut reading = pin!(self.session.read(shared.query()));
        loop {
            match select(reading.as_mut(), pin!(self.watch.next())).await {
                Either::Left((view, _)) => return view.map(Some),
                Either::Right((event, _)) => meanwhile.record(shared.extent(), event),
            }
            if meanwhile.ended.is_some() {
                return Ok(None);
            }
        }
    }
}

impl MirrorTask {
    pub(super) fn new(client: &Client, shared: Arc<MirrorShared>) -> Self {
        let connection = client.state();
        let steps = MirrorSteps {
            client: client.clone(),
            shared,
            observation: None,
            pending: PendingChanges::default(),
            unread: BTreeSet::new(),
            gone: BTreeMap::new(),
            batch: MAX_BATCH,
            cut: !is_connected(*connection.borrow()),
            delays: None,
        };
        Self { steps, connection }
    }

    /// Runs until the client is closed.
    pub(super) async fn run(mut self) {
        while let Some(changed) = self.turn().await {
            if let Some(connection) = changed {
                self.steps.set_connection(connection);
            }
        }
    }

    /// Takes a step, or returns the new state of the connection. `None` once the client is closed.
    async fn turn(&mut self) -> Option<Option<ConnectionState>> {
        let step = pin!(self.steps.step());
        match select(pin!(self.connection.changed()), step).await {
            Either::Left((changed, _)) => changed.ok()?,
            Either::Right(((), _)) => return Some(None),
        }
        Some(Some(*self.connection.borrow_and_update()))
    }
}

/// Records the end of the task for any reason, including a panic in a filter of the application.
impl Drop for MirrorTask {
    fn drop(&mut self) {
        if thread::panicking() {
            return self.steps.shared.fail();
        }
        self.steps.shared.end();
    }
}

fn is_connected(connection: ConnectionState) -> bool {
    matches!(connection, ConnectionState::Connected | ConnectionState::Reconnected)
}

impl MirrorSteps {
    /// Records a new state of the connection: there may have been an outage, regardless of the
    /// events.
    fn set_connection(&mut self, connection: ConnectionState) {
        self.shared.set_stale();
        self.pending.missed = true;
        self.cut = !is_connected(connection);
        if self.observation.as_ref().is_some_and(|it| it.session.is_lost()) {
            self.observation = None;
        }
    }

    async fn step(&mut self) {
        if self.cut {
            return pending().await;
        }
        let stepped = match &self.observation {
            None => Box::pin(self.observe()).await,
            Some(_) if self.pending.missed => Box::pin(self.read_all()).await,
            Some(_) if !self.unread.is_empty() => Box::pin(self.read_some()).await,
            Some(_) => self.follow().await,
        };
        match stepped {
            Ok(()) => self.delays = None,
            Err(error) => self.record_failure(&error).await,
        }
    }

    /// Starts to observe in the live session.
    async fn observe(&mut self) -> Result<()> {
        let session = self.client.session().await?;
        let (view, watch) = session.watch(self.shared.query()).await?;
        let is_other = self.shared.begin(session.clone());
        self.pending = PendingChanges::default();
        self.observation = Some(Observation { session, watch });
        mistake!(OutageUnread: if !self.shared.snapshot().is_empty() {
            self.shared.set_complete();
            return Ok(());
        });
        self.apply_all(view, is_other);
        Ok(())
    }

    /// Reads the whole extent again.
    async fn read_all(&mut self) -> Result<()> {
        let Some(observation) = &mut self.observation else { return Ok(()) };
        let mut meanwhile = PendingChanges::default();
        match observation.read(&self.shared, &mut meanwhile).await? {
            Some(view) => {
                self.pending = meanwhile;
                self.apply_all(view, false);
                Ok(())
            }
            None => self.end_observation(meanwhile.ended),
        }
    }

    fn apply_all(&mut self, view: View, is_other_session: bool) {
        self.unread.clear();
        self.gone.clear();
        self.shared.replace(view, is_other_session);
        if !self.pending.missed {
            self.shared.set_complete();
        }
        self.apply_pending();
    }

    /// Reads some of the nodes whose events were incomplete.
    async fn read_some(&mut self) -> Result<()> {
        let Some(Observation { session, .. }) = &self.observation else { return Ok(()) };
        let some: Vec<Path> = self.unread.iter().take(self.batch).cloned().collect();
        let Some((first, more)) = some.split_first() else { return Ok(()) };
        let query = Query::nodes(first, more.iter().cloned());
        // A read reflects every event that the session has received.
        match session.read(query.local()).await {
            Ok(view) => {
                for path in &some {
                    self.unread.remove(path);
                }
                self.shared.apply_read(&some, view, &mut self.gone, self.unread.is_empty());
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::TooLarge && self.batch > 1 => {
                self.batch /= 2;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Waits for the next event and applies all that have arrived, or waits for requested reads.
    async fn follow(&mut self) -> Result<()> {
        let Some(Observation { watch, .. }) = &mut self.observation else { return Ok(()) };
        let mut event = match select(pin!(self.shared.wanted()), pin!(watch.next())).await {
            Either::Left((wanted, _)) => {
                self.unread.extend(wanted);
                return Ok(());
            }
            Either::Right((event, _)) => event,
        };
        loop {
            self.pending.record(self.shared.extent(), event);
            if self.pending.ended.is_some() {
                let ended = self.pending.ended.take();
                return self.end_observation(ended);
            }
            event = match watch.try_next() {
                Some(next) => Some(next),
                None => break,
            };
        }
        mistake!(EventReadsAll: self.pending.missed = true);
        if self.pending.missed {
            self.shared.set_stale();
        }
        self.apply_pending();
        Ok(())
    }

    /// Applies the pending changes.
    fn apply_pending(&mut self) {
        let changes = self.pending.take();
        if !changes.is_empty() {
            self.unread.extend(self.shared.apply(changes));
        }
    }

    /// Ends the observation with its watch. The next step begins another.
    fn end_observation(&mut self, end: Option<End>) -> Result<()> {
        self.observation = None;
        self.shared.set_stale();
        match end {
            Some(End::Failed(error)) => Err(Error::clone(&error)),
            _ => Ok(()),
        }
    }

    /// Records an error, and waits before the next step.
    async fn record_failure(&mut self, error: &Error) {
        if error.kind().is_outage() {
            self.shared.set_stale();
        } else {
            self.shared.set_refused(error);
        }
        self.pending.missed = true;
        if self.observation.as_ref().is_some_and(|it| it.session.is_lost()) {
            self.observation = None;
        }
        let random = self.client.random();
        let delays = self.delays.get_or_insert_with(|| Retry::forever().delays(random));
        let delay = delays.next().unwrap_or_default();
        sleep(delay).await;
    }
}

/// The changes that are not applied yet: at most one for each path. Of several changes only the
/// last is kept.
#[derive(Debug, Default)]
pub(super) struct PendingChanges {
    changes: BTreeMap<Path, (u64, Change)>,
    /// The number of recorded changes.
    count: u64,
    /// True if other changes were missed, so that the whole extent must be read.
    pub(super) missed: bool,
    /// The end of the watch, if it has ended.
    pub(super) ended: Option<End>,
}

impl PendingChanges {
    /// Records an event.
    pub(super) fn record(&mut self, extent: &Extent, event: Option<Event>) {
        match event {
            Some(Event::Changed(change)) if extent.has(&change.path) => {
                self.count += 1;
                let _earlier = self.changes.insert(change.path.clone(), (self.count, change));
            }
            Some(Event::Changed(_)) => {}
            Some(Event::Resync) => {
                mistake!(ResyncUnread: return);
                self.changes.clear();
                self.missed = true;
            }
            Some(Event::Ended(end)) => self.ended = Some(end),
            None => self.ended = self.ended.take().or(Some(End::Delivered)),
        }
    }

    /// Takes all changes, in the order of the events.
    pub(super) fn take(&mut self) -> Vec<Change> {
        let mut changes: Vec<_> = take(&mut self.changes).into_values().collect();
        changes.sort_by_key(|(count, _)| *count);
        changes.into_iter().map(|(_, change)| change).collect()
    }
}

#[cfg(test)]
mod tests {
    use synod_core::path;
    use synod_core::store::Kind;

    use super::*;

    #[test]
    fn the_last_change_of_each_path_is_recorded_in_order() {
        let (extent, mut pending) = (Extent::subtree(path!("/a")), PendingChanges::default());
        let changed = |path: &str, kind| {
            Some(Event::Changed(Change::new(Path::new(path).expect("valid"), kind)))
        };
        pending.record(&extent, changed("/a/c", Kind::Created));
        pending.record(&extent, changed("/a/b", Kind::Created));
        pending.record(&extent, changed("/b", Kind::Created));
        pending.record(&extent, changed("/a/c", Kind::Deleted));
        let taken = |pending: &mut PendingChanges| {
            let taken = pending.take().into_iter();
            taken.map(|it| (it.path.to_string(), it.kind)).collect::<Vec<_>>()
        };
        let expected = [("/a/b".to_owned(), Kind::Created), ("/a/c".to_owned(), Kind::Deleted)];
        assert_eq!(taken(&mut pending), expected);
        assert!(pending.take().is_empty() && !pending.missed);

        pending.record(&extent, changed("/a/b", Kind::Updated));
        pending.record(&extent, Some(Event::Resync));
        pending.record(&extent, changed("/a/c", Kind::Created));
        assert!(pending.missed && pending.ended.is_none());
        assert_eq!(taken(&mut pending), [("/a/c".to_owned(), Kind::Created)]);
        pending.record(&extent, None);
        assert!(matches!(pending.ended, Some(End::Delivered)));
    }
}
