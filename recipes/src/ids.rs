//! [`Ids`]: unique numbers, handed out from reserved blocks.

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

use crate::cell::SingleValue;
use crate::mutant::mistake;

#[cfg_attr(not(doctest), doc = include_str!("../docs/ids.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/values.md"))]
#[derive(Clone)]
pub struct Ids {
    shared: Arc<IdsShared>,
}

/// The parts that the clones share.
struct IdsShared {
    value: SingleValue,
    block: NonZeroU64,
    state: Mutex<IdsState>,
}

#[derive(Default)]
struct IdsState {
    /// The reserved numbers that are not handed out yet. Empty while calls are waiting.
    left: Range<u64>,
    /// The calls that wait for a block, in their order.
    waiting: VecDeque<oneshot::Sender<Result<u64>>>,
    /// True while a task reserves blocks.
    is_reserving: bool,
}

/// The task that reserves blocks. If it is dropped early, possibly before it was first polled
/// because its runtime has ended, the waiting calls start another task.
struct ReserveTask {
    shared: Arc<IdsShared>,
    is_over: bool,
}

/// The answer to a call.
enum NextId {
    Number(u64),
    Wait(oneshot::Receiver<Result<u64>>),
}

/// The action that error messages name.
const DOING: &str = "handing out a number";

/// The maximum number of tasks that a call starts, one after the other, if each ends before it
/// reserves a block.
const MAX_RESTARTS: usize = 8;

impl Ids {
    /// Creates the numbers at `path`, reserved in blocks of this size.
    pub fn new(client: &Client, path: impl Into<Path>, block: NonZeroU64) -> Self {
        let value = SingleValue::new(client, path.into(), "ids");
        Self { shared: Arc::new(IdsShared { value, block, state: Mutex::default() }) }
    }

    /// Returns a number that no other call gets.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if fewer numbers than a block are left below 2^63,
    /// [`ErrorKind::Corrupt`] if the stored data is not a number, [`ErrorKind::Refused`] if the
    /// path is a directory, and the errors that are common to all calls: see [`Client`]. After an
    /// error, numbers may be skipped. All calls that wait for the same block get the same error.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may skip numbers.
    pub async fn next(&self) -> Result<u64> {
        for _ in 0..MAX_RESTARTS {
            let reserved = match self.shared.clone().next() {
                NextId::Number(number) => return Ok(number),
                NextId::Wait(number) => number,
            };
            if let Ok(number) = reserved.await {
                return number;
            }
        }
        let stopped = Error::new(ErrorKind::Backend, DOING).at(self.shared.value.path());
        Err(stopped.because("the task that reserves a block has ended"))
    }
}

impl IdsShared {
    /// Returns the next number, or waits for a block, which a task reserves.
    fn next(self: Arc<Self>) -> NextId {
        let mut state = self.state();
        if let Some(number) = state.left.next() {
            return NextId::Number(number);
        }
        let (reply, number) = oneshot::channel();
        state.waiting.push_back(reply);
        let was_reserving = std::mem::replace(&mut state.is_reserving, true);
        drop(state);
        if !was_reserving {
            // The drop of this value resets `is_reserving`, even if the task is never polled.
            let task = ReserveTask { shared: self, is_over: false };
            // The task ends when no call is waiting.
            task::spawn(task.run()).let_go();
        }
        NextId::Wait(number)
    }

    /// Reserves a block that no other client has.
    async fn reserve(&self) -> Result<Range<u64>> {
        let (path, block) = (self.value.path().clone(), self.block.get());
        let reserved = self.value.change(move |bytes| {
            let last = number(&path, bytes)?.checked_add(block);
            let last = last.filter(|last| i64::try_from(*last).is_ok());
            let last = last.ok_or_else(|| exhausted(&path))?;
            Ok(Some(Bytes::copy_from_slice(&last.to_be_bytes())))
        });
        let (path, reserved) = (self.value.path(), reserved.await?);
        Ok(number(path, reserved.before.as_ref())?..number(path, reserved.after.as_ref())?)
    }

    fn state(&self) -> MutexGuard<'_, IdsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReserveTask {
    /// Reserves blocks as long as calls are waiting.
    async fn run(mut self) {
        while !self.is_over {
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

    /// Hands out a block in the order of the calls. The task is over if no call is waiting.
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
        self.is_over = state.waiting.is_empty();
        state.is_reserving = !self.is_over;
        drop(state);
        // The number of a dropped call is skipped.
        for (call, number) in answers {
            let _caller_waits = call.send(Ok(number)).is_ok();
        }
    }

    /// Fails all waiting calls: otherwise each would wait just as long again.
    fn fail(&mut self, error: &Error) {
        self.is_over = true;
        for call in self.end() {
            let _caller_waits = call.send(Err(error.clone())).is_ok();
        }
    }

    /// Ends the task. Returns the waiting calls.
    fn end(&self) -> VecDeque<oneshot::Sender<Result<u64>>> {
        let mut state = self.shared.state();
        state.is_reserving = false;
        std::mem::take(&mut state.waiting)
    }
}

impl Drop for ReserveTask {
    fn drop(&mut self) {
        if !self.is_over {
            drop(self.end());
        }
    }
}

fn exhausted(path: &Path) -> Error {
    Error::new(ErrorKind::Invalid, DOING).at(path).because("there are no numbers left")
}

/// Returns the next number that is not reserved; 0 if there is no node.
fn number(path: &Path, bytes: Option<&Bytes>) -> Result<u64> {
    let Some(bytes) = bytes else { return Ok(0) };
    let number = bytes[..].try_into().ok().map(u64::from_be_bytes);
    number.filter(|number| i64::try_from(*number).is_ok()).ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, DOING)
            .at(path)
            .because("the stored data is no number of eight bytes, or a negative one")
    })
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ids")
            .field("path", self.shared.value.path())
            .field("block", &self.shared.block)
            .finish_non_exhaustive()
    }
}
