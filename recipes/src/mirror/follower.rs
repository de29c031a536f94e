//! [`MirrorFollower`]: the task that keeps a mirror equal.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
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
use synod_core::store::{End, Query, Revision, View, Watch};
use tokio::sync::watch;

use crate::mirror::board::Board;
use crate::mirror::hearing::Hearing;
use crate::mutant::mistake;

/// The most nodes that are read at once after events that do not say what they became.
const BATCH: usize = 50;

/// Reads the whole in each session and after each outage, and follows the events in between.
pub(super) struct MirrorFollower {
    pursuit: Pursuit,
    connection: watch::Receiver<ConnectionState>,
}

/// What it takes to go one step further. A step that is dropped is taken again.
struct Pursuit {
    client: Client,
    board: Arc<Board>,
    /// `None` if the last one ended.
    observation: Option<Observation>,
    hearing: Hearing,
    /// The nodes that have to be read.
    unread: BTreeSet<Path>,
    /// Those that were read and are gone, until all are read.
    gone: BTreeMap<Path, Revision>,
    /// How many of them are read at once.
    batch: usize,
    /// Whether the store does not answer, or the session is over.
    cut: bool,
    delays: Option<Delays>,
}

/// A session, and a watch in it.
struct Observation {
    session: Session,
    watch: Watch,
}

impl Observation {
    /// Reads the whole, and hears what is reported meanwhile. `None` if the watch ends before.
    async fn read(&mut self, board: &Board, meanwhile: &mut Hearing) -> Result<Option<View>> {
        let mut reading = pin!(self.session.read(board.query()));
        loop {
            match select(reading.as_mut(), pin!(self.watch.next())).await {
                Either::Left((view, _)) => return view.map(Some),
                Either::Right((event, _)) => meanwhile.hear(board.extent(), event),
            }
            if meanwhile.ended.is_some() {
                return Ok(None);
            }
        }
    }
}

impl MirrorFollower {
    pub(super) fn new(client: &Client, board: Arc<Board>) -> Self {
        let connection = client.state();
        let pursuit = Pursuit {
            client: client.clone(),
            board,
            observation: None,
            hearing: Hearing::default(),
            unread: BTreeSet::new(),
            gone: BTreeMap::new(),
            batch: BATCH,
            cut: !answers(*connection.borrow()),
            delays: None,
        };
        Self { pursuit, connection }
    }

    /// Ends with the client.
    pub(super) async fn run(mut self) {
        while let Some(turned) = self.turn().await {
            if let Some(connection) = turned {
                self.pursuit.turned(connection);
            }
        }
    }

    /// Goes a step, or learns that the connection is in another state. `None` once the client is closed.
    async fn turn(&mut self) -> Option<Option<ConnectionState>> {
        let step = pin!(self.pursuit.step());
        match select(pin!(self.connection.changed()), step).await {
            Either::Left((turned, _)) => turned.ok()?,
            Either::Right(((), _)) => return Some(None),
        }
        Some(Some(*self.connection.borrow_and_update()))
    }
}

/// However the task ends: a filter of the application may panic.
impl Drop for MirrorFollower {
    fn drop(&mut self) {
        if thread::panicking() {
            return self.pursuit.board.fail();
        }
        self.pursuit.board.end();
    }
}

fn answers(connection: ConnectionState) -> bool {
    matches!(connection, ConnectionState::Connected | ConnectionState::Reconnected)
}

impl Pursuit {
    /// The connection is in another state: there may have been an outage, whatever the watch reports.
    fn turned(&mut self, connection: ConnectionState) {
        self.board.stale();
        self.hearing.missed = true;
        self.cut = !answers(connection);
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
            Some(_) if self.hearing.missed => Box::pin(self.read_all()).await,
            Some(_) if !self.unread.is_empty() => Box::pin(self.read_some()).await,
            Some(_) => self.hear().await,
        };
        match stepped {
            Ok(()) => self.delays = None,
            Err(error) => self.failed(&error).await,
        }
    }

    /// Begins in the session that lives now.
    async fn observe(&mut self) -> Result<()> {
        let session = self.client.session().await?;
        let (view, watch) = session.watch(self.board.query()).await?;
        let is_other = self.board.begin(session.clone());
        self.hearing = Hearing::default();
        self.observation = Some(Observation { session, watch });
        mistake!(OutageUnread: if !self.board.snapshot().is_empty() {
            self.board.complete();
            return Ok(());
        });
        self.take_over(view, is_other);
        Ok(())
    }

    /// Reads the whole again.
    async fn read_all(&mut self) -> Result<()> {
        let Some(observation) = &mut self.observation else { return Ok(()) };
        let mut meanwhile = Hearing::default();
        match observation.read(&self.board, &mut meanwhile).await? {
            Some(view) => {
                self.hearing = meanwhile;
                self.take_over(view, false);
                Ok(())
            }
            None => self.over(meanwhile.ended),
        }
    }

    fn take_over(&mut self, view: View, is_other_session: bool) {
        self.unread.clear();
        self.gone.clear();
        self.board.replace(view, is_other_session);
        if !self.hearing.missed {
            self.board.complete();
        }
        self.learn();
    }

    /// Reads some of the nodes that changed by an event that did not say how.
    async fn read_some(&mut self) -> Result<()> {
        let Some(Observation { session, .. }) = &self.observation else { return Ok(()) };
        let some: Vec<Path> = self.unread.iter().take(self.batch).cloned().collect();
        let Some((first, more)) = some.split_first() else { return Ok(()) };
        let query = Query::nodes(first, more.iter().cloned());
        // What the session was notified of is in what it reads.
        match session.read(query.local()).await {
            Ok(view) => {
                for path in &some {
                    self.unread.remove(path);
                }
                self.board.read(&some, view, &mut self.gone, self.unread.is_empty());
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::TooLarge && self.batch > 1 => {
                self.batch /= 2;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Waits for the next event, and takes over all that are there; or for nodes that are asked for.
    async fn hear(&mut self) -> Result<()> {
        let Some(Observation { watch, .. }) = &mut self.observation else { return Ok(()) };
        let mut event = match select(pin!(self.board.wanted()), pin!(watch.next())).await {
            Either::Left((wanted, _)) => {
                self.unread.extend(wanted);
                return Ok(());
            }
            Either::Right((event, _)) => event,
        };
        loop {
            self.hearing.hear(self.board.extent(), event);
            if self.hearing.ended.is_some() {
                let ended = self.hearing.ended.take();
                return self.over(ended);
            }
            event = match watch.try_next() {
                Some(next) => Some(next),
                None => break,
            };
        }
        mistake!(EventReadsAll: self.hearing.missed = true);
        if self.hearing.missed {
            self.board.stale();
        }
        self.learn();
        Ok(())
    }

    /// Takes over what was heard.
    fn learn(&mut self) {
        let changes = self.hearing.take();
        if !changes.is_empty() {
            self.unread.extend(self.board.hear(changes));
        }
    }

    /// The watch is over. The next step observes anew.
    fn over(&mut self, end: Option<End>) -> Result<()> {
        self.observation = None;
        self.board.stale();
        match end {
            Some(End::Failed(error)) => Err(Error::clone(&error)),
            _ => Ok(()),
        }
    }

    /// Takes note of an error, and waits before the next step.
    async fn failed(&mut self, error: &Error) {
        if error.kind().is_outage() {
            self.board.stale();
        } else {
            self.board.refused(error);
        }
        self.hearing.missed = true;
        if self.observation.as_ref().is_some_and(|it| it.session.is_lost()) {
            self.observation = None;
        }
        let random = self.client.random();
        let delays = self.delays.get_or_insert_with(|| Retry::forever().delays(random));
        let delay = delays.next().unwrap_or_default();
        sleep(delay).await;
    }
}
