//! [`Seat`]: the place of one backend handle among all that have the store open; and [`Peer`], the
//! place of another.
//!
//! A seat is four files in `seats/`:
//!
//! | file | use |
//! |---|---|
//! | `ID.lock` | locked for the life of the handle: whoever is granted the lock has the proof of its death |
//! | `ID.life` | a FIFO whose only writer is the owner: its end is the hint to try the lock |
//! | `ID.wake` | a FIFO that the owner reads: one byte means that there may be changes |
//! | `ID.beat` | the number of heartbeats, written under a lock, and behind it the filter of the watches |
//!
//! Seats are created, judged and removed in the [turn](crate::place::Turn), so that no judge finds
//! a seat whose owner has not locked it yet. `ID.lock` is never unlocked explicitly: the descriptor
//! of a forked child is the same lock, and closing is enough.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::filter::{self, FilterBits};
use crate::owner::Owner;
use crate::place::{flock, is_linked};
use crate::seat_id::SeatId;

/// The seat of this handle. Dropping it is what the death of its process is.
#[derive(Debug)]
pub(crate) struct Seat {
    id: SeatId,
    beat_name: CString,
    wake: OwnedFd,
    beat: OwnedFd,
    life: OwnedFd,
    lock: OwnedFd,
}

/// The seat of another handle.
#[derive(Debug)]
pub(crate) struct Peer {
    wake: OwnedFd,
    life: OwnedFd,
    beat: OwnedFd,
}

/// The lock of a seat, granted: its owner is dead.
#[derive(Debug)]
pub(crate) struct DeadSeat {
    id: SeatId,
    _lock: OwnedFd,
}

/// The lock of the heartbeats of a seat.
#[derive(Debug)]
pub(crate) struct BeatLock<F: AsFd>(F);

const OWNER: Mode = Mode::RUSR.union(Mode::WUSR);
const FILE: OFlags = OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The place of the filter, behind the number of heartbeats.
const FILTER_AT: u64 = 8;

const EXCLUSIVE: FlockOperation = FlockOperation::NonBlockingLockExclusive;

/// Returns the seats in the directory, dead ones too.
pub(crate) fn list(seats: BorrowedFd<'_>) -> io::Result<Vec<SeatId>> {
    let mut ids = Vec::new();
    for entry in Dir::read_from(seats)? {
        ids.extend(SeatId::of_lock_file(entry?.file_name()));
    }
    ids.sort_unstable();
    Ok(ids)
}

impl Seat {
    /// Creates a seat. Call it in the turn.
    pub(crate) fn create(seats: BorrowedFd<'_>, id: SeatId) -> io::Result<Self> {
        let created = FILE | OFlags::CREATE | OFlags::EXCL;
        let lock = rustix::fs::openat(seats, &*id.file("lock"), created, OWNER)?;
        // Waits for whoever looks whether it is free.
        flock(&lock, FlockOperation::LockExclusive)?;
        rustix::io::pwrite(&lock, Owner::new().to_text().as_bytes(), 0)?;
        let life = own_fifo(seats, &id.file("life"))?;
        let wake = own_fifo(seats, &id.file("wake"))?;
        let beat_name = id.file("beat");
        let beat = rustix::fs::openat(seats, &*beat_name, created, OWNER)?;
        Ok(Self { id, beat_name, wake, beat, life, lock })
    }

    pub(crate) fn id(&self) -> SeatId {
        self.id
    }

    /// Returns the descriptor that is readable after a wake.
    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Copies the descriptors by which others see that the owner lives: while one of them is open,
    /// in any process, the seat is not free.
    pub(crate) fn copy_files(&self) -> io::Result<Vec<OwnedFd>> {
        // With the FIFO that it reads: a seat without a reader is that of another machine.
        [&self.lock, &self.life, &self.wake].map(OwnedFd::try_clone).into_iter().collect()
    }

    /// Wakes the own observer.
    pub(crate) fn wake(&self) {
        write_byte(&self.wake);
    }

    /// Takes the bytes of all wakes so far.
    pub(crate) fn drain(&self) {
        let mut bytes = [0_u8; 4_096];
        while rustix::io::read(&self.wake, &mut bytes).is_ok_and(|read| read == bytes.len()) {}
    }

    /// Writes the filter of the watches, for all writers.
    pub(crate) fn publish(&self, bits: &FilterBits) -> io::Result<()> {
        let written = rustix::io::pwrite(&self.beat, bits, FILTER_AT)?;
        if written == bits.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Locks the heartbeats: waits for an observer that is ending sessions of this seat. Fails if
    /// the file of the seat is gone, as observers then see no heartbeat.
    pub(crate) fn lock_beat(&self, seats: BorrowedFd<'_>) -> io::Result<BeatLock<&OwnedFd>> {
        flock(&self.beat, FlockOperation::LockExclusive)?;
        let lock = BeatLock(&self.beat);
        if !is_linked(seats, &self.beat_name, &self.beat) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(lock)
    }
}

impl<F: AsFd> BeatLock<F> {
    /// Writes the number of a heartbeat.
    pub(crate) fn stamp(&self, beats: u64) -> io::Result<()> {
        rustix::io::pwrite(&self.0, &beats.to_le_bytes(), 0)?;
        Ok(())
    }

    /// Reads the number of the last heartbeat.
    pub(crate) fn read(&self) -> io::Result<u64> {
        read_stamp(&self.0)
    }
}

impl<F: AsFd> Drop for BeatLock<F> {
    fn drop(&mut self) {
        let _unlocked = rustix::fs::flock(&self.0, FlockOperation::Unlock).is_ok();
    }
}

impl Peer {
    /// Opens the seat of another handle. A missing file proves nothing about its owner.
    pub(crate) fn open(seats: BorrowedFd<'_>, id: SeatId) -> io::Result<Self> {
        let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Before anybody tries the lock: a FIFO that is opened after its last writer has gone
        // never reports an end.
        let life = rustix::fs::openat(seats, &*id.file("life"), flags | OFlags::RDONLY, OWNER)?;
        // Read and write: a write to a FIFO without a reader would be a signal.
        let wake = rustix::fs::openat(seats, &*id.file("wake"), flags | OFlags::RDWR, OWNER)?;
        let beat = rustix::fs::openat(seats, &*id.file("beat"), flags | OFlags::RDONLY, OWNER)?;
        Ok(Self { wake, life, beat })
    }

    /// Returns the descriptor that reports the end of the owner.
    pub(crate) fn life_fd(&self) -> BorrowedFd<'_> {
        self.life.as_fd()
    }

    /// Reads the filter of the watches of the owner, which has none before its first watch.
    pub(crate) fn filter(&self) -> io::Result<FilterBits> {
        let mut bits = [0; filter::SIZE];
        let _read = rustix::io::pread(&self.beat, &mut bits, FILTER_AT)?;
        Ok(bits)
    }

    /// Wakes the owner. A full pipe means that it will wake anyway.
    pub(crate) fn wake(&self) {
        write_byte(&self.wake);
    }
}

/// Reads the heartbeats of a seat without the lock; `None` if its file is gone.
pub(crate) fn last_beat(seats: BorrowedFd<'_>, id: SeatId) -> io::Result<Option<u64>> {
    match rustix::fs::openat(seats, &*id.file("beat"), FILE, Mode::empty()) {
        Ok(beat) => read_stamp(&beat).map(Some),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Locks the heartbeats of another seat. `None` if its owner has the lock, or its file is gone.
pub(crate) fn try_lock_beat(
    seats: BorrowedFd<'_>,
    id: SeatId,
) -> io::Result<Option<BeatLock<OwnedFd>>> {
    let Some(beat) = try_lock(seats, &id.file("beat"), EXCLUSIVE)? else { return Ok(None) };
    Ok(Some(BeatLock(beat)))
}

/// Reads the process of a seat, for people.
pub(crate) fn owner(seats: BorrowedFd<'_>, id: SeatId) -> io::Result<Owner> {
    let mut text = [0; 512];
    let lock = match rustix::fs::openat(seats, &*id.file("lock"), FILE, Mode::empty()) {
        Ok(lock) => lock,
        Err(Errno::NOENT) => return Ok(Owner::default()),
        Err(error) => return Err(error.into()),
    };
    let read = rustix::io::pread(&lock, &mut text, 0)?;
    Ok(Owner::parse(&String::from_utf8_lossy(&text[..read])))
}

/// Returns `true` if the lock of a seat seems to be free; the verdict is [`DeadSeat::judge`]. Needs
/// no turn.
pub(crate) fn is_free(seats: BorrowedFd<'_>, id: SeatId) -> io::Result<bool> {
    Ok(try_lock(seats, &id.file("lock"), FlockOperation::NonBlockingLockShared)?.is_some())
}

/// Returns `true` if no process of this machine has the FIFO of a seat open to read it. Its owner
/// has, while it lives.
pub(crate) fn has_no_reader(seats: BorrowedFd<'_>, id: SeatId) -> io::Result<bool> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(seats, &*id.file("wake"), flags, Mode::empty()) {
        Ok(_) | Err(Errno::NOENT) => Ok(false),
        Err(Errno::NXIO) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

impl DeadSeat {
    /// Tries the lock of a seat. `None` if its owner lives, or if there is no such seat. Call it in
    /// the turn.
    pub(crate) fn judge(seats: BorrowedFd<'_>, id: SeatId) -> io::Result<Option<Self>> {
        let lock = try_lock(seats, &id.file("lock"), EXCLUSIVE)?;
        Ok(lock.map(|lock| Self { id, _lock: lock }))
    }

    /// Removes the files of the seat, the lock last: a seat without a lock is not found again.
    pub(crate) fn remove(self, seats: BorrowedFd<'_>) {
        for part in ["life", "wake", "beat", "lock"] {
            let removed = rustix::fs::unlinkat(seats, &*self.id.file(part), AtFlags::empty());
            if let Err(error) = removed
                && error != Errno::NOENT
            {
                tracing::warn!("a file of the dead seat {} cannot be removed: {error}", self.id);
            }
        }
    }
}

/// Opens and locks a file that exists. `None` if another has the lock, or if it is gone.
fn try_lock(
    seats: BorrowedFd<'_>,
    name: &CStr,
    operation: FlockOperation,
) -> io::Result<Option<OwnedFd>> {
    let file = match rustix::fs::openat(seats, name, FILE, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match flock(&file, operation) {
        Ok(()) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Creates a FIFO, opened to read and write: so it has a writer while its owner lives, and always
/// a reader.
fn own_fifo(seats: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    rustix::fs::mknodat(seats, name, FileType::Fifo, OWNER, 0)?;
    Ok(rustix::fs::openat(seats, name, FILE | OFlags::NONBLOCK, Mode::empty())?)
}

fn write_byte(fifo: &OwnedFd) {
    match rustix::io::write(fifo, &[1]) {
        Ok(_) | Err(Errno::AGAIN) => {}
        Err(error) => tracing::debug!("a wake was not written: {error}"),
    }
}

fn read_stamp(file: impl AsFd) -> io::Result<u64> {
    let mut bytes = [0; 8];
    // A seat that has no heartbeat yet has an empty file, which counts as zero.
    let _read = rustix::io::pread(file, &mut bytes, 0)?;
    Ok(u64::from_le_bytes(bytes))
}
