use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use http::Uri;
use hyper_util::rt::TokioIo;
use synod_core::error::{Effect, ErrorKind};
use synod_core::task::spawn;
use tokio::time::sleep;
use tonic::{Code, Status};
use tower::BoxError;

use super::*;
use crate::wire::{Connect, Io};

const LIMIT: Duration = Duration::from_secs(10);

fn three(seed: u64) -> Endpoints {
    Endpoints::new(options(&["a", "b", "c"]), &Random::seeded(seed)).expect("valid")
}

fn only() -> Endpoints {
    Endpoints::new(options(&["a"]), &Random::seeded(1)).expect("valid")
}

fn options(hosts: &[&str]) -> EtcdOptions {
    let mut options = EtcdOptions::new(hosts.iter().copied());
    options.way = Some(Arc::new(Greeting));
    options
}

/// Connections to peers that greet and answer nothing.
struct Greeting;

#[async_trait]
impl Connect for Greeting {
    async fn connect(&self, _to: Uri) -> std::result::Result<Box<dyn Io>, BoxError> {
        let (mine, theirs) = tokio::io::duplex(1 << 16);
        let greeting = async move {
            let mut connection = h2::server::handshake(theirs).await.expect("it is HTTP/2");
            while let Some(request) = connection.accept().await {
                drop(request);
            }
        };
        spawn(greeting).let_go();
        Ok(Box::new(TokioIo::new(mine)))
    }
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn says(code: Code, text: &str) -> etcd_client::Error {
    etcd_client::Error::GRpcStatus(Status::new(code, text))
}

impl Endpoints {
    fn all(&self) -> Vec<Arc<Endpoint>> {
        self.members().all().to_vec()
    }

    /// The index of the member that a link is to.
    fn place_of(&self, link: &Arc<Link>) -> usize {
        let held = |endpoint: &Arc<Endpoint>| {
            endpoint.lock().as_ref().is_some_and(|held| Arc::ptr_eq(held, link))
        };
        self.all().iter().position(held).expect("it was just opened or held")
    }
}

/// The calls in order: the member, and the connection to it.
#[derive(Default)]
struct Asked(Mutex<Vec<(usize, Arc<Link>)>>);

impl Asked {
    fn add(&self, endpoints: &Endpoints, link: &Arc<Link>) -> usize {
        let place = endpoints.place_of(link);
        self.0.lock().expect("no panic").push((place, link.clone()));
        place
    }

    fn places(&self) -> Vec<usize> {
        self.0.lock().expect("no panic").iter().map(|(place, _)| *place).collect()
    }

    fn links(&self) -> usize {
        let asked = self.0.lock().expect("no panic");
        let mut links: Vec<_> = asked.iter().map(|(_, link)| Arc::as_ptr(link)).collect();
        links.sort_unstable();
        links.dedup();
        links.len()
    }
}

#[test]
fn processes_begin_with_different_members() {
    let first = |seed| three(seed).all()[0].url.clone();
    let firsts: std::collections::BTreeSet<_> = (0..64).map(first).collect();
    assert_eq!(firsts.len(), 3, "{firsts:?}");
    let mut urls: Vec<_> = three(5).all().iter().map(|endpoint| endpoint.url.clone()).collect();
    urls.sort_unstable();
    assert_eq!(urls, ["http://a:2379", "http://b:2379", "http://c:2379"], "each of them once");
}

#[tokio::test(start_paused = true)]
async fn a_part_of_a_call_has_its_own_time() {
    let second = Duration::from_secs(1);
    let call = Call::write("commit", second * 9);
    assert_eq!(call.prolonged(second * 20).end, Instant::now() + second * 20);
    assert_eq!(call.prolonged(second).end, call.end, "it is never shortened");

    let part = call.harmless();
    assert!(!part.write && part.end == call.end);
    assert_eq!((call.first, part.first), (second * 3, Duration::MAX), "it may be sent again");
}

#[tokio::test(start_paused = true)]
async fn a_slow_cluster_keeps_its_connections_and_is_asked_once_for_each_call() {
    let (endpoints, asked) = (three(1), Asked::default());
    let slow = |link: Arc<Link>| {
        asked.add(&endpoints, &link);
        async {
            sleep(ms(900)).await;
            Ok(())
        }
    };
    for _ in 0..10 {
        let began = Instant::now();
        endpoints.call(Call::read("read", LIMIT), slow).await.expect("answered");
        assert_eq!(began.elapsed(), ms(900), "the first call was still awaited");
    }
    // A member without any answer so far has little time only once.
    assert_eq!(asked.places(), [0, 1, 1, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(asked.links(), 3, "no connection is dropped because it is slow");
}

#[tokio::test(start_paused = true)]
async fn a_silent_member_is_passed_over_for_later_calls_too() {
    let (endpoints, asked) = (three(1), Asked::default());
    let first_is_silent = |link: Arc<Link>| {
        let place = asked.add(&endpoints, &link);
        async move { if place == 0 { pending().await } else { Ok(place) } }
    };
    let began = Instant::now();
    for _ in 0..3 {
        let call = Call::read("read", LIMIT);
        assert_eq!(endpoints.call(call, first_is_silent).await.expect("answered"), 1);
    }
    assert_eq!((asked.places(), began.elapsed()), (vec![0, 1, 1, 1], ms(500)));
    assert!(endpoints.all()[0].held().is_none(), "nothing was heard on that connection");
}

#[tokio::test(start_paused = true)]
async fn a_slow_member_that_is_silent_leaves_half_of_the_time_to_the_others() {
    let (endpoints, asked) = (three(1), Asked::default());
    endpoints.all()[0].patience.answered(ms(5_000));
    let first_is_silent = |link: Arc<Link>| {
        let place = asked.add(&endpoints, &link);
        async move { if place == 0 { pending().await } else { Ok(place) } }
    };
    let began = Instant::now();
    let call = Call::read("read", LIMIT);
    assert_eq!(endpoints.call(call, first_is_silent).await.expect("answered"), 1);
    assert_eq!(began.elapsed(), LIMIT / 2);
}

#[tokio::test(start_paused = true)]
async fn a_connection_on_which_something_else_was_heard_is_kept() {
    let endpoints = three(1);
    let link = endpoints.link().1.await.expect("no request is needed for that");
    let silent = |asked: Arc<Link>| {
        let heard = link.clone();
        let same = Arc::ptr_eq(&asked, &link);
        async move {
            if same {
                sleep(ms(400)).await;
                heard.prove();
                pending::<()>().await;
            }
            Ok(())
        }
    };
    endpoints.call(Call::read("read", LIMIT), silent).await.expect("the next answers");
    assert!(endpoints.all()[0].held().is_some_and(|held| Arc::ptr_eq(&held, &link)));
}

#[tokio::test(start_paused = true)]
async fn what_was_heard_before_is_not_heard_since() {
    let link = three(1).link().1.await.expect("no request is needed for that");
    let began = Instant::now();
    assert!(!link.heard_since(began), "nothing was ever heard");
    sleep(ms(1)).await;
    link.prove();
    assert!(link.heard_since(began));
    assert!(!link.heard_since(began + ms(2)));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_broke_is_explained_by_whether_it_ever_answered() {
    let endpoints = three(1);
    let (place, opening) = endpoints.link();
    let link = opening.await.expect("no request is needed for that");
    let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    let broken = etcd_client::Error::GRpcStatus(Status::from_error(Box::new(reset)));
    let text = || place.error_text(Some(&link), &broken);
    assert!(text().contains("before it answers"), "{}", text());
    link.prove();
    assert!(!text().contains("before it answers"), "{}", text());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_not_answered_is_not_sent_again() {
    let (endpoints, asked) = (three(1), Asked::default());
    let silent = |link: Arc<Link>| {
        asked.add(&endpoints, &link);
        pending::<Result<(), _>>()
    };
    let began = Instant::now();
    let error = endpoints.call(Call::write("commit", LIMIT), silent).await.expect_err("silent");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::Unknown));
    assert_eq!(asked.places(), [0]);
    assert_eq!(began.elapsed(), LIMIT, "it had all of the time");
    let answered = |_link| async { Ok(()) };
    endpoints.call(Call::write("commit", LIMIT), answered).await.expect("answered");
    assert!(Arc::ptr_eq(&endpoints.current(), &endpoints.all()[1]), "later calls go to another");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_refused_is_sent_to_the_next_member() {
    let (endpoints, asked) = (three(1), Asked::default());
    let refused = |link: Arc<Link>| {
        let place = asked.add(&endpoints, &link);
        async move {
            match place {
                2 => Ok(()),
                1 => {
                    Err(says(Code::FailedPrecondition, "etcdserver: rpc not supported for learner"))
                }
                _ => Err(says(Code::Unavailable, "etcdserver: no leader")),
            }
        }
    };
    endpoints.call(Call::write("commit", LIMIT), refused).await.expect("the third answers");
    assert_eq!(asked.places(), [0, 1, 2]);

    let unclear = |_link| async { Err::<(), _>(says(Code::Unavailable, "etcdserver: timed out")) };
    let error = endpoints.call(Call::write("commit", LIMIT), unclear).await.expect_err("unclear");
    assert_eq!(error.effect(), Effect::Unknown);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_too_old_is_renewed_at_the_same_member_once_for_all_calls() {
    let (endpoints, asked) = (three(1), Asked::default());
    let old = endpoints.link().1.await.expect("no request is needed for that");
    let stale = |link: Arc<Link>| {
        asked.add(&endpoints, &link);
        let is_old = Arc::ptr_eq(&link, &old);
        async move {
            sleep(ms(1)).await;
            let text = "etcdserver: revision of auth store is old";
            if is_old { Err(says(Code::InvalidArgument, text)) } else { Ok(()) }
        }
    };
    let calls = (0..8).map(|_| endpoints.call(Call::write("commit", LIMIT), stale));
    for done in futures_util::future::join_all(calls).await {
        done.expect("the same member accepts the next token");
    }
    assert_eq!((asked.places(), asked.links()), (vec![0; 16], 2));
}

#[tokio::test(start_paused = true)]
async fn every_call_ends_in_time_and_names_the_silent_members() {
    for endpoints in [three(1), only()] {
        let began = Instant::now();
        let call = Call::read("read", LIMIT);
        let error = endpoints.call(call, |_link| pending::<Result<(), _>>()).await;
        let error = error.expect_err("no member answers");
        assert_eq!((began.elapsed(), error.kind()), (LIMIT, ErrorKind::Unreachable));
        assert_eq!(error.effect(), Effect::None, "it was a read");
        for endpoint in &endpoints.all() {
            let host = endpoint.url.trim_start_matches("http://");
            assert!(error.to_string().contains(host), "{host} is not in {error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_only_member_has_all_the_time() {
    let (endpoints, count) = (only(), AtomicU64::new(0));
    let slow = |_link| {
        let _before = count.fetch_add(1, Ordering::Relaxed);
        async {
            sleep(ms(9_000)).await;
            Ok(())
        }
    };
    endpoints.call(Call::read("read", LIMIT), slow).await.expect("answered");
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_doubted_when_it_is_silent_for_longer_than_answers_take() {
    let endpoints = only();
    let slow = |_link| async {
        sleep(ms(900)).await;
        Ok(())
    };
    endpoints.call(Call::read("read", LIMIT), slow).await.expect("answered");
    sleep(ms(1)).await;
    let since = Instant::now();
    sleep(ms(1_000)).await;
    endpoints.doubt(since, LIMIT);
    assert!(endpoints.all()[0].held().is_some(), "2.7 s are usual for it");
    endpoints.doubt(since, ms(1_000));
    assert!(endpoints.all()[0].held().is_none(), "there is no time for that");
}

#[tokio::test(start_paused = true)]
async fn an_urgent_read_asks_the_next_member_early_and_hears_both() {
    let (endpoints, asked) = (three(1), Asked::default());
    endpoints.all()[0].patience.answered(ms(3_000));
    let slow = |link: Arc<Link>| {
        let place = asked.add(&endpoints, &link);
        async move {
            sleep(ms(700)).await;
            Ok(place)
        }
    };
    let call = Call::read("renew", LIMIT).urgent(ms(300));
    assert_eq!(endpoints.call(call, slow).await.expect("answered"), 0);
    assert_eq!(asked.places(), [0, 1, 2], "one more each 300 ms");
}
