//! Finds the reason that no server accepts the client: an attempt to connect does not show it, so
//! each server is queried once more, with the command `srvr`, which every server answers without a
//! login unless it is configured otherwise.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use synod_core::clock::{self, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant as Deadline, timeout_at};

use crate::options::with_port;

/// Queries the servers, at a limited rate, because many clients may fail to connect at the same
/// time.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    last: Mutex<Option<(Instant, String)>>,
}

impl Probe {
    /// The time for which the last result is returned again.
    const FRESH: Duration = Duration::from_secs(60);

    /// A readable description of the state of each server, found within `limit`.
    pub(crate) async fn why(&self, hosts: &[String], encrypted: bool, limit: Duration) -> String {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((asked, why)) = last
            && clock::elapsed(asked) < Self::FRESH
        {
            let ago = clock::elapsed(asked).as_secs();
            return if ago == 0 { why } else { format!("{why} (asked {ago} s ago)") };
        }
        let found = why(hosts, encrypted, limit).await;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((clock::now(), found.clone()));
        found
    }
}

async fn why(hosts: &[String], encrypted: bool, limit: Duration) -> String {
    let end = Deadline::now() + limit;
    let asked = hosts.iter().map(async |host| {
        let addresses: Vec<_> = match timeout_at(end, lookup_host(with_port(host))).await {
            Ok(Ok(found)) => found.collect(),
            Ok(Err(error)) => return vec![of_one(host, &Answer::Nobody(error), encrypted)],
            Err(_) => return vec![format!("{host}: its name is not resolved in time")],
        };
        let each = addresses.iter().map(async |address| {
            let server = match addresses.len() {
                1 => host.clone(),
                _ => format!("{host} ({address})"),
            };
            match timeout_at(end, ask(*address)).await {
                Ok(answer) => of_one(&server, &answer, encrypted),
                Err(_) => format!("{server}: it does not answer"),
            }
        });
        join_all(each).await
    });
    format!("no server accepted the client: {}", join_all(asked).await.concat().join("; "))
}

/// The reason if no server accepts a connection: each one refuses it, or its name has no address.
/// `None` if one accepts it; the result is unknown while one is silent.
pub(crate) async fn no_server(hosts: &[String], encrypted: bool) -> Option<String> {
    let asked = hosts.iter().map(async |host| {
        let addresses: Vec<_> = match lookup_host(with_port(host)).await {
            Ok(found) => found.collect(),
            Err(error) => return Some(of_one(host, &Answer::Nobody(error), encrypted)),
        };
        let mut refusal = None;
        for address in addresses {
            match TcpStream::connect(address).await {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => refusal = Some(error),
                _ => return None,
            }
        }
        refusal.map(|error| of_one(host, &Answer::Nobody(error), encrypted))
    });
    let reasons: Option<Vec<_>> = join_all(asked).await.into_iter().collect();
    Some(format!("no server accepted the client: {}", reasons?.join("; ")))
}

fn of_one(server: &str, answer: &Answer, encrypted: bool) -> String {
    format!("{server}: {}", judge(answer, encrypted))
}

/// The answer of a server, or the reason that there is none.
#[derive(Debug)]
enum Answer {
    /// No server could be connected to.
    Nobody(io::Error),
    /// The server sent this before it closed the connection.
    Received(Vec<u8>),
}

async fn ask(address: SocketAddr) -> Answer {
    let mut stream = match TcpStream::connect(address).await {
        Ok(stream) => stream,
        Err(error) => return Answer::Nobody(error),
    };
    let mut text = Vec::new();
    let talk = async {
        // Long enough for a server that expects TLS to recognise that it is not TLS.
        stream.write_all(b"srvr\n").await?;
        (&mut stream).take(4_096).read_to_end(&mut text).await
    };
    // After a timeout, use what was received so far.
    let _closed = talk.await.is_ok();
    Answer::Received(text)
}

fn judge(answer: &Answer, encrypted: bool) -> String {
    let text = match answer {
        Answer::Nobody(error) => {
            return match error.kind() {
                ErrorKind::ConnectionRefused => {
                    "nothing listens there; is the server started, and is this its port?".to_owned()
                }
                _ => format!("it cannot be reached ({error}); is the name right?"),
            };
        }
        Answer::Received(text) => String::from_utf8_lossy(text),
    };
    let speaks = ["Zookeeper version", "not currently serving", "is not executed"];
    if !speaks.iter().any(|words| text.contains(words)) {
        return match (encrypted, text.is_empty() || text.starts_with('\u{15}')) {
            (true, true) => {
                "it speaks TLS, but refuses us; is its certificate for this name (as a subject \
                 alternative name: a common name alone is not enough) and from a CA that we trust, \
                 and does it want one of ours?"
            }
            (false, true) => "it closes the connection; if it expects TLS on this port, use zks://",
            (_, false) => "the service on this port is not ZooKeeper",
        }
        .to_owned();
    }
    if encrypted {
        return "it does not speak TLS on this port; use its secure port, or zk://".to_owned();
    }
    if text.contains("not currently serving") {
        return "it runs without a majority of its servers; are enough of them started?".to_owned();
    }
    match text.lines().find_map(|line| line.strip_prefix("Mode: ")) {
        Some("read-only") => {
            "it is cut off from the majority of its servers, and accepts only reads".to_owned()
        }
        Some(mode) => format!("it runs ({mode}), and created no session in time"),
        None => "it runs, and created no session in time".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn servers_are_not_asked_again_within_a_minute() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let host = [listener.local_addr().expect("it is bound").to_string()];
        drop(listener);
        let (probe, limit) = (Probe::default(), Duration::from_secs(5));
        let first = probe.why(&host, false, limit).await;
        assert!(first.contains("nothing listens"), "{first}");

        clock::sleep(Probe::FRESH / 2).await;
        let again = probe.why(&host, false, Duration::ZERO).await;
        assert_eq!(again, format!("{first} (asked 30 s ago)"));

        clock::sleep(Probe::FRESH).await;
        // The last result is stale, and there is no time for a new one.
        let late = probe.why(&host, false, Duration::ZERO).await;
        assert!(!late.contains("ago"), "{late}");
    }

    #[tokio::test]
    async fn only_servers_that_all_refuse_are_none() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let accepts = listener.local_addr().expect("it is bound").to_string();
        let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let refuses = gone.local_addr().expect("it is bound").to_string();
        drop(gone);
        let unknown = "no-such-host.invalid".to_owned();

        let both = [refuses.clone(), unknown];
        let why = no_server(&both, false).await.expect("none accepts");
        assert!(why.contains(&format!("{refuses}: nothing listens there")), "{why}");
        assert!(why.contains("no-such-host.invalid: it cannot be reached"), "{why}");
        assert_eq!(no_server(&[refuses, accepts], false).await, None);
    }

    #[test]
    fn each_answer_has_its_reason() {
        let text = |text: &str| Answer::Received(text.as_bytes().to_vec());
        let refused = || Answer::Nobody(ErrorKind::ConnectionRefused.into());
        let table = [
            (refused(), false, "nothing listens"),
            (Answer::Nobody(io::Error::other("no such host")), false, "no such host"),
            (text(""), false, "zks://"),
            (text("\u{15}\u{3}\u{3}"), false, "zks://"),
            (text(""), true, "alternative name"),
            (text("Zookeeper version: 3.9"), true, "zk://"),
            (text("HTTP/1.1 400 Bad Request"), false, "not ZooKeeper"),
            (text("This ZooKeeper instance is not currently serving requests"), false, "majority"),
            (text("Zookeeper version: 3.9\nMode: read-only\n"), false, "accepts only reads"),
            (text("Zookeeper version: 3.9\nMode: leader\n"), false, "it runs (leader)"),
            (text("srvr is not executed because it is not in the whitelist."), false, "it runs"),
        ];
        for (answer, encrypted, words) in table {
            let why = judge(&answer, encrypted);
            assert!(why.contains(words), "{answer:?}: {why}");
        }
    }
}
