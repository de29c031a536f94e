//! Guards of those who share and of those who might: from writing to reading there is a way, and none back.

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::line::hold::Hold;
use crate::line::ticket::SHARES;
use crate::line::ticket_node::TicketNode;
use crate::mutant::{self, Mutant};
use crate::path::Path;
use crate::store::{Lifetime, Txn};

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

impl Reading {
    pub(crate) fn new() -> Self {
        Self {}
    }
}

impl Writing {
    /// Under this label.
    pub(crate) fn new(label: Bytes) -> Self {
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
        let path = dir.join(&format!("_c_{}-__READ__", session.id()))?;
        let txn = Txn::new().create_sequential(path, "", Lifetime::Session);
        let node = session.commit(txn).await?.required()?.done.remove(0);
        self.node.remove().await?;
        Ok(Hold::new(TicketNode::new(session, node)?, "rwlock", Reading {}))
    }
}

impl Hold<Reading> {
    /// Refused, always: two readers who both waited for the other to go, to write, would wait for ever.
    /// Release, and ask for [`RwLock::write`](crate::recipe::rwlock::RwLock::write); or come as a writer and [`downgrade`](Hold::downgrade) once
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
