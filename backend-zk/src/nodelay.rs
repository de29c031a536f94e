//! Makes the kernel send requests at once.
//!
//! The crate writes each request separately and does not set `TCP_NODELAY`. So the second of two
//! related requests waits in the kernel until the first is acknowledged, which takes another round
//! trip, or 40 ms. The crate does not expose its sockets, but on Linux a process may duplicate its
//! own descriptors. On other systems, or where that is forbidden, requests take the longer time.
//!
//! This takes some system calls per descriptor of the process. So it runs on one thread per
//! process, and once for all connections that were made meanwhile.
//!
//! When the crate sets the option itself, delete this file.

#[cfg(target_os = "linux")]
pub(crate) use linux::apply;

/// Not possible on this system.
#[cfg(not(target_os = "linux"))]
pub(crate) fn apply(_hosts: &[String]) {}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeSet;
    use std::fs;
    use std::io;
    use std::net::{SocketAddr, ToSocketAddrs as _};
    use std::sync::{Mutex, PoisonError};
    use std::thread;

    use rustix::net::{getpeername, sockopt};
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

    use crate::options::with_port;

    /// The servers with new connections since the thread last looked.
    struct Work {
        hosts: BTreeSet<String>,
        is_running: bool,
    }

    static WORK: Mutex<Work> = Mutex::new(Work { hosts: BTreeSet::new(), is_running: false });

    /// Soon sets the option on all connections of this process to these servers.
    pub(crate) fn apply(hosts: &[String]) {
        let mut work = WORK.lock().unwrap_or_else(PoisonError::into_inner);
        work.hosts.extend(hosts.iter().map(|host| with_port(host)));
        if work.is_running {
            return;
        }
        match thread::Builder::new().name("synod-nodelay".to_owned()).spawn(run) {
            Ok(_thread) => work.is_running = true,
            Err(error) => late(&error),
        }
    }

    fn late(error: &io::Error) {
        tracing::debug!(%error, "requests may wait for each other's acknowledgement");
    }

    /// Works until nothing is left to do.
    fn run() {
        loop {
            let hosts = {
                let mut work = WORK.lock().unwrap_or_else(PoisonError::into_inner);
                if work.hosts.is_empty() {
                    work.is_running = false;
                    return;
                }
                std::mem::take(&mut work.hosts)
            };
            // If the name cannot be resolved now, the crate could not connect either.
            let servers = hosts.iter().filter_map(|host| host.to_socket_addrs().ok()).flatten();
            if let Err(error) = try_apply(&servers.collect()) {
                late(&error);
            }
        }
    }

    fn try_apply(servers: &BTreeSet<SocketAddr>) -> io::Result<()> {
        let this = pidfd_open(getpid(), PidfdFlags::empty())?;
        for entry in fs::read_dir("/proc/self/fd")? {
            let entry = entry?;
            let is_socket =
                |to: &std::path::Path| to.as_os_str().as_encoded_bytes().starts_with(b"socket:");
            if !fs::read_link(entry.path()).is_ok_and(|to| is_socket(&to)) {
                continue;
            }
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(number) = number else { continue };
            // It may be closed by now: then there is nothing to do.
            let Ok(socket) = pidfd_getfd(&this, number, PidfdGetfdFlags::empty()) else { continue };
            let peer = getpeername(&socket).ok().flatten().map(SocketAddr::try_from);
            if let Some(Ok(peer)) = peer
                && servers.contains(&SocketAddr::new(peer.ip().to_canonical(), peer.port()))
            {
                // The peer may have closed it: then there is nothing to do either.
                let _set = sockopt::set_tcp_nodelay(&socket, true);
            }
        }
        Ok(())
    }

    #[cfg(test)]
    mod tests {
        use std::net::{TcpListener, TcpStream};
        use std::time::Duration;

        use super::*;

        #[test]
        fn connections_to_the_servers_are_quick_and_others_are_left_alone() {
            let ours = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let at = |listener: &TcpListener| listener.local_addr().expect("it is bound");
            let quick = TcpStream::connect(at(&ours)).expect("it listens");
            let left = TcpStream::connect(at(&other)).expect("it listens");

            apply(&[at(&ours).to_string()]);

            let is_set = (0..3_000).any(|_| {
                thread::sleep(Duration::from_millis(10));
                quick.nodelay().expect("it is open")
            });
            assert!(is_set);
            assert!(!left.nodelay().expect("it is open"));
        }
    }
}
