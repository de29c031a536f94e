//! [`Crowd`]: the nodes that caches are measured with, the same ones for all racers.

use std::collections::BTreeMap;

use futures_util::future::try_join_all;
use synod::Client;
use synod::Path;
use synod::{Lifetime, Node, Txn};

use crate::racer::Failure;

/// Number of nodes in a directory.
const DIRECTORY: usize = 250;
/// Number of nodes that are created in one transaction.
const TOGETHER: usize = 25;
/// Number of transactions in flight.
const AT_ONCE: usize = 20;
/// The bytes of a node.
const SIZE: usize = 100;

/// A number of nodes, in several directories. The data of each node begins with its name, and a
/// number that grows with each change.
///
/// They are created by the process that lets racers race, and all racers cache the same ones.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    nodes: usize,
}

impl Crowd {
    /// A crowd of this number of nodes.
    pub fn of(nodes: usize) -> Self {
        Self { nodes }
    }

    /// Returns the directory of the nodes.
    ///
    /// # Errors
    ///
    /// None, as the path is valid.
    pub fn dir(self) -> Result<Path, Failure> {
        Ok(Path::new(&format!("/crowd/{}", self.nodes))?)
    }

    /// The path of one of the nodes, which are numbered from 0.
    ///
    /// # Errors
    ///
    /// None, as the path is valid.
    pub fn node(self, node: usize) -> Result<Path, Failure> {
        let (dir, name) = (node / DIRECTORY, name(node));
        Ok(Path::new(&format!("/crowd/{}/d{dir:03}/{name}", self.nodes))?)
    }

    /// The path of the node that the change with this number writes, and the new data.
    ///
    /// # Errors
    ///
    /// None, as the path is valid.
    pub fn change(self, number: u64) -> Result<(Path, Vec<u8>), Failure> {
        /// A prime number, so that changes are spread over the nodes.
        const STRIDE: u64 = 7_919;
        let node = usize::try_from(number.wrapping_mul(STRIDE) % self.nodes.max(1) as u64)?;
        Ok((self.node(node)?, data(node, number)))
    }

    /// Creates the nodes that are missing.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn settle(self, client: &Client) -> Result<(), Failure> {
        let all: Vec<usize> = (0..self.nodes).collect();
        let txns = all.chunks(TOGETHER).map(|some| {
            some.iter().try_fold(Txn::new(), |txn, &node| {
                Ok(txn.create(self.node(node)?, data(node, 0), Lifetime::Persistent))
            })
        });
        let txns = txns.collect::<Result<Vec<Txn>, Failure>>()?;
        for some in txns.chunks(AT_ONCE) {
            // A rejected transaction was already applied by an earlier run.
            let _all = try_join_all(some.iter().map(|txn| client.commit(txn.clone()))).await?;
        }
        Ok(())
    }

    /// Checks that the cache has all nodes, each with its own data.
    ///
    /// # Errors
    ///
    /// A missing node, or one with other data.
    pub fn expect<'a>(self, cached: impl IntoIterator<Item = &'a Node>) -> Result<(), Failure> {
        let cached: BTreeMap<&str, &Node> =
            cached.into_iter().map(|node| (node.path.as_str(), node)).collect();
        for node in 0..self.nodes {
            let path = self.node(node)?;
            let has = cached.get(path.as_str()).is_some_and(|it| number(it).is_some());
            if !has {
                return Err(format!("the cache lacks {path}, or has other data for it").into());
            }
        }
        if cached.len() > self.nodes {
            return Err(format!("{} nodes are cached, of {}", cached.len(), self.nodes).into());
        }
        Ok(())
    }
}

fn name(node: usize) -> String {
    format!("n{node:06}")
}

fn data(node: usize, number: u64) -> Vec<u8> {
    let mut data = format!("{} {number:010} ", name(node)).into_bytes();
    data.resize(SIZE, b'x');
    data
}

/// The number of the last change of a node. `None` if its data is not its own.
pub fn number(node: &Node) -> Option<u64> {
    let text = std::str::from_utf8(&node.data).ok().filter(|text| text.len() == SIZE)?;
    let mut words = text.split(' ');
    (words.next()? == node.path.name()).then_some(())?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use synod::Query;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_crowd_is_complete_or_is_refused() {
        let (client, crowd) = (synod::connect("mem://").await.expect("memory"), Crowd::of(600));
        for _ in 0..2 {
            crowd.settle(&client).await.expect("memory answers");
        }
        let (path, data) = crowd.change(9).expect("valid");
        let _there = client.put(&path, data).await.expect("memory answers");
        let dir = Query::subtree(crowd.dir().expect("valid"));
        let view = client.read(dir).await.expect("memory answers");
        let mut nodes: Vec<Node> = view.nodes.into_iter().filter(|it| it.stat.is_some()).collect();

        crowd.expect(&nodes).expect("all are there");
        assert_eq!(nodes.iter().find(|node| node.path == path).and_then(number), Some(9));
        let mut last = nodes.pop().expect("some");
        assert!(crowd.expect(&nodes).is_err(), "one is missing");
        last.data = nodes[0].data.clone();
        nodes.push(last);
        assert!(crowd.expect(&nodes).is_err(), "one has the data of another");
        client.close().await.expect("memory answers");
    }
}
