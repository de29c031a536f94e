//! [`LeaderSelector`]: does something while leading, and stops when the lead is lost.

use std::ops::ControlFlow;

use bytes::Bytes;

use crate::client::Client;
use crate::error::Result;
use crate::line::contender::Contender;
use crate::line::term::{Interrupts, Lead};
use crate::line::{Form, Line};
use crate::mutant::{self, Mutant};
use crate::path::Path;

pub use crate::line::term::{Leadership, Term};

/// An election for work that only one may do: whoever leads does it, and who does not waits for his turn.
///
/// At most one of those who work believes at any time that he leads, on the assumption of
/// [`Mutex`](crate::recipe::mutex::Mutex): no two clocks differ in rate by more than 1 %, and nobody acts on a check
/// that he made before he was paused. When the lead is lost the work is dropped at its next await, before the next
/// term begins here, and the lead is given back however the work ends.
///
/// *Not promised* is that work which does not await stops, nor that nobody acts too late: for that there are
/// [`Hold::txn`](crate::recipe::Hold::txn) and [`Hold::token`](crate::recipe::Hold::token).
///
/// It needs no task of its own: [`lead`](LeaderSelector::lead) and [`keep_leading`](LeaderSelector::keep_leading) are
/// for the caller to run, and to drop. What the work returns they return, errors too; if it panics, so do they.
///
/// # Others on the same path
///
/// On ZooKeeper, Curator's `LeaderSelector`; on etcd, `etcdctl elect`.
///
/// # Examples
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path::Path;
/// use std::ops::ControlFlow;
///
/// use synod_core::recipe::leader_selector::LeaderSelector;
///
/// # async fn example(client: Client) -> Result<()> {
/// let selector = LeaderSelector::new(&client, Path::new("/leaders/import")?).label("host-7");
/// let work = |_lead| async { ControlFlow::Break("imported") };
/// assert_eq!(selector.keep_leading(work).await?, "imported");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LeaderSelector {
    line: Line,
    interrupts: Interrupts,
}

impl LeaderSelector {
    /// The election at `path`.
    pub fn new(client: &Client, path: Path) -> Self {
        let line = Line::new(client, path, Form::alone("leader_selector", "lock-"));
        Self { line, interrupts: Interrupts::default() }
    }

    /// What a candidate is known by to those who look at the participants.
    pub fn label(self, label: impl Into<Bytes>) -> Self {
        Self { line: self.line.labelled(label.into()), ..self }
    }

    /// Waits for the lead, does the work, and gives the lead back: one term.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::recipe::mutex::Mutex::lock). What the work fails with is in [`Term::Done`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call drops the work and leaves nothing behind.
    pub async fn lead<T, F>(&self, work: impl FnOnce(Leadership) -> F) -> Result<Term<T>>
    where
        F: Future<Output = T>,
    {
        let mut heard = self.interrupts.hear();
        let ticket = self.line.enqueue().await?;
        let Some(lead) = Lead::begin(ticket, &mut heard).await? else {
            return Ok(Term::Interrupted);
        };
        let term = lead.work(work, heard).await;
        lead.end().await;
        Ok(term)
    }

    /// Leads whenever it is its turn, until the work says [`ControlFlow::Break`]. Lost or interrupted, on
    /// [`ControlFlow::Continue`], and after an outage of the store, it stands again, as the last.
    ///
    /// # Errors
    ///
    /// What the store refuses with, and `SessionLost` once the client is closed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call drops the work and leaves nothing behind.
    pub async fn keep_leading<T, F>(&self, mut work: impl FnMut(Leadership) -> F) -> Result<T>
    where
        F: Future<Output = ControlFlow<T>>,
    {
        let (mut forgotten, mut delays) = (Vec::new(), self.line.client().delays());
        loop {
            if mutant::is(Mutant::RequeuesTwice) {
                forgotten.push(self.line.enqueue().await?);
            }
            let term = self.line.rest_if_failed(self.lead(&mut work).await, &mut delays).await?;
            if let Some(Term::Done(ControlFlow::Break(done))) = term {
                return Ok(done);
            }
        }
    }

    /// Ends the term of whoever leads through this selector or a clone of it, if one does: his work is dropped, and
    /// the next one leads. So it is with who is the first in the line and was not told yet: his work does not
    /// begin. Who waits behind others goes on waiting, and his term is not shorter for it.
    pub fn interrupt(&self) {
        self.interrupts.happen();
    }

    /// Who is the first: he leads, or is about to.
    ///
    /// # Errors
    ///
    /// As every verb of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn leader(&self) -> Result<Option<Contender>> {
        Ok(self.participants().await?.into_iter().next())
    }

    /// All who stand, the leader first, in the order in which they will lead.
    ///
    /// # Errors
    ///
    /// As every verb of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn participants(&self) -> Result<Vec<Contender>> {
        self.line.contenders().await
    }
}
