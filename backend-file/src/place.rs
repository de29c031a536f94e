//! [`Place`]: the directory of a store, and the directories in which no store may be.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, Stat, major, minor};
use rustix::io::Errno;
use synod_core::error::{Error, ErrorKind, Result};

/// The call of all errors of this module.
const OPENING: &str = "opening a session";

/// The file systems that share locks between all processes of one kernel, and with no other
/// machine, by the number that `statfs` reports.
const LOCAL_FILE_SYSTEMS: &[(u64, &str)] = &[
    (0xEF53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683E, "btrfs"),
    (0x2FC1_2FC1, "zfs"),
    (0xF2F5_2010, "f2fs"),
    (0x0102_1994, "tmpfs"),
];

/// File systems of which people ask for the name in an error.
const OTHER_FILE_SYSTEMS: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9p"),
    (0x6A65_6A63, "virtiofs"),
    (0x00C3_6400, "Ceph"),
];

/// The number of overlayfs, which is allowed with a warning.
const OVERLAYFS: u64 = 0x794C_7630;

/// The directory of a store, open. Its path may name another directory by now:
/// [`Place::check`].
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    dir: OwnedFd,
    seats: OwnedFd,
    turn: OwnedFd,
    identity: Identity,
}

/// The device and the inode of a file: its identity while it is open.
pub(crate) type Identity = (u64, u64);

/// The right to write, in one process at a time.
#[derive(Debug)]
pub(crate) struct Turn<'a>(BorrowedFd<'a>);

impl Place {
    /// Opens the directory, and creates it if it is missing.
    pub(crate) fn open(path: &Path, unchecked: bool) -> Result<Self> {
        // The process may change its working directory later.
        let path = &std::path::absolute(path).map_err(|error| refusal(path, &error))?;
        let refused = |error: io::Error| refusal(path, &error);
        create(path).map_err(refused)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(CWD, path, flags, Mode::empty())
            .map_err(|error| refused(error.into()))?;
        let stat = rustix::fs::fstat(&dir).map_err(|error| refused(error.into()))?;
        if !unchecked {
            check_file_system(path, &dir)?;
        }
        check_owner(path, &stat)?;
        match rustix::fs::mkdirat(&dir, c"seats", Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(refused(error.into())),
        }
        let seats = rustix::fs::openat(&dir, c"seats", flags, Mode::empty())
            .map_err(|error| refused(error.into()))?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let turn = rustix::fs::openat(&dir, c"turn", flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| refused(error.into()))?;
        Ok(Self { path: path.to_owned(), dir, seats, turn, identity: identity(&stat) })
    }

    /// Returns the path of the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the identity of the directory.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns the directory of the seats.
    pub(crate) fn seats(&self) -> BorrowedFd<'_> {
        self.seats.as_fd()
    }

    /// Waits until no other process writes. Blocks the thread.
    pub(crate) fn take_turn(&self) -> io::Result<Turn<'_>> {
        flock(&self.turn, FlockOperation::LockExclusive)?;
        Ok(Turn(self.turn.as_fd()))
    }

    /// Returns the id of the process that has the turn, if the system reports it to this process.
    pub(crate) fn turn_holder(&self) -> Option<u32> {
        lock_holder(&self.turn)
    }

    /// Fails if the paths of the store name other files than those that are open: a directory that
    /// was removed and made again is another store.
    pub(crate) fn check(&self) -> io::Result<()> {
        let there = rustix::fs::statat(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW)?;
        let seats = rustix::fs::statat(&self.dir, c"seats", AtFlags::SYMLINK_NOFOLLOW)?;
        let turn = rustix::fs::statat(&self.dir, c"turn", AtFlags::SYMLINK_NOFOLLOW)?;
        let same = identity(&there) == self.identity
            && identity(&seats) == identity(&rustix::fs::fstat(&self.seats)?)
            && identity(&turn) == identity(&rustix::fs::fstat(&self.turn)?);
        if same { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

impl Drop for Turn<'_> {
    /// Unlocks explicitly, unlike a seat: a child of this process that was forked meanwhile has no
    /// thread in the turn, and must not keep it.
    fn drop(&mut self) {
        let _unlocked = rustix::fs::flock(self.0, FlockOperation::Unlock).is_ok();
    }
}

/// Returns the id of the process that has the lock of a file, if the system reports it to this
/// process.
pub(crate) fn lock_holder(file: &OwnedFd) -> Option<u32> {
    let stat = rustix::fs::fstat(file).ok()?;
    let (major, minor) = (major(stat.st_dev), minor(stat.st_dev));
    let file = format!("{major:02x}:{minor:02x}:{}", stat.st_ino);
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let of_file = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        words.next() == Some("FLOCK") && words.any(|word| word == file)
    };
    locks.lines().find(of_file)?.split_whitespace().nth(4)?.parse().ok()
}

/// Locks a file. Waits again if a signal interrupts it.
pub(crate) fn flock(file: impl AsFd, operation: FlockOperation) -> io::Result<()> {
    rustix::io::retry_on_intr(|| rustix::fs::flock(&file, operation)).map_err(Into::into)
}

/// Returns the identity of a file.
#[expect(clippy::unnecessary_cast, reason = "the types differ between platforms")]
pub(crate) fn identity(stat: &Stat) -> Identity {
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// Returns `true` if `name` in `dir` is the file that is open as `file`.
pub(crate) fn is_linked(dir: BorrowedFd<'_>, name: &CStr, file: &OwnedFd) -> bool {
    let there = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    let open = rustix::fs::fstat(file);
    matches!((there, open), (Ok(there), Ok(open)) if identity(&there) == identity(&open))
}

/// Creates the directory and those above it, if they are missing, and syncs their names: what is
/// answered later is in them.
fn create(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|above| !above.exists()).collect();
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    for parent in missing.iter().filter_map(|created| created.parent()) {
        std::fs::File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// The owner may do everything with the store, so nobody else may.
fn check_owner(path: &Path, stat: &Stat) -> Result<()> {
    let me = rustix::process::geteuid();
    if stat.st_uid != me.as_raw() {
        return Err(denied(format!(
            "{} belongs to user {}, and this process is user {}: only the owner of a store may \
             use it",
            path.display(),
            stat.st_uid,
            me.as_raw()
        )));
    }
    let open_to = stat.st_mode & 0o077;
    if open_to != 0 {
        return Err(denied(format!(
            "other users may enter {path}; close it by: chmod 700 {path}",
            path = path.display()
        )));
    }
    Ok(())
}

/// Returns the number of the file system of a directory.
fn file_system_number(dir: &OwnedFd) -> io::Result<u64> {
    let number = rustix::fs::fstatfs(dir)?.f_type;
    #[expect(clippy::useless_conversion, reason = "the types differ between platforms")]
    let number = i64::from(number);
    // The number has 32 bits, and some platforms sign it.
    Ok(number.cast_unsigned() & 0xFFFF_FFFF)
}

/// Returns the name of the file system of a directory.
pub(crate) fn file_system(dir: &OwnedFd) -> io::Result<String> {
    Ok(file_system_name(file_system_number(dir)?))
}

fn file_system_name(number: u64) -> String {
    let mut all = LOCAL_FILE_SYSTEMS.iter().chain(OTHER_FILE_SYSTEMS);
    match all.find(|(known, _)| *known == number) {
        Some((_, name)) => (*name).to_owned(),
        None if number == OVERLAYFS => "overlayfs".to_owned(),
        None => format!("a file system of type {number:#x}"),
    }
}

fn check_file_system(path: &Path, dir: &OwnedFd) -> Result<()> {
    let number = file_system_number(dir).map_err(|error| refusal(path, &error))?;
    if number == OVERLAYFS {
        tracing::warn!(
            "{} is on overlayfs: two containers have two stores there, even if its lower files \
             are the same",
            path.display()
        );
        return Ok(());
    }
    if LOCAL_FILE_SYSTEMS.iter().any(|(local, _)| *local == number) {
        return Ok(());
    }
    let name = file_system_name(number);
    let local: Vec<&str> = LOCAL_FILE_SYSTEMS.iter().map(|(_, name)| *name).collect();
    Err(Error::new(ErrorKind::Unsupported, OPENING).because(format!(
        "{} is on {name}, whose locks may not reach every process; use a directory on {}, or set \
         fs=unchecked if the file system belongs to this machine alone",
        path.display(),
        local.join(", ")
    )))
}

fn denied(why: String) -> Error {
    Error::new(ErrorKind::Denied, OPENING).because(why)
}

/// The error for a directory that cannot be used.
fn refusal(path: &Path, error: &io::Error) -> Error {
    let path = path.display();
    match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => denied(format!("this process may not use {path}")),
        Some(Errno::NOTDIR | Errno::EXIST | Errno::LOOP) => Error::new(ErrorKind::Invalid, OPENING)
            .because(format!("{path} is no directory, or a symbolic link; name the directory")),
        _ => Error::new(ErrorKind::Backend, OPENING)
            .because(format!("the directory {path} cannot be used: {error}")),
    }
}
