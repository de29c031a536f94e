//! [`Writer`]: writes the changes of the tasks of this process, one batch after the other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Query, Stat};
use synod_core::task;

use crate::cell::change::{ChangeBatch, DOING, DataLimit, PendingChange, StoredValue};
use crate::cell::promotion::{Enter, Promotion, PromotionLock, ValueNodes};
use crate::cell::tries::BatchTries;
use crate::cell::writer_state::{WriterState, Written, forget_value, replace};
use crate::mutant::mistake;
use crate::support::exactly_once::write_id::without_effect;
use crate::support::metrics::record_batch;

/// The parts that the clones of a value share.
pub(super) struct Writer {
    client: Client,
    path: Path,
    recipe: &'static str,
    lock: Option<PromotionLock>,
    queue: Mutex<WriterQueue>,
}

#[derive(Default)]
struct WriterQueue {
    waiting: Vec<PendingChange>,
    /// True while a task writes.
    is_writing: bool,
    /// The state that the last task left.
    state: Option<WriterState>,
}

/// The task that writes.
///
/// If the task is dropped early, possibly before it was first polled because its runtime has ended,
/// the waiting changes return to their callers, and the next change starts another task.
struct WriterTask {
    writer: Arc<Writer>,
    state: Option<WriterState>,
    is_over: bool,
}

/// The value that a write starts from.
enum Basis {
    Present(StoredValue),
    /// There is no node, as seen in this session.
    Missing(Session),
}

/// The identity of a basis: two different bases never have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BasisId(Option<Stat>);

impl Writer {
    pub(super) fn new(client: &Client, path: Path, recipe: &'static str) -> Self {
        Self { client: client.clone(), path, recipe, lock: None, queue: Mutex::default() }
    }

    /// Returns a writer whose changes are promoted.
    pub(super) fn promoting(self, promotion: Promotion, enter: Enter) -> Self {
        Self { lock: Some(PromotionLock::new(promotion, enter)), ..self }
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

    /// Adds a change to the next batch.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub(super) fn enqueue(self: Arc<Self>, change: PendingChange) {
        let mut queue = self.queue();
        queue.waiting.push(change);
        if std::mem::replace(&mut queue.is_writing, true) {
            return;
        }
        let state = queue.state.take();
        drop(queue);
        // The drop of this value resets `is_writing`, even if the task is never polled.
        let task = WriterTask { writer: self, state, is_over: false };
        // The task ends by itself when no change waits.
        task::spawn(task.run()).let_go();
    }

    /// Decides and writes a batch, until all its changes are answered.
    async fn write(&self, state: &mut Option<WriterState>, mut batch: ChangeBatch) {
        match self.try_write(state, &mut batch).await {
            Ok(last) => batch.answer(last.as_ref()),
            Err(error) => batch.fail(&error),
        }
    }

    /// Decides and writes a batch, until its effect is known. Returns the value of the node after
    /// that, if it is known.
    async fn try_write(
        &self,
        state: &mut Option<WriterState>,
        batch: &mut ChangeBatch,
    ) -> Result<Option<StoredValue>> {
        let nodes = ValueNodes::new(&self.path, self.lock.as_ref())?;
        let mut tries = BatchTries::new(&self.client, &nodes, self.lock.as_ref());
        let mut doubt = None;
        loop {
            if doubt.is_none() {
                // The dropped changes may run code of the application: the lock is released by
                // then.
                let more = std::mem::take(&mut self.queue().waiting);
                batch.renew(more);
                if batch.is_empty() {
                    return Ok(None);
                }
                if !tries.ready(batch).await? {
                    continue;
                }
            }
            let was_known = state.as_ref().is_some_and(|state| state.value.is_some());
            let basis = self.basis(state, &nodes, doubt).await?;
            if doubt.is_none() && !tries.admit(state, batch).await? {
                continue;
            }
            let limit = DataLimit { path: &self.path, max: max_data(state.as_ref(), &basis) };
            let Some(data) = batch.decide(basis.value(), limit) else {
                if doubt.is_some() {
                    return Err(self.unknown());
                }
                let confirmed = !was_known;
                mistake!(MemoryTrusted: let confirmed = true);
                if confirmed {
                    tries.end(state);
                    return Ok(basis.value().cloned());
                }
                // A decision not to write is valid only on a value that was read for it.
                forget_value(state);
                continue;
            };
            batch.count_try();
            let yields = doubt.is_none() && tries.yields();
            let sent = self.send(state, &nodes, &basis, data, yields).await;
            match sent.map_err(|error| unsure(error, doubt))? {
                Written::Applied => {
                    tries.end(state);
                    record_batch(self.recipe, batch.len());
                    return Ok(state.as_ref().and_then(|state| state.value.clone()));
                }
                Written::Lost => tries.count_lost(state.as_ref()),
                Written::InDoubt => doubt = Some(basis.id()),
            }
        }
    }

    /// Returns the value that the next write starts from.
    ///
    /// If the effect of a write is unknown, this must be the value that it was to replace: then
    /// that write and the next one exclude each other. Otherwise the effect is unknown.
    async fn basis(
        &self,
        state: &mut Option<WriterState>,
        nodes: &ValueNodes,
        doubt: Option<BasisId>,
    ) -> Result<Basis> {
        mistake!(DoubtForgotten: let doubt = None);
        let basis = self.current(state, nodes).await.map_err(|error| unsure(error, doubt))?;
        if doubt.is_some_and(|doubt| doubt != basis.id()) { Err(self.unknown()) } else { Ok(basis) }
    }

    /// The error of a change whose session was lost before its answer.
    fn unknown(&self) -> Error {
        Error::new(ErrorKind::SessionLost, DOING)
            .at(&self.path)
            .because("the session was lost before the answer, and the value was written since")
            .with_unknown_effect()
    }

    /// Returns the known value, or reads it.
    async fn current(&self, state: &mut Option<WriterState>, nodes: &ValueNodes) -> Result<Basis> {
        loop {
            if state.as_ref().is_some_and(WriterState::is_lost) {
                *state = None;
            }
            let found = if let Some(known) = state {
                known.refresh(nodes).await
            } else {
                let session = self.client.session().await?;
                match WriterState::open(&session, nodes).await {
                    Ok(None) => return Ok(Basis::Missing(session)),
                    Ok(opened) => {
                        *state = opened;
                        continue;
                    }
                    Err(error) => Err(error),
                }
            };
            match found {
                Ok(Some(value)) => return Ok(Basis::Present(value)),
                // The write id is gone, too.
                Ok(None) => *state = None,
                Err(error) if error.kind() == ErrorKind::SessionLost => *state = None,
                Err(error) => return Err(without_effect(error, DOING)),
            }
        }
    }

    /// Writes the value, and creates it together with the write id if there is no node yet.
    async fn send(
        &self,
        state: &mut Option<WriterState>,
        nodes: &ValueNodes,
        basis: &Basis,
        data: Bytes,
        yields: bool,
    ) -> Result<Written> {
        let session = match basis {
            Basis::Present(from) => return replace(state, nodes, from, data, yields).await,
            Basis::Missing(session) => session,
        };
        match WriterState::create(session, nodes, data).await {
            Ok(Some(created)) => {
                *state = Some(created);
                Ok(Written::Applied)
            }
            Ok(None) => self.refuse_container(session).await.map(|()| Written::Lost),
            Err(error) if error.kind() == ErrorKind::SessionLost => {
                Ok(if error.has_unknown_effect() { Written::InDoubt } else { Written::Lost })
            }
            Err(error) => Err(error),
        }
    }

    /// Fails if the path has children but no node: then no node can be created.
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

    fn queue(&self) -> MutexGuard<'_, WriterQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Basis {
    fn value(&self) -> Option<&StoredValue> {
        match self {
            Self::Present(value) => Some(value),
            Self::Missing(_) => None,
        }
    }

    fn id(&self) -> BasisId {
        match self {
            Self::Present(value) => BasisId(Some(value.stat)),
            Self::Missing(_) => BasisId(None),
        }
    }
}

/// The error of a request while the effect of an earlier write may be unknown.
fn unsure(error: Error, doubt: Option<BasisId>) -> Error {
    if doubt.is_some() { error.with_unknown_effect() } else { error }
}

/// The limit of the store for the data of a node.
fn max_data(state: Option<&WriterState>, basis: &Basis) -> usize {
    let session = match basis {
        Basis::Missing(session) => Some(session),
        Basis::Present(_) => state.map(|state| state.write_id.session()),
    };
    session.map_or(usize::MAX, |session| session.info().limits.data)
}

impl WriterTask {
    async fn run(mut self) {
        while let Some(batch) = self.next() {
            self.writer.write(&mut self.state, batch).await;
        }
    }

    /// Takes the waiting changes. `None` if there are none: the task is over.
    fn next(&mut self) -> Option<ChangeBatch> {
        let mut queue = self.writer.queue();
        let waiting = std::mem::take(&mut queue.waiting);
        if waiting.is_empty() {
            (queue.is_writing, queue.state, self.is_over) = (false, self.state.take(), true);
            return None;
        }
        Some(ChangeBatch::new(waiting))
    }
}

impl Drop for WriterTask {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut queue = self.writer.queue();
        queue.is_writing = false;
        let unanswered = std::mem::take(&mut queue.waiting);
        drop(queue);
        // The values that a change holds may run code of the application when dropped.
        drop(unanswered);
    }
}
