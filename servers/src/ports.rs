//! Ports for servers, which no other program of these tests uses at the same time: [`Ports`].

use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::Deref;

use synod_core::random::Random;

/// The first port that the operating system assigns to outgoing connections; any process may get
/// one at any time.
const LENT: u16 = 32_768;
/// The first port of a range with few listeners.
const OURS: u16 = 10_000;

/// Ports of this machine's loopback without a listener.
///
/// Until this is dropped no other process reserves them, even while a server is down or does not
/// listen yet: a UDP socket at the same number holds each, which blocks no TCP listener.
#[derive(Debug)]
pub struct Ports {
    numbers: Vec<u16>,
    _held: Vec<UdpSocket>,
}

impl Ports {
    /// Reserves this number of ports.
    ///
    /// # Errors
    ///
    /// If the operating system has none left.
    pub fn draw(count: usize) -> io::Result<Self> {
        let random = Random::from_system();
        let draw = |_| {
            let number = random.below(u64::from(LENT - OURS));
            let at = (Ipv4Addr::LOCALHOST, OURS + u16::try_from(number).unwrap_or_default());
            let held = UdpSocket::bind(at).ok()?;
            TcpListener::bind(at).ok()?;
            Some((at.1, held))
        };
        let drawn: Vec<_> = (0..100 * count).filter_map(draw).take(count).collect();
        if drawn.len() < count {
            return Err(io::Error::other("no free ports"));
        }
        let (numbers, held) = drawn.into_iter().unzip();
        Ok(Self { numbers, _held: held })
    }
}

impl Deref for Ports {
    type Target = [u16];

    fn deref(&self) -> &[u16] {
        &self.numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_drawn_once_and_can_be_listened_at() {
        let ports = Ports::draw(20).expect("free ports");
        for port in ports.iter() {
            assert!(UdpSocket::bind((Ipv4Addr::LOCALHOST, *port)).is_err(), "it is held");
            assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok(), "it is free");
        }
    }
}
