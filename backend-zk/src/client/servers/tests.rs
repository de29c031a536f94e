use std::future::pending;
use std::net::Ipv4Addr;
use std::sync::Mutex;

use futures_util::FutureExt as _;

use super::*;

fn address(last: u8) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, last), 2181).into()
}

/// Each name ends with a digit, which is the end of its only address.
fn servers(count: u8) -> Servers {
    let resolver = Resolver::new(|name| {
        let last = name.as_bytes()[name.len() - 1] - b'0';
        Box::pin(async move { Ok(vec![address(last)]) })
    });
    let names = (0..count).map(|it| format!("zk{it}")).collect();
    Servers::new(names, resolver, Random::seeded(7))
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
    let mut orders = std::collections::BTreeSet::new();
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
    let mut servers = Servers::new(vec!["zk".to_owned()], resolver, Random::seeded(7));
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
    let mut servers = Servers::new(names, resolver, Random::seeded(7));
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
    let mut servers = Servers::new(vec!["zk".to_owned()], resolver, Random::seeded(7));
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
    let mut servers = Servers::new(vec!["zk".to_owned()], resolver, Random::seeded(7));
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
    let mut pauses = std::collections::BTreeSet::new();
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
