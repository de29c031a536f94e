//! The totals of eight processes, whichever of them are killed and stopped.

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use synod::crew::{Crew, TaskEnd};
use synod::queue::Queue;
use synod::value::Counter;
use synod::{Client, Query, path};
use synod_core::random::Random;
use synod_servers::home::Home;
use synod_testkit::limit::waits_for;
use tokio::runtime::Builder;

use crate::process::Process;
use crate::worker::connect;

const PROCESSES: usize = 8;

/// The number of processes that are killed by default.
const USUAL: usize = 30;

/// One process in this number is stopped, and not killed.
const STOPS: u64 = 4;

/// The duration of a stop: longer than a session lives.
const STOPPED: Duration = Duration::from_secs(3);

/// The number of items and tasks for each process that is killed.
const ITEMS: usize = 4;

fn number(data: &[u8]) -> u64 {
    String::from_utf8_lossy(data).parse().expect("a number")
}

/// A process is killed after a random number of its acts, and so somewhere in the next ones.
pub(crate) fn under_kills() {
    let kills = std::env::var("SYNOD_KILLS").ok().and_then(|kills| kills.parse().ok());
    let kills = kills.unwrap_or(USUAL);
    let home = Home::in_memory("machine").expect("a directory can be created");
    let directory = home.path().join("store");
    // Of a thread of its own: the session lives on while this one waits for processes.
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let client = runtime.block_on(prepare(&directory, kills * ITEMS));

    let mut team = Team::start(&directory);
    waits_for("processes are killed");
    for _ in 0..kills {
        team.disturb();
    }
    waits_for("all items and tasks are done");
    runtime.block_on(done(&client, kills * ITEMS));
    team.end();

    waits_for("the totals");
    runtime.block_on(async {
        verify(&client, &team).await;
        client.close().await.expect("it is open");
    });
}

/// Puts the items, and submits the tasks.
async fn prepare(directory: &FilePath, items: usize) -> Client {
    let client = connect(directory.to_str().expect("text")).await.expect("it is new");
    let queue: Queue<u64> = Queue::new(&client, path!("/queue"));
    let numbers: Vec<u64> = (0..).take(items).collect();
    queue.put_in_batches(&numbers).put().await.expect("there is room");
    let crew = Crew::new(&client, path!("/crew"));
    let submitted = numbers.iter().map(|number| {
        let (crew, number) = (crew.clone(), number.to_string());
        async move { crew.submit(&number, number.clone()).await }
    });
    try_join_all(submitted).await.expect("there is room");
    client
}

/// Waits until each item was delivered, and each task has its result.
async fn done(client: &Client, items: usize) {
    let crew = Crew::new(client, path!("/crew"));
    let ends = (0..items).map(|number| {
        let task = crew.task(&number.to_string()).expect("a valid id");
        async move {
            let end = task.wait().await.expect("the store answers");
            assert_eq!(end, Some(TaskEnd::Done(number.to_string().into())));
        }
    });
    join_all(ends).await;
    let all = Query::children(path!("/delivered")).names_only();
    let (mut view, mut changes) = client.watch(all.clone()).await.expect("answered");
    while view.nodes.len() < items {
        assert!(changes.next().await.is_some(), "the session is open");
        view = client.read(all.clone()).await.expect("answered");
    }
    let queue: Queue<u64> = Queue::new(client, path!("/queue"));
    assert_eq!(queue.len().await.expect("answered"), 0, "an item is there and was delivered");
}

/// Compares the totals with the reports.
async fn verify(client: &Client, team: &Team) {
    let numbers = Query::children(path!("/numbers"));
    let numbers = client.read(numbers).await.expect("answered");
    let numbers: BTreeMap<&str, u64> =
        numbers.nodes.iter().map(|node| (node.path.name(), number(&node.data))).collect();
    let sum = client.get(&path!("/sum")).await.expect("answered").expect("they counted");
    assert_eq!(number(&sum.data), numbers.values().sum::<u64>(), "two held the lock: {numbers:?}");
    for (name, acts) in &team.over {
        let reported = acts.get("locked").copied().unwrap_or(0);
        let kept = numbers.get(name.as_str()).copied().unwrap_or(0);
        let last = reported + 1 + acts.get("unanswered").copied().unwrap_or(0);
        assert!((reported..=last).contains(&kept), "{name}: {kept}, and not {reported}");
    }
    let reported = |act| team.over.values().filter_map(|acts| acts.get(act)).sum::<u64>();
    let counter = Counter::new(client, path!("/counter")).get().await.expect("answered");
    let answered = reported("counted");
    // Those that were killed, or had no answer, may have counted once more.
    let limit = answered + reported("unanswered") + u64::try_from(team.over.len()).expect("few");
    let counter = u64::try_from(counter).expect("not negative");
    assert!((answered..=limit).contains(&counter), "{counter}, and not {answered} to {limit}");
}

/// The processes.
struct Team {
    directory: std::path::PathBuf,
    random: Random,
    running: Vec<Process>,
    started: usize,
    /// The acts that each process had reported before it was killed.
    over: BTreeMap<String, BTreeMap<String, u64>>,
}

impl Team {
    fn start(directory: &FilePath) -> Self {
        let (random, over) = (Random::from_system(), BTreeMap::new());
        let directory = directory.to_owned();
        let mut team = Self { directory, random, running: Vec::new(), started: 0, over };
        for _ in 0..PROCESSES {
            team.add();
        }
        team
    }

    fn add(&mut self) {
        let name = format!("p{}", self.started);
        self.started += 1;
        self.running.push(Process::start(&self.directory, name));
    }

    /// Kills a process, and starts another; or stops one for longer than its session lives.
    fn disturb(&mut self) {
        let which = self.random.below(PROCESSES as u64);
        let process = &mut self.running[usize::try_from(which).expect("few")];
        for _ in 0..=self.random.below(6) {
            process.wait();
        }
        if self.random.below(STOPS) == 0 {
            process.signal("STOP");
            std::thread::sleep(STOPPED);
            process.signal("CONT");
            return;
        }
        let mut process = self.running.remove(usize::try_from(which).expect("few"));
        self.finish(&mut process);
        self.add();
    }

    fn end(&mut self) {
        for mut process in std::mem::take(&mut self.running) {
            self.finish(&mut process);
        }
    }

    fn finish(&mut self, process: &mut Process) {
        process.kill();
        self.over.insert(process.name.clone(), std::mem::take(&mut process.acts));
    }
}
