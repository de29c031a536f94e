//! [`ClientWatch`]: a watch that outlives the sessions it is made on.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::clock::sleep;
use futures_core::Stream;
use futures_util::future::{Either, select};

use crate::client::generations::Generations;
use crate::error::{Error, ErrorKind, Result};
use crate::mutant::mistake;
use crate::path::Path;
use crate::retry::{Delays, Retry};
use crate::session::call_context::Tuning;
use crate::store::{End, Event, Node, Query, SessionEnd, Watch};

/// The events of what a client observes: a stream that ends with [`Event::Ended`].
///
/// When a session is lost, the same query is observed again in the next one, and the watch delivers
/// [`Event::Resync`]: read again. It ends when the client is closed, or the store cannot go on with it. It does
/// not keep the client open. Dropping it frees what the server keeps for it.
#[must_use = "a watch that is dropped watches nothing"]
pub struct ClientWatch {
    again: Again,
    phase: Phase,
}

enum Phase {
    Watching(Watch),
    Reopening(Pin<Box<dyn Future<Output = Result<Watch, End>> + Send>>),
    Over,
}

/// What it takes to observe again.
#[derive(Clone)]
pub(super) struct Again {
    pub(super) generations: Arc<Generations>,
    pub(super) tuning: Arc<Tuning>,
    pub(super) root: Path,
    pub(super) query: Query,
}

impl ClientWatch {
    pub(super) fn new(again: Again, watch: Watch) -> Self {
        Self { again, phase: Phase::Watching(watch) }
    }

    /// The next event; `None` after [`Event::Ended`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call takes no event.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// What it takes to read the same.
    pub(super) fn again(&self) -> &Again {
        &self.again
    }

    fn end(&mut self, why: End) -> Event {
        self.phase = Phase::Over;
        Event::Ended(why)
    }
}

impl Stream for ClientWatch {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        loop {
            match &mut self.phase {
                Phase::Watching(watch) => match ready!(Pin::new(watch).poll_next(cx)) {
                    Some(Event::Ended(End::SessionOver(_))) => {
                        mistake!(WatchEndsWithSession: return Poll::Ready(Some(self.end(ended_without_reason()))));
                        let again = self.again.clone();
                        self.phase = Phase::Reopening(Box::pin(again.observe()));
                    }
                    Some(Event::Ended(why)) => return Poll::Ready(Some(self.end(why))),
                    Some(event) => return Poll::Ready(Some(event)),
                    None => return Poll::Ready(Some(self.end(ended_without_reason()))),
                },
                Phase::Reopening(observed) => match ready!(observed.as_mut().poll(cx)) {
                    Ok(watch) => {
                        self.phase = Phase::Watching(watch);
                        mistake!(ResyncSwallowed: continue);
                        return Poll::Ready(Some(Event::Resync));
                    }
                    Err(why) => {
                        let end = self.end(why);
                        mistake!(EndUntold: return Poll::Ready(None));
                        return Poll::Ready(Some(end));
                    }
                },
                Phase::Over => return Poll::Ready(None),
            }
        }
    }
}

impl Again {
    /// Reads the node, however long the store does not answer. `None` once the client is closed.
    pub(super) async fn read(&self) -> Option<Result<Option<Node>>> {
        let Self { generations, root, query, .. } = self;
        let mut pauses = self.pauses();
        loop {
            let session = generations.session(root).await.ok()?;
            let error = match session.read_by(query.clone(), session.deadline()).await {
                Ok(view) => return Some(Ok(view.into_node())),
                Err(error) => error,
            };
            // It keeps no session open while it waits.
            drop(session);
            match error.kind() {
                ErrorKind::SessionLost => {}
                ErrorKind::Unreachable => {
                    let pause = pin!(sleep(pauses.next().unwrap_or_default()));
                    if let Either::Right(_) = select(pause, pin!(generations.over())).await {
                        return None;
                    }
                }
                _ => return Some(Err(error)),
            }
        }
    }

    /// How long to wait between the tries of what is not given up.
    pub(super) fn pauses(&self) -> Delays {
        Retry::forever().delays(&self.tuning.random)
    }

    /// Observes in the next session that lets it.
    async fn observe(self) -> Result<Watch, End> {
        let mut delays = self.tuning.retry.delays(&self.tuning.random);
        loop {
            let Ok(session) = self.generations.session(&self.root).await else {
                return Err(End::SessionOver(SessionEnd::Closed));
            };
            let deadline = session.deadline();
            let error = match session.observe_by(self.query.clone(), deadline).await {
                Ok((_view, watch)) => return Ok(watch),
                Err(error) => error,
            };
            if error.kind() == ErrorKind::SessionLost {
                continue;
            }
            if error.kind() != ErrorKind::Unreachable {
                return Err(End::Failed(Arc::new(error)));
            }
            let Some(delay) = delays.next() else { return Err(End::Failed(Arc::new(error))) };
            let (rest, over) = (pin!(sleep(delay)), pin!(self.generations.over()));
            if let Either::Right(_) = select(rest, over).await {
                return Err(End::SessionOver(SessionEnd::Closed));
            }
        }
    }
}

/// A store's watch always ends with a reason, so this store broke the contract.
fn ended_without_reason() -> End {
    let error = Error::new(ErrorKind::Backend, "watch").because("the watch ended without a reason");
    End::Failed(Arc::new(error))
}

impl fmt::Debug for ClientWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match &self.phase {
            Phase::Watching(_) => "watching",
            Phase::Reopening(_) => "observing again",
            Phase::Over => "over",
        };
        f.debug_struct("ClientWatch")
            .field("query", &self.again.query)
            .field("phase", &phase)
            .finish_non_exhaustive()
    }
}
