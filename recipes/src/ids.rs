//! [`Ids`]: unique numbers, handed out from blocks.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::task;
use tokio::sync::oneshot;

use crate::cell::Cell;
use crate::mutant::mistake;

#[cfg_attr(not(doctest), doc = include_str!("../docs/ids.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/values.md"))]
#[derive(Clone)]
pub struct Ids {
    shared: Arc<IdsShared>,
}

/// The parts that the clones share.
struct IdsShared {
    cell: Cell,
    block: NonZeroU64,
    state: Mutex<IdsState>,
}

#[derive(Default)]
struct IdsState {
    /// The numbers that are reserved, and not handed out yet. None, while calls wait.
    left: Range<u64>,
    /// The calls that wait for a block, in their order.
    waiting: VecDeque<oneshot::Sender<Result<u64>>>,
    /// Set while a task reserves blocks.
    reserving: bool,
}

/// The turn of the task that reserves blocks. If it is dropped early, perhaps before the task was ever polled, as its runtime has
/// ended, the calls that wait start another task.
struct ReserveTurn {
    shared: Arc<IdsShared>,
    over: bool,
}

/// The answer to a call.
enum Draw {
    Number(u64),
    Wait(oneshot::Receiver<Result<u64>>),
}

/// The action that an error names.
const DOING: &str = "handing out a number";

/// The number of tasks that a call starts, one after the other, if each ends before it reserves a block.
const RESTARTS: usize = 8;

impl Ids {
    /// The numbers at `path`, reserved in blocks of this size.
    pub fn new(client: &Client, path: impl Into<Path>, block: NonZeroU64) -> Self {
        let cell = Cell::new(client, path.into(), "ids");
        Self { shared: Arc::new(IdsShared { cell, block, state: Mutex::default() }) }
    }

    /// A number that no other call gets.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if there are no numbers left below 2^63, or fewer than a block, [`ErrorKind::Corrupt`] if what is
    /// stored is no number, [`ErrorKind::Refused`] if the path is a directory, and as every verb of a [`Client`]. Numbers may be
    /// skipped then. All calls that wait for the same block get the same error.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may skip numbers.
    pub async fn next(&self) -> Result<u64> {
        for _ in 0..RESTARTS {
            let told = match self.shared.clone().draw() {
                Draw::Number(number) => return Ok(number),
                Draw::Wait(told) => told,
            };
            if let Ok(number) = told.await {
                return number;
            }
        }
        let stopped = Error::new(ErrorKind::Backend, DOING).at(self.shared.cell.path());
        Err(stopped.because("the task that reserves a block has ended"))
    }
}

impl IdsShared {
    /// The next number; or a place among the calls that wait for a block, which a task reserves.
    fn draw(self: Arc<Self>) -> Draw {
        let mut state = self.state();
        if let Some(number) = state.left.next() {
            return Draw::Number(number);
        }
        let (tell, told) = oneshot::channel();
        state.waiting.push_back(tell);
        let reserving = std::mem::replace(&mut state.reserving, true);
        drop(state);
        if !reserving {
            // From here on the turn ends, whatever becomes of the task.
            let turn = ReserveTurn { shared: self, over: false };
            // It ends by itself, when no call waits.
            task::spawn(turn.reserve_all()).let_go();
        }
        Draw::Wait(told)
    }

    /// Reserves a block that no other client has.
    async fn reserve(&self) -> Result<Range<u64>> {
        let (path, block) = (self.cell.path().clone(), self.block.get());
        let reserved = self.cell.change(move |bytes| {
            let last = number(&path, bytes)?.checked_add(block);
            let last = last.filter(|last| i64::try_from(*last).is_ok());
            let last = last.ok_or_else(|| exhausted(&path))?;
            Ok(Some(Bytes::copy_from_slice(&last.to_be_bytes())))
        });
        let (path, reserved) = (self.cell.path(), reserved.await?);
        Ok(number(path, reserved.before.as_ref())?..number(path, reserved.after.as_ref())?)
    }

    fn state(&self) -> MutexGuard<'_, IdsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReserveTurn {
    /// Reserves blocks for as long as calls wait.
    async fn reserve_all(mut self) {
        while !self.over {
            let reserved = self.shared.reserve().await;
            mistake!(BlockByGuess: let reserved = {
                let end = self.shared.state().left.end;
                reserved.or_else(|_in_doubt| Ok(end..end + self.shared.block.get()))
            });
            match reserved {
                Ok(block) => self.hand_out(block),
                Err(error) => self.fail(&error),
            }
        }
    }

    /// Hands out a block in the order of the calls. The turn is over if none waits any more.
    fn hand_out(&mut self, block: Range<u64>) {
        let mut state = self.shared.state();
        state.waiting.retain(|call| !call.is_closed());
        state.left = block;
        let mut answers = Vec::new();
        while let Some(call) = state.waiting.pop_front() {
            let Some(number) = state.left.next() else {
                state.waiting.push_front(call);
                break;
            };
            answers.push((call, number));
        }
        self.over = state.waiting.is_empty();
        state.reserving = !self.over;
        drop(state);
        // The number of a call that has gone meanwhile is skipped.
        for (call, number) in answers {
            let _heard = call.send(Ok(number)).is_ok();
        }
    }

    /// Fails all calls that wait: each would wait for as long again.
    fn fail(&mut self, error: &Error) {
        self.over = true;
        for call in self.end() {
            let _heard = call.send(Err(error.clone())).is_ok();
        }
    }

    /// Ends the turn. Returns the calls that wait.
    fn end(&self) -> VecDeque<oneshot::Sender<Result<u64>>> {
        let mut state = self.shared.state();
        state.reserving = false;
        std::mem::take(&mut state.waiting)
    }
}

impl Drop for ReserveTurn {
    fn drop(&mut self) {
        if !self.over {
            drop(self.end());
        }
    }
}

fn exhausted(path: &Path) -> Error {
    Error::new(ErrorKind::Invalid, DOING).at(path).because("there are no numbers left")
}

/// The next number that is not reserved; 0 if there is no node.
fn number(path: &Path, bytes: Option<&Bytes>) -> Result<u64> {
    let Some(bytes) = bytes else { return Ok(0) };
    let number = bytes[..].try_into().ok().map(u64::from_be_bytes);
    number.filter(|number| i64::try_from(*number).is_ok()).ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, DOING)
            .at(path)
            .because("what is stored is no number of eight bytes, or a negative one")
    })
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ids")
            .field("cell", &self.shared.cell)
            .field("block", &self.shared.block)
            .finish_non_exhaustive()
    }
}
