//! [`observe`]: the leaders of an election and the values that they proclaim, across sessions.

use futures_core::Stream;
use futures_util::stream::unfold;
use synod_core::client::ClientWatch;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::path::Path;
use synod_core::store::{End, Event, Kind, Node, Query};

use crate::line::Line;
use crate::line::order::{Contender, Entry, Tickets};

/// The state of an observer, between two values.
struct Observer {
    line: Line,
    watch: Option<ClientWatch>,
    /// The ticket that is known to be the first.
    first: Option<Entry>,
    /// The value that was returned last.
    last: Option<Contender>,
    /// Paths that a listing has named since the last event although they have no node.
    vacant: Vec<Path>,
    over: bool,
}

/// The first contender of the queue and the value of its ticket, then each later one. The stream
/// ends with an error: when the client is closed, or the store rejects a request. An outage does
/// not end it.
pub(super) fn observe(line: Line) -> impl Stream<Item = Result<Contender>> + Send + use<> {
    let (watch, first, last, vacant) = (None, None, None, Vec::new());
    let observer = Observer { line, watch, first, last, vacant, over: false };
    unfold(observer, |mut observer| async {
        if observer.over {
            return None;
        }
        let next = observer.next().await;
        observer.over = next.is_err();
        Some((next, observer))
    })
}

impl Observer {
    /// The next value that differs from the last returned one. Waits during an outage of any
    /// length.
    async fn next(&mut self) -> Result<Contender> {
        let mut delays = self.line.delays();
        loop {
            let error = match self.next_or_failure().await {
                Err(error) if self.line.is_transient(&error) => error,
                result => return result,
            };
            tracing::debug!(path = %self.line.dir(), %error, "could not observe; retrying");
            (self.first, self.watch) = (None, None);
            delays.wait().await;
        }
    }

    async fn next_or_failure(&mut self) -> Result<Contender> {
        loop {
            if let Some(mut watch) = self.watch.take() {
                match watch.next().await {
                    Some(Event::Changed(change)) if change.kind == Kind::Updated => {}
                    Some(Event::Ended(why)) => return Err(ended(Some(why))),
                    Some(_) => self.first = None,
                    None => return Err(ended(None)),
                }
                self.vacant.clear();
            }
            if let Some(contender) = self.read_first().await? {
                let is_new = self.last.as_ref().is_none_or(|last| {
                    (last.token, &last.label) != (contender.token, &contender.label)
                });
                if is_new {
                    self.last = Some(contender.clone());
                    return Ok(contender);
                }
            }
        }
    }

    /// The first contender, if any; and a watch on its ticket, or on the whole queue while it is
    /// empty.
    async fn read_first(&mut self) -> Result<Option<Contender>> {
        let Some(first) = self.first().await? else { return Ok(None) };
        let (view, watch) = self.line.client().watch(Query::node(first.path.clone())).await?;
        if view.node().is_none() {
            // The ticket was removed since the listing, or it is a container: the next one in the
            // queue is the first.
            self.vacant.push(first.path);
            return Ok(None);
        }
        // The ticket may have been removed since the listing, and even created again.
        let is_same = |node: &Node| {
            first.created.is_none() || node.stat.map(|it| it.created) == first.created
        };
        let Some(node) = view.into_node().filter(is_same) else { return Ok(None) };
        let contender = Contender::of(&first, &node, Some(true));
        (self.first, self.watch) = (Some(first), Some(watch));
        Ok(contender)
    }

    async fn first(&mut self) -> Result<Option<Entry>> {
        const WINDOW: usize = 8;
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let all = Query::children(self.line.dir().clone()).names_only();
        let view = self.line.client().read(all.clone().oldest(WINDOW)).await?;
        if let Some(first) = Tickets::of(&view).without(&self.vacant).entries().first() {
            return Ok(Some(first.clone()));
        }
        let (view, watch) = self.line.client().watch(all).await?;
        let first = Tickets::of(&view).without(&self.vacant).entries().first().cloned();
        if first.is_none() {
            self.watch = Some(watch);
        }
        Ok(first)
    }
}

/// The error of an observer whose watch ended.
fn ended(why: Option<End>) -> Error {
    match why {
        Some(End::Failed(error)) => (*error).clone(),
        Some(End::SessionOver(loss)) => {
            Error::new(ErrorKind::SessionLost, "observing an election").because(loss.to_string())
        }
        _ => Error::new(ErrorKind::Backend, "observing an election")
            .because("the watch ended without a reason"),
    }
}
