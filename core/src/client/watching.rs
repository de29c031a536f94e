//! A watch that continues across sessions, [`ClientWatch`].

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

/// The events of a query that a client observes: a stream that ends with [`Event::Ended`].
///
/// When a session is lost, the watch observes the same query in the next one, and delivers
/// [`Event::Resync`]: read again. It ends when the client is closed, or the store cannot continue
/// it. It does not keep the client open. Dropping it frees its resources at the server.
#[must_use = "a watch that is dropped watches nothing"]
pub struct ClientWatch {
    context: WatchContext,
    phase: Phase,
}

enum Phase {
    Watching(Watch),
    Reopening(Pin<Box<dyn Future<Output = Result<Watch, End>> + Send>>),
    Over,
}

/// The values that are required to observe the query again.
#[derive(Clone)]
pub(super) struct WatchContext {
    pub(super) generations: Arc<Generations>,
    pub(super) tuning: Arc<Tuning>,
    pub(super) root: Path,
    pub(super) query: Query,
}

impl ClientWatch {
    pub(super) fn new(context: WatchContext, watch: Watch) -> Self {
        Self { context, phase: Phase::Watching(watch) }
    }

    /// Waits for the next event; `None` after [`Event::Ended`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call takes no event.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Returns the values that are required to read the query again.
    pub(super) fn context(&self) -> &WatchContext {
        &self.context
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
                        let context = self.context.clone();
                        self.phase = Phase::Reopening(Box::pin(context.observe()));
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

impl WatchContext {
    /// Reads the node, and retries during an outage of any length. `None` once the client is
    /// closed.
    pub(super) async fn read(&self) -> Option<Result<Option<Node>>> {
        let Self { generations, root, query, .. } = self;
        let mut delays = self.delays();
        loop {
            let session = generations.session(root).await.ok()?;
            let error = match session.read_by(query.clone(), session.deadline()).await {
                Ok(view) => return Some(Ok(view.into_node())),
                Err(error) => error,
            };
            // Keeps no session open during the delay.
            drop(session);
            match error.kind() {
                ErrorKind::SessionLost => {}
                ErrorKind::Unreachable => {
                    let delay = pin!(sleep(delays.next().unwrap_or_default()));
                    if let Either::Right(_) = select(delay, pin!(generations.over())).await {
                        return None;
                    }
                }
                _ => return Some(Err(error)),
            }
        }
    }

    /// Delays between attempts.
    pub(super) fn delays(&self) -> Delays {
        Retry::forever().delays(&self.tuning.random)
    }

    /// Observes again, in the first later session in which the call succeeds.
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
            let (delay, over) = (pin!(sleep(delay)), pin!(self.generations.over()));
            if let Either::Right(_) = select(delay, over).await {
                return Err(End::SessionOver(SessionEnd::Closed));
            }
        }
    }
}

/// Every watch of a store ends with a reason, so this store broke the contract.
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
            .field("query", &self.context.query)
            .field("phase", &phase)
            .finish_non_exhaustive()
    }
}
