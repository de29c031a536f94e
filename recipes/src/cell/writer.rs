//! [`Writer`]: writes the changes of the tasks of this process, one batch after the other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::clock;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::retry::{Delays, Retry};
use synod_core::session::Session;
use synod_core::store::Query;
use synod_core::task;

use crate::cell::batch::{Batch, Pending};
use crate::cell::mark::{Basis, BasisId, CellValue, DOING, Mark, Place};
use crate::cell::meter;
use crate::cell::replace::{Written, forget, replace};

use crate::mutant::mistake;

/// What the clones of a cell share.
pub(super) struct Writer {
    client: Client,
    path: Path,
    recipe: &'static str,
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

/// The turn of the task that writes. If it is dropped early, after a panic in a decision, the changes that wait fail, and
/// the next one starts another task.
struct WriterTurn<'a> {
    writer: &'a Writer,
    place: Option<Place>,
    over: bool,
}

/// The races that a batch has lost, and the delays after them.
#[derive(Default)]
struct LostRaces {
    count: u32,
    delays: Option<Delays>,
}

impl Writer {
    pub(super) fn new(client: &Client, path: Path, recipe: &'static str) -> Self {
        Self { client: client.clone(), path, recipe, state: Mutex::default() }
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
    pub(super) fn enqueue(self: Arc<Self>, change: Pending) {
        let mut state = self.state();
        state.waiting.push(change);
        if std::mem::replace(&mut state.writing, true) {
            return;
        }
        let place = state.place.take();
        drop(state);
        // It ends by itself, when no change waits.
        task::spawn(async move { self.write_all(place).await }).let_go();
    }

    async fn write_all(&self, place: Option<Place>) {
        let mut turn = WriterTurn { writer: self, place, over: false };
        while let Some(batch) = turn.next() {
            self.write(&mut turn.place, batch).await;
        }
    }

    /// Decides and writes, until all changes of a batch are answered.
    async fn write(&self, place: &mut Option<Place>, mut batch: Batch) {
        let (mut doubt, mut lost) = (None, LostRaces::default());
        loop {
            if doubt.is_none() {
                let more = std::mem::take(&mut self.state().waiting);
                batch.renew(more);
                if batch.is_empty() {
                    return;
                }
            }
            let remembered = place.as_ref().is_some_and(|place| place.value.is_some());
            let basis = match self.basis(place, doubt).await {
                Ok(basis) => basis,
                Err(error) => return batch.fail(&error),
            };
            let Some(data) = batch.decide(basis.value()) else {
                if doubt.is_some() {
                    return batch.fail(&self.unknown());
                }
                let confirmed = !remembered;
                mistake!(MemoryTrusted: let confirmed = true);
                if confirmed {
                    return batch.answer(basis.value());
                }
                forget(place);
                continue;
            };
            batch.count();
            match self.send(place, &basis, data).await {
                Ok(Written::Applied) => {
                    meter::written(self.recipe, batch.len());
                    return batch.answer(place.as_ref().and_then(|place| place.value.as_ref()));
                }
                Ok(Written::Lost) => self.pause(&mut lost).await,
                Ok(Written::InDoubt) => doubt = Some(basis.id()),
                Err(error) if doubt.is_some() => return batch.fail(&error.with_unknown_effect()),
                Err(error) => return batch.fail(&error),
            }
        }
    }

    /// What the next write starts from. If an earlier one is in doubt, it must be what that one was to replace.
    async fn basis(&self, place: &mut Option<Place>, doubt: Option<BasisId>) -> Result<Basis> {
        mistake!(DoubtForgotten: let doubt = None);
        let unsure = |error: Error| {
            if doubt.is_some() { error.with_unknown_effect() } else { error }
        };
        let basis = self.known(place).await.map_err(unsure)?;
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
    async fn known(&self, place: &mut Option<Place>) -> Result<Basis> {
        loop {
            let over = place.as_ref().is_some_and(|place| place.mark.session().is_lost());
            if over {
                *place = None;
            }
            let found = if let Some(known) = place {
                self.refresh(known).await
            } else {
                let session = self.client.session().await?;
                match Mark::make(&session, &self.path).await {
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

    /// The value that is remembered, or else the one that is read with the mark in place.
    async fn refresh(&self, place: &mut Place) -> Result<Option<CellValue>> {
        mistake!(ReadsFirst: place.value = None);
        if !place.mark.is_known() && place.mark.read().await?.is_none() {
            return Ok(None);
        }
        if place.value.is_none() {
            let view = place.mark.session().read(Query::node(&self.path)).await?;
            place.value = view.into_node().and_then(CellValue::of);
        }
        Ok(place.value.clone())
    }

    /// Writes the value, with the first mark if there is no node yet.
    async fn send(&self, place: &mut Option<Place>, basis: &Basis, data: Bytes) -> Result<Written> {
        let session = match basis {
            Basis::Present(from) => return replace(place, &self.path, from, data).await,
            Basis::Missing(session) => session,
        };
        match Mark::found(session, &self.path, data).await {
            Ok(Some(founded)) => {
                *place = Some(founded);
                Ok(Written::Applied)
            }
            Ok(None) => self.refuse_container(session).await.map(|()| Written::Lost),
            Err(error) if error.kind() == ErrorKind::SessionLost => {
                Ok(if error.is_ambiguous() { Written::InDoubt } else { Written::Lost })
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

    /// Waits before every second try. One after a delay starts from a value that may be out of date. If it is lost, its
    /// rejection shows the value, and the next one is at once: no other try has a chance while other clients write.
    async fn pause(&self, lost: &mut LostRaces) {
        mistake!(LostRaceStarves: std::future::pending::<()>().await);
        lost.count += 1;
        if lost.count.is_multiple_of(2) {
            let delays =
                lost.delays.get_or_insert_with(|| Retry::optimistic().delays(self.client.chance()));
            clock::sleep(delays.next().unwrap_or_default()).await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of a preparation, whose effect on the value is certainly none.
fn harmless(error: Error) -> Error {
    if !error.is_ambiguous() {
        return error;
    }
    let plain = Error::new(error.kind(), DOING);
    let plain = match error.path() {
        Some(path) => plain.at(path),
        None => plain,
    };
    plain.because("the node by which it is recognized could not be made").caused_by(error)
}

impl WriterTurn<'_> {
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

impl Drop for WriterTurn<'_> {
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
