//! `TCP_NODELAY` of the connections of this process.

use std::fs;
use std::net::SocketAddr;

use rustix::net::{getpeername, sockopt};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use synod_core::store::{Backend as _, SessionOptions};
use synod_zk::{Access, ZkBackend, ZkOptions};
use tokio::time::{sleep, timeout};

use crate::scene::{LONG, PATIENCE, peer, recovers};

/// The option is set for a backend that asks for it. The connection of another backend, which was
/// made before, is left alone.
pub(crate) async fn connections_are_left_alone_where_that_is_asked_for() {
    // No other connection of this process is to these servers.
    let (left_alone, quick) = (peer(1), peer(1));
    let session = async |servers: &crate::peer::Peer, nodelay: bool| {
        let hosts = servers.addresses().iter().map(ToString::to_string);
        let options = ZkOptions::new(hosts).access(Access::Open).nodelay(nodelay);
        let backend = ZkBackend::new(options.tick(servers.world().tick)).expect("valid");
        backend.open(&SessionOptions::new(LONG)).await.expect("the peer runs")
    };
    let _without = session(&left_alone, false).await;
    let with = session(&quick, true).await;

    let set = async || {
        while nodelay(quick.addresses()[0]) != [true] {
            sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, set()).await.expect("the option is set soon");
    assert_eq!(nodelay(left_alone.addresses()[0]), [false]);

    quick.change(|world| world.servers[0].close_all());
    recovers(&*with).await;
    timeout(PATIENCE, set()).await.expect("the option is set on the next connection, too");
}

/// Whether each connection of this process to this server has the option.
fn nodelay(server: SocketAddr) -> Vec<bool> {
    let this = pidfd_open(getpid(), PidfdFlags::empty()).expect("it is this process");
    let open = fs::read_dir("/proc/self/fd").expect("Linux has it");
    let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let sockets = numbers.filter_map(|number| {
        let socket = pidfd_getfd(&this, number, PidfdGetfdFlags::empty()).ok()?;
        let of_server = SocketAddr::try_from(getpeername(&socket).ok()??) == Ok(server);
        of_server.then(|| sockopt::tcp_nodelay(&socket).ok()).flatten()
    });
    sockets.collect()
}
