//! `lock` and `elect`: hold a lock while a command runs, or until an interrupt.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fmt;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, pending, select};
use nix::sys::signal::{Signal, raise};
use serde_json::json;
use synod::Client;
use synod::Path;
use synod::Result as StoreResult;
use synod::Retry;
use synod::election::{Election, Leader};
use synod::lock::{Lease, Mutex, MutexGuard, Permit, ReadGuard, RwLock, Semaphore};
use synod::{Held, Release};
use tokio::time::{Instant, sleep, timeout};

use crate::args::Common;
use crate::args::hold::{Elect, Lock, Permits, Running};
use crate::command::{connect, refuse_memory};
use crate::failure::Failure;
use crate::output;
use crate::process::signals::Signals;
use crate::process::tenure::endangered;
use crate::process::{End, Job};
use crate::progress::Progress;

/// The exit code when the lock was lost.
const LOST: u8 = 76;

/// Limit of the time to release the lock and close the session at the end; otherwise the session
/// expires.
pub(crate) const FAREWELL: Duration = Duration::from_secs(2);

/// A guard whose holder other clients can ask to release it.
trait Requested: Release {
    async fn release_requested(&self) -> StoreResult<()>;
}

macro_rules! requested {
    ($($guard:ty),*) => {$(
        impl Requested for $guard {
            async fn release_requested(&self) -> StoreResult<()> {
                Self::release_requested(self).await
            }
        }
    )*};
}

requested!(MutexGuard, ReadGuard, Permit, Leader);

/// The time that acquiring may take.
#[derive(Clone, Copy, Debug)]
struct Time {
    limit: Duration,
    /// The time that remains after connecting.
    left: Duration,
    /// `true` to try only once.
    tries: bool,
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.limit).fmt(f)
    }
}

/// Connects. The time limit covers both connecting and acquiring.
async fn connected(common: &Common, running: &Running) -> Result<(Client, Time), Failure> {
    refuse_memory(common, "it excludes no other process")?;
    let tries = running.r#try || running.timeout == Some(Duration::ZERO);
    let limit = running.timeout.filter(|_| !tries).unwrap_or(Duration::MAX);
    let (began, mut time) = (Instant::now(), Time { limit, left: limit, tries });
    let Ok(client) = timeout(limit, connect(common)).await else {
        return Err(Failure::plain(format!(
            "the store did not answer within {time}; is it running, and is --store right?"
        )));
    };
    time.left = limit.saturating_sub(began.elapsed());
    Ok((client?, time))
}

pub(crate) async fn lock(common: &Common, lock: Lock) -> Result<(), Failure> {
    let (path, label) = (lock.path, lock.label.unwrap_or_else(whoami));
    let running = lock.running;
    let (client, time) = connected(common, &running).await?;
    let tries = time.tries;
    if let Some(permits) = lock.permits {
        let semaphore = match permits {
            Permits::Number(permits) => Semaphore::new(&client, path.clone(), permits),
            Permits::Stored => Semaphore::shared(&client, path.clone()),
        };
        let semaphore = semaphore.label(label);
        let entering = async || {
            if tries { semaphore.try_acquire().await } else { semaphore.acquire().await.map(Some) }
        };
        return hold(common, &client, &path, entering, (running, time), None).await;
    }
    if lock.shared {
        let shared = RwLock::new(&client, path.clone()).label(label);
        let entering = async || {
            if tries { shared.try_read().await } else { shared.read().await.map(Some) }
        };
        return hold(common, &client, &path, entering, (running, time), None).await;
    }
    let period = match lock.once_per {
        Some(length) => Some(period(&client, &path, length, &label)?),
        None => None,
    };
    let mutex = Mutex::new(&client, path.clone()).label(label);
    let entering = async || {
        if tries { mutex.try_lock().await } else { mutex.lock().await.map(Some) }
    };
    hold(common, &client, &path, entering, (running, time), period).await
}

pub(crate) async fn elect(common: &Common, elect: Elect) -> Result<(), Failure> {
    let (path, value) = (elect.path, elect.label.unwrap_or_else(whoami));
    let (client, time) = connected(common, &elect.running).await?;
    let (election, tries) = (Election::new(&client, path.clone()), time.tries);
    let entering = async || {
        if tries {
            election.try_campaign(value.clone()).await
        } else {
            election.campaign(value.clone()).await.map(Some)
        }
    };
    hold(common, &client, &path, entering, (elect.running, time), None).await
}

/// The lease of the period in which a command runs once. It is next to the lock. Each process is
/// another holder.
fn period(client: &Client, path: &Path, length: Duration, label: &str) -> StoreResult<Lease> {
    let lease = Lease::new(client, Path::new(&format!("{path}-once"))?, length).aligned();
    let holder = format!("{label} {}", client.random().id());
    // The label is for people: a long one is not needed to tell holders apart.
    Ok(if holder.len() <= Lease::MAX_HOLDER { lease.holder(holder) } else { lease })
}

/// Acquires, runs the command, and releases. The client is closed in any case.
async fn hold<G: Requested>(
    common: &Common,
    client: &Client,
    path: &Path,
    entering: impl AsyncFn() -> StoreResult<Option<G>>,
    (running, time): (Running, Time),
    period: Option<Lease>,
) -> Result<(), Failure> {
    let done = hold_open(common, client, path, entering, (running, time), period).await;
    let _told = timeout(FAREWELL, client.close()).await.is_ok_and(|closed| closed.is_ok());
    done
}

async fn hold_open<G: Requested>(
    common: &Common,
    client: &Client,
    path: &Path,
    entering: impl AsyncFn() -> StoreResult<Option<G>>,
    (running, time): (Running, Time),
    period: Option<Lease>,
) -> Result<(), Failure> {
    let grace = grace(client, running.grace).await?;
    let mut signals = Signals::listen()?;
    let entered = {
        let entering = patiently(client, time.tries, entering);
        let entering = Progress::waiting("waiting", timeout(time.left, entering));
        let (entering, interrupted) = (pin!(entering), pin!(signals.fatal()));
        match select(entering, interrupted).await {
            Either::Left((entered, _)) => entered,
            Either::Right((signal, _)) => return Err(Failure::Exit(signal.exit_code(), None)),
        }
    };
    let given_up = |why: String| Err(Failure::Exit(running.conflict_exit_code, Some(why)));
    let held = match entered {
        Ok(Ok(Some(held))) => held,
        Ok(Ok(None)) => return given_up(format!("{path} is held by another client")),
        Ok(Err(error)) => return Err(error.into()),
        Err(_late) => return given_up(format!("{path} was not acquired within {time}")),
    };
    if let Some(period) = period
        && let Err(other) = period.try_acquire().await?
    {
        leave(held).await;
        let until = humantime::format_rfc3339_seconds(other.until);
        return given_up(format!(
            "{path} was run in this period, by {}; the next begins at {until}",
            other.holder
        ));
    }
    let released = run_or_linger(common, client, path, &held, running, grace, &mut signals).await?;
    match released {
        End::Exited(code) => {
            leave(held).await;
            if code == 0 { Ok(()) } else { Err(Failure::Exit(code, None)) }
        }
        End::Lost => {
            Err(Failure::Exit(LOST, Some(format!("{path} was lost before the command ended"))))
        }
    }
}

/// Runs the command, or waits for a signal, while the lock is held. A request to release the lock
/// acts as SIGTERM does.
async fn run_or_linger(
    common: &Common,
    client: &Client,
    path: &Path,
    held: &impl Requested,
    running: Running,
    grace: Duration,
    signals: &mut Signals,
) -> Result<End, Failure> {
    let listens = running.release_on_request;
    let ending = async {
        if listens && held.release_requested().await.is_ok() {
            output::warning(&format!("another client requests the release of {path}"));
            let _sent = raise(Signal::SIGTERM).is_ok();
        }
        pending::<Infallible>().await
    };
    let work = async {
        if running.command.is_empty() {
            return linger(common, client, path, held, signals).await;
        }
        let environment = environment(path, held);
        let job = Job { command: running.command, environment, grace, input: None };
        job.run_while(client, held, signals).await
    };
    match select(pin!(work), pin!(ending)).await {
        Either::Left((done, _)) => done,
        Either::Right((never, _)) => match never {},
    }
}

/// Acquires, and tries again after each outage of the store: only a time limit, or a signal, ends
/// the wait. With a single attempt there is no retry.
async fn patiently<T>(
    client: &Client,
    tries: bool,
    entering: impl AsyncFn() -> StoreResult<T>,
) -> StoreResult<T> {
    let mut delays = Retry::forever().delays(client.random());
    let mut is_first = true;
    loop {
        match entering().await {
            Err(error) if !tries && client.is_transient(&error) => {
                if std::mem::take(&mut is_first) {
                    output::warning(&format!("{error}; the wait continues"));
                }
                sleep(delays.next().unwrap_or_default()).await;
            }
            ended => return ended,
        }
    }
}

/// Without a command: prints the path of the ticket, then waits for a signal, or the loss.
async fn linger(
    common: &Common,
    client: &Client,
    path: &Path,
    held: &impl Held,
    signals: &mut Signals,
) -> Result<End, Failure> {
    let session = client.session().await?;
    let (ticket, token) = (held.path().as_str(), held.token());
    if common.json {
        output::object(&json!({ "path": ticket, "token": token.revision().get() }))?;
    } else {
        output::line(ticket)?;
    }
    let lost = pin!(endangered(held, session.status(), Duration::ZERO));
    match select(lost, pin!(signals.fatal())).await {
        Either::Left(_) => Err(Failure::Exit(LOST, Some(format!("{path} was lost")))),
        Either::Right(_) => Ok(End::Exited(0)),
    }
}

/// Releases the lock; if the store does not answer, the end of the session releases it.
async fn leave(held: impl Release) {
    let _left = timeout(FAREWELL, held.release()).await.is_ok_and(|left| left.is_ok());
}

/// The environment of the command.
fn environment(path: &Path, held: &impl Held) -> Vec<(OsString, OsString)> {
    let pairs =
        [("SYNOD_PATH", path.as_str().to_owned()), ("SYNOD_TOKEN", held.token().to_string())];
    pairs.map(|(name, value)| (name.into(), value.into())).into()
}

/// Returns the time that the command may take to end. The command must end before the session does.
pub(crate) async fn grace(client: &Client, asked: Option<Duration>) -> Result<Duration, Failure> {
    const USUAL: Duration = Duration::from_secs(2);
    let ttl = client.session().await?.info().ttl;
    match asked {
        None => Ok(USUAL.min(ttl / 4)),
        Some(grace) if grace <= ttl / 2 => Ok(grace),
        Some(grace) => Err(Failure::plain(format!(
            "a grace of {} is more than half of the {} that the session lives without the store; say less, or \
             ?session=TIME in the URL",
            humantime::format_duration(grace),
            humantime::format_duration(ttl)
        ))),
    }
}

/// The default label of this process: host and process id.
pub(crate) fn whoami() -> String {
    format!("{} pid {}", host(), std::process::id())
}

/// The name of this host.
pub(crate) fn host() -> String {
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    host.unwrap_or_else(|| "some host".to_owned())
}
