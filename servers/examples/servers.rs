//! Real servers for interactive use: `dev/servers` starts this program, which runs until it is
//! ended.
//!
//! It prints the URL when the servers accept requests.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it talks to a person")]

use std::io::Read as _;
use std::net::SocketAddr;
use std::process::ExitCode;

use synod_servers::etcd::Cluster;
use synod_servers::zookeeper::Ensemble;

const USAGE: &str = "usage: servers zookeeper|etcd NUMBER";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [kind, nodes] => nodes.parse().map_err(|_| USAGE.to_owned()).and_then(|n| run(kind, n)),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(kind: &str, nodes: usize) -> Result<(), String> {
    match kind {
        "zookeeper" => {
            let servers = Ensemble::start(nodes)?;
            println!("zk://{}?acl=open", joined(&servers.addresses()));
            wait();
        }
        "etcd" => {
            let servers = Cluster::start(nodes)?;
            println!("etcd://{}", joined(&servers.addresses()));
            wait();
        }
        _ => return Err(USAGE.to_owned()),
    }
    Ok(())
}

fn joined(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Runs the servers until the input or this process ends.
fn wait() {
    let _ended = std::io::stdin().read_to_end(&mut Vec::new()).is_ok();
}
