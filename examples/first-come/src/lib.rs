//! An example of a recipe in a separate crate: [`FirstCome`], for work that one process does
//! while the others skip it.
//!
//! It uses `synod-core` alone, and costs as little as the recipes of synod: one round trip to
//! claim, one to release. Start here to write your own: the comments say which promise of core each
//! step relies on.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_core::future::BoxFuture;
use futures_util::future::{Either, select};
use synod_core::client::Client;
use synod_core::clock::sleep;
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::held::{Held, Release, Token};
use synod_core::path::Path;
use synod_core::retry::Retry;
use synod_core::session::Session;
use synod_core::store::{Expect, Lifetime, OpResult, Query, Txn, View};

/// A claim that at most one client has at a time, for the clients that name the same path. Clients
/// never wait for it.
///
/// The first client has it until it releases it, drops the guard or loses its session. The path is
/// a directory of this recipe alone; the nodes below it are the claims.
///
/// *Not promised* is that a client gets it as soon as it is free: the node of a failed claim
/// remains for a moment, and makes the next claim fail.
///
/// # Examples
///
/// ```
/// # use synod_core::client::Client;
/// # use synod_core::error::Result;
/// # use synod_core::path;
/// use synod_core::held::{Held, Release};
/// use synod_first_come::FirstCome;
///
/// # async fn report() {}
/// # async fn example(client: Client) -> Result<()> {
/// if let Some(guard) = FirstCome::new(&client, path!("/nightly/report")).try_claim().await? {
///     guard.run(report()).await?;
///     guard.release().await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FirstCome {
    client: Client,
    dir: Path,
}

/// A claim that is held. Dropping it releases it in the background.
#[derive(Debug)]
#[must_use = "the claim is released when this is dropped"]
pub struct FirstComeGuard {
    session: Session,
    node: OpResult,
    token: Token,
    /// `true` if the node is released, or was removed by another client.
    gone: AtomicBool,
}

impl FirstCome {
    /// The claim at `path`. Sends nothing.
    pub fn new(client: &Client, path: impl Into<Path>) -> Self {
        Self { client: client.clone(), dir: path.into() }
    }

    /// The claim, if no other client has it. Never waits.
    ///
    /// # Errors
    ///
    /// As every verb of a [`Client`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing remains of a dropped call.
    pub async fn try_claim(&self) -> Result<Option<FirstComeGuard>> {
        loop {
            let session = self.client.session().await?;
            // A sequential node of the session under a unique name: the session finds it again if
            // the answer is lost, and removes it if this call is dropped. The look is a snapshot as
            // of the same commit.
            let txn = Txn::new()
                .create_sequential(
                    session.unique(&self.dir.join("claim-")?)?,
                    "",
                    Lifetime::Session,
                )
                .look(Query::children(self.dir.clone()).names_only());
            let (outcome, requests) = match session.commit_tracked(txn).await {
                Err(error) if error.kind() == ErrorKind::SessionLost => continue,
                answer => answer?,
            };
            let mut commit = outcome.required()?;
            let guard = FirstComeGuard::new(session, commit.results.pop())?;
            match commit.look {
                // A request in doubt may create the node again after it was removed. So only a
                // settled request counts.
                Some(view) if requests.is_settled() => {
                    return Ok(Some(guard).filter(|guard| guard.is_first(&view)));
                }
                _ => match guard.give_back().await {
                    Err(error) if error.kind() != ErrorKind::SessionLost => return Err(error),
                    // The node is gone, or goes with its session.
                    _ => {}
                },
            }
        }
    }
}

impl FirstComeGuard {
    fn new(session: Session, node: Option<OpResult>) -> Result<Self> {
        let untold = || Error::new(ErrorKind::Backend, "claiming").because("no node in the answer");
        let node = node.ok_or_else(untold)?;
        let created = node.stat.ok_or_else(untold)?.created;
        Ok(Self { session, node, token: Token::new(created), gone: AtomicBool::new(false) })
    }

    /// Returns `true` if no other claim was created earlier. The store numbers them in the order of
    /// their commits.
    fn is_first(&self, view: &View) -> bool {
        let first = view.nodes.iter().filter_map(|node| node.sequence).min();
        first.is_some() && first == self.node.sequence
    }

    async fn give_back(&self) -> Result<()> {
        // From here on a drop does nothing: the session removes the node, even if this call is
        // dropped.
        if self.gone.swap(true, Ordering::Relaxed) {
            let lost = Error::new(ErrorKind::SessionLost, "releasing a claim").at(&self.node.path);
            return Err(lost.because("another client removed it"));
        }
        self.session.remove(&self.node).await
    }

    /// Waits until another client removed the node.
    async fn removed(&self) {
        let mut delays = Retry::forever().delays(self.session.random());
        let node = Query::until_gone(self.node.path.clone());
        while !self.gone.load(Ordering::Relaxed) {
            match self.session.watch(node.clone()).await {
                Ok((view, mut watch)) if view.node().is_some() => {
                    let _look_again = watch.next().await;
                }
                Ok(_) => self.gone.store(true, Ordering::Relaxed),
                Err(_) => sleep(delays.next().unwrap_or_default()).await,
            }
        }
    }
}

impl Held for FirstComeGuard {
    fn token(&self) -> Token {
        self.token
    }

    fn path(&self) -> &Path {
        &self.node.path
    }

    fn is_held(&self) -> bool {
        !self.gone.load(Ordering::Relaxed) && self.session.is_certain()
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let _either = select(pin!(self.session.lost()), pin!(self.removed())).await;
        })
    }

    /// The name of the node is never used again, so a check of the path is a check of this claim.
    fn txn(&self) -> Txn {
        Txn::new().check(self.node.path.clone(), Expect::Any)
    }

    async fn run<T: Send>(&self, work: impl Future<Output = T> + Send) -> Result<T> {
        match select(pin!(work), self.lost()).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right(_) => {
                Err(Error::new(ErrorKind::SessionLost, "working under a claim").at(&self.node.path))
            }
        }
    }
}

impl Release for FirstComeGuard {
    async fn release(self) -> Result<()> {
        self.give_back().await
    }
}

impl Drop for FirstComeGuard {
    fn drop(&mut self) {
        if !self.gone.swap(true, Ordering::Relaxed) {
            self.session.remove_in_background(&self.node);
        }
    }
}
