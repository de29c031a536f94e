//! An outage is a handful of lines in the log, even if many callers wait.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use synod::barrier::Barrier;
use synod::crew::Crew;
use synod::election::LeaderLatch;
use synod::lock::Mutex;
use synod::mem::{MemBackend, Weather};
use synod::{
    Client, ClientOptions, Error, ErrorKind, Outcome, Query, Result, SessionOptions, Status, Txn,
    View, Watch, path,
};
use synod_core::layer::trace::TracedBackend;
use synod_core::store::{Backend, SessionInfo, Store};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::logged::Log;

mod logged;

/// Waiters of each of four recipes.
const WAITERS: usize = 250;

/// The maximum number of lines of one outage.
const MAX_LINES: usize = 6;

/// A backend, or one of its sessions, whose servers can be stopped: they refuse every call.
#[derive(Clone, Debug)]
struct Servers<T> {
    inner: T,
    stopped: watch::Receiver<bool>,
}

impl<T> Servers<T> {
    fn reached(&self, doing: &'static str) -> Result<&T> {
        if *self.stopped.borrow() {
            return Err(Error::new(ErrorKind::Unreachable, doing).because("it is stopped"));
        }
        Ok(&self.inner)
    }
}

#[async_trait]
impl Backend for Servers<MemBackend> {
    async fn open(&self, options: &SessionOptions) -> Result<Box<dyn Store>> {
        let inner: Arc<dyn Store> = Arc::from(self.reached("open")?.open(options).await?);
        Ok(Box::new(Servers { inner, stopped: self.stopped.clone() }))
    }
}

#[async_trait]
impl Store for Servers<Arc<dyn Store>> {
    fn session(&self) -> &SessionInfo {
        self.inner.session()
    }

    fn status(&self) -> watch::Receiver<Status> {
        self.inner.status()
    }

    async fn read(&self, query: Query) -> Result<View> {
        self.reached("read")?.read(query).await
    }

    async fn watch(&self, query: Query) -> Result<(View, Watch)> {
        self.reached("watch")?.watch(query).await
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        self.reached("commit")?.commit(txn).await
    }

    async fn close(&self) -> Result<()> {
        self.reached("close")?.close().await
    }
}

/// A thousand waiters: those at the barrier, and the others.
#[derive(Default)]
struct Waiters {
    barrier: JoinSet<Result<()>>,
    others: JoinSet<()>,
}

impl Waiters {
    fn start(client: &Client) -> Self {
        let mut waiters = Self::default();
        for number in 0..WAITERS {
            let barrier = Barrier::new(client, path!("/barrier"));
            waiters.barrier.spawn(async move { barrier.wait().await });
            let lock = Mutex::new(client, path!("/lock"));
            waiters.others.spawn(async move { drop(lock.lock().await) });
            let latch = LeaderLatch::new(client, path!("/latch"));
            waiters.others.spawn(async move {
                let _candidate = latch.join().await;
                std::future::pending::<()>().await;
            });
            let task = Crew::new(client, path!("/crew")).task(&format!("task-{number}"));
            waiters.others.spawn(async move { drop(task.expect("a valid id").wait().await) });
        }
        waiters
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_with_a_thousand_waiters_is_a_handful_of_lines() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let memory = MemBackend::new();
    let bob = Client::open(memory.clone(), ClientOptions::default()).await.expect("memory");
    let barrier = Barrier::new(&bob, path!("/barrier"));
    barrier.set().await.expect("reachable");
    let _lock = Mutex::new(&bob, path!("/lock")).lock().await.expect("free");
    let candidate = LeaderLatch::new(&bob, path!("/latch")).join().await.expect("reachable");
    let crew = Crew::new(&bob, path!("/crew"));
    for number in 0..WAITERS {
        crew.submit(&format!("task-{number}"), "data").await.expect("reachable");
    }

    let (stop, stopped) = watch::channel(false);
    let servers = Servers { inner: memory.clone(), stopped };
    let client = Client::open(TracedBackend::new(servers), ClientOptions::default()).await;
    let client = client.expect("memory");
    let mut waiters = Waiters::start(&client);
    sleep(Duration::from_secs(5)).await;
    let mut before = log.text().lines().count();

    // Shorter than the session, then longer.
    for outage in [Duration::from_secs(6), Duration::from_secs(50)] {
        let session = client.session().await.expect("it is back").info().id;
        memory.set_weather(session, Weather::CUT);
        stop.send_replace(true);
        sleep(outage).await;
        stop.send_replace(false);
        memory.set_weather(session, Weather::CLEAR);
        sleep(Duration::from_secs(30)).await;

        let text = log.text();
        let lines: Vec<_> = text.lines().skip(before).collect();
        assert!((2..=MAX_LINES).contains(&lines.len()), "{} lines: {lines:#?}", lines.len());
        assert!(text.contains("failed_calls="), "with the number of calls");
        before += lines.len();
    }

    assert!(waiters.barrier.try_join_next().is_none(), "they still wait");
    barrier.lift().await.expect("reachable");
    while let Some(waited) = waiters.barrier.join_next().await {
        waited.expect("no panic").expect("the barrier was lifted");
    }
    candidate.close().await.expect("reachable");
}
