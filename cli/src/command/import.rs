//! `import`: writes the nodes of a file. The file is read twice: once to check everything, and once
//! to write.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, BufReader, Seek as _};
use std::path::Path as FilePath;

use bytes::Bytes;
use futures_util::future::try_join_all;
use serde_json::json;
use synod::{Client, ErrorKind, Lifetime, Path, Query, RejectReason, Txn};
use synod::{Expect, Outcome};

use crate::access::Lists;
use crate::args::Common;
use crate::args::copy::{Import, OnExisting};
use crate::command::connect;
use crate::export_format::{Entry, Reader};
use crate::failure::{Failure, REFUSED};
use crate::output;
use crate::progress::Progress;

/// The maximum number of nodes in a transaction. On etcd each has several conditions.
const BATCH: usize = 16;

/// The maximum number of bytes in a transaction with more than one node: every store accepts them.
const BATCH_BYTES: usize = 500_000;

/// The number of nodes that a failure names.
const NAMED: usize = 5;

pub(crate) async fn run(common: &Common, import: &Import) -> Result<(), Failure> {
    let mut file = open(&import.file)?;
    let client = connect(common).await?;
    let imported = check_and_write(&client, import, &mut file).await;
    client.close().await?;
    let counts = imported?;
    if counts.ephemeral > 0 {
        let ephemeral = counts.ephemeral;
        output::warning(&format!("ephemeral nodes of the file, which are left out: {ephemeral}"));
    }
    if counts.without_acl > 0 {
        output::warning(&without_acl(counts.without_acl));
    }
    counts.print(common, import.dry_run)
}

/// The warning about access lists in a file for a store that has none.
pub(crate) fn without_acl(count: u64) -> String {
    format!("the store has no access lists of nodes; those of the file are left out: {count}")
}

/// The numbers of nodes that were written, or would be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    created: u64,
    replaced: u64,
    unchanged: u64,
    skipped: u64,
    ephemeral: u64,
    /// The access lists that the store cannot keep.
    pub(crate) without_acl: u64,
}

impl Counts {
    fn written(&self) -> u64 {
        self.created + self.replaced
    }

    pub(crate) fn print(&self, common: &Common, is_dry: bool) -> Result<(), Failure> {
        let Self { created, replaced, unchanged, skipped, .. } = self;
        if common.json {
            return Ok(output::object(&json!({
                "created": created, "replaced": replaced, "unchanged": unchanged,
                "skipped": skipped, "dry_run": is_dry,
            }))?);
        }
        let would = if is_dry { "would be " } else { "" };
        Ok(output::line(&format!(
            "{would}created {created}, replaced {replaced}, unchanged {unchanged}, skipped {skipped}"
        ))?)
    }
}

pub(crate) async fn check_and_write(
    client: &Client,
    import: &Import,
    file: &mut File,
) -> Result<Counts, Failure> {
    let checked = Checked::of(client, import, file).await?;
    if import.dry_run {
        return Ok(checked.counts);
    }
    file.rewind()?;
    let Counts { ephemeral, without_acl, .. } = checked.counts;
    let mut counts = Counts { ephemeral, without_acl, ..Counts::default() };
    let written = write(client, import, file, checked.nodes, &mut counts).await;
    if written.is_err() {
        output::warning(&format!(
            "{} of {} nodes were written; --on-existing skip completes the import",
            counts.written(),
            checked.nodes
        ));
    }
    written?;
    if checked.has_acl && without_acl == 0 {
        file.rewind()?;
        set_lists(client, import, file, checked.nodes).await?;
    }
    Ok(counts)
}

/// Sets the access lists of the file. They come last, as a list may forbid further writes.
async fn set_lists(
    client: &Client,
    import: &Import,
    file: &File,
    nodes: u64,
) -> Result<(), Failure> {
    let (lists, mut reader) = (Lists::of(client), Batches::new(file, import));
    let progress = Progress::new("setting access lists", Some(nodes));
    while let Some(batch) = reader.next()? {
        let with_list = batch.iter().filter_map(|entry| Some((&entry.path, entry.acl.as_ref()?)));
        let set = with_list.map(|(path, acl)| lists.set(path, acl, Expect::Any));
        try_join_all(set).await?;
        progress.advance(batch.len() as u64);
    }
    Ok(())
}

/// A file that can be imported.
struct Checked {
    nodes: u64,
    /// The numbers of nodes that would be written.
    counts: Counts,
    has_acl: bool,
}

impl Checked {
    async fn of(client: &Client, import: &Import, file: &File) -> Result<Self, Failure> {
        let session = client.session().await?;
        let limits = &session.info().limits;
        let mut reader = Batches::new(file, import);
        let (mut places, mut nodes, mut counts) = (Places::default(), 0, Counts::default());
        let (mut existing, mut lists) = (Vec::new(), 0);
        let progress = Progress::new("checking", None);
        while let Some(batch) = reader.next()? {
            let there = there(client, &batch).await?;
            for entry in &batch {
                let wrong = |why: String| Failure::plain(format!("line {}: {why}", entry.line));
                create(Txn::new(), entry).validate(limits).map_err(|it| wrong(it.to_string()))?;
                places.add(&entry.path).map_err(wrong)?;
                lists += u64::from(entry.acl.is_some());
                match there.get(&entry.path) {
                    None => {
                        places.check_above(client, &entry.path).await?.map_err(wrong)?;
                        places.check_below(client, &entry.path).await?.map_err(wrong)?;
                        counts.created += 1;
                    }
                    Some(_) if import.on_existing == OnExisting::Fail => {
                        existing.push(entry.path.clone());
                    }
                    Some(_) if import.on_existing == OnExisting::Skip => counts.skipped += 1,
                    Some(data) if *data == entry.data => counts.unchanged += 1,
                    Some(_) => counts.replaced += 1,
                }
            }
            if existing.len() > NAMED {
                break;
            }
            nodes += batch.len() as u64;
            progress.advance(batch.len() as u64);
        }
        if !existing.is_empty() {
            return Err(exist(&existing));
        }
        counts.ephemeral = reader.reader.ephemeral();
        let has_acl = lists > 0;
        if has_acl && !Lists::of(client).has_any().await? {
            counts.without_acl = lists;
        }
        Ok(Self { nodes, counts, has_acl })
    }
}

/// The failure if nodes exist that must not.
fn exist(existing: &[Path]) -> Failure {
    let named: Vec<String> = existing.iter().take(NAMED).map(Path::to_string).collect();
    let more = if existing.len() > NAMED { " and others" } else { "" };
    let text = format!(
        "nothing is written: there is {}{more} already; say --on-existing skip or replace",
        named.join(", ")
    );
    Failure::Exit(REFUSED, Some(text))
}

async fn write(
    client: &Client,
    import: &Import,
    file: &File,
    nodes: u64,
    counts: &mut Counts,
) -> Result<(), Failure> {
    let mut reader = Batches::new(file, import);
    let progress = Progress::new("importing", Some(nodes));
    while let Some(batch) = reader.next()? {
        write_batch(client, import.on_existing, &batch, counts).await?;
        progress.advance(batch.len() as u64);
    }
    Ok(())
}

/// Writes the nodes in one transaction, or one by one if another client changes them meanwhile.
async fn write_batch(
    client: &Client,
    on_existing: OnExisting,
    batch: &[Entry],
    counts: &mut Counts,
) -> Result<(), Failure> {
    let there = match on_existing {
        OnExisting::Fail => BTreeMap::new(),
        OnExisting::Skip | OnExisting::Replace => there(client, batch).await?,
    };
    let (mut txn, mut after) = (Txn::new(), *counts);
    for entry in batch {
        match there.get(&entry.path) {
            None => {
                after.created += 1;
                txn = create(txn, entry);
            }
            Some(_) if on_existing == OnExisting::Skip => after.skipped += 1,
            Some(data) if *data == entry.data => after.unchanged += 1,
            Some(_) => {
                after.replaced += 1;
                txn = txn.set(&entry.path, entry.data.clone(), Expect::Any);
            }
        }
    }
    if txn.ops.is_empty() {
        *counts = after;
        return Ok(());
    }
    match client.commit(txn).await {
        Ok(Outcome::Committed(_)) => {
            *counts = after;
            return Ok(());
        }
        Ok(Outcome::Rejected(_)) => {}
        Err(error) if error.kind() == ErrorKind::TooLarge && batch.len() > 1 => {}
        Err(error) => return Err(error.into()),
    }
    for entry in batch {
        write_one(client, on_existing, entry, counts).await?;
    }
    Ok(())
}

async fn write_one(
    client: &Client,
    on_existing: OnExisting,
    entry: &Entry,
    counts: &mut Counts,
) -> Result<(), Failure> {
    let outcome = client.create(&entry.path, entry.data.clone(), lifetime(entry)).await?;
    let exists = outcome.rejected().is_some_and(|no| no.reason == RejectReason::Exists);
    match on_existing {
        OnExisting::Skip if exists => counts.skipped += 1,
        OnExisting::Replace if exists => {
            client.put(&entry.path, entry.data.clone()).await?;
            counts.replaced += 1;
        }
        _ => {
            outcome.required()?;
            counts.created += 1;
        }
    }
    Ok(())
}

fn create(txn: Txn, entry: &Entry) -> Txn {
    txn.create(&entry.path, entry.data.clone(), lifetime(entry))
}

fn lifetime(entry: &Entry) -> Lifetime {
    entry.ttl.map_or(Lifetime::Persistent, Lifetime::Ttl)
}

/// The nodes of a batch that exist, with their data.
async fn there(client: &Client, batch: &[Entry]) -> Result<BTreeMap<Path, Bytes>, Failure> {
    // One by one: together they may be too large for one answer.
    let reads = batch.iter().map(|entry| client.get(&entry.path));
    let nodes = try_join_all(reads).await?.into_iter().flatten();
    Ok(nodes.map(|node| (node.path, node.data)).collect())
}

/// The nodes of a file, at the paths that they get, in groups for one transaction.
struct Batches<'a> {
    reader: Reader<BufReader<&'a File>>,
    to: Option<&'a Path>,
    /// The first node of the next group.
    next: Option<Entry>,
}

impl<'a> Batches<'a> {
    fn new(file: &'a File, import: &'a Import) -> Self {
        Self { reader: Reader::new(BufReader::new(file)), to: import.to.as_ref(), next: None }
    }

    /// The next group; `None` at the end of the file.
    fn next(&mut self) -> Result<Option<Vec<Entry>>, Failure> {
        let (mut batch, mut size) = (Vec::new(), 0);
        while let Some(entry) = self.next.take().map_or_else(|| self.entry(), |it| Ok(Some(it)))? {
            let bytes = entry.path.as_str().len() + entry.data.len();
            if batch.len() == BATCH || (size + bytes > BATCH_BYTES && !batch.is_empty()) {
                self.next = Some(entry);
                return Ok(Some(batch));
            }
            size += bytes;
            batch.push(entry);
        }
        Ok(Some(batch).filter(|batch| !batch.is_empty()))
    }

    fn entry(&mut self) -> Result<Option<Entry>, Failure> {
        let Some(mut entry) = self.reader.next()? else { return Ok(None) };
        if let Some(to) = self.to {
            let root = self.reader.root().cloned().unwrap_or_else(Path::root);
            let below = entry.path.relative_to(&root);
            let moved = below.map(|below| below.within(to)).transpose();
            let wrong = |why: &str| Failure::plain(format!("line {}: {why}", entry.line));
            let moved = moved.map_err(|error| wrong(&error.to_string()))?;
            let is_node = moved.filter(|path| !path.is_root());
            entry.path = is_node.ok_or_else(|| wrong("there is no such path below --to"))?;
        }
        Ok(Some(entry))
    }
}

/// The paths of a file, and the paths above them, as two hashes of each: there may be millions.
#[derive(Default)]
struct Places {
    nodes: BTreeSet<(u64, u64)>,
    above: BTreeSet<(u64, u64)>,
    /// The paths at and above which the store has no ephemeral node.
    checked: BTreeSet<(u64, u64)>,
    /// For each directory of the file, `true` if the store has nothing below it.
    empty: BTreeMap<(u64, u64), bool>,
}

impl Places {
    /// Adds a path, unless it is there already, or comes after a path below it: no store creates a
    /// node above other nodes.
    fn add(&mut self, path: &Path) -> Result<(), String> {
        if !self.nodes.insert(hash(path.as_str())) {
            return Err(format!("{path} is in the file twice"));
        }
        if self.above.contains(&hash(path.as_str())) {
            return Err(format!("{path} comes after a node below it; put it before"));
        }
        // The paths above a path that is there are there, too.
        for above in path.above() {
            if !self.above.insert(hash(above)) {
                break;
            }
        }
        Ok(())
    }

    /// Checks that no node above a path is ephemeral: nothing can be below it.
    async fn check_above(
        &mut self,
        client: &Client,
        path: &Path,
    ) -> Result<Result<(), String>, Failure> {
        for above in path.ancestors() {
            if above.is_root() || !self.checked.insert(hash(above.as_str())) {
                break;
            }
            let stat = client.get(&above).await?.and_then(|node| node.stat);
            if stat.is_some_and(|stat| stat.owner.is_some()) {
                return Ok(Err(format!("{above} is ephemeral; nothing can be below it")));
            }
        }
        Ok(Ok(()))
    }

    /// Checks that nothing is below a path at which a node is to be created.
    async fn check_below(
        &mut self,
        client: &Client,
        path: &Path,
    ) -> Result<Result<(), String>, Failure> {
        let child = async |path: &Path| {
            let view = client.read(Query::children(path).names_only()).await?;
            Ok::<_, Failure>(view.nodes.into_iter().next())
        };
        if let Some(parent) = path.parent() {
            // Most files are imported into directories that are new.
            let key = hash(parent.as_str());
            let is_empty = match self.empty.get(&key) {
                Some(is_empty) => *is_empty,
                None => child(&parent).await?.is_none(),
            };
            self.empty.insert(key, is_empty);
            if is_empty {
                return Ok(Ok(()));
            }
        }
        Ok(match child(path).await? {
            None => Ok(()),
            Some(below) => Err(format!(
                "{path} cannot be created above {}, which exists; delete that first",
                below.path
            )),
        })
    }
}

fn hash(text: &str) -> (u64, u64) {
    let hash = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, text).hash(&mut hasher);
        hasher.finish()
    };
    (hash(0), hash(1))
}

/// Opens a file that can be read twice: standard input is copied to a file without a name.
fn open(path: &FilePath) -> Result<File, Failure> {
    let at = |error: io::Error| Failure::plain(format!("{}: {error}", output::file(path)));
    if path.as_os_str() != "-" {
        let file = File::open(path).map_err(at)?;
        if file.metadata().map_err(at)?.is_file() {
            return Ok(file);
        }
        // A pipe.
        return spool(file);
    }
    spool(io::stdin())
}

fn spool(mut from: impl io::Read) -> Result<File, Failure> {
    let mut file = temporary()?;
    io::copy(&mut from, &mut file)?;
    file.rewind()?;
    Ok(file)
}

/// A file that only this process can open, and that is gone with it.
pub(crate) fn temporary() -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut number = 0;
    loop {
        let name = format!("synod-import-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        match options.open(&path) {
            Ok(file) => {
                // Where a file that is open cannot be removed, it stays.
                let _removed = std::fs::remove_file(&path).is_ok();
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}
