//! A record of what a process wrote and synced, by `strace`, and the files that a loss of power may
//! leave of it.

use std::collections::BTreeMap;
use std::path::Path;

use synod_core::random::Random;

/// The unit that a disk writes whole or not at all.
const SECTOR: usize = 512;

/// The options of `strace` for a record that [`read`] understands: all text in hexadecimal.
pub(crate) const TRACER: [&str; 9] = [
    "strace",
    "-f",
    "-qq",
    "-y",
    "-xx",
    "-s1000000",
    "-e",
    "trace=lseek,write,pwrite64,fsync,fdatasync,ftruncate,unlink",
    "-o",
];

/// Something that happened, in order.
#[derive(Debug)]
pub(crate) enum Entry {
    Write {
        file: String,
        at: usize,
        data: Vec<u8>,
    },
    Truncate {
        file: String,
        length: usize,
    },
    Remove {
        file: String,
    },
    /// A sync has begun: it covers all writes before it once it has ended.
    Sync {
        thread: String,
        file: String,
    },
    Synced {
        thread: String,
    },
    /// A line that the process has printed.
    Line(String),
}

/// Reads a record, with the entries for files of this directory.
pub(crate) fn read(record: &str, directory: &Path) -> Vec<Entry> {
    let mut positions = BTreeMap::new();
    record.lines().flat_map(|line| entries(line, directory, &mut positions)).collect()
}

fn entries(line: &str, directory: &Path, positions: &mut BTreeMap<String, usize>) -> Vec<Entry> {
    let (thread, call) = line.split_once(' ').expect("each line has a thread");
    let (call, thread) = (call.trim_start(), thread.to_owned());
    if let Some(resumed) = call.strip_prefix("<... ") {
        let is_sync = ["fsync ", "fdatasync "].iter().any(|name| resumed.starts_with(name));
        return if is_sync { vec![Entry::Synced { thread }] } else { Vec::new() };
    }
    let Some((name, arguments)) = call.split_once('(') else { return Vec::new() };
    if name == "unlink" {
        let path = unescaped(arguments.split('"').nth(1).unwrap_or_default());
        let file = in_directory(&text(&path), directory);
        return file.map(|file| Entry::Remove { file }).into_iter().collect();
    }
    let Some((descriptor, rest)) = arguments.split_once('<') else { return Vec::new() };
    let Some((path, rest)) = rest.split_once('>') else { return Vec::new() };
    let numbers: Vec<usize> = rest
        .split('"')
        .next_back()
        .unwrap_or_default()
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|number| number.parse().ok())
        .collect();
    let data = unescaped(rest.split('"').nth(1).unwrap_or_default());
    if name == "write" && descriptor == "1" {
        return text(&data).lines().map(|line| Entry::Line(line.to_owned())).collect();
    }
    let Some(file) = in_directory(&text(&unescaped(path)), directory) else { return Vec::new() };
    let position = positions.entry(descriptor.to_owned()).or_default();
    match name {
        "lseek" => {
            *position = numbers[0];
            Vec::new()
        }
        "write" => {
            let at = *position;
            *position += data.len();
            vec![Entry::Write { file, at, data }]
        }
        "pwrite64" => vec![Entry::Write { file, at: numbers[1], data }],
        "ftruncate" => vec![Entry::Truncate { file, length: numbers[0] }],
        _ if call.contains("<unfinished") => vec![Entry::Sync { thread, file }],
        _ => vec![Entry::Sync { thread: thread.clone(), file }, Entry::Synced { thread }],
    }
}

/// Returns the name of a file of the database.
fn in_directory(path: &str, directory: &Path) -> Option<String> {
    let path = path.trim_end_matches("(deleted)");
    let name = Path::new(path).strip_prefix(directory).ok()?.to_str()?.to_owned();
    (name.starts_with("store.db") && !name.ends_with("-shm")).then_some(name)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The bytes of `\x61\x62`.
fn unescaped(text: &str) -> Vec<u8> {
    let digits = text.split("\\x").skip(1);
    digits.map(|digits| u8::from_str_radix(digits, 16).expect("hexadecimal")).collect()
}

/// The writes that a loss of power leaves of those that were not synced.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Survivors {
    All,
    None,
    /// The writes before one of them, and the first sectors of that.
    Torn {
        seed: u64,
    },
    /// Any sectors of any writes.
    Any {
        seed: u64,
    },
}

/// The files of a database, and the writes since each was synced.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    files: BTreeMap<String, File>,
    /// The file that each thread syncs, and the number of its writes that the sync covers.
    syncs: BTreeMap<String, (String, usize)>,
}

#[derive(Clone, Debug, Default)]
struct File {
    synced: Vec<u8>,
    /// The number of writes that were synced.
    done: usize,
    pending: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Write { at: usize, data: Vec<u8> },
    Truncate(usize),
}

impl Disk {
    /// Adds a file that is on the disk.
    pub(crate) fn add(&mut self, name: &str, content: Vec<u8>) {
        self.files.insert(name.to_owned(), File { synced: content, ..File::default() });
    }

    /// Adds an entry of a record.
    pub(crate) fn apply(&mut self, entry: &Entry) {
        match entry {
            Entry::Write { file, at, data } => {
                self.change(file, Change::Write { at: *at, data: data.clone() });
            }
            Entry::Truncate { file, length } => self.change(file, Change::Truncate(*length)),
            Entry::Remove { file } => drop(self.files.remove(file)),
            Entry::Sync { thread, file } => {
                let there = self.files.entry(file.clone()).or_default();
                let until = there.done + there.pending.len();
                self.syncs.insert(thread.clone(), (file.clone(), until));
            }
            Entry::Synced { thread } => {
                let Some((file, until)) = self.syncs.remove(thread) else { return };
                if let Some(file) = self.files.get_mut(&file) {
                    file.sync(until);
                }
            }
            Entry::Line(_) => {}
        }
    }

    fn change(&mut self, file: &str, change: Change) {
        self.files.entry(file.to_owned()).or_default().pending.push(change);
    }

    /// Returns the number of writes that were not synced.
    pub(crate) fn pending(&self) -> usize {
        self.files.values().map(|file| file.pending.len()).sum()
    }

    /// Writes the files into a directory.
    pub(crate) fn write(&self, directory: &Path, survivors: Survivors) {
        for (name, file) in &self.files {
            std::fs::write(directory.join(name), file.after(survivors)).expect("a new directory");
        }
    }
}

impl File {
    fn sync(&mut self, until: usize) {
        while self.done < until {
            let change = self.pending.remove(0);
            change.apply(&mut self.synced);
            self.done += 1;
        }
    }

    /// Returns the content after a loss of power.
    fn after(&self, survivors: Survivors) -> Vec<u8> {
        let pending = match survivors {
            Survivors::None => Vec::new(),
            Survivors::All => self.pending.clone(),
            Survivors::Torn { seed } => {
                let below = |limit: usize, part| {
                    let limit = u64::try_from(limit).unwrap_or(u64::MAX - 1) + 1;
                    usize::try_from(Random::seeded(seed).fork(part).below(limit)).unwrap_or(0)
                };
                let (whole, rest) = self.pending.split_at(below(self.pending.len(), 0));
                let torn = rest.first().map(Change::sectors).unwrap_or_default();
                [whole, &torn[..below(torn.len(), 1)]].concat()
            }
            Survivors::Any { seed } => {
                let random = Random::seeded(seed);
                let mut sectors: Vec<_> = self.pending.iter().flat_map(Change::sectors).collect();
                sectors.retain(|_| random.below(2) == 0);
                sectors
            }
        };
        let mut content = self.synced.clone();
        for change in pending {
            change.apply(&mut content);
        }
        content
    }
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write { at, data } => {
                let end = at + data.len();
                content.resize(content.len().max(end), 0);
                content[*at..end].copy_from_slice(data);
            }
            Self::Truncate(length) => content.resize(*length, 0),
        }
    }

    /// The parts that reach the disk one by one.
    fn sectors(&self) -> Vec<Self> {
        let Self::Write { at, data } = self else { return vec![self.clone()] };
        let (mut at, mut rest, mut sectors) = (*at, &data[..], Vec::new());
        while !rest.is_empty() {
            let (sector, later) = rest.split_at(rest.len().min(SECTOR - at % SECTOR));
            sectors.push(Self::Write { at, data: sector.to_vec() });
            (at, rest) = (at + sector.len(), later);
        }
        sectors
    }
}
