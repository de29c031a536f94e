//! [`Network`]: the links between one client and the members.

use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::select;
use synod_conformance::harness::Link;
use synod_core::error::Result;
use synod_core::random::Random;
use synod_core::task::spawn;
use synod_etcd::{EtcdBackend, EtcdOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::serve::{hold, serve};
use super::shared::{Door, Shared};
use super::shown::Shown;

/// The number of bytes that can be in transit at a time.
const ROOM: usize = 256 << 10;

/// The links of one client, all in the same state.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    shared: Arc<Shared>,
    number: usize,
    link: Shown<Link>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    There,
    Back,
}

impl Network {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let number = shared.networks.fetch_add(1, Ordering::Relaxed);
        Self { shared, number, link: Shown::new(Link::Open) }
    }

    pub(crate) fn set(&self, link: Link) {
        self.link.set(link);
    }

    /// A new backend that uses this network.
    pub(crate) fn backend(&self, options: EtcdOptions, random: Random) -> Result<EtcdBackend> {
        let network = self.clone();
        synod_etcd::scripted::backend(options, random, move |to| {
            let network = network.clone();
            async move { network.dial(&to).await }
        })
    }

    async fn dial(&self, to: &str) -> io::Result<DuplexStream> {
        let name = to.split(':').next().unwrap_or_default();
        let member = name.strip_prefix('m').and_then(|number| number.parse::<usize>().ok());
        let known = member.filter(|member| *member < self.shared.members().len());
        let Some(member) = known else {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no such member"));
        };
        if self.shared.member(member).down {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (mine, theirs) = tokio::io::duplex(ROOM);
        match self.shared.member(member).door {
            Door::Open => {}
            Door::Drops => return pending().await,
            Door::Closes => return Ok(mine),
            Door::Silent => {
                spawn(hold(theirs)).let_go();
                return Ok(mine);
            }
        }
        let (near, far) = tokio::io::duplex(ROOM);
        let served = serve(far, self.shared.clone(), member, self.number);
        let carried = carry_both(theirs, near, self.link.clone());
        // Both directions end when the client or the member closes its end.
        let work = async move {
            let _ended = select(pin!(carried), pin!(served)).await;
        };
        spawn(work).let_go();
        Ok(mine)
    }
}

async fn carry_both(client: DuplexStream, server: DuplexStream, link: Shown<Link>) {
    let (client_read, client_write) = tokio::io::split(client);
    let (server_read, server_write) = tokio::io::split(server);
    let there = carry(client_read, server_write, Way::There, link.clone());
    let back = carry(server_read, client_write, Way::Back, link);
    // The end of one direction ends the other.
    let _ended = select(pin!(there), pin!(back)).await;
}

/// Carries one direction, in order, until one of its ends is closed.
async fn carry(
    mut from: ReadHalf<DuplexStream>,
    mut to: WriteHalf<DuplexStream>,
    way: Way,
    link: Shown<Link>,
) {
    let (queue, mut queued) = mpsc::unbounded_channel();
    let reading = async {
        let mut piece = vec![0; 16 << 10];
        // The end of the stream is forwarded as well.
        loop {
            let size = from.read(&mut piece).await.unwrap_or(0);
            let at = Instant::now() + delay(link.get(), way);
            if queue.send((at, piece[..size].to_vec())).is_err() || size == 0 {
                return;
            }
        }
    };
    let writing = async {
        while let Some((at, piece)) = queued.recv().await {
            sleep_until(at).await;
            link.subscribe().wait_for(|link| is_open(link, way)).await;
            if piece.is_empty() || to.write_all(&piece).await.is_err() {
                return;
            }
        }
    };
    // Bytes that were read are written even if no more follow.
    let reading = async {
        reading.await;
        pending::<()>().await;
    };
    let _written = select(pin!(writing), pin!(reading)).await;
}

fn is_open(link: Link, way: Way) -> bool {
    !matches!((link, way), (Link::Cut, _) | (Link::Deaf, Way::Back))
}

fn delay(link: Link, way: Way) -> Duration {
    match (link, way) {
        (Link::Slow { there, .. }, Way::There) => there,
        (Link::Slow { back, .. }, Way::Back) => back,
        _ => Duration::ZERO,
    }
}
