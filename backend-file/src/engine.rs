//! [`Engine`]: one seat with its threads, which all sessions of a process on one directory share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rusqlite::TransactionBehavior;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::random::Random;

use crate::checkpoint;
use crate::database::{check, open_reader, open_writer, set_synced};
use crate::fault::Fault;
use crate::filter::Wakes;
use crate::machine::Machine;
use crate::meta::Meta;
use crate::options::FileOptions;
use crate::place::{Identity, Place};
use crate::seat::{self, DeadSeat, Seat};
use crate::seat_id::SeatId;
use crate::sessions;
use crate::shared::Shared;
use crate::writing::Writing;
use crate::{heart, lookout, writer};

/// The number of threads that read.
const READERS: usize = 2;

/// The number of attempts to find the reader of the FIFO of another seat, and the pause between
/// two.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// The call of all errors of this module.
const OPENING: &str = "opening a session";

/// The engine of a directory, once it has started. Locked while it starts.
type Slot = Arc<Mutex<Weak<Engine>>>;

/// The engines of this process.
static ENGINES: Mutex<BTreeMap<Identity, Slot>> = Mutex::new(BTreeMap::new());

/// One seat and its threads. They end when it is dropped.
pub(crate) struct Engine(pub(crate) Arc<Shared>);

impl Engine {
    /// Returns the engine of a directory: that of this process, if there is one. Blocks the
    /// thread.
    pub(crate) fn of(options: &FileOptions) -> Result<Arc<Self>> {
        let place = Place::open(&options.directory, options.is_unchecked)?;
        if options.is_separate {
            return Self::start(place).map(Arc::new);
        }
        let slot = slot(place.identity());
        let mut started = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(engine) = started.upgrade().filter(|engine| !engine.0.is_gone()) {
            return Ok(engine);
        }
        let engine = Arc::new(Self::start(place)?);
        *started = Arc::downgrade(&engine);
        Ok(engine)
    }

    fn start(place: Place) -> Result<Self> {
        Self::try_start(place).map_err(|fault| fault.to_error(OPENING))
    }

    fn try_start(place: Place) -> Result<Self, Fault> {
        let (shared, db, seen) = sit_down(place)?;
        let shared = Arc::new(shared);
        // From here on the threads end when this is dropped, also by an error.
        let engine = Self(shared.clone());
        let dir = shared.place.path();
        let observer = open_reader(dir)?;
        let beats = open_reader(dir)?;
        for _ in 0..READERS {
            let (reader, shared) = (open_reader(dir)?, shared.clone());
            thread("synod-file-read", move || {
                while let Some(read) = shared.reads.take(1).pop() {
                    read(&reader);
                }
            })?;
        }
        let of_writer = shared.clone();
        let (copier, of_copier) = (open_reader(dir)?, shared.clone());
        thread("synod-file-copy", move || checkpoint::run(&of_copier, &copier))?;
        thread("synod-file-write", move || writer::run(&of_writer, db))?;
        let of_observer = shared.clone();
        thread("synod-file-watch", move || lookout::run(&of_observer, &observer, seen))?;
        thread("synod-file-beat", move || heart::run(&shared, &beats))?;
        Ok(engine)
    }
}

/// Returns the slot of a directory, and removes those that nobody uses.
fn slot(identity: Identity) -> Slot {
    let mut engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
    engines.retain(|_, slot| {
        let is_used = || slot.try_lock().map_or(true, |engine| engine.strong_count() > 0);
        Arc::strong_count(slot) > 1 || is_used()
    });
    engines.entry(identity).or_default().clone()
}

/// Takes a seat, in the turn, after the dead have left theirs. Returns the revision after it.
fn sit_down(place: Place) -> Result<(Shared, rusqlite::Connection, u64), Fault> {
    let machine = Machine::new();
    let turn = place.take_turn()?;
    place.check().map_err(|_another| Fault::Gone)?;
    let mut db = open_writer(place.path())?;
    let id = SeatId::new(Random::from_system().number());
    let before = seat::list(place.seats())?;
    let mut dead = Vec::new();
    for other in &before {
        dead.extend(judge(&place, *other)?.map(|seat| (*other, seat)));
    }
    let is_first = dead.len() == before.len();
    let is_unchecked = is_first && Meta::is_of_earlier_boot(&db, machine.boot())?;
    if is_unchecked {
        check(&db)?;
    }
    checkpoint::copy_if_long(&db)?;
    let seat = Seat::create(place.seats(), id)?;
    set_synced(&db, true)?;
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let meta = Meta::read(&tx)?;
    let mut writing = Writing::new(&tx, meta, &machine);
    if is_first {
        // Nobody else has the store open: the machine may have been started again.
        writing.meta.start_again();
        sessions::linger_by(&tx, &machine)?;
    } else {
        writing.meta.reserve();
    }
    for (other, _) in &dead {
        writing.end_seat(*other)?;
    }
    writing.meta.seats += 1;
    let meta = writing.meta;
    meta.write(&tx)?;
    if is_unchecked {
        Meta::set_boot(&tx, machine.boot())?;
    }
    drop(writing);
    tx.commit()?;
    for (_, seat) in dead {
        seat.remove(place.seats());
    }
    drop(turn);
    let shared = Shared::new(place, seat, machine);
    shared.peers.refresh(shared.place.seats(), id, meta.seats)?;
    shared.peers.wake(&Wakes::every_seat().into_probes());
    Ok((shared, db, meta.revision))
}

/// Tries the lock of another seat, and refuses a seat that is not of this machine: its lock is
/// held, and nobody here reads its FIFO. A process that is just ending closes both, one after the
/// other.
fn judge(place: &Place, other: SeatId) -> Result<Option<DeadSeat>, Fault> {
    let mut attempts = ATTEMPTS;
    loop {
        if let Some(dead) = DeadSeat::judge(place.seats(), other)? {
            return Ok(Some(dead));
        }
        if !seat::has_no_reader(place.seats(), other)? {
            return Ok(None);
        }
        attempts -= 1;
        if attempts == 0 {
            return Err(Fault::Shared(other.to_string()));
        }
        std::thread::sleep(PAUSE);
    }
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Fault> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
    Ok(())
}

/// Runs `work` on a thread of its own, so that it may block.
pub(crate) async fn unblocked<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (answer, answered) = tokio::sync::oneshot::channel();
    thread("synod-file-open", move || {
        let _received = answer.send(work()).is_ok();
    })
    .map_err(|fault| fault.to_error(OPENING))?;
    answered.await.unwrap_or_else(|_panicked| {
        Err(Error::new(ErrorKind::Backend, OPENING)
            .because("the thread that opens the store ended"))
    })
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
