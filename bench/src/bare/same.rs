//! [`Same`]: `etcd-client`, which sends exactly the requests that synod sends.
//!
//! The difference between this and synod is the cost of synod; the difference between
//! [`Bare`](super::etcd::Bare) and this is the cost of keeping a tree in etcd, in any client.

use std::cell::Cell;
use std::fmt;

use async_trait::async_trait;
use etcd_client::{
    Client, Compare, CompareOp, Error, GetOptions, KvClient, PutOptions, SortOrder, SortTarget,
    Txn as Request, TxnOp,
};

use super::etcd::{TTL, holds};
use crate::ours::DATA;
use crate::racer::{Failure, Racer, drive};
use crate::report::Report;
use crate::task::{Task, Work};

/// The bare crate, on one connection, with one lease.
pub struct Same {
    client: Client,
    lease: i64,
    /// The number of tickets so far: each has a unique name.
    drawn: Cell<u64>,
}

impl Same {
    /// Connects to the server at the address.
    ///
    /// # Errors
    ///
    /// If there is no server at the address.
    pub async fn connect(address: &str) -> Result<Self, Failure> {
        let client = Client::connect([address], None).await?;
        let lease = client.lease_client().grant(TTL, None).await?.id();
        Ok(Self { client, lease, drawn: Cell::default() })
    }

    /// Creates an ephemeral node, and deletes it if nothing is below.
    async fn nodes(&self, task: &Task) -> Result<Report, Failure> {
        let lanes = (0..task.clients).map(|lane| {
            let (mut kv, lease) = (self.client.kv_client(), self.lease);
            let key = format!("/same-bench/made//{lane}");
            let (below, end) =
                (format!("/same-bench/made/{lane}/"), format!("/same-bench/made/{lane}0"));
            async move || {
                let childless = || none(&below).with_range(end.as_str());
                let when = vec![
                    none(&key),
                    childless(),
                    unleased("/same-bench//made"),
                    unleased("//same-bench"),
                ];
                let name = TxnOp::get(key.as_str(), Some(GetOptions::new().with_keys_only()));
                let create =
                    Request::new().when(when).and_then([put(&key, DATA, lease)]).or_else([name]);
                holds(kv.txn(create).await?.succeeded())?;
                let delete = TxnOp::delete(key.as_str(), None);
                let delete = Request::new().when([childless()]).and_then([delete]);
                holds(kv.txn(delete).await?.succeeded())
            }
        });
        drive(task, lanes.collect()).await
    }

    /// Creates a ticket with a unique name and a follow-up read of the last two, and deletes the
    /// ticket.
    async fn locks(&self, task: &Task) -> Result<Report, Failure> {
        let lanes = (0..task.clients).map(|lane| {
            let (mut kv, lease, drawn) = (self.client.kv_client(), self.lease, &self.drawn);
            async move || {
                drawn.set(drawn.get() + 1);
                let id = format!("{lane:08x}-0000-0000-0000-{:012x}", drawn.get());
                let key = format!("/same-bench/locks/{lane}//_c_{id}-lock-");
                holds(draw(&mut kv, &key, lane, lease).await?)?;
                holds(kv.delete(key, None).await?.deleted() == 1)
            }
        });
        drive(task, lanes.collect()).await
    }
}

async fn draw(kv: &mut KvClient, key: &str, lane: usize, lease: i64) -> Result<bool, Error> {
    let above = ["//same-bench", "/same-bench//locks"].map(unleased);
    let dir = format!("/same-bench/locks//{lane}");
    let when = [none(key), unleased(&dir)].into_iter().chain(above);
    let last = GetOptions::new()
        .with_range(format!("/same-bench/locks/{lane}/0"))
        .with_keys_only()
        .with_sort(SortTarget::Create, SortOrder::Descend)
        .with_limit(2);
    let look = TxnOp::get(format!("/same-bench/locks/{lane}//"), Some(last));
    let draw = Request::new().when(when.collect::<Vec<_>>()).and_then([put(key, b"", lease), look]);
    Ok(kv.txn(draw).await?.succeeded())
}

fn none(key: &str) -> Compare {
    Compare::version(key, CompareOp::Equal, 0)
}

fn unleased(key: &str) -> Compare {
    Compare::lease(key, CompareOp::Equal, 0)
}

fn put(key: &str, data: &[u8], lease: i64) -> TxnOp {
    TxnOp::put(key, data, Some(PutOptions::new().with_lease(lease)))
}

#[async_trait(?Send)]
impl Racer for Same {
    async fn run(&mut self, task: &Task) -> Result<Option<Report>, Failure> {
        match task.work {
            Work::CreateDelete => self.nodes(task).await.map(Some),
            Work::Lock => self.locks(task).await.map(Some),
            _ => Ok(None),
        }
    }
}

impl fmt::Debug for Same {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Same").field("lease", &self.lease).finish_non_exhaustive()
    }
}
