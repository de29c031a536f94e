//! [`FileBackend`]: opens sessions on a directory.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use synod_core::clock;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::{Backend, Change, SessionId, SessionOptions, Store, clamp_ttl};
use tokio::sync::oneshot;

use crate::backup;
use crate::changes::{self, Entry};
use crate::engine::{Engine, unblocked};
use crate::job::Call;
use crate::options::FileOptions;
use crate::report::{self, FileReport};
use crate::sessions::Reason;
use crate::store::FileStore;
use crate::writing::Writing;

/// The shortest and the longest time to live of a session.
const TTLS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3_600));

/// The time in which a session opens, on a busy machine too.
const OPENING: Duration = Duration::from_secs(30);

/// A store in a directory, for the processes of one machine.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use synod_core::path::Path;
/// use synod_core::store::{Backend, Lifetime, Query, SessionOptions, Store, Txn};
/// use synod_file::{FileBackend, FileOptions};
///
/// # let directory = std::env::temp_dir().join(format!("synod-example-{}", std::process::id()));
/// let backend = FileBackend::new(FileOptions::new(&directory));
/// let session = backend.open(&SessionOptions::default()).await?;
/// let path = Path::new("/config/colour")?;
/// let created = Txn::new().create(path.clone(), "blue", Lifetime::Persistent);
/// session.commit(created).await?.required()?;
///
/// let view = session.read(Query::node(path)).await?;
/// assert_eq!(view.node().expect("just created").data, "blue");
/// session.close().await?;
/// # std::fs::remove_dir_all(&directory).expect("created above");
/// # Ok::<(), synod_core::error::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct FileBackend {
    options: FileOptions,
    /// Opened with the first session.
    engine: Arc<Mutex<Option<Arc<Engine>>>>,
}

impl FileBackend {
    /// Creates a backend. The directory is opened with the first session.
    pub fn new(options: FileOptions) -> Self {
        Self { options, engine: Arc::default() }
    }

    /// Ends a session of any process, as if it had sent no heartbeat for its time to live. Its
    /// owner notices.
    ///
    /// # Errors
    ///
    /// The errors of a commit.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have ended the session or not.
    pub async fn expire(&self, id: SessionId) -> Result<()> {
        const EXPIRING: &str = "ending a session";
        let engine = self.engine().await?;
        let (call, _claim, ended) =
            Call::new(EXPIRING, move |writing: &mut Writing<'_>| writing.end(id, Reason::Expired));
        engine.0.writes.push(Box::new(call));
        ended.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Unreachable, EXPIRING)))
    }

    /// Returns the last changes of all processes, in order, each with its revision: at least the
    /// last 16,384, and none from before the directory was last opened by a first process.
    ///
    /// # Errors
    ///
    /// The errors of a read.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn recent_changes(&self) -> Result<Vec<Change>> {
        const READING: &str = "reading the changes";
        let engine = self.engine().await?;
        let (tell, changes) = oneshot::channel();
        engine.0.reads.push(Box::new(move |db| {
            let _received = tell.send(changes::after(db, 0)).is_ok();
        }));
        let stopped = |_| Error::new(ErrorKind::Unreachable, READING);
        let entries = changes.await.map_err(stopped)?.map_err(|fault| fault.to_error(READING))?;
        Ok(entries.into_iter().filter_map(Entry::into_change).collect())
    }

    /// Writes the database, as of one moment, to a new file, which only this user may read. Other
    /// processes go on reading and writing. The file, as `store.db` in a new directory, is a store.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if there is no store, or if the file exists or cannot be created, and
    /// the errors of a read.
    ///
    /// # Cancel safety
    ///
    /// The file of a dropped call is completed, or removed.
    pub async fn backup(&self, file: impl Into<PathBuf>) -> Result<()> {
        let (directory, file) = (self.options.directory.clone(), file.into());
        unblocked(move || backup::write(&directory, &file)).await
    }

    /// Reports on the store, and on the processes that use it. Changes nothing, and opens no
    /// session.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if there is no store, and the errors of a read.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn report(&self) -> Result<FileReport> {
        let directory = self.options.directory.clone();
        unblocked(move || report::report(&directory)).await
    }

    /// Returns the number of watches of the sessions of this process.
    pub fn watches(&self) -> usize {
        self.known().map_or(0, |engine| engine.0.watches.count())
    }

    /// Returns the engine, if it has started. Does not wait for one that starts.
    fn known(&self) -> Option<Arc<Engine>> {
        self.engine.try_lock().ok()?.clone()
    }

    async fn engine(&self) -> Result<Arc<Engine>> {
        let (options, engine) = (self.options.clone(), self.engine.clone());
        if let Some(known) = self.known().filter(|known| !known.0.is_gone()) {
            return Ok(known);
        }
        unblocked(move || {
            // Kept while it starts: sessions that open at the same time share an engine.
            let mut engine = engine.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(engine) = engine.as_ref().filter(|engine| !engine.0.is_gone()) {
                return Ok(engine.clone());
            }
            let opened = Engine::of(&options)?;
            *engine = Some(opened.clone());
            Ok(opened)
        })
        .await
    }
}

#[async_trait]
impl Backend for FileBackend {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        let ttl = clamp_ttl(options.ttl, TTLS.0, TTLS.1)?;
        let mut attempts = 3;
        loop {
            attempts -= 1;
            let Ok(engine) = clock::timeout(OPENING, self.engine()).await else {
                return Err(Error::new(ErrorKind::Unreachable, "opening a session")
                    .because(format!("the directory did not open within {OPENING:?}")));
            };
            match FileStore::open(engine?, ttl, self.options.lingers, OPENING).await {
                // Others saw no heartbeat for the time to live of this session, which was so
                // before it had its first.
                Err(error) if error.kind() == ErrorKind::SessionLost && attempts > 0 => {}
                opened => return Ok(Box::new(opened?)),
            }
        }
    }
}

impl fmt::Debug for FileBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileBackend")
            .field("directory", &self.options.directory)
            .finish_non_exhaustive()
    }
}
