//! The record of a run, in a file that is kept while it is needed: [`Book`].

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clients::entry::{Entry, Fact, Installed, What, now};

/// All events, in the order in which they were received. Clones share the record.
#[derive(Clone, Debug)]
pub struct Book(Arc<Pages>);

#[derive(Debug)]
struct Pages {
    path: PathBuf,
    state: Mutex<(File, Vec<Entry>)>,
}

impl Book {
    /// Creates a record in this file.
    ///
    /// # Errors
    ///
    /// If the file cannot be created.
    pub fn open(path: &Path) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let state = Mutex::new((File::create(path)?, Vec::new()));
        Ok(Self(Arc::new(Pages { path: path.to_owned(), state })))
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Adds an entry.
    ///
    /// # Panics
    ///
    /// If it cannot be written: an incomplete record proves nothing.
    pub fn add(&self, entry: Entry) {
        let mut state = self.state();
        let mut line = serde_json::to_string(&entry).expect("an entry is plain");
        line.push('\n');
        state.0.write_all(line.as_bytes()).expect("there is room for the record");
        state.1.push(entry);
    }

    /// Records a fault.
    pub fn nemesis(&self, what: impl Into<String>, outcome: Installed) {
        let what = What::Nemesis { what: what.into(), outcome };
        self.add(Entry { t: now(), p: 0, s: None, id: None, what });
    }

    /// Adds the writes that the servers kept.
    pub fn truth(&self, facts: impl IntoIterator<Item = Fact>) {
        for fact in facts {
            self.add(Entry { t: now(), p: 0, s: None, id: None, what: What::Truth { fact } });
        }
    }

    /// Returns the result of `found` for the last entry for which it has one.
    pub fn last<T>(&self, found: impl Fn(&Entry) -> Option<T>) -> Option<T> {
        self.state().1.iter().rev().find_map(found)
    }

    /// Returns the entries so far.
    pub fn entries(&self) -> Vec<Entry> {
        self.state().1.clone()
    }

    /// Deletes the file of a run without errors.
    ///
    /// # Errors
    ///
    /// If the file no longer exists.
    pub fn discard(&self) -> io::Result<()> {
        fs::remove_file(&self.0.path)
    }

    fn state(&self) -> MutexGuard<'_, (File, Vec<Entry>)> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
