//! Services of Curator's discovery, and of the naming of etcd's package for Go.

use serde::{Deserialize, Serialize};
use synod::Path;
use synod::discovery::{Discovery, Endpoints, Instance, InstanceFormat, UriSpec};
use synod_servers::zookeeper::TICK;
use tokio::time::{Instant, sleep};

use crate::peer::{PATIENCE, Peer};
use crate::{Kind, Scene};

pub(crate) const SCENES: [(&str, &[Kind], Scene); 2] = [
    ("a_service_is_shared", &[Kind::Curator], |kind, path| {
        Box::pin(a_service_is_shared(kind, path))
    }),
    ("an_endpoint_is_shared", &[Kind::Go], |kind, path| {
        Box::pin(an_endpoint_is_shared(kind, path))
    }),
];

/// A payload of the other program: a text, or an object with its class.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Says {
    Text(String),
    Load(Load),
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "@class", rename = "Discovery$Load")]
struct Load {
    weight: u32,
}

fn load(weight: u32) -> Says {
    Says::Load(Load { weight })
}

fn shown(endpoints: &Endpoints<Says>) -> Vec<String> {
    let shown = endpoints.iter().map(|it| {
        let Instance { id, port, payload, .. } = &it.instance;
        let says = match payload {
            None => "none".to_owned(),
            Some(Says::Text(text)) => format!("text:{text}"),
            Some(Says::Load(load)) => format!("load:{}", load.weight),
        };
        format!("{id}:{}:{says}", port.unwrap_or_default())
    });
    shown.collect()
}

/// Waits until these are the instances that the other program has.
async fn they_see(peer: &mut Peer, question: &str, expected: &[&str]) {
    let end = Instant::now() + PATIENCE;
    loop {
        peer.write_line(question);
        let seen = peer.speaks().await;
        if seen == expected.join(",") {
            return;
        }
        assert!(Instant::now() < end, "{seen} instead of {expected:?}");
        sleep(TICK / 10).await;
    }
}

async fn does(peer: &mut Peer, what: &str, answer: &str) {
    peer.write_line(what);
    peer.says(answer).await;
}

async fn a_service_is_shared(kind: Kind, path: Path) {
    let client = kind.client().await;
    let discovery = Discovery::<Says>::new(&client, &path);
    let service = discovery.open("web").await.expect("reachable");
    let we_see = async |expected: &[&str]| {
        let end = Instant::now() + PATIENCE;
        loop {
            let seen = shown(&service.view().endpoints);
            if seen == expected {
                break;
            }
            assert!(Instant::now() < end, "{seen:?} instead of {expected:?}");
            sleep(TICK / 10).await;
        }
        assert_eq!(shown(&discovery.instances("web").await.expect("reachable")), expected);
        assert!(service.view().endpoints.unreadable().is_empty());
    };
    let uri = UriSpec::new("{scheme}://{address}:{port}/{name}").expect("valid");
    let ours = |port| Instance::new("web", "10.0.0.7").id("ours").port(port).uri_spec(uri.clone());
    let registration = discovery.register(ours(1).payload(load(3))).await.expect("free");
    let mut peer = Peer::curator_discovery(&kind.server()).await;
    does(&mut peer, &format!("base {path}"), "in").await;
    they_see(&mut peer, "list web", &["ours:1:load:3"]).await;
    does(&mut peer, "uri web ours", "http://10.0.0.7:1/web").await;
    does(&mut peer, "follow web", "in").await;

    does(&mut peer, "offer web theirs 2 load:5", "in").await;
    does(&mut peer, "offer web text 3 text:hello", "in").await;
    does(&mut peer, "offer web bare 4 none", "in").await;

    we_see(&["bare:4:none", "ours:1:load:3", "text:3:text:hello", "theirs:2:load:5"]).await;
    assert_eq!(discovery.services().await.expect("reachable"), ["web"]);
    let theirs = service.view().endpoints.get("theirs").cloned().expect("it is there");
    assert_eq!(theirs.instance.uri().as_deref(), Some("http://10.0.0.8:2"));
    assert!(theirs.instance.registered > 0 && theirs.instance.enabled);
    does(&mut peer, "change web theirs 5 load:6", "in").await;
    we_see(&["bare:4:none", "ours:1:load:3", "text:3:text:hello", "theirs:5:load:6"]).await;
    for (payload, seen) in [
        (Some(load(7)), "ours:9:load:7"),
        (Some(Says::Text("so".into())), "ours:9:text:so"),
        (None, "ours:9:none"),
    ] {
        let mut instance = ours(9);
        instance.payload = payload;
        registration.update(instance).await.expect("reachable");
        let all = ["bare:4:none", seen, "text:3:text:hello", "theirs:5:load:6"];
        they_see(&mut peer, "list web", &all).await;
        they_see(&mut peer, "cached", &all).await;
    }
    let mut disabled = ours(9);
    disabled.enabled = false;
    registration.update(disabled).await.expect("reachable");
    let all = ["bare:4:none", "ours:9:none:disabled", "text:3:text:hello", "theirs:5:load:6"];
    they_see(&mut peer, "cached", &all).await;

    does(&mut peer, "withdraw text", "out").await;
    does(&mut peer, "withdraw bare", "out").await;
    we_see(&["ours:9:none", "theirs:5:load:6"]).await;
    registration.unregister().await.expect("reachable");
    they_see(&mut peer, "cached", &["theirs:5:load:6"]).await;
    peer.kill();
    we_see(&[]).await;
}

async fn an_endpoint_is_shared(kind: Kind, path: Path) {
    let client = kind.client().await;
    let discovery = Discovery::<String>::new(&client, &path).format(InstanceFormat::EtcdEndpoint);
    let service = discovery.open("web").await.expect("reachable");
    let we_see = async |expected: &[&str]| {
        let end = Instant::now() + PATIENCE;
        loop {
            let view = service.view();
            let seen: Vec<_> = view.endpoints.iter().map(|it| line(&it.instance)).collect();
            if seen == expected && view.endpoints.unreadable().is_empty() {
                return;
            }
            assert!(Instant::now() < end, "{seen:?} instead of {expected:?}");
            sleep(TICK / 10).await;
        }
    };
    let ours =
        |says: &str| Instance::new("web", "10.0.0.7").id("ours").port(80).payload(says.to_owned());
    let registration = discovery.register(ours("a")).await.expect("free");
    let mut peer = Peer::go_endpoints(&kind.server()).await;
    // The key of an instance is the path of its service, two slashes, and its id.
    does(&mut peer, &format!("target {path}/web/"), "done").await;
    they_see(&mut peer, "list", &["ours=10.0.0.7:80=a"]).await;

    does(&mut peer, "offer one 10.0.0.8:81 b", "done").await;
    does(&mut peer, "offer two [fe80::1]:82 c", "done").await;
    we_see(&["one 10.0.0.8 81 b", "ours 10.0.0.7 80 a", "two fe80::1 82 c"]).await;
    does(&mut peer, "offer one 10.0.0.9:83 d", "done").await;
    we_see(&["one 10.0.0.9 83 d", "ours 10.0.0.7 80 a", "two fe80::1 82 c"]).await;
    registration.update(ours("e")).await.expect("reachable");
    they_see(&mut peer, "list", &["one=10.0.0.9:83=d", "ours=10.0.0.7:80=e", "two=[fe80::1]:82=c"])
        .await;

    does(&mut peer, "withdraw two", "done").await;
    we_see(&["one 10.0.0.9 83 d", "ours 10.0.0.7 80 e"]).await;
    registration.unregister().await.expect("reachable");
    they_see(&mut peer, "list", &["one=10.0.0.9:83=d"]).await;
    peer.kill();
    we_see(&[]).await;
}

fn line(instance: &Instance<String>) -> String {
    let Instance { id, address, port, payload, .. } = instance;
    let (address, says) = (address.as_deref(), payload.as_deref());
    format!("{id} {} {} {}", address.unwrap_or("-"), port.unwrap_or_default(), says.unwrap_or("-"))
}
