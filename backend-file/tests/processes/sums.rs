//! Processes that are killed, or have no more disk, while they write.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::Signal;
use synod_core::store::Query;
use synod_servers::home::Home;

use crate::child::{Process, block_on, node, session};

/// The number of processes that count at the same time.
const PROCESSES: usize = 4;

/// The number of times that one of them is killed and another takes its place.
const KILLS: usize = 24;

fn home() -> Home {
    Home::in_memory("processes").expect("a directory can be created")
}

/// Each process adds one to the sum and to its own count in one transaction. So the sum is that of
/// the counts, and no count is lower than what its process has reported.
pub(crate) fn under_kills() {
    let home = home();
    let directory = home.path().join("store");
    let mut running: Vec<(String, Process)> = Vec::new();
    let mut reported: BTreeMap<String, u64> = BTreeMap::new();
    for number in 0..KILLS + PROCESSES {
        if running.len() == PROCESSES {
            let (name, mut process) = running.remove(0);
            // After some of its writes, and in the middle of the next.
            let reports = (0..3).map(|_| process.line().expect("it counts"));
            let mut last = reports.last().expect("three");
            process.signal(Signal::KILL);
            while let Some(line) = process.line() {
                last = line;
            }
            reported.insert(name, last.parse().expect("a number"));
        }
        let name = format!("p{number}");
        running.push((name.clone(), Process::start(&directory, &["count", &name])));
    }
    drop(running);
    block_on(async {
        let store = session(&directory, Duration::from_secs(60)).await;
        let view = store.read(Query::children(node("/counts"))).await.expect("answered");
        let number = |data: &[u8]| -> u64 {
            std::str::from_utf8(data).expect("text").parse().expect("a number")
        };
        let counts: BTreeMap<String, u64> =
            view.nodes.iter().map(|n| (n.path.name().to_owned(), number(&n.data))).collect();
        for (name, reported) in &reported {
            assert!(counts[name] >= *reported, "{name} counted to {reported}: {counts:?}");
        }
        let sum = store.read(Query::node(node("/sum"))).await.expect("answered");
        let sum = number(&sum.node().expect("it was counted").data);
        assert_eq!(sum, counts.values().sum::<u64>(), "{counts:?}");
    });
}

/// The limit of a file's size stands for a disk that is full.
pub(crate) fn at_the_end_of_the_disk() {
    let home = home();
    let directory = home.path().join("store");
    // The directory exists before the limit does.
    block_on(async {
        let store = session(&directory, Duration::from_secs(60)).await;
        store.close().await.expect("it ends");
    });
    let mut full = Process::start_limited(&directory, 4_000, &["fill"]);
    let mut answered = 0;
    let failure = loop {
        let line = full.line().expect("it reports its failure");
        if line.starts_with("failed") {
            break line;
        }
        answered += 1;
    };
    assert!(answered > 3, "it wrote {answered} nodes: {failure}");
    drop(full);
    block_on(async {
        let store = session(&directory, Duration::from_secs(60)).await;
        let view = store.read(Query::children(node("/full"))).await.expect("answered");
        let is_unknown = failure.starts_with("failed unknown");
        let at_most = answered + usize::from(is_unknown);
        assert!(
            (answered..=at_most).contains(&view.nodes.len()),
            "{}: {failure}",
            view.nodes.len()
        );
        assert!(view.nodes.iter().all(|node| node.data == vec![7; 100_000]));
    });
}
