//! The transaction logs of ZooKeeper servers, read from the disk.
//!
//! Every write that was ever acknowledged is in the log of a majority, each with its revision; so
//! histories are compared with these logs. The format is that of `org.apache.zookeeper.txn` in the
//! servers' `zookeeper.jute`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use crate::clients::entry::{Fact, Kind};

/// Follows every entry.
const END: &[u8] = b"B";

/// One write of a transaction.
#[derive(Debug)]
enum Write {
    Create { path: String, data: Vec<u8>, ephemeral: bool },
    Container { path: String },
    Set { path: String, data: Vec<u8> },
    Delete { path: String },
    CloseSession,
}

/// The entries of one server's logs, by revision: the session, and its writes.
type Log = BTreeMap<u64, (u64, Vec<Write>)>;

/// The files on the disk of one server.
#[derive(Debug, Default)]
struct Disk {
    log: Log,
    /// The revisions of its snapshots. Changes that it received as a snapshot are not in its log.
    snapshots: BTreeSet<u64>,
}

/// Reads the log of each server below these directories, and returns every change of a node in
/// order.
///
/// # Errors
///
/// If the logs cannot be read.
pub fn facts<'a>(homes: impl IntoIterator<Item = &'a Path>) -> io::Result<Vec<Fact>> {
    let mut disks = Vec::new();
    for home in homes {
        let mut disk = Disk::default();
        for file in fs::read_dir(home.join("data").join("version-2"))? {
            let file = file?;
            let name = file.file_name().to_string_lossy().into_owned();
            if name.starts_with("log.") {
                read_log(&fs::read(file.path())?, &mut disk.log);
            } else if let Some(revision) = name.strip_prefix("snapshot.") {
                disk.snapshots.extend(u64::from_str_radix(revision, 16).ok());
            }
        }
        disks.push(disk);
    }
    Ok(replay(agreed(disks)))
}

/// Returns the entries that a majority of the servers has, and that the next leader had too. A
/// leader that was paused may write entries to its log that no other server accepts, and may keep
/// them there. A follower that loses its leader may still write an entry to its log after it has
/// reported its entries to the next leader (ZOOKEEPER-4712).
fn agreed(disks: Vec<Disk>) -> Log {
    let majority = disks.len() / 2 + 1;
    let mut copies: BTreeMap<u64, usize> = BTreeMap::new();
    for revision in disks.iter().flat_map(|disk| disk.log.keys()) {
        *copies.entry(*revision).or_default() += 1;
    }
    copies.retain(|revision, copies| {
        *copies >= majority && !disks.iter().any(|disk| disk.went_on_without(*revision))
    });
    let mut all: Log = disks.into_iter().flat_map(|disk| disk.log).collect();
    all.retain(|revision, _| copies.contains_key(revision));
    all
}

/// Returns the number of the leader that assigned a revision.
fn epoch(revision: u64) -> u64 {
    revision >> 32
}

impl Disk {
    /// Returns `true` if the server took part in the work of the next leader from the first entry
    /// on, and did not have this entry by then: so that leader did not have it either.
    fn went_on_without(&self, revision: u64) -> bool {
        let first = (epoch(revision) + 1) << 32;
        let next = self.log.range(first..).next().map(|(revision, _)| revision);
        let Some(next) = next.filter(|next| **next & u64::from(u32::MAX) == 1) else {
            return false;
        };
        let had_it = self.log.contains_key(&revision)
            || self.snapshots.range(revision..*next).next().is_some();
        !had_it
    }
}

/// Replays the log, to find out which nodes were deleted with which session.
fn replay(log: Log) -> Vec<Fact> {
    let mut owners: BTreeMap<String, Option<u64>> = BTreeMap::new();
    let mut facts: Vec<Fact> = Vec::new();
    for (revision, (session, writes)) in log {
        for write in writes {
            let mut add = |path: String, kind, data: &[u8], owner| {
                let value = std::str::from_utf8(data).ok().and_then(|text| text.parse().ok());
                let begin = facts.partition_point(|fact: &Fact| fact.revision < revision);
                let is_creation = |fact: &Fact| fact.path == path && fact.kind == Kind::Created;
                let made = facts[begin..].iter().rposition(is_creation).map(|at| begin + at);
                match (made, kind) {
                    // A node that is created and written in one step counts as created; one that is
                    // deleted in the same step counts as never created.
                    (Some(made), Kind::Updated) => facts[made].value = value,
                    (Some(made), Kind::Deleted) => drop(facts.remove(made)),
                    _ => facts.push(Fact { revision, path, kind, value, owner }),
                }
            };
            match write {
                Write::Container { path } => drop(owners.remove(&path)),
                Write::Create { path, data, ephemeral } => {
                    let owner = ephemeral.then_some(session);
                    owners.insert(path.clone(), owner);
                    add(path, Kind::Created, &data, owner);
                }
                Write::Set { path, data } => {
                    if let Some(owner) = owners.get(&path) {
                        add(path.clone(), Kind::Updated, &data, *owner);
                    }
                }
                Write::Delete { path } => {
                    if let Some(owner) = owners.remove(&path) {
                        add(path, Kind::Deleted, &[], owner);
                    }
                }
                Write::CloseSession => {
                    let mine = owners.iter().filter(|(_, owner)| **owner == Some(session));
                    let mine: Vec<String> = mine.map(|(path, _)| path.clone()).collect();
                    for path in mine {
                        owners.remove(&path);
                        add(path, Kind::Deleted, &[], Some(session));
                    }
                }
            }
        }
    }
    facts
}

/// Reads entries up to the unwritten part of the file.
fn read_log(bytes: &[u8], log: &mut Log) {
    // Magic, version and database.
    let mut rest = Bytes(bytes.get(16..).unwrap_or_default());
    loop {
        let (Some(_sum), Some(length)) = (rest.long(), rest.int()) else { return };
        let Some(entry) = usize::try_from(length).ok().and_then(|length| rest.take(length)) else {
            return;
        };
        if entry.is_empty() || rest.take(1) != Some(END) {
            return;
        }
        if let Some((revision, session, writes)) = read_entry(Bytes(entry)) {
            log.insert(revision, (session, writes));
        }
    }
}

fn read_entry(mut entry: Bytes<'_>) -> Option<(u64, u64, Vec<Write>)> {
    let session = entry.long()?;
    let _xid = entry.int()?;
    let revision = entry.long()?;
    let _time = entry.long()?;
    let kind = entry.int()?;
    Some((revision, session, read_writes(kind, &mut entry).unwrap_or_default()))
}

/// The kind of a request that failed, and of a part of one.
const ERROR: i32 = -1;

fn read_writes(kind: i32, entry: &mut Bytes<'_>) -> Option<Vec<Write>> {
    if kind == 14 {
        let count = entry.int()?;
        let (mut writes, mut is_failed) = (Vec::new(), false);
        for _ in 0..count {
            let kind = entry.int()?;
            is_failed |= kind == ERROR;
            let mut part = Bytes(entry.buffer()?);
            writes.extend(read_writes(kind, &mut part)?);
        }
        // The entry of a failed transaction also has the operations up to the failed one.
        return Some(if is_failed { Vec::new() } else { writes });
    }
    let write = match kind {
        -11 => Write::CloseSession,
        2 | 20 => Write::Delete { path: entry.text()? },
        5 => Write::Set { path: entry.text()?, data: entry.buffer()?.to_vec() },
        19 => Write::Container { path: entry.text()? },
        1 | 15 | 21 => {
            let (path, data) = (entry.text()?, entry.buffer()?.to_vec());
            entry.acls()?;
            let mortal = kind == 21;
            let ephemeral = !mortal && entry.take(1)? == [1];
            Write::Create { path, data, ephemeral }
        }
        _ => return Some(Vec::new()),
    };
    Some(vec![write])
}

/// Returns the rest of the bytes.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn int(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn long(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    /// Returns bytes after their number; none where it is negative.
    fn buffer(&mut self) -> Option<&'a [u8]> {
        let count = self.int()?;
        self.take(usize::try_from(count).unwrap_or(0))
    }

    fn text(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.buffer()?).into_owned())
    }

    fn acls(&mut self) -> Option<()> {
        for _ in 0..self.int()? {
            let _permissions = self.int()?;
            let (_scheme, _id) = (self.buffer()?, self.buffer()?);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Vec<u8> {
        let length = i32::try_from(text.len()).expect("short");
        [&length.to_be_bytes(), text.as_bytes()].concat()
    }

    fn int(number: i32) -> Vec<u8> {
        number.to_be_bytes().to_vec()
    }

    fn create(path: &str, data: &str, ephemeral: bool) -> Vec<u8> {
        let acl = [int(1), int(31), text("world"), text("anyone")].concat();
        [text(path), text(data), acl, vec![u8::from(ephemeral)], int(1)].concat()
    }

    fn entry(revision: u64, kind: i32, body: &[u8]) -> Vec<u8> {
        let header =
            [7_u64.to_be_bytes().to_vec(), int(0), revision.to_be_bytes().to_vec()].concat();
        let entry = [header, 0_u64.to_be_bytes().to_vec(), int(kind), body.to_vec()].concat();
        let length = i32::try_from(entry.len()).expect("short");
        [vec![0; 8], int(length), entry, END.to_vec()].concat()
    }

    fn disk(revisions: &[u64]) -> Disk {
        let log = revisions.iter().map(|revision| (*revision, (7, Vec::new())));
        Disk { log: log.collect(), snapshots: BTreeSet::new() }
    }

    fn kept(disks: Vec<Disk>) -> Vec<u64> {
        agreed(disks).into_keys().collect()
    }

    #[test]
    fn what_one_of_three_keeps_alone_never_was() {
        assert_eq!(kept(vec![disk(&[1, 2, 3, 9]), disk(&[1, 2]), disk(&[1, 3, 9])]), [1, 2, 3, 9]);
        assert_eq!(kept(vec![disk(&[1, 5]), disk(&[1, 9]), disk(&[1, 9])]), [1, 9]);
        assert_eq!(kept(vec![disk(&[1, 5])]), [1, 5]);
    }

    #[test]
    fn what_the_next_leader_did_not_have_never_was() {
        const NEXT: u64 = 1 << 32;
        let (next, later) = (NEXT + 1, NEXT + 7);
        // One follower wrote it too late, and the old leader joined again.
        let late = || vec![disk(&[1, 2, next, later]), disk(&[1, 2, later])];
        let with = |other: Disk| late().into_iter().chain([other]).collect::<Vec<_>>();
        assert_eq!(kept(with(disk(&[1, next, later]))), [1, next, later]);
        // The third one joined later, or received a snapshot, or had not continued: it proves
        // nothing.
        assert_eq!(kept(with(disk(&[1, later]))), [1, 2, later]);
        let sent = Disk { snapshots: [2].into(), ..disk(&[1, next, later]) };
        assert_eq!(kept(with(sent)), [1, 2, next, later]);
        let older = Disk { snapshots: [1].into(), ..disk(&[1, next, later]) };
        assert_eq!(kept(with(older)), [1, next, later]);
        assert_eq!(kept(with(disk(&[1]))), [1, 2, later]);
    }

    #[test]
    fn a_log_has_every_change() {
        let part = |kind: i32, body: Vec<u8>| {
            [int(kind), int(i32::try_from(body.len()).expect("short")), body].concat()
        };
        let multi = [
            int(2),
            part(5, [text("/a"), text("2"), int(1)].concat()),
            part(1, create("/e", "3", true)),
        ];
        let both = part(5, [text("/b"), text("4"), int(1)].concat());
        let (once, gone) = (part(1, create("/b/once", "", false)), part(2, text("/b/once")));
        let log = [
            vec![0; 16],
            entry(1, -10, &int(1_000)),
            entry(2, 15, &create("/a", "1", false)),
            entry(3, 14, &multi.concat()),
            entry(4, -1, &int(-101)),
            entry(5, 19, &[text("/c"), text("")].concat()),
            entry(6, 2, &text("/a")),
            entry(10, 14, &[int(2), part(2, text("/b")), part(-1, int(-101))].concat()),
            entry(9, 14, &[int(4), part(1, create("/b", "", false)), both, once, gone].concat()),
            entry(7, 20, &text("/c")),
            entry(8, -11, &int(0)),
            vec![0; 64],
        ];
        let mut read = Log::new();
        read_log(&log.concat(), &mut read);
        let facts = replay(read);

        let lines: Vec<_> = facts
            .iter()
            .map(|fact| (fact.revision, fact.path.as_str(), fact.kind, fact.value, fact.owner))
            .collect();
        assert_eq!(
            lines,
            [
                (2, "/a", Kind::Created, Some(1), None),
                (3, "/a", Kind::Updated, Some(2), None),
                (3, "/e", Kind::Created, Some(3), Some(7)),
                (6, "/a", Kind::Deleted, None, None),
                (8, "/e", Kind::Deleted, None, Some(7)),
                (9, "/b", Kind::Created, Some(4), None),
            ]
        );
    }

    #[test]
    fn half_an_entry_is_not_read() {
        let log = [vec![0; 16], entry(2, 15, &create("/a", "1", false))].concat();
        for length in 0..log.len() {
            let mut read = Log::new();
            read_log(&log[..length], &mut read);
            assert!(read.is_empty(), "{length} of {}", log.len());
        }
    }
}
