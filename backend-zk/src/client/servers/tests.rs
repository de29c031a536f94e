use std::future::pending;
use std::net::Ipv4Addr;
use std::sync::Mutex;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use synod_core::store::ServerSource;

use super::*;

fn address(last: u8) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, last), 2181).into()
}

/// Each name ends with a digit, which is the end of its only address.
fn servers(count: u8) -> Servers {
    let resolver = Resolver::new(|name| {
        let number = name.as_bytes()[name.len() - 1] - b'0';
        Box::pin(async move { Ok(vec![address(number)]) })
    });
    let names = (0..count).map(|it| format!("zk{it}")).collect();
    Servers::new(&ServerList::fixed(names), resolver, Random::seeded(7))
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// The servers of the next round, or the rest of this one.
async fn round(servers: &mut Servers) -> Vec<SocketAddr> {
    let mut round = Vec::new();
    while let Some(next) = servers.next(soon(), soon()).await {
        round.push(next.address);
        if servers.untried() == 0 {
            break;
        }
    }
    round
}

#[tokio::test(start_paused = true)]
async fn the_server_of_the_last_connection_is_tried_last_and_the_others_in_any_order() {
    let mut servers = servers(3);
    let mut orders = BTreeSet::new();
    for _ in 0..40 {
        let last = Server { name: "zk1".to_owned(), address: address(1) };
        servers.connected(&last);
        let order = round(&mut servers).await;
        assert_eq!(order[2], address(1));
        orders.insert(order);
    }
    assert_eq!(orders.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn each_is_tried_once_before_any_is_tried_again() {
    let mut servers = servers(3);
    let all = [0, 1, 2].map(address);
    let mut first = round(&mut servers).await;
    first.sort();
    assert_eq!(first, all);
    assert_eq!(servers.next(soon(), soon()).await, None);

    servers.repeat();
    for _round in 0..3 {
        let mut next = round(&mut servers).await;
        next.sort();
        assert_eq!(next, all);
    }
}

#[tokio::test(start_paused = true)]
async fn each_address_of_a_name_is_a_server_and_names_are_resolved_for_each_round() {
    let answers = Arc::new(Mutex::new(vec![vec![4], vec![3, 1, 2], vec![1, 2, 3, 1]]));
    let resolver = Resolver::new(move |_name| {
        let next = answers.lock().expect("no panic").pop().expect("three rounds");
        let addresses = next.into_iter().map(address).collect();
        Box::pin(async { Ok(addresses) })
    });
    let mut servers =
        Servers::new(&ServerList::fixed(vec!["zk".to_owned()]), resolver, Random::seeded(7));
    servers.repeat();
    for expected in [&[1, 2, 3][..], &[1, 2, 3], &[4]] {
        let mut addresses = round(&mut servers).await;
        addresses.sort();
        assert_eq!(addresses, expected.iter().map(|last| address(*last)).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_without_an_answer_keeps_its_addresses_and_holds_up_no_other() {
    let first = Arc::new(Mutex::new(true));
    let resolver = Resolver::new(move |name| match name {
        "slow" if !std::mem::take(&mut *first.lock().expect("no panic")) => pending().boxed(),
        "slow" => async { Ok(vec![address(1)]) }.boxed(),
        "odd" => async { Err(io::Error::other("no such name")) }.boxed(),
        _ => async { Ok(vec![address(2)]) }.boxed(),
    });
    let names = ["slow", "odd", "fast"].map(str::to_owned).to_vec();
    let mut servers = Servers::new(&ServerList::fixed(names), resolver, Random::seeded(7));
    servers.repeat();
    let began = Instant::now();
    for _round in 0..2 {
        let limit = began + Duration::from_secs(1);
        let mut both = Vec::new();
        for _ in 0..2 {
            both.push(servers.next(limit, soon()).await.expect("there are two").address);
        }
        both.sort();
        assert_eq!(both, [address(1), address(2)]);
    }
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn without_any_address_there_is_no_server_at_the_end() {
    let resolver = Resolver::new(|_name| pending().boxed());
    let mut servers =
        Servers::new(&ServerList::fixed(vec!["zk".to_owned()]), resolver, Random::seeded(7));
    servers.repeat();
    let (began, end) = (Instant::now(), Instant::now() + Duration::from_secs(3));
    assert_eq!(servers.next(began, end).await, None);
    assert!((3_000..3_100).contains(&began.elapsed().as_millis()));
}

#[tokio::test(start_paused = true)]
async fn names_without_an_address_are_resolved_again() {
    let answers = Arc::new(Mutex::new(vec![vec![], vec![address(1)], vec![]]));
    let resolver = Resolver::new(move |_name| {
        let next = answers.lock().expect("no panic").pop().expect("three rounds");
        async { Ok(next) }.boxed()
    });
    let mut servers =
        Servers::new(&ServerList::fixed(vec!["zk".to_owned()]), resolver, Random::seeded(7));
    servers.repeat();
    for _round in 0..2 {
        let next = servers.next(soon(), soon()).await;
        assert_eq!(next.map(|server| server.address), Some(address(1)));
    }
}

#[tokio::test(start_paused = true)]
async fn later_rounds_wait_and_not_beyond_the_end() {
    let (mut servers, began) = (servers(2), Instant::now());
    let end = began + Duration::from_millis(450);
    servers.repeat();
    let mut times = Vec::new();
    for _ in 0..6 {
        servers.next(end, end).await.expect("there is always one");
        times.push(began.elapsed().as_millis());
    }
    assert_eq!(times[..2], [0, 0]);
    assert!((200..250).contains(&times[2]) && (250..350).contains(&times[3]), "{times:?}");
    assert!((450..452).contains(&times[4]) && times[5] == times[4], "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn clients_whose_servers_fell_silent_at_one_moment_do_not_search_at_one_moment() {
    let mut servers = servers(3);
    let mut pauses = BTreeSet::new();
    for _ in 0..20 {
        servers.connected(&Server { name: "zk1".to_owned(), address: address(1) });
        servers.record_silence();
        let began = Instant::now();
        servers.next(soon(), soon()).await.expect("there is one");
        pauses.insert(began.elapsed().as_millis());
        let began = Instant::now();
        servers.next(soon(), soon()).await.expect("there is another");
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
    assert!(pauses.len() > 5 && pauses.iter().all(|pause| *pause <= 51), "{pauses:?}");

    servers.connected(&Server { name: "zk1".to_owned(), address: address(1) });
    let began = Instant::now();
    servers.next(soon(), soon()).await.expect("there is one");
    assert_eq!(began.elapsed(), Duration::ZERO, "its connection was closed");
}

#[test]
fn the_first_round_is_without_pauses_and_no_pause_is_long() {
    let mut servers = servers(3);
    servers.size = 3;
    assert!((0..3).all(|place| servers.pause(0, place).is_zero()));
    let between = |round, place, least: u64, most: u64| {
        let pause = servers.pause(round, place).as_millis();
        assert!(pause >= least.into() && pause < most.into(), "{round} {place}: {pause}");
    };
    between(1, 0, 300, 350);
    between(1, 1, 50, 100);
    between(1, 2, 100, 150);
    between(2, 0, 600, 650);
    between(1_000_000, 0, 1_000, 1_050);
}

/// A source of the servers that the test sets.
#[derive(Clone, Debug, Default)]
struct Script(Arc<Mutex<Vec<&'static str>>>);

impl Script {
    fn set(&self, names: &[&'static str]) {
        *self.0.lock().expect("no panic") = names.to_vec();
    }
}

#[async_trait]
impl ServerSource for Script {
    async fn servers(&self) -> io::Result<Vec<String>> {
        Ok(self.0.lock().expect("no panic").iter().map(|name| (*name).to_owned()).collect())
    }
}

/// The servers of a source that names the first three, and a search that does not end.
async fn followed() -> (Script, ServerList, Servers) {
    let script = Script::default();
    script.set(&["zk0", "zk1", "zk2"]);
    let list = ServerList::following(vec![], Arc::new(script.clone()), |name| Ok(name.to_owned()));
    list.ready().await.expect("the source answers");
    let resolver = Resolver::new(|name| {
        let number = name.as_bytes()[name.len() - 1] - b'0';
        Box::pin(async move { Ok(vec![address(number)]) })
    });
    let mut servers = Servers::new(&list, resolver, Random::seeded(7));
    servers.repeat();
    (script, list, servers)
}

fn server(last: u8) -> Server {
    Server { name: format!("zk{last}"), address: address(last) }
}

/// Reads the source again.
async fn read(list: &ServerList) {
    tokio::time::sleep(Duration::from_secs(1)).await;
    list.refresh().await;
}

#[tokio::test(start_paused = true)]
async fn a_round_has_the_servers_of_the_current_list_and_the_last_one_behind_them() {
    let (script, _list, mut servers) = followed().await;
    let mut first = round(&mut servers).await;
    first.sort();
    assert_eq!(first, [0, 1, 2].map(address));
    servers.connected(&server(1));
    script.set(&["zk5", "zk6"]);
    // The source is read without a request: the connection was lost.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let next = round(&mut servers).await;
    assert_eq!((next.len(), next[2]), (3, address(1)), "{next:?}");
    servers.connected(&server(5));
    assert_eq!(round(&mut servers).await, [6, 5].map(address), "the old one is forgotten");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_changes_in_the_middle_of_a_round_begins_another() {
    let (script, list, mut servers) = followed().await;
    assert!(servers.next(soon(), soon()).await.is_some());
    script.set(&["zk7"]);
    read(&list).await;
    assert_eq!(servers.next(soon(), soon()).await, Some(server(7)));
}

#[tokio::test(start_paused = true)]
async fn a_server_is_left_when_the_list_does_not_name_it_and_no_sooner() {
    let (script, list, mut servers) = followed().await;
    let _tried = round(&mut servers).await;
    servers.connected(&server(1));
    let mut left = Box::pin(servers.left());
    script.set(&["zk1", "zk9"]);
    read(&list).await;
    read(&list).await;
    assert_eq!(left.as_mut().now_or_never(), None, "the list names it");
    script.set(&["zk9"]);
    assert_eq!(left.as_mut().now_or_never(), None, "nobody read it yet");
    read(&list).await;
    assert_eq!(left.now_or_never(), Some(()));
}

#[tokio::test(start_paused = true)]
async fn a_list_without_a_reachable_server_is_tried_more_and_more_rarely() {
    let (script, list, mut servers) = followed().await;
    script.set(&["zk9"]);
    read(&list).await;
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let _tried = round(&mut servers).await;
        servers.connected(&server(1));
        let mut left = Box::pin(servers.left());
        let mut readings = 0;
        while left.as_mut().now_or_never().is_none() {
            read(&list).await;
            readings += 1;
        }
        pauses.push(readings);
    }
    assert_eq!(pauses, [2, 4, 8, 16, 32, 32, 32, 32]);
    let _tried = round(&mut servers).await;
    servers.connected(&server(1));
    let left = servers.left();
    script.set(&["zk8"]);
    read(&list).await;
    assert_eq!(left.now_or_never(), Some(()), "another list is tried at once");
}

/// A list that the servers report, with these hosts, and a search that does not end.
fn reported(hosts: &[&str]) -> (ServerList, Servers) {
    let hosts = hosts.iter().copied().map(str::to_owned).collect();
    let list = ServerList::of_ensemble(hosts, |name| Ok(name.to_owned()));
    let resolver = Resolver::new(|name| {
        let number = name.as_bytes()[name.len() - 1] - b'0';
        Box::pin(async move { Ok(vec![address(number)]) })
    });
    let mut servers = Servers::new(&list, resolver, Random::seeded(7));
    servers.repeat();
    (list, servers)
}

fn report(list: &ServerList, names: &[&str]) {
    list.report(Ok(names.iter().copied().map(str::to_owned).collect()));
}

#[tokio::test(start_paused = true)]
async fn the_configured_hosts_follow_the_servers_that_are_reported() {
    let (list, mut servers) = reported(&["zk0", "zk1"]);
    assert_eq!(round(&mut servers).await.len(), 2);
    servers.connected(&server(0));
    report(&list, &["zk5", "zk6", "zk1"]);
    let next = round(&mut servers).await;
    let mut listed = next[..3].to_vec();
    listed.sort();
    assert_eq!((listed, &next[3..]), ([1, 5, 6].map(address).to_vec(), &[address(0)][..]));
    servers.connected(&server(5));
    let next = round(&mut servers).await;
    assert_eq!(&next[2..], [0, 5].map(address), "the last one is the last in any case: {next:?}");
    report(&list, &["zk6"]);
    let next = round(&mut servers).await;
    assert_eq!((next.len(), next[0], next[3]), (4, address(6), address(5)), "{next:?}");
}

#[tokio::test(start_paused = true)]
async fn a_new_session_begins_with_the_configured_hosts() {
    let (list, servers) = reported(&["zk0", "zk1"]);
    report(&list, &["zk5", "zk6", "zk1"]);
    drop(servers);
    let resolver = Resolver::new(|name| {
        let number = name.as_bytes()[name.len() - 1] - b'0';
        Box::pin(async move { Ok(vec![address(number)]) })
    });
    for seed in 0..8 {
        let mut servers = Servers::new(&list, resolver.clone(), Random::seeded(seed));
        let mut first = round(&mut servers).await;
        first[..2].sort();
        assert_eq!((first.len(), &first[..2]), (4, &[0, 1].map(address)[..]), "{first:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_is_not_left_for_one_that_is_reported() {
    let (list, mut servers) = reported(&["zk0"]);
    let _tried = round(&mut servers).await;
    servers.connected(&server(0));
    let mut left = Box::pin(servers.left());
    report(&list, &["zk5"]);
    assert_eq!(left.as_mut().now_or_never(), None);
    report(&list, &["zk6"]);
    assert_eq!(left.now_or_never(), None);
}

#[tokio::test(start_paused = true)]
async fn a_server_is_believed_if_it_is_configured_or_had_the_session() {
    let (list, mut servers) = reported(&["zk0"]);
    report(&list, &["zk0", "zk5", "zk6"]);
    let _tried = round(&mut servers).await;
    servers.connected(&server(5));
    assert_eq!([0, 5, 6].map(|last| servers.is_proven(&server(last))), [true, true, false]);
    let (_script, _list, servers) = followed().await;
    assert!(servers.is_proven(&server(1)), "a source is the word of the application");
}
