//! [`Writer`]: writes the changes of the tasks of this process, one batch after the other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::Query;
use synod_core::task;

use crate::cell::batch::{Batch, DataLimit, Pending};
use crate::cell::gate::Nodes;
use crate::cell::mark::{Basis, BasisId, CellValue, DOING, harmless};
use crate::cell::meter;
use crate::cell::place::{Place, forget};
use crate::cell::promotion::{Enter, Lock, Promotion};
use crate::cell::replace::{Written, replace};
use crate::cell::tries::BatchTries;

use crate::mutant::mistake;

/// What the clones of a cell share.
pub(super) struct Writer {
    client: Client,
    path: Path,
    recipe: &'static str,
    lock: Option<Lock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: Vec<Pending>,
    /// Whether a task writes.
    writing: bool,
    /// What the last task that wrote knew.
    place: Option<Place>,
}

/// The turn of the task that writes. If it is dropped early, perhaps before the task was ever polled, as its runtime has ended,
/// the changes that wait go back to their callers, and the next one starts another task.
struct WriterTurn {
    writer: Arc<Writer>,
    place: Option<Place>,
    over: bool,
}

impl Writer {
    pub(super) fn new(client: &Client, path: Path, recipe: &'static str) -> Self {
        Self { client: client.clone(), path, recipe, lock: None, state: Mutex::default() }
    }

    /// The same, for changes that are promoted.
    pub(super) fn promoting(self, promotion: Promotion, enter: Enter) -> Self {
        Self { lock: Some(Lock::new(promotion, enter)), ..self }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn recipe(&self) -> &'static str {
        self.recipe
    }

    /// Adds a change to those that are written next.
    ///
    /// # Panics
    ///
    /// Outside of a runtime, which could run no task.
    pub(super) fn enqueue(self: Arc<Self>, change: Pending) {
        let mut state = self.state();
        state.waiting.push(change);
        if std::mem::replace(&mut state.writing, true) {
            return;
        }
        let place = state.place.take();
        drop(state);
        // From here on the turn ends, whatever becomes of the task.
        let turn = WriterTurn { writer: self, place, over: false };
        // It ends by itself, when no change waits.
        task::spawn(turn.write_all()).let_go();
    }

    /// Decides and writes, until all changes of a batch are answered.
    async fn write(&self, place: &mut Option<Place>, mut batch: Batch) {
        match self.try_write(place, &mut batch).await {
            Ok(last) => batch.answer(last.as_ref()),
            Err(error) => batch.fail(&error),
        }
    }

    /// Decides and writes, until it is known what became of it. Returns what the node has then, if that is known.
    async fn try_write(
        &self,
        place: &mut Option<Place>,
        batch: &mut Batch,
    ) -> Result<Option<CellValue>> {
        let nodes = Nodes::new(&self.path, self.lock.as_ref())?;
        let mut tries = BatchTries::new(&self.client, &nodes, self.lock.as_ref());
        let mut doubt = None;
        loop {
            if doubt.is_none() {
                // What is dropped may have a `Drop` of its own, so the lock is free by then.
                let more = std::mem::take(&mut self.state().waiting);
                batch.renew(more);
                if batch.is_empty() {
                    return Ok(None);
                }
                if !tries.ready(batch).await? {
                    continue;
                }
            }
            let remembered = place.as_ref().is_some_and(|place| place.value.is_some());
            let basis = self.basis(place, &nodes, doubt).await?;
            if doubt.is_none() && !tries.admit(place, batch).await? {
                continue;
            }
            let limit = DataLimit { path: &self.path, most: most_data(place.as_ref(), &basis) };
            let Some(data) = batch.decide(basis.value(), limit) else {
                if doubt.is_some() {
                    return Err(self.unknown());
                }
                let confirmed = !remembered;
                mistake!(MemoryTrusted: let confirmed = true);
                if confirmed {
                    tries.end(place);
                    return Ok(basis.value().cloned());
                }
                forget(place);
                continue;
            };
            batch.count();
            // What is in doubt is brought to its end.
            let stands_back = doubt.is_none() && tries.stand_back();
            let sent = self.send(place, &nodes, &basis, data, stands_back).await;
            match sent.map_err(|error| unsure(error, doubt))? {
                Written::Applied => {
                    tries.end(place);
                    meter::written(self.recipe, batch.len());
                    return Ok(place.as_ref().and_then(|place| place.value.clone()));
                }
                Written::Lost => tries.lose(place.as_ref()),
                Written::InDoubt => doubt = Some(basis.id()),
            }
        }
    }

    /// What the next write starts from. If an earlier one is in doubt, it must be what that one was to replace.
    async fn basis(
        &self,
        place: &mut Option<Place>,
        nodes: &Nodes,
        doubt: Option<BasisId>,
    ) -> Result<Basis> {
        mistake!(DoubtForgotten: let doubt = None);
        let basis = self.known(place, nodes).await.map_err(|error| unsure(error, doubt))?;
        if doubt.is_some_and(|doubt| doubt != basis.id()) { Err(self.unknown()) } else { Ok(basis) }
    }

    /// The error of a change whose session was lost before its answer.
    fn unknown(&self) -> Error {
        Error::new(ErrorKind::SessionLost, DOING)
            .at(&self.path)
            .because("the session was lost before the answer, and the value was written since")
            .with_unknown_effect()
    }

    /// The value that is remembered, or else the one that is read.
    async fn known(&self, place: &mut Option<Place>, nodes: &Nodes) -> Result<Basis> {
        loop {
            if place.as_ref().is_some_and(Place::is_lost) {
                *place = None;
            }
            let found = if let Some(known) = place {
                known.refresh(nodes).await
            } else {
                let session = self.client.session().await?;
                match Place::make(&session, nodes).await {
                    Ok(None) => return Ok(Basis::Missing(session)),
                    Ok(made) => {
                        *place = made;
                        continue;
                    }
                    Err(error) => Err(error),
                }
            };
            match found {
                Ok(Some(value)) => return Ok(Basis::Present(value)),
                // The mark is gone, too.
                Ok(None) => *place = None,
                Err(error) if error.kind() == ErrorKind::SessionLost => *place = None,
                Err(error) => return Err(harmless(error)),
            }
        }
    }

    /// Writes the value, with the first mark if there is no node yet.
    async fn send(
        &self,
        place: &mut Option<Place>,
        nodes: &Nodes,
        basis: &Basis,
        data: Bytes,
        stands_back: bool,
    ) -> Result<Written> {
        let session = match basis {
            Basis::Present(from) => return replace(place, nodes, from, data, stands_back).await,
            Basis::Missing(session) => session,
        };
        match Place::found(session, nodes, data).await {
            Ok(Some(founded)) => {
                *place = Some(founded);
                Ok(Written::Applied)
            }
            Ok(None) => self.refuse_container(session).await.map(|()| Written::Lost),
            Err(error) if error.kind() == ErrorKind::SessionLost => {
                Ok(if error.has_unknown_effect() { Written::InDoubt } else { Written::Lost })
            }
            Err(error) => Err(error),
        }
    }

    /// Fails if there is no node at the path, but nodes below it: then none can be made.
    async fn refuse_container(&self, session: &Session) -> Result<()> {
        if session.read(Query::node(&self.path).names_only()).await?.node().is_some() {
            return Ok(());
        }
        let below = session.read(Query::children(&self.path).names_only()).await?;
        if below.nodes.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Refused, DOING)
            .at(&self.path)
            .because("there are nodes below it, and it is none itself"))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An error while an earlier write may or may not be in doubt.
fn unsure(error: Error, doubt: Option<BasisId>) -> Error {
    if doubt.is_some() { error.with_unknown_effect() } else { error }
}

/// The limit of the store for the data of a node.
fn most_data(place: Option<&Place>, basis: &Basis) -> usize {
    let session = match basis {
        Basis::Missing(session) => Some(session),
        Basis::Present(_) => place.map(|place| place.mark.session()),
    };
    session.map_or(usize::MAX, |session| session.info().limits.data)
}

impl WriterTurn {
    async fn write_all(mut self) {
        while let Some(batch) = self.next() {
            self.writer.write(&mut self.place, batch).await;
        }
    }

    /// The changes that wait. `None` if there are none: the turn is over.
    fn next(&mut self) -> Option<Batch> {
        let mut state = self.writer.state();
        let waiting = std::mem::take(&mut state.waiting);
        if waiting.is_empty() {
            (state.writing, state.place, self.over) = (false, self.place.take(), true);
            return None;
        }
        Some(Batch::new(waiting))
    }
}

impl Drop for WriterTurn {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut state = self.writer.state();
        state.writing = false;
        let unanswered = std::mem::take(&mut state.waiting);
        drop(state);
        // What a change holds may have a `Drop` of its own.
        drop(unanswered);
    }
}
