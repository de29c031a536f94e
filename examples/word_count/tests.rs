use std::cell::Cell;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::*;

/// The time limit of a test: longer than any test takes.
const LIMIT: Duration = Duration::from_secs(60);

/// The size of a piece: small, so that there are many pieces.
const SHORT: u64 = 50;

/// A directory of this test, with files in it.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let name = format!("word-count-{name}-{}", std::process::id());
        let files = Self(std::env::temp_dir().join(name));
        files.write("one", "The first, the second\n".repeat(40));
        files.write("below/two", "über und über".repeat(25));
        files.write("below/nothing", "");
        files
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let file = self.0.join(name);
        let parent = file.parent().expect("it is in the directory");
        std::fs::create_dir_all(parent).expect("a directory for tests");
        std::fs::write(file, text).expect("a file for tests");
    }

    fn pieces(&self) -> Vec<Piece> {
        Piece::all_in(&self.0, SHORT).expect("the files are there")
    }

    /// The words, counted file by file.
    fn plain(&self) -> Words {
        let mut sum = Words::default();
        for piece in Piece::all_in(&self.0, u64::MAX / 2).expect("the files are there") {
            let text = std::fs::read(&piece.file).expect("the file is there");
            sum.add(Words::of(&text, &(0..text.len() as u64)));
        }
        sum
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _left = std::fs::remove_dir_all(&self.0).is_err();
    }
}

async fn connect(store: &str) -> Client {
    let url = format!("mem://word-count-{store}?session=1s");
    synod::connect(&url).await.expect("memory is always there")
}

/// A worker and master that does this number of tasks, begins others, and is dropped with them.
async fn work_and_be_lost(store: &str, done: usize) {
    let client = connect(store).await;
    let crew = crew(&client);
    let (tell, mut begun) = mpsc::unbounded_channel();
    let left = Cell::new(done);
    let working = crew.work(CrewWorker::new().capacity(3.try_into().expect("not zero")), |task| {
        let is_done = left.get() > 0;
        left.set(left.get().saturating_sub(1));
        let _heard = is_done || tell.send(()).is_ok();
        async move { if is_done { attempt(task).await } else { pending().await } }
    });
    let two_have_begun = async {
        for _ in 0..2 {
            begun.recv().await.expect("it works");
        }
    };
    let lost = select(Box::pin(try_join(working, crew.lead())), Box::pin(two_have_begun));
    match timeout(LIMIT, lost).await.expect("it gets tasks") {
        Either::Left((Err(error), _)) => panic!("it does not work: {error}"),
        Either::Left((Ok((ended, _)), _)) => match ended {},
        Either::Right(_) => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn totals_are_exact_although_workers_are_lost_in_the_middle() {
    let (store, files) = ("lost", Files::new("lost"));
    let client = connect(store).await;
    let lose_some = async {
        for _ in 0..3 {
            work_and_be_lost(store, 4).await;
        }
        work(&connect(store).await, CrewWorker::new()).await
    };
    let counting = pin!(count(&client, files.pieces()));
    let lost = pin!(lose_some);
    let counted = timeout(LIMIT, select(counting, lost)).await;
    let counted = match counted.expect("counted within the limit") {
        Either::Left((counted, _)) => counted.expect("all are counted"),
        Either::Right((Err(error), _)) => panic!("the last worker has failed: {error}"),
        Either::Right((Ok(ended), _)) => match ended {},
    };
    assert_eq!(counted, files.plain());

    // A repeated count submits the same tasks: the workers have ended.
    let again = timeout(LIMIT, count(&client, files.pieces())).await;
    assert_eq!(again.expect("the results are there").expect("memory answers"), files.plain());
}

/// Counts with one worker.
async fn count_with_help(client: &Client, pieces: Vec<Piece>) -> Result<Words, Failure> {
    let working = pin!(work(client, CrewWorker::new()));
    match timeout(LIMIT, select(pin!(count(client, pieces)), working)).await? {
        Either::Left((counted, _)) => counted,
        Either::Right((ended, _)) => match ended? {},
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_was_changed_meanwhile_is_an_error_and_counted_the_next_time() {
    let files = Files::new("changed");
    let client = connect("changed").await;
    let pieces = files.pieces();
    files.write("one", "other words");

    let refused = count_with_help(&client, pieces).await.expect_err("it is another file now");
    assert!(refused.to_string().contains("was changed while it was counted"), "{refused}");
    let counted = count_with_help(&client, files.pieces()).await.expect("all are counted");
    assert_eq!(counted, files.plain());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_be_counted_once_is_tried_again_the_next_time() {
    let files = Files::new("missing");
    let client = connect("missing").await;
    let (pieces, away) = (files.pieces(), files.0.join("away"));
    std::fs::rename(files.0.join("one"), &away).expect("a file for tests");

    let refused = count_with_help(&client, pieces.clone()).await.expect_err("it is not there");
    assert!(refused.to_string().contains("cannot read"), "{refused}");
    std::fs::rename(&away, files.0.join("one")).expect("a file for tests");
    let counted = count_with_help(&client, pieces).await.expect("all are counted");
    assert_eq!(counted, files.plain());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_task_is_an_error_that_says_what_to_do() {
    let files = Files::new("cancelled");
    let client = connect("cancelled").await;
    let counting = pin!(count(&client, files.pieces()));
    let cancelling = pin!(async {
        loop {
            let tasks = crew(&client).snapshot().await.expect("memory answers").tasks;
            if let Some(task) = tasks.first() {
                let task = crew(&client).task(&task.id).expect("an id");
                return task.cancel().await.expect("memory answers");
            }
            tokio::task::yield_now().await;
        }
    });
    let (counted, cancelled) = futures_util::future::join(counting, cancelling).await;
    assert_eq!(cancelled, Some(TaskEnd::Cancelled));
    let refused = counted.expect_err("one of its tasks was cancelled");
    assert!(refused.to_string().contains("was cancelled: count again"), "{refused}");
}

#[test]
fn a_place_that_is_not_there_is_an_error_with_its_name() {
    let refused = Piece::all_in(Path::new("/nowhere/at/all"), SHORT).expect_err("no such place");
    assert!(refused.to_string().contains("/nowhere/at/all"), "{refused}");
}

#[test]
fn arguments_that_are_wrong_show_those_that_are_right() {
    let parse = |line: &str| Arguments::parse(line.split_whitespace().map(str::to_owned));
    for line in ["", "count", "count a b", "work", "--store mem://a work", "--store", "help"] {
        let refused = parse(line).expect_err("not enough").to_string();
        assert!(refused.contains("count PLACE"), "{line}: {refused}");
    }
    let zero = parse("--store etcd://a:1/b work 0").expect_err("no capacity").to_string();
    assert_eq!(zero, "TASKS is a number above 0, and not 0");
    assert!(parse("count docs").is_ok() && parse("--store etcd://a:1/b work").is_ok());
}
