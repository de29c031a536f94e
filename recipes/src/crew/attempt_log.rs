//! [`AttemptLog`]: writes down the attempts at a task.

use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::session::Session;
use synod_core::store::{Expect, Lifetime, Node, Query, Rejected, Txn, Version};
use synod_core::value::{decode, encode};

use crate::crew::attempts_record::AttemptsRecord;
use crate::crew::crew_attempt::CrewAttempt;
use crate::crew::insist::insist;
use crate::mutant::mistake;

/// The attempts at a task, as a client that ends one knows them. It takes the task for one without attempts until the store
/// rejects that: few tasks have more than one.
pub(super) struct AttemptLog {
    node: Path,
    known: Option<(Version, AttemptsRecord)>,
}

impl AttemptLog {
    pub(super) fn new(node: Path) -> Self {
        Self { node, known: None }
    }

    /// Adds to a transaction that there is this attempt, after those that are known.
    pub(super) fn enter(&self, txn: Txn, attempt: &CrewAttempt) -> Result<Txn> {
        let (node, known) = (self.node.clone(), self.known.clone());
        mistake!(AttemptsForgotten: let known = known.map(|(it, _)| (it, AttemptsRecord::default())));
        Ok(match known {
            None => {
                let data = encode(&node, &AttemptsRecord::default().with(attempt))?;
                txn.create(node, data, Lifetime::Persistent)
            }
            Some((version, record)) => {
                let data = encode(&node, &record.with(attempt))?;
                txn.set(node, data, Expect::Version(version))
            }
        })
    }

    /// Whether a transaction was rejected because there are other attempts than was known. Then they are known now.
    pub(super) async fn has_changed(
        &mut self,
        session: &Session,
        no: Option<&Rejected>,
    ) -> Result<bool> {
        if no.is_none_or(|no| no.path != self.node) {
            return Ok(false);
        }
        self.look(session).await?;
        Ok(true)
    }

    /// Reads the attempts.
    pub(super) async fn look(&mut self, session: &Session) -> Result<()> {
        let view = insist(session, || session.read(Query::node(&self.node))).await?;
        self.known = view.node().and_then(|node| Some((node.stat?.version, record_of(node))));
        Ok(())
    }
}

/// The attempts that a node holds. What is no record is replaced.
pub(super) fn record_of(node: &Node) -> AttemptsRecord {
    decode(&node.path, &node.data).unwrap_or_default()
}
