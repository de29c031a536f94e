use super::*;

/// A source that the test sets.
#[derive(Default)]
struct ScriptedSource {
    next: Mutex<Answer>,
    count: std::sync::atomic::AtomicU32,
}

#[derive(Clone, Default)]
enum Answer {
    Servers(&'static [&'static str]),
    Fails,
    #[default]
    Panics,
    Hangs,
}

impl ScriptedSource {
    fn set(&self, answer: Answer) {
        *self.next.lock().expect("no panic") = answer;
    }

    fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for ScriptedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the script")
    }
}

#[async_trait]
impl ServerSource for ScriptedSource {
    async fn servers(&self) -> io::Result<Vec<String>> {
        let _before = self.count.fetch_add(1, Ordering::Relaxed);
        let answer = self.next.lock().expect("no panic").clone();
        match answer {
            Answer::Servers(all) => Ok(all.iter().copied().map(str::to_owned).collect()),
            Answer::Fails => Err(io::Error::other("it is gone")),
            Answer::Panics => panic!("a bug of the application"),
            Answer::Hangs => std::future::pending().await,
        }
    }
}

fn list(first: &[&str]) -> (Arc<ScriptedSource>, ServerList) {
    let script = Arc::<ScriptedSource>::default();
    let first = first.iter().copied().map(str::to_owned).collect();
    let check = |server: &str| match server {
        "bad" => Err(Error::new(ErrorKind::Invalid, "reading a server")),
        _ => Ok(format!("{server}:1")),
    };
    (script.clone(), ServerList::following(first, script, check))
}

async fn read(list: &ServerList) -> Vec<String> {
    clock::sleep(MIN_GAP).await;
    list.refresh().await;
    list.get().to_vec()
}

#[tokio::test(start_paused = true)]
async fn a_list_that_cannot_be_used_leaves_the_last_good_one() {
    let (script, list) = list(&[]);
    for (bad, reason) in [
        (Answer::Panics, "panicked"),
        (Answer::Fails, "it is gone"),
        (Answer::Hangs, "in time"),
        (Answer::Servers(&[]), "no server"),
        (Answer::Servers(&["a", "bad"]), "\"bad\""),
    ] {
        script.set(bad.clone());
        clock::sleep(MIN_GAP).await;
        let error = list.ready().await.expect_err("there is no list yet");
        assert!(error.has_no_server() && error.kind() == ErrorKind::Unreachable);
        for part in [reason, "the script"] {
            assert!(error.to_string().contains(part), "{error}");
        }
        script.set(Answer::Servers(&["a", "b", "a"]));
        assert_eq!(read(&list).await, ["a:1", "b:1"], "each once");
        script.set(bad);
        assert_eq!(read(&list).await, ["a:1", "b:1"], "{reason}");
        assert!(list.ready().await.is_ok(), "it has servers");
        list.0.servers.send_replace(Arc::new([]));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_configured_is_used_until_the_source_answers() {
    let (script, list) = list(&["x"]);
    assert!(list.ready().await.is_ok());
    assert_eq!(*list.get(), ["x".to_owned()]);
    script.set(Answer::Servers(&["a"]));
    assert_eq!(read(&list).await, ["a:1"]);
}

#[tokio::test(start_paused = true)]
async fn a_source_is_read_in_each_interval_and_at_once_when_requested_but_not_in_a_loop() {
    let (script, list) = list(&[]);
    script.set(Answer::Servers(&["a"]));
    let began = clock::now();
    let _task = crate::task::spawn(list.clone().follow());
    let mut changes = list.subscribe();
    changes.changed().await.expect("the list is there");
    assert_eq!((clock::elapsed(began), script.count()), (Duration::from_secs(10), 1));
    for _ in 0..100 {
        list.request_refresh();
        clock::sleep(Duration::from_millis(10)).await;
    }
    assert!((4..=5).contains(&script.count()), "{}", script.count());
    changes.mark_unchanged();
    let before = script.count();
    changes.changed().await.expect("a reading without a change is reported too");
    assert_eq!(script.count(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_list_is_never_read() {
    let list = ServerList::fixed(vec!["a".to_owned()]);
    list.refresh().await;
    list.clone().follow().await;
    assert!(list.is_fixed() && list.ready().await.is_ok());
    assert!(ServerList::default().ready().await.is_err());
}

/// A list of an ensemble with these hosts.
fn reported(configured: &[&str]) -> ServerList {
    let configured = configured.iter().copied().map(str::to_owned).collect();
    ServerList::of_ensemble(configured, |server| match server {
        "bad" => Err(Error::new(ErrorKind::Invalid, "reading a server")),
        _ => Ok(server.to_owned()),
    })
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().copied().map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn a_report_replaces_the_list_and_the_configured_hosts_remain_the_last_resort() {
    let list = reported(&["a", "b"]);
    assert!(!list.is_fixed() && list.is_of_ensemble());
    assert!(list.ready().await.is_ok(), "the hosts are there before the first report");
    let mut changes = list.subscribe();
    list.report(Ok(names(&["b", "c", "b"])));
    assert_eq!(list.get().to_vec(), ["b", "c"], "each once");
    assert!(changes.has_changed().expect("it lives"));
    changes.mark_unchanged();
    list.report(Ok(names(&["b", "c"])));
    assert!(!changes.has_changed().expect("it lives"), "nothing is new");
    for bad in [Ok(vec![]), Ok(names(&["c", "bad"])), Err("it may not be read".to_owned())] {
        list.report(bad);
        assert_eq!(list.get().to_vec(), ["b", "c"], "the last good report");
    }
    assert_eq!(list.last_resort(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn only_an_ensemble_reports() {
    let fixed = ServerList::fixed(names(&["a"]));
    fixed.report(Ok(names(&["b"])));
    let (script, followed) = list(&["a"]);
    script.set(Answer::Servers(&["a"]));
    followed.report(Ok(names(&["b"])));
    for list in [fixed, followed] {
        assert_eq!(list.get().to_vec(), ["a"]);
        assert!(list.last_resort().is_empty() && !list.is_of_ensemble());
    }
}

#[tokio::test(start_paused = true)]
async fn a_report_is_due_after_ten_seconds_or_on_request_and_never_in_a_busy_loop() {
    let list = reported(&["a"]);
    let due = async || {
        let begin = clock::now();
        list.report_is_due().await;
        clock::elapsed(begin)
    };
    assert_eq!(due().await, ENSEMBLE_INTERVAL);
    for _ in 0..3 {
        list.request_refresh();
        list.request_refresh();
        assert_eq!(due().await, MIN_GAP);
    }
    assert_eq!(due().await, ENSEMBLE_INTERVAL, "requests are not counted");
}
