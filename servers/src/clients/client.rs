//! A client in a separate process, as its controller uses it: [`Client`].

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
    input: Mutex<Option<ChildStdin>>,
    calls: AtomicU64,
    open: Arc<Open>,
    gone: AtomicBool,
}

/// The open calls and errors of a process.
#[derive(Default)]
struct Open {
    /// The calls that are not answered yet.
    calls: Mutex<BTreeMap<u64, oneshot::Sender<Entry>>>,
    /// The message of a task that panicked.
    panic: OnceLock<String>,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "these are all the ways in which a call can end")]
pub enum End {
    /// The call was answered.
    Ok(Answer),
    /// The call certainly never happens.
    Fail(String),
    /// The call happens at most once, or the process ended, and the effect is unknown.
    Info(String),
}

/// Kills the process when the guard's own input ends, in any state of the process.
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
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let open = Arc::<Open>::default();
        if let Some(output) = output {
            let (open, book) = (open.clone(), book.clone());
            // The thread ends with the process.
            let _reading = std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    // The last line of a killed process may be incomplete.
                    if let Ok(entry) = serde_json::from_str(&line) {
                        open.record_answer(&book, entry);
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
            input: Mutex::new(input),
            calls: AtomicU64::new(0),
            open,
            gone: AtomicBool::new(false),
        })
    }

    /// Returns the number of the process.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Sends a call without a delay, and waits for its result.
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
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        match input.as_mut() {
            Some(input) => input.write_all(line.as_bytes()),
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
        // Recorded before, because every later action of the process comes after it.
        self.done("go on", Installed::Installed);
        self.signal("-CONT")
    }

    /// Kills the process in any state.
    ///
    /// # Errors
    ///
    /// If it is not running.
    pub fn kill(&self) -> io::Result<()> {
        self.done("kill", Installed::Installed);
        self.gone.store(true, Ordering::Relaxed);
        self.signal("-KILL")
    }

    /// Returns `true` if the process was killed.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Returns the message of a task that panicked, which ended the process.
    pub fn panic(&self) -> Option<&str> {
        self.open.panic.get().map(String::as_str)
    }

    /// Returns `true` if the process answers within `limit`.
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

    /// Returns the result of a call that will no longer be answered.
    fn is_gone(&self) -> End {
        End::Info(match self.panic.get() {
            Some(why) => format!("the process is gone: {why}"),
            None => "the process is gone".to_owned(),
        })
    }

    fn record_answer(&self, book: &Book, entry: Entry) {
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
