//! [`Peers`]: what lies between servers that agree, for each of them towards each other.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use crate::harness::Link;
use crate::server::pipe::Pipe;

/// A proxy for each server on its way to each other one.
#[derive(Debug)]
pub struct Peers {
    /// By who calls, and then by whom he calls.
    pipes: Vec<Vec<Pipe>>,
}

impl Peers {
    /// Starts to listen, within a tokio runtime, for servers that listen on these ports each.
    ///
    /// # Errors
    ///
    /// If the operating system has no port left.
    pub fn start(servers: &[Vec<u16>]) -> io::Result<Self> {
        let start = |ports: &Vec<u16>| {
            let at = ports.iter().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, *port)));
            Pipe::start(&at.collect::<Vec<_>>())
        };
        let pipes = servers.iter().map(|_from| servers.iter().map(start).collect());
        Ok(Self { pipes: pipes.collect::<io::Result<_>>()? })
    }

    /// The ports by which one server finds another.
    pub fn ports(&self, from: usize, to: usize) -> Vec<u16> {
        self.pipes[from][to].addresses().iter().map(SocketAddr::port).collect()
    }

    /// Changes what lies between this server and all others, in both directions.
    pub fn set(&self, server: usize, link: Link) {
        for other in (0..self.pipes.len()).filter(|other| *other != server) {
            self.pipes[server][other].set(link);
            self.pipes[other][server].set(link);
        }
    }
}
