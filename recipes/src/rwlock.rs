//! [`RwLock`]: many readers or one writer, in the order of the requests; a writer may downgrade to
//! a reader.

use bytes::Bytes;
use synod_core::client::Client;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;

use crate::line::hold::guard;
use crate::line::order::SHARES;
use crate::line::{Form, Line};
use crate::mutant::mistake;

#[cfg_attr(not(doctest), doc = include_str!("../docs/rwlock.md"))]
#[cfg_attr(not(doctest), doc = include_str!("../docs/locks.md"))]
#[derive(Clone, Debug)]
pub struct RwLock {
    reading: Line,
    writing: Line,
}

guard! {
    /// A guard of a [`RwLock`] for reading.
    ReadGuard(())
}

guard! {
    /// A guard of a [`RwLock`] for writing. It has the label of its ticket.
    WriteGuard(Bytes)
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

    /// Sets the label of the tickets that this handle creates: [`inspect`](crate::lock::inspect())
    /// shows it.
    pub fn label(self, label: impl Into<Bytes>) -> Self {
        let label = label.into();
        Self {
            reading: self.reading.labelled(label.clone()),
            writing: self.writing.labelled(label),
        }
    }

    /// Waits until all earlier writers are gone.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::lock::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing in the store.
    pub async fn read(&self) -> Result<ReadGuard> {
        Ok(ReadGuard(self.reading.enter().await?.hold(())))
    }

    /// Waits until all earlier readers and writers are gone.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::lock::Mutex::lock), and [`ErrorKind::TooLarge`] if the store could
    /// not store the label after a [downgrade](WriteGuard::downgrade), which adds a few bytes to
    /// it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing in the store.
    pub async fn write(&self) -> Result<WriteGuard> {
        let label = self.lasting_label().await?;
        Ok(WriteGuard(self.writing.enter().await?.hold(label)))
    }

    /// Acquires the lock for reading, if no writer holds it or waits for it. Never waits.
    ///
    /// # Errors
    ///
    /// As [`RwLock::read`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing in the store.
    pub async fn try_read(&self) -> Result<Option<ReadGuard>> {
        Ok(self.reading.try_enter().await?.map(|ticket| ReadGuard(ticket.hold(()))))
    }

    /// Acquires the lock for writing, if it has no holder and no waiter. Never waits.
    ///
    /// # Errors
    ///
    /// As [`RwLock::write`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call leaves nothing in the store.
    pub async fn try_write(&self) -> Result<Option<WriteGuard>> {
        let label = self.lasting_label().await?;
        Ok(self.writing.try_enter().await?.map(|ticket| WriteGuard(ticket.hold(label))))
    }
}

impl RwLock {
    /// The label of a writer's ticket. A downgrade adds a prefix to it, so both must fit into the
    /// node.
    async fn lasting_label(&self) -> Result<Bytes> {
        let (line, label) = (&self.writing, self.writing.label());
        let limit = line.client().session().await?.info().limits.data;
        if SHARES.len() + label.len() > limit {
            let why = format!("the label has {} bytes; a node takes up to {limit}", label.len());
            return Err(Error::new(ErrorKind::TooLarge, "locking").at(line.dir()).because(why));
        }
        Ok(label.clone())
    }
}

impl WriteGuard {
    /// Downgrades to a read lock. This grants the readers that wait directly after this writer, and
    /// no writer in between. The token is unchanged.
    ///
    /// # Errors
    ///
    /// Any error that the store returns. The lock is then released, as if the guard had been
    /// dropped.
    ///
    /// # Cancel safety
    ///
    /// A dropped call releases the lock.
    pub async fn downgrade(self) -> Result<ReadGuard> {
        mistake!(DowngradeQueuesAnew: return crate::mutant::recipe::queue_anew(self.0).await.map(ReadGuard));
        let data = [SHARES, &self.0.kind].concat();
        // The ticket keeps its position in the queue, so no writer can be granted in between.
        self.0.node.write(data.into()).await?.required()?;
        Ok(ReadGuard(self.0.map(drop)))
    }
}

impl ReadGuard {
    /// Always fails: two readers that both wanted to write would wait for each other for ever.
    /// Release this guard and call [`RwLock::write`](crate::lock::RwLock::write); or lock for
    /// writing first, and [`downgrade`](WriteGuard::downgrade) after the last write.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Refused`].
    pub fn upgrade(&self) -> Result<WriteGuard> {
        Err(Error::new(ErrorKind::Refused, "upgrading a read lock").at(self.path()).because(
            "two readers that upgrade would wait for each other for ever; \
             release the lock and request the write lock",
        ))
    }
}
