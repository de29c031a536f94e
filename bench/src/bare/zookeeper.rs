//! [`Bare`]: `zookeeper-client`; and [`Same`], which sends exactly the requests that synod sends.

use std::cell::Cell;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use zookeeper_client::{Acls, AddWatchMode, Client, CreateMode, LockPrefix};

use crate::ours::DATA;
use crate::racer::{Failure, Racer, drive};
use crate::report::{Report, Stopwatch};
use crate::task::{Task, Work};

const TTL: Duration = Duration::from_secs(60);
const DIR: &str = "/bare-bench";

/// Sessions of the bare crate.
#[derive(Debug)]
pub struct Bare {
    address: String,
    clients: Vec<Client>,
}

/// The same crate, which sends exactly the requests of synod for an uncontended lock.
#[derive(Debug)]
pub struct Same {
    bare: Bare,
    /// The number of tickets so far: each has a unique name.
    drawn: Cell<u64>,
}

impl Bare {
    /// Connects to the server at the address.
    ///
    /// # Errors
    ///
    /// If there is no server at the address.
    pub async fn connect(address: &str) -> Result<Self, Failure> {
        let mut bare = Self { address: address.to_owned(), clients: Vec::new() };
        let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let client = bare.sessions(1).await?[0].clone();
        for dir in ["", "/nodes", "/made", "/locks"] {
            client.mkdir(&format!("{DIR}{dir}"), &open).await?;
        }
        Ok(bare)
    }

    async fn sessions(&mut self, count: usize) -> Result<&[Client], Failure> {
        while self.clients.len() < count {
            let connector = Client::connector().with_session_timeout(TTL);
            self.clients.push(connector.connect(&self.address).await?);
        }
        Ok(&self.clients[..count])
    }

    async fn nodes(&self, task: &Task) -> Result<Report, Failure> {
        let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
        for lane in 0..task.clients {
            self.clients[0].mkdir(&format!("{DIR}/nodes/{lane}"), &open).await?;
            self.clients[0].set_data(&format!("{DIR}/nodes/{lane}"), DATA, None).await?;
        }
        let lanes = (0..task.clients).map(|lane| {
            let (client, work) = (self.clients[0].clone(), task.work);
            let (node, made) = (format!("{DIR}/nodes/{lane}"), format!("{DIR}/made/{lane}"));
            let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
            async move || {
                match work {
                    Work::GetLocal => whole(&client.get_data(&node).await?.0)?,
                    Work::Get => {
                        // Both requests are sent before either answer is awaited.
                        let (ahead, data) = (client.sync("/"), client.get_data(&node));
                        ahead.await?;
                        whole(&data.await?.0)?;
                    }
                    Work::Set => drop(client.set_data(&node, DATA, None).await?),
                    _ => {
                        let _created = client.create(&made, DATA, &ephemeral).await?;
                        client.delete(&made, None).await?;
                    }
                }
                Ok(())
            }
        });
        drive(task, lanes.collect()).await
    }

    /// The crate's own recipe, in the layout of Curator.
    async fn contended(&mut self, task: &Task) -> Result<Report, Failure> {
        let clients = self.sessions(task.clients).await?.to_vec();
        let lanes = clients.into_iter().map(|client| {
            async move || {
                let dir = format!("{DIR}/locks/{}", task.clients);
                let prefix = LockPrefix::new_curator(&dir, "lock-")?;
                let open = Acls::anyone_all();
                let options = zookeeper_client::LockOptions::new(open)
                    .with_ancestor_options(CreateMode::Persistent.with_acls(open))?;
                // Dropping it deletes the node, some time later.
                drop(client.lock(prefix, DATA, options).await?);
                Ok(())
            }
        });
        drive(task, lanes.collect()).await
    }

    async fn observe(&mut self, task: &Task) -> Result<Report, Failure> {
        let node = format!("{DIR}/nodes/0");
        let clients = self.sessions(2).await?;
        clients[0].mkdir(&node, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await?;
        let mut watch = clients[1].watch(&node, AddWatchMode::Persistent).await?;
        let stopwatch = Stopwatch::start(task);
        let mut laps = Vec::new();
        while stopwatch.goes_on(laps.len()) {
            let called = Instant::now();
            let set = clients[0].set_data(&node, DATA, None);
            let _event = watch.changed().await;
            laps.push(called.elapsed());
            set.await?;
        }
        Ok(stopwatch.stop(laps))
    }
}

impl Same {
    /// Connects to the server at the address.
    ///
    /// # Errors
    ///
    /// If there is no server at the address.
    pub async fn connect(address: &str) -> Result<Self, Failure> {
        Ok(Self { bare: Bare::connect(address).await?, drawn: Cell::default() })
    }

    /// Creates a ticket, lists the directory afterwards, and deletes the ticket.
    async fn locks(&self, task: &Task) -> Result<Report, Failure> {
        let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
        for lane in 0..task.clients {
            self.bare.clients[0].mkdir(&format!("{DIR}/locks/same-{lane}"), &open).await?;
        }
        let lanes = (0..task.clients).map(|lane| {
            let (client, drawn) = (self.bare.clients[0].clone(), &self.drawn);
            let dir = format!("{DIR}/locks/same-{lane}");
            let ticket = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
            async move || {
                drawn.set(drawn.get() + 1);
                let name = format!("{dir}/_c_{lane:08x}-0000-0000-0000-{:012x}-lock-", drawn.get());
                // Both requests are sent before either answer is awaited.
                let (made, line) = (client.create(&name, b"", &ticket), client.get_children(&dir));
                let (_stat, sequence) = made.await?;
                let (_names, _stat) = line.await?;
                client.delete(&format!("{name}{sequence}"), None).await?;
                Ok(())
            }
        });
        drive(task, lanes.collect()).await
    }
}

#[async_trait(?Send)]
impl Racer for Same {
    async fn run(&mut self, task: &Task) -> Result<Option<Report>, Failure> {
        match task.work {
            Work::Lock => self.locks(task).await.map(Some),
            _ => Ok(None),
        }
    }
}

#[async_trait(?Send)]
impl Racer for Bare {
    async fn run(&mut self, task: &Task) -> Result<Option<Report>, Failure> {
        match task.work {
            Work::GetLocal | Work::Get | Work::Set | Work::CreateDelete | Work::Lock => {
                self.nodes(task).await.map(Some)
            }
            Work::LockContended => self.contended(task).await.map(Some),
            Work::Observe => self.observe(task).await.map(Some),
            _ => Ok(None),
        }
    }
}

fn whole(data: &[u8]) -> Result<(), Failure> {
    if data.len() == DATA.len() { Ok(()) } else { Err("data is missing".into()) }
}
