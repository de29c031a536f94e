//! Requests leave at once.
//!
//! The crate writes each request by itself and does not set `TCP_NODELAY`; so the second of two that
//! belong together waits in the kernel until the first was acknowledged, which is another round
//! trip, or 40 ms. It gives nobody its sockets. Linux does: a process may ask for duplicates of its
//! own descriptors. Where that is not so, or not allowed, requests take the longer time.
//!
//! The day the crate sets the option, this file goes.

#[cfg(target_os = "linux")]
pub(crate) use linux::apply;

/// Not possible here.
#[cfg(not(target_os = "linux"))]
pub(crate) fn apply(_ports: &[u16]) {}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::io;
    use std::net::SocketAddr;

    use rustix::net::{getpeername, sockopt};
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

    /// Lets everything that this process sends to one of these ports leave at once.
    pub(crate) fn apply(ports: &[u16]) {
        if let Err(error) = try_apply(ports) {
            tracing::debug!(%error, "requests may wait for each other's acknowledgement");
        }
    }

    fn try_apply(ports: &[u16]) -> io::Result<()> {
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
                && ports.contains(&peer.port())
            {
                sockopt::set_tcp_nodelay(&socket, true)?;
            }
        }
        Ok(())
    }
}
