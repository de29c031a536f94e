//! Real servers as fixtures: started as child processes on free loopback ports, gone when dropped.
//!
//! A server that is not installed is no failure of whoever wanted to test with it: starting gives
//! the reason, for the list of what did not run. On machines that say `CI=true` it is a failure:
//! see [`required`].

use std::io;
use std::net::{Ipv4Addr, TcpListener};

pub mod child;
pub mod etcd;
pub mod home;
pub mod kept;
pub mod links;
pub mod members;
pub mod newer;
pub mod peers;
pub mod pipe;
pub mod verb;
pub mod zookeeper;

/// Whether what needs a server must run here: the environment says `CI=true`.
pub fn required() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true")
}

/// Ports of this machine's loopback that nobody listens on just now.
///
/// # Errors
///
/// If the operating system has none left.
pub fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    // All of them are held until the last is found, so that no two are the same.
    let held: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .collect::<Result<_, _>>()?;
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}
