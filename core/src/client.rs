//! [`Client`]: what an application holds.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::sync::{mpsc, watch};

use crate::client::generations::Generations;
use crate::client::reconnect::{Close, Keeper, Opener};
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::mutant::mistake;
use crate::path::Path;
use crate::random::Random;
use crate::session::Session;
use crate::session::call_context::Tuning;
use crate::session::deadline::Deadline;
use crate::store::Backend;
use crate::task;

mod following;
mod generations;
mod options;
mod put;
mod reconnect;
mod verbs;
mod watching;

#[cfg(test)]
mod tests;

pub use following::ValueWatch;
pub use generations::ConnectionState;
pub use options::ClientOptions;
pub use watching::ClientWatch;

/// A store as an application holds it: alive across sessions.
///
/// Cheap to clone; clones share everything. When a session is lost the next one is opened in the background,
/// with the retry policy of the [`ClientOptions`]. When the last clone is dropped, no more are opened, and the
/// last session is closed in the background once its own last clone is dropped. [`Client::close`] does that at
/// once, and returns when it is done.
///
/// What is repeated, and what remains of a dropped call, is as on a [`Session`]. A call that certainly did
/// nothing before its session was lost goes on in the next one, within its deadline.
///
/// # Code that blocks
///
/// The heartbeats of a session are sent by tasks on the runtime that opened the client. Code that blocks the only thread
/// of a `current_thread` runtime, or all threads of another, stops them: after the time to live the session is lost, and
/// with it all locks and leads. [`Session::is_certain`] is right all the same, as it asks the clock. Such code belongs
/// into `spawn_blocking`, or the client on a runtime of its own.
#[derive(Clone)]
pub struct Client {
    generations: Arc<Generations>,
    tuning: Arc<Tuning>,
    /// The keeper ends when the last of these is gone.
    close: mpsc::UnboundedSender<Close>,
    /// What is `/` to the holder of this clone.
    root: Path,
}

impl Client {
    /// Opens a client: its first session lives when this returns.
    ///
    /// It starts one task for the client and one a session, so it needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for options that cannot be meant, [`ErrorKind::Unreachable`] if no
    /// session could be opened in time, and what the store says.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call may leave a session to its time to live.
    pub async fn open(backend: impl Backend, options: ClientOptions) -> Result<Self> {
        options.validate()?;
        let opener = Opener::new(Arc::new(backend), options);
        let session = opener.first().await?;
        let tuning = opener.tuning();
        let generations = Arc::new(Generations::new(session.clone()));
        let (close, asked) = mpsc::unbounded_channel();
        let keeper = Keeper { opener, generations: generations.clone(), close: asked };
        // It ends by itself: when the client is closed, or when its last clone is dropped.
        task::spawn(keeper.run(session)).let_go();
        Ok(Self { generations, tuning, close, root: Path::root() })
    }

    /// The state of the connection to the store. The receiver always holds the latest.
    ///
    /// A receiver that looks rarely may find `Reconnected` and have missed the `Lost` before it. Whether a
    /// session is still the same is for [`Session::is_lost`] to say.
    ///
    /// [`ConnectionState::Closed`] is the last state: after it `changed` fails, also in receivers that were made
    /// later, so that a loop over the changes ends with the client. `borrow` goes on to answer `Closed`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use synod_core::client::Client;
    /// # async fn example(client: Client) {
    /// let mut state = client.state();
    /// while state.changed().await.is_ok() {
    ///     println!("the store is {:?}", *state.borrow_and_update());
    /// }
    /// # }
    /// ```
    pub fn state(&self) -> watch::Receiver<ConnectionState> {
        self.generations.state()
    }

    /// This client as seen from below `root`: below `/app`, what it calls `/x` is `/app/x` here, and it cannot
    /// name anything outside. It shares all else with this one, and counts as a clone of it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if `root` gets too long, being within this client's own root.
    pub fn namespace(&self, root: &Path) -> Result<Self> {
        let outer = &self.root;
        mistake!(NamespaceReplaces: let outer = &Path::root());
        Ok(Self { root: root.within(outer)?, ..self.clone() })
    }

    /// The session that lives now; waits for the next one while there is none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unreachable`] if there was none in time, [`ErrorKind::SessionLost`] once the
    /// client is closed, and what the store said if it gave up.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    pub async fn session(&self) -> Result<Session> {
        self.session_by(self.deadline()).await
    }

    /// Closes the client: its session, and with it all that depends on it, and its tasks. Every
    /// pending call fails. Closing twice is no error.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unreachable`], with an unknown effect, if the store did not say in time that the last session is
    /// over: its ephemeral nodes are gone, or go when its time to live is over. So it is also between two sessions, if
    /// the last one was lost by this side's clock.
    ///
    /// # Cancel safety
    ///
    /// A dropped call goes on in the background: the client is closed.
    pub async fn close(&self) -> Result<()> {
        const DOING: &str = "closing a client";
        mistake!(CloseNeedsItsCaller: tokio::task::yield_now().await);
        let _asked = self.close.send(Close).is_ok();
        let deadline = self.deadline();
        match select(pin!(self.generations.closed()), pin!(deadline.passed())).await {
            Either::Left((true, _)) => Ok(()),
            Either::Left((false, _)) => Err(Error::new(ErrorKind::Unreachable, DOING)
                .because(
                    "the store did not say that the session is over; it ends with its time to live",
                )
                .with_unknown_effect()),
            Either::Right(_) => Err(deadline.error(DOING).with_unknown_effect()),
        }
    }

    /// Whether it was closed, or gave up opening sessions: no call succeeds any more.
    pub fn is_closed(&self) -> bool {
        self.generations.is_over()
    }

    /// Whether a later try may succeed after this failure: the store did not answer, or there was no session in time. Not
    /// once the client [is closed](Client::is_closed).
    ///
    /// # Examples
    ///
    /// What is tried until it succeeds:
    ///
    /// ```
    /// # use synod_core::client::Client;
    /// # use synod_core::clock::sleep;
    /// # use synod_core::error::Result;
    /// # use synod_core::path::Path;
    /// # use synod_core::retry::Retry;
    /// # async fn example(client: Client, path: Path) -> Result<()> {
    /// let mut delays = Retry::forever().delays(client.random());
    /// while let Err(error) = client.get(&path).await {
    ///     if !client.is_transient(&error) {
    ///         return Err(error);
    ///     }
    ///     sleep(delays.next().unwrap_or_default()).await;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_transient(&self, error: &Error) -> bool {
        error.kind().is_outage() && !self.is_closed()
    }

    /// Where the ids and random choices of this client come from: see [`Session::random`].
    ///
    /// # Examples
    ///
    /// The delays of what is tried until it succeeds:
    ///
    /// ```
    /// # use synod_core::client::Client;
    /// # use synod_core::retry::Retry;
    /// # fn example(client: &Client) {
    /// let mut delays = Retry::forever().delays(client.random());
    /// # }
    /// ```
    pub fn random(&self) -> &Random {
        &self.tuning.random
    }

    /// How long a call may take, with its repetitions: [`ClientOptions::timeout`]. A recipe that repeats what it asked
    /// for begins no repetition later.
    pub fn timeout(&self) -> Duration {
        self.tuning.timeout
    }

    fn deadline(&self) -> Deadline {
        Deadline::within(self.timeout())
    }

    async fn session_by(&self, deadline: Deadline) -> Result<Session> {
        if let Some(session) = self.generations.live(&self.root) {
            return Ok(session);
        }
        let session = self.generations.session(&self.root);
        match select(pin!(session), pin!(deadline.passed())).await {
            Either::Left((session, _)) => session,
            Either::Right(_) => {
                let error = deadline.error("waiting for a session");
                Err(match self.generations.failure() {
                    Some(why) => error.caused_by(why),
                    None => error,
                })
            }
        }
    }

    /// Calls on the session that lives now, and on the next one if the call did nothing because
    /// the session was over.
    async fn on_session<T, F>(&self, mut call: impl FnMut(Session, Deadline) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let deadline = self.deadline();
        loop {
            let session = self.session_by(deadline).await?;
            let result = call(session, deadline).await;
            let did_nothing = result.as_ref().is_err_and(|error| {
                error.kind() == ErrorKind::SessionLost && error.effect() == Effect::None
            });
            mistake!(StaysWithLostSession: let did_nothing = false);
            if !did_nothing {
                return result;
            }
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("state", &*self.state().borrow()).finish_non_exhaustive()
    }
}
