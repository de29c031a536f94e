//! [`Program`]: one of the programs of the demo, with a client of its own.

use std::time::Duration;

use synod::mem::{MemBackend, Weather};
use synod::store::SessionOptions;
use synod::{Client, ClientOptions};

use crate::demo::teller::Teller;
use crate::failure::Failure;

/// A program that uses the store.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) client: Client,
    pub(crate) teller: Teller,
    store: MemBackend,
}

impl Program {
    /// Starts it, with a session that outlives its last heartbeat by `ttl`.
    pub(crate) async fn start(
        name: &'static str,
        store: &MemBackend,
        ttl: Duration,
        teller: &Teller,
    ) -> Result<Self, Failure> {
        let options = ClientOptions::default().session(SessionOptions::new(ttl));
        let client = Client::open(store.clone(), options).await?;
        Ok(Self { name, client, teller: teller.clone(), store: store.clone() })
    }

    /// Cuts it off from the store, as its machine loses power. It must not be used afterwards.
    pub(crate) async fn lose_power(&self, so: &str) -> Result<(), Failure> {
        let what = format!("fails at {}'s machine: {so}", self.name);
        self.teller.tell("power", &what, None)?;
        self.cut_off().await
    }

    /// Cuts its session off from the store. It can open another one.
    pub(crate) async fn lose_network(&self, so: &str) -> Result<(), Failure> {
        let what = format!("fails between {} and the store: {so}", self.name);
        self.teller.tell("network", &what, None)?;
        self.cut_off().await
    }

    async fn cut_off(&self) -> Result<(), Failure> {
        let session = self.client.session().await?.info().id;
        self.store.set_weather(session, Weather::CUT);
        Ok(())
    }

    /// Closes its session.
    pub(crate) async fn end(self) -> Result<(), Failure> {
        Ok(self.client.close().await?)
    }

    /// Prints what it does.
    pub(crate) fn tell(&self, what: &str) -> Result<(), Failure> {
        self.teller.tell(self.name, what, None)
    }
}
