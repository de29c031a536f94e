//! [`Program`]: one of the programs of the demo, with its own client.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use synod::SessionOptions;
use synod::mem::{MemBackend, Weather};
use synod::{Client, ClientOptions, Config};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::demo::teller::Teller;
use crate::failure::Failure;

/// Time that a session on a server outlives its last heartbeat, if its URL does not set it: as
/// little as servers usually allow.
const TTL: Duration = Duration::from_secs(4);

/// A program that uses the store.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) client: Client,
    pub(crate) teller: Teller,
    reach: Reach,
}

/// The connection of a program to the store, and the way to cut it.
#[derive(Debug)]
enum Reach {
    /// A connection in memory, which can be cut, and the tasks of the program.
    Memory(MemBackend, Mutex<JoinSet<()>>),
    /// The connections of a separate runtime. They end with the runtime, without a close, as if the
    /// machine had failed.
    Network(Mutex<Option<Runtime>>),
}

impl Program {
    /// Starts the program, with a session that outlives its last heartbeat by `ttl`.
    pub(crate) async fn start(
        name: &'static str,
        store: &MemBackend,
        ttl: Duration,
        teller: &Teller,
    ) -> Result<Self, Failure> {
        let options = ClientOptions::default().session(SessionOptions::new(ttl));
        let client = Client::open(store.clone(), options).await?;
        Ok(Self {
            name,
            client,
            teller: teller.clone(),
            reach: Reach::Memory(store.clone(), Mutex::default()),
        })
    }

    /// Starts the program on a store.
    pub(crate) async fn connect(
        name: &'static str,
        config: &Config,
        teller: &Teller,
    ) -> Result<Self, Failure> {
        let mut config = config.clone();
        let is_set = config.url.parameters().any(|(name, _)| name == "session");
        if !is_set && config.session.is_none() {
            config.session = Some(TTL);
        }
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let opened = runtime.spawn(async move { config.connect().await });
        let reach = Reach::Network(Mutex::new(Some(runtime)));
        let client = opened.await.map_err(|error| Failure::plain(error.to_string()))??;
        Ok(Self { name, client, teller: teller.clone(), reach })
    }

    /// Runs work of this program until the work or the program ends.
    pub(crate) fn runs(&self, work: impl Future<Output = ()> + Send + 'static) {
        match &self.reach {
            Reach::Memory(_, tasks) => {
                tasks.lock().unwrap_or_else(PoisonError::into_inner).spawn(work);
            }
            Reach::Network(runtime) => {
                if let Some(runtime) = &*runtime.lock().unwrap_or_else(PoisonError::into_inner) {
                    drop(runtime.spawn(work));
                }
            }
        }
    }

    /// Disconnects the program from the store, as if its machine lost power. It must not be used
    /// afterwards.
    pub(crate) async fn lose_power(&self, so: &str) -> Result<(), Failure> {
        let what = format!("fails at {}'s machine: {so}", self.name);
        self.teller.tell("power", &what, None)?;
        self.cut_off().await?;
        if let Reach::Memory(_, tasks) = &self.reach {
            tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
        }
        Ok(())
    }

    /// Disconnects its session from the store. In memory it can open another one.
    pub(crate) async fn lose_network(&self, so: &str) -> Result<(), Failure> {
        let what = format!("fails between {} and the store: {so}", self.name);
        self.teller.tell("network", &what, None)?;
        self.cut_off().await
    }

    async fn cut_off(&self) -> Result<(), Failure> {
        match &self.reach {
            Reach::Memory(store, _) => {
                let session = self.client.session().await?.info().id;
                store.set_weather(session, Weather::CUT);
            }
            Reach::Network(runtime) => stop(runtime),
        }
        Ok(())
    }

    /// Closes its session, unless its machine has failed.
    pub(crate) async fn end(self) -> Result<(), Failure> {
        if let Reach::Network(runtime) = &self.reach
            && runtime.lock().unwrap_or_else(PoisonError::into_inner).is_none()
        {
            return Ok(());
        }
        Ok(self.client.close().await?)
    }

    /// Prints an action of the program.
    pub(crate) fn tell(&self, what: &str) -> Result<(), Failure> {
        self.teller.tell(self.name, what, None)
    }
}

impl Drop for Reach {
    fn drop(&mut self) {
        if let Self::Network(runtime) = self {
            stop(runtime);
        }
    }
}

/// Ends a runtime without waiting for its tasks.
fn stop(runtime: &Mutex<Option<Runtime>>) {
    if let Some(runtime) = runtime.lock().unwrap_or_else(PoisonError::into_inner).take() {
        runtime.shutdown_background();
    }
}
