//! [`RwLock`]: many readers or one writer, in the order of the requests; a writer may go on reading.

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::mutant::{self, Mutant};
use synod_core::path::Path;
use synod_core::store::{Lifetime, Txn};

use crate::line::hold::Hold;
use crate::line::order::SHARES;
use crate::line::ticket_node::TicketNode;
use crate::line::{Form, Line};

/// A lock that many can have for reading or one for writing, shared by everybody who names the same path.
///
/// Whoever believes that he may write is the only one who believes anything, on the assumption of
/// [`Mutex`](crate::Mutex): no two clocks differ in rate by more than 1 %, and nobody acts on a
/// check that he made before he was paused. It is fair: who came first enters first, so that readers who come
/// behind a writer wait for him, and he is not starved.
///
/// *Not promised* is that nobody acts too late: for that there are [`Hold::txn`](crate::Hold::txn) and
/// [`Hold::token`](crate::Hold::token). The token of
/// a writer is larger than all before it; readers who read together have theirs in no order that matters.
///
/// A reader does not become a writer: see [`ReadGuard::upgrade`].
///
/// # Others on the same path
///
/// On ZooKeeper, Curator's `InterProcessReadWriteLock` and kazoo's `ReadLock` and `WriteLock` (with
/// `extra_lock_patterns` of `lock-`, `__WRIT__`, and for writing `__READ__`). A writer of ours who goes on reading
/// is a writer to their readers, who wait until he is gone. A Curator older than its mend of CURATOR-621
/// lets waiting writers in, ours too, when a writer of its own goes on reading. A
/// [`Mutex`](crate::Mutex) on the same path is a writer.
///
/// # Examples
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path::Path;
/// use synod_recipes::RwLock;
///
/// # async fn example(client: Client) -> Result<()> {
/// let lock = RwLock::new(&client, Path::new("/locks/catalogue")?);
/// let writing = lock.write().await?;
/// // Lets the readers in, and no writer in between.
/// let reading = writing.downgrade().await?;
/// reading.release().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    reading: Line,
    writing: Line,
}

/// The lock, held for reading. See [`Hold`].
pub type ReadGuard = Hold<Reading>;

/// The lock, held for writing. See [`Hold`].
pub type WriteGuard = Hold<Writing>;

/// Held for reading.
#[derive(Debug)]
#[non_exhaustive]
pub struct Reading {}

/// Held for writing.
#[derive(Debug)]
#[non_exhaustive]
pub struct Writing {
    label: Bytes,
}

impl RwLock {
    /// The lock at `path`.
    pub fn new(client: &Client, path: impl Into<Path>) -> Self {
        let path = path.into();
        let reading = Form::shared("rwlock_read", "__READ__");
        let writing = Form::shared("rwlock_write", "__WRIT__").changing();
        Self {
            reading: Line::new(client, path.clone(), reading),
            writing: Line::new(client, path, writing),
        }
    }

    /// What [`inspect`](crate::inspect()) shows of those who lock through this.
    pub fn label(self, label: impl Into<Bytes>) -> Self {
        let label = label.into();
        Self {
            reading: self.reading.labelled(label.clone()),
            writing: self.writing.labelled(label),
        }
    }

    /// Waits until all writers who came before are gone.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing behind.
    pub async fn read(&self) -> Result<ReadGuard> {
        Ok(self.reading.enter().await?.hold(Reading::new()))
    }

    /// Waits until all who came before are gone.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing behind.
    pub async fn write(&self) -> Result<WriteGuard> {
        let label = self.writing.label().clone();
        Ok(self.writing.enter().await?.hold(Writing::new(label)))
    }

    /// The lock for reading, if no writer has it and none waits. Never waits.
    ///
    /// # Errors
    ///
    /// As [`RwLock::read`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing behind.
    pub async fn try_read(&self) -> Result<Option<ReadGuard>> {
        Ok(self.reading.try_enter().await?.map(|ticket| ticket.hold(Reading::new())))
    }

    /// The lock for writing, if nobody has it and nobody waits. Never waits.
    ///
    /// # Errors
    ///
    /// As [`RwLock::write`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing behind.
    pub async fn try_write(&self) -> Result<Option<WriteGuard>> {
        let label = self.writing.label().clone();
        Ok(self.writing.try_enter().await?.map(|ticket| ticket.hold(Writing::new(label))))
    }
}

impl Reading {
    fn new() -> Self {
        Self {}
    }
}

impl Writing {
    fn new(label: Bytes) -> Self {
        Self { label }
    }
}

impl Hold<Writing> {
    /// Goes on reading: lets in the readers who wait right behind, and no writer in between. The token stays
    /// the same.
    ///
    /// # Errors
    ///
    /// What the store says. The lock is then given back, as if this had been dropped.
    ///
    /// # Cancel safety
    ///
    /// A dropped call gives the lock back.
    pub async fn downgrade(self) -> Result<ReadGuard> {
        if mutant::is(Mutant::DowngradeUntold) {
            return Ok(self.map(|_| Reading {}));
        }
        if mutant::is(Mutant::DowngradeQueuesAnew) {
            return self.queue_anew().await;
        }
        let data = [SHARES, &self.kind.label].concat();
        // It keeps its place in the line, so nobody can come in between.
        self.node.write(data.into()).await?.required()?;
        Ok(self.map(|_| Reading {}))
    }

    /// Reads on behind whoever came meanwhile: a mistake.
    async fn queue_anew(self) -> Result<ReadGuard> {
        let session = self.node.session().clone();
        let dir = self.path().parent().unwrap_or_else(Path::root);
        let path = dir.join(&format!("_c_{}-__READ__", session.chance().id()))?;
        let txn = Txn::new().create_sequential(path, "", Lifetime::Session);
        let node = session.commit(txn).await?.required()?.done.remove(0);
        self.node.remove().await?;
        Ok(Hold::new(TicketNode::new(session, node)?, "rwlock_read", Reading {}))
    }
}

impl Hold<Reading> {
    /// Refused, always: two readers who both waited for the other to go, to write, would wait for ever.
    /// Release, and ask for [`RwLock::write`](crate::RwLock::write); or come as a writer and [`downgrade`](Hold::downgrade) once
    /// there is nothing more to write.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Refused`].
    pub fn upgrade(&self) -> Result<WriteGuard> {
        Err(Error::new(ErrorKind::Refused, "upgrading a read lock").at(self.path()).because(
            "two readers who did so would wait for each other for ever; \
             release it and ask for the write lock",
        ))
    }
}
