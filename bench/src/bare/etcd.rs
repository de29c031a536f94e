//! [`Bare`]: `etcd-client`.

use std::fmt;

use async_trait::async_trait;
use etcd_client::{
    Client, Compare, CompareOp, GetOptions, LockOptions, PutOptions, Txn as Request, TxnOp,
};
use tokio::time::Instant;

use crate::ours::DATA;
use crate::racer::{Failure, Racer, drive};
use crate::report::{Report, Stopwatch};
use crate::task::{Task, Work};

/// Longer than all tasks together.
pub(super) const TTL: i64 = 3_600;
const DIR: &str = "/bare-bench";

/// The bare crate, on one connection, with leases.
pub struct Bare {
    client: Client,
    leases: Vec<i64>,
}

impl Bare {
    /// Connects to the server at the address.
    ///
    /// # Errors
    ///
    /// If there is no server at the address.
    pub async fn connect(address: &str) -> Result<Self, Failure> {
        let client = Client::connect([address], None).await?;
        let mut bare = Self { client, leases: Vec::new() };
        bare.sessions(1).await?;
        Ok(bare)
    }

    async fn sessions(&mut self, count: usize) -> Result<&[i64], Failure> {
        while self.leases.len() < count {
            self.leases.push(self.client.lease_client().grant(TTL, None).await?.id());
        }
        Ok(&self.leases[..count])
    }

    async fn nodes(&self, task: &Task) -> Result<Report, Failure> {
        for lane in 0..task.clients {
            let node = format!("{DIR}/nodes/{lane}");
            let _put = self.client.kv_client().put(node, DATA, None).await?;
        }
        let lanes = (0..task.clients).map(|lane| {
            let (mut kv, lease, work) = (self.client.kv_client(), self.leases[0], task.work);
            let (node, made) = (format!("{DIR}/nodes/{lane}"), format!("{DIR}/made/{lane}"));
            async move || match work {
                Work::GetLocal | Work::Get => {
                    let local =
                        (work == Work::GetLocal).then(|| GetOptions::new().with_serializable());
                    let found = kv.get(node.as_str(), local).await?;
                    holds(found.kvs().first().is_some_and(|kv| kv.value() == DATA))
                }
                Work::Set => {
                    let _put = kv.put(node.as_str(), DATA, None).await?;
                    Ok(())
                }
                Work::SetIfThere => {
                    let there = Compare::version(node.as_str(), CompareOp::Greater, 0);
                    let keep = PutOptions::new().with_ignore_lease();
                    let put = TxnOp::put(node.as_str(), DATA, Some(keep));
                    let names = GetOptions::new().with_keys_only();
                    let get = TxnOp::get(node.as_str(), Some(names));
                    let request = Request::new().when([there]).and_then([put, get]);
                    holds(kv.txn(request).await?.succeeded())
                }
                _ => {
                    let absent = Compare::version(made.as_str(), CompareOp::Equal, 0);
                    let leased = PutOptions::new().with_lease(lease);
                    let put = TxnOp::put(made.as_str(), DATA, Some(leased));
                    let request = Request::new().when([absent]).and_then([put]);
                    holds(kv.txn(request).await?.succeeded())?;
                    holds(kv.delete(made.as_str(), None).await?.deleted() == 1)
                }
            }
        });
        drive(task, lanes.collect()).await
    }

    /// The server's own lock, which waits at the server.
    async fn contended(&mut self, task: &Task) -> Result<Report, Failure> {
        let leases = self.sessions(task.clients).await?.to_vec();
        let lanes = leases.into_iter().map(|lease| {
            let mut locks = self.client.lock_client();
            async move || {
                let name = format!("{DIR}/locks/{}", task.clients);
                let held = locks.lock(name, Some(LockOptions::new().with_lease(lease))).await?;
                let _unlocked = locks.unlock(held.key()).await?;
                Ok(())
            }
        });
        drive(task, lanes.collect()).await
    }

    async fn observe(&mut self, task: &Task) -> Result<Report, Failure> {
        let (node, mut kv) = (format!("{DIR}/observed"), self.client.kv_client());
        let mut watch = self.client.watch_client().watch(node.as_str(), None).await?;
        let _created = watch.message().await?;
        let stopwatch = Stopwatch::start(task);
        let mut laps = Vec::new();
        while stopwatch.goes_on(laps.len()) {
            let called = Instant::now();
            let heard = async {
                let heard = watch.message().await;
                heard.map(|_event| called.elapsed())
            };
            let set = kv.put(node.as_str(), DATA, None);
            let (heard, set) = futures_util::future::join(heard, set).await;
            let _put = set?;
            laps.push(heard?);
        }
        Ok(stopwatch.stop(laps))
    }
}

#[async_trait(?Send)]
impl Racer for Bare {
    async fn run(&mut self, task: &Task) -> Result<Option<Report>, Failure> {
        match task.work {
            Work::GetLocal
            | Work::Get
            | Work::Set
            | Work::SetIfThere
            | Work::CreateDelete
            | Work::Lock => self.nodes(task).await.map(Some),
            Work::LockContended => self.contended(task).await.map(Some),
            Work::Observe => self.observe(task).await.map(Some),
            _ => Ok(None),
        }
    }
}

impl fmt::Debug for Bare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bare").field("leases", &self.leases).finish_non_exhaustive()
    }
}

pub(super) fn holds(held: bool) -> Result<(), Failure> {
    if held { Ok(()) } else { Err("it was refused without any contention".into()) }
}
