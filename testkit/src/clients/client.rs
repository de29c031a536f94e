//! [`Client`]: a client in a process of its own, from the side of its controller.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::clients::book::Book;
use crate::clients::entry::{Answer, Entry, Installed, Op, What};
use crate::clients::worker::Order;

/// A process that executes calls on request. It ends when this is dropped, or when this process
/// does, even while it is stopped.
pub struct Client {
    number: usize,
    book: Book,
    child: Child,
    guard: Child,
    orders: Mutex<Option<ChildStdin>>,
    calls: AtomicU64,
    open: Arc<Open>,
    gone: AtomicBool,
}

/// What is open with a process.
#[derive(Default)]
struct Open {
    /// The calls that wait for an answer.
    calls: Mutex<BTreeMap<u64, oneshot::Sender<Entry>>>,
    /// What it said when one of its tasks panicked.
    panic: OnceLock<String>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "these are all the ways in which a call can end")]
pub enum End {
    /// It was answered.
    Ok(Answer),
    /// It certainly never happens.
    Fail(String),
    /// It happens at most once, or the process is gone, and the effect is unknown.
    Info(String),
}

/// Kills the process when the guard's own input ends, whatever state the process is in.
const GUARD: &str = r#"cat >/dev/null; kill -9 "$1" 2>/dev/null"#;

impl Client {
    /// Starts `command` as process `number`: its input and output are those of
    /// [`worker::run`](crate::clients::worker::run).
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(number: usize, command: &mut Command, book: &Book) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut sh = Command::new("sh");
        sh.arg("-c").arg(GUARD).arg("guard").arg(child.id().to_string()).stdin(Stdio::piped());
        let guard = sh.spawn()?;
        let (orders, told) = (child.stdin.take(), child.stdout.take());
        let open = Arc::<Open>::default();
        if let Some(told) = told {
            let (open, book) = (open.clone(), book.clone());
            // It ends with the process.
            let _reading = std::thread::spawn(move || {
                for line in BufReader::new(told).lines().map_while(Result::ok) {
                    // The last line of a process that was killed may be half of one.
                    if let Ok(entry) = serde_json::from_str(&line) {
                        open.heard(&book, entry);
                    }
                }
                open.lock().clear();
            });
        }
        Ok(Self {
            number,
            book: book.clone(),
            child,
            guard,
            orders: Mutex::new(orders),
            calls: AtomicU64::new(0),
            open,
            gone: AtomicBool::new(false),
        })
    }

    /// The number of the process.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Sends a call at once, and waits for its end.
    pub fn call(&self, op: Op) -> impl Future<Output = End> + use<> {
        let id = self.calls.fetch_add(1, Ordering::Relaxed) << 8 | self.number as u64;
        let (answered, answer) = oneshot::channel();
        self.open.lock().insert(id, answered);
        let (sent, open) = (self.send(&Order { id, op }), self.open.clone());
        async move {
            if sent.is_err() {
                return open.is_gone();
            }
            match answer.await.map(|entry| entry.what) {
                Ok(What::Ok { answer }) => End::Ok(answer),
                Ok(What::Fail { why }) => End::Fail(why),
                Ok(What::Info { why }) => End::Info(why),
                Ok(other) => unreachable!("{other:?} ends no call"),
                Err(_) => open.is_gone(),
            }
        }
    }

    fn send(&self, order: &Order) -> io::Result<()> {
        let mut line = serde_json::to_string(order).map_err(io::Error::other)?;
        line.push('\n');
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        match orders.as_mut() {
            Some(orders) => orders.write_all(line.as_bytes()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Stops the whole process.
    ///
    /// # Errors
    ///
    /// If it is not running.
    pub fn stop(&self) -> io::Result<()> {
        self.signal("-STOP")?;
        self.done("stop", Installed::Installed);
        Ok(())
    }

    /// Continues the process.
    ///
    /// # Errors
    ///
    /// If it is not running.
    pub fn go_on(&self) -> io::Result<()> {
        // Recorded before, because everything that the process then does comes after.
        self.done("go on", Installed::Installed);
        self.signal("-CONT")
    }

    /// Kills the process, whatever it is doing.
    ///
    /// # Errors
    ///
    /// If it is not running.
    pub fn kill(&self) -> io::Result<()> {
        self.done("kill", Installed::Installed);
        self.gone.store(true, Ordering::Relaxed);
        self.signal("-KILL")
    }

    /// Whether it was killed.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// What it said when one of its tasks panicked, which has ended it.
    pub fn panic(&self) -> Option<&str> {
        self.open.panic.get().map(String::as_str)
    }

    /// Whether it answers within `limit`.
    pub async fn runs(&self, limit: Duration) -> bool {
        matches!(timeout(limit, self.call(Op::Ping)).await, Ok(End::Ok(_)))
    }

    fn signal(&self, name: &str) -> io::Result<()> {
        let status = Command::new("kill").arg(name).arg(self.child.id().to_string()).status()?;
        let why = self.panic().unwrap_or("no such process");
        if status.success() { Ok(()) } else { Err(io::Error::other(why)) }
    }

    fn done(&self, what: &str, outcome: Installed) {
        self.book.nemesis(format!("{what} client {}", self.number), outcome);
    }
}

impl Open {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, oneshot::Sender<Entry>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How a call ends that is not answered any more.
    fn is_gone(&self) -> End {
        End::Info(match self.panic.get() {
            Some(why) => format!("the process is gone: {why}"),
            None => "the process is gone".to_owned(),
        })
    }

    fn heard(&self, book: &Book, entry: Entry) {
        if let What::Panic { why } = &entry.what {
            let _first = self.panic.set(why.clone()).is_ok();
        }
        let ends = matches!(entry.what, What::Ok { .. } | What::Fail { .. } | What::Info { .. });
        book.add(entry.clone());
        if ends && let Some(waiting) = entry.id.and_then(|id| self.lock().remove(&id)) {
            let _gave_up = waiting.send(entry).is_err();
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait()).is_ok();
        let _ended = self.guard.kill().and_then(|()| self.guard.wait()).is_ok();
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("number", &self.number).finish_non_exhaustive()
    }
}
