//! The interface of an application to a store, [`Client`].

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::sync::{mpsc, watch};

use crate::client::generations::Generations;
use crate::client::reconnect::{ClientTask, Close, Opener};
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::local::Locals;
use crate::mutant::mistake;
use crate::path::Path;
use crate::random::Random;
use crate::session::Session;
use crate::session::call_context::Tuning;
use crate::session::deadline::Deadline;
use crate::store::Backend;
use crate::task;

mod delete_recursive;
mod exactly_once;
mod following;
mod generations;
mod handover;
mod options;
mod put;
mod reconnect;
mod resumption;
mod verbs;
mod watching;

#[cfg(test)]
mod opening_tests;
#[cfg(test)]
mod tests;

pub use delete_recursive::Deletion;
pub use exactly_once::ExactlyOnceClient;
pub use following::ValueWatch;
pub use generations::ConnectionState;
pub use options::ClientOptions;
pub use watching::ClientWatch;

/// A connection to a store that outlives its sessions.
///
/// Cheap to clone; clones share everything. When a session is lost, the client opens the next one
/// in the background, with the retry policy of the [`ClientOptions`]. When the last clone is
/// dropped, it opens no more sessions, and the last session is closed in the background once its
/// own last clone is dropped. [`Client::close`] closes it without that delay, and returns when it
/// is done.
///
/// Retries, and the effects of a dropped call, are those of a [`Session`]. A call that certainly
/// had no effect before its session was lost continues in the next session, within its deadline.
///
/// # Errors of every call
///
/// Each call on a client may fail with one of these, beside those that the call documents. The
/// error tells [whether the call had an effect](crate::error::Error::effect).
///
/// - [`ErrorKind::Unreachable`]: the store did not answer, or no session was opened, before the
///   [deadline](ClientOptions::timeout) of the call.
/// - [`ErrorKind::SessionLost`]: the session was lost while the effect of a write was unknown, or
///   the client is closed. If the client stopped opening sessions, the error has the kind of the
///   error for which it stopped.
/// - [`ErrorKind::Denied`]: the store rejected the credentials, or they do not permit the call.
/// - [`ErrorKind::Invalid`], [`ErrorKind::TooLarge`], [`ErrorKind::Unsupported`]: the store cannot
///   do the call. Examples are a path that is too long within the root of the client, and data
///   above the [limits](crate::store::Limits) of the store.
/// - [`ErrorKind::Backend`]: the store failed in another way.
///
/// # Code that blocks
///
/// The heartbeats of a session are sent by tasks on the runtime that opened the client. Code that
/// blocks the only thread of a `current_thread` runtime, or all threads of another, stops them:
/// after the TTL the session is lost, and with it all locks and leaderships.
/// [`Session::is_certain`] stays correct, as it uses the clock. Run such code in `spawn_blocking`,
/// or the client on a runtime of its own.
#[derive(Clone)]
pub struct Client {
    generations: Arc<Generations>,
    tuning: Arc<Tuning>,
    locals: Arc<Locals>,
    /// The task that opens sessions ends when the last of these senders is dropped.
    close: mpsc::UnboundedSender<Close>,
    /// The node that this clone uses as its root.
    root: Path,
}

impl Client {
    /// Opens a client: the first session is live when this returns, unless the options are
    /// [lazy](ClientOptions::lazy).
    ///
    /// It starts one task for the client and one a session, so it needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for invalid options, [`ErrorKind::Unreachable`] if no session could
    /// be opened in time, and the errors of the store. The opening of a lazy client only fails for
    /// invalid options. If the store then rejects the options, its calls fail with the reason.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call may leave a session, which expires after its TTL.
    pub async fn open(backend: impl Backend, options: ClientOptions) -> Result<Self> {
        options.validate()?;
        let is_lazy = options.lazy;
        let opener = Opener::new(Arc::new(backend), options);
        let session = if is_lazy { None } else { Some(opener.first().await?) };
        let tuning = opener.tuning();
        let generations = Arc::new(Generations::new(session.clone()));
        let (close, requests) = mpsc::unbounded_channel();
        let background = ClientTask { opener, generations: generations.clone(), close: requests };
        // The task ends when the client is closed, or when the last clone is dropped.
        task::spawn(background.run(session)).let_go();
        let locals = Arc::default();
        Ok(Self { generations, tuning, locals, close, root: Path::root() })
    }

    /// The state of the connection to the store. The receiver always holds the latest.
    ///
    /// A receiver that is read rarely may show `Reconnected` without the `Lost` before it. Use
    /// [`Session::is_lost`] to determine whether a session is still the same.
    ///
    /// [`ConnectionState::Closed`] is the last state: after it `changed` fails, also in receivers that
    /// were created later, so that a loop over the changes ends with the client. `borrow` still
    /// returns `Closed`.
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

    /// Returns a client whose root is `root`: with `/app` as its root, its path `/x` is `/app/x`
    /// for this client, and it cannot name a node outside. It shares everything else with this
    /// client, and counts as a clone of it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if `root` within this client's own root is too long.
    pub fn namespace(&self, root: &Path) -> Result<Self> {
        let outer = &self.root;
        mistake!(NamespaceReplaces: let outer = &Path::root());
        Ok(Self { root: root.within(outer)?, ..self.clone() })
    }

    /// Returns the current session; waits for the next one while there is none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unreachable`] if there was no session in time, [`ErrorKind::SessionLost`] once
    /// the client is closed, and the error of the store that made the client stop opening sessions.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    pub async fn session(&self) -> Result<Session> {
        self.session_by(self.deadline()).await
    }

    /// Returns the server that answered the current session last, as `host:port`; of ZooKeeper as
    /// `name:port (address:port)` if it has a name. `None` while there is no session, and for a
    /// store without servers.
    pub fn server(&self) -> Option<String> {
        self.generations.live(&self.root)?.info().server.get()
    }

    /// Returns the servers that the current session may use, each as `host:port`: those that are
    /// configured, or the last good list of their [source](crate::store::ServerSource). Empty while
    /// there is no session, and for a store without servers.
    pub fn servers(&self) -> Vec<String> {
        let live = self.generations.live(&self.root);
        live.map(|session| session.info().servers.get().to_vec()).unwrap_or_default()
    }

    /// Closes the client: its session, everything that depends on it, and its tasks. Every pending
    /// call fails. Closing twice is not an error.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unreachable`], with an unknown effect, if the store did not confirm in time
    /// that the last session is over: its ephemeral nodes are removed at the latest after its TTL.
    /// The same error is returned between two sessions, if only the clock of this client ended the
    /// last one.
    ///
    /// # Cancel safety
    ///
    /// A dropped call continues in the background: the client is closed.
    pub async fn close(&self) -> Result<()> {
        const DOING: &str = "closing a client";
        mistake!(CloseNeedsItsCaller: tokio::task::yield_now().await);
        let _sent = self.close.send(Close::End).is_ok();
        let deadline = self.deadline();
        match select(pin!(self.generations.closed()), pin!(deadline.passed())).await {
            Either::Left((true, _)) => Ok(()),
            Either::Left((false, _)) => Err(Error::new(ErrorKind::Unreachable, DOING)
                .because(
                    "the store did not confirm the end of the session; it expires after its TTL",
                )
                .with_unknown_effect()),
            Either::Right(_) => Err(deadline.error(DOING).with_unknown_effect()),
        }
    }

    /// Returns `true` once the client was closed, or stopped opening sessions: no call succeeds any
    /// more.
    pub fn is_closed(&self) -> bool {
        self.generations.is_over()
    }

    /// Returns `true` if a later attempt may succeed after this error: the store did not answer, or
    /// there was no session in time. `false` once the client [is closed](Client::is_closed).
    ///
    /// # Examples
    ///
    /// A call that is repeated until it succeeds:
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

    /// The source of the ids and random choices of this client: see [`Session::random`].
    ///
    /// # Examples
    ///
    /// Delays between the attempts of a call that is repeated until it succeeds:
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

    /// The value of this type that is stored with the client; the default, if there is none yet.
    /// All clones with the same [root](Self::namespace) share it, and it outlives the sessions.
    ///
    /// Use it for state that all instances of a recipe on one client share. Use a private type, so
    /// that no other code uses the value. It is dropped with the last clone of the client, so it
    /// must not hold a clone itself. See [`Session::local`] for the state of one session.
    pub fn local<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.locals.get(&self.root)
    }

    /// The maximum duration of a call, including its retries: [`ClientOptions::timeout`]. Recipes
    /// do not retry after it.
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

    /// Makes the call on the current session, and repeats it on the next one if it had no effect
    /// because the session was over.
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
