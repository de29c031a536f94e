//! [`Noise`]: background writes, a thousand a second.

use std::time::Duration;

use futures_util::future::try_join_all;
use synod::Client;
use synod::Path;
use tokio::task::JoinSet;
use tokio::time::interval;

use crate::racer::Failure;

/// The number of concurrent writes, and the pause: a thousand a second.
const BURST: usize = 10;
const PAUSE: Duration = Duration::from_millis(10);

/// A write: its path, which depends on its number, and the data.
pub type Change = (Path, Vec<u8>);

/// Writes to a store until it is dropped.
#[derive(Debug)]
pub struct Noise {
    _writing: JoinSet<Result<(), Failure>>,
}

impl Noise {
    /// Starts to write nodes that have nothing to do with the measurement.
    pub fn unrelated(client: Client) -> Self {
        Self::of(client, |number| {
            let node = Path::new(&format!("/noise/{}", number % BURST as u64))?;
            Ok((node, b"noise".to_vec()))
        })
    }

    /// Starts to write. Changes are numbered from 1.
    pub fn of(
        client: Client,
        change: impl Fn(u64) -> Result<Change, Failure> + Send + 'static,
    ) -> Self {
        let mut writing = JoinSet::new();
        writing.spawn(write(client, change));
        Self { _writing: writing }
    }
}

async fn write(
    client: Client,
    change: impl Fn(u64) -> Result<Change, Failure>,
) -> Result<(), Failure> {
    // The interval makes up for late writes.
    let (mut next, mut numbers) = (interval(PAUSE), 1..);
    loop {
        next.tick().await;
        let changes = numbers.by_ref().take(BURST).map(&change);
        let changes = changes.collect::<Result<Vec<Change>, Failure>>()?;
        try_join_all(changes.iter().map(|(path, data)| client.put(path, data.clone()))).await?;
    }
}
