//! Passwords and tokens reach real servers, and no output of any kind.
use std::fmt::Write as _;
use std::time::Duration;

use etcd_client::{Client as Raw, Permission, PermissionType};
use synod::lock::Mutex as Lock;
use synod::{Client, Config, Lifetime, Path, Query, Txn};
use synod_servers::available;
use synod_servers::etcd::Cluster;
use synod_servers::links::Links;
use synod_servers::zookeeper::Ensemble;
use tracing::instrument::WithSubscriber as _;

use crate::logged::Log;
use crate::secret::{CANARY, shown};

mod logged;
mod secret;

const LIMIT: Duration = Duration::from_secs(120);

fn path(text: &str) -> Path {
    Path::new(text).expect("valid")
}

/// Uses a store in every way that writes to the log; returns the other output.
async fn work(config: &Config, other: &Path) -> String {
    let client = config.connect().await.expect("the password is right");
    let mut said = format!("{config:?} {client:?} {:?}", client.session().await);
    let node = path("/n");
    let ephemeral = Txn::new().create(&node, "x", Lifetime::Session);
    client.commit(ephemeral).await.expect("answered").required().expect("it is free");
    let (view, watch) = client.watch(Query::node(&node)).await.expect("answered");
    write!(said, "{view:?} {watch:?}").expect("a string has room");
    let held = Lock::new(&client, path("/lock")).lock().await.expect("free");
    write!(said, "{held:?}").expect("a string has room");
    held.release().await.expect("it is held");
    client.close().await.expect("it is open");
    // A forbidden call is an error that names the user.
    let beside = Config::new(&config.url.to_string().replace("***", CANARY)).expect("as it was");
    let client: Client = beside.connect().await.expect("the password is right");
    match client.get(other).await {
        Ok(found) => write!(said, "{found:?}").expect("a string has room"),
        Err(error) => said.push_str(&shown(&error)),
    }
    client.close().await.expect("it is open");
    said
}

/// The error text of a connection with the wrong password.
async fn refused(url: &str) -> String {
    let config = Config::new(url).expect("valid");
    match config.connect().await {
        Ok(client) => {
            // ZooKeeper accepts any digest; whether it permits anything shows with the first node.
            client.close().await.expect("it is open");
            String::new()
        }
        Err(error) => shown(&error),
    }
}

/// Runs the work with the log of all crates at every level. Returns its output, and the log.
async fn logged(work: impl Future<Output = String>) -> (String, String) {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(log.clone())
        .finish();
    // The subscriber also serves the tasks: the runtime has one thread.
    let _logging = tracing::subscriber::set_default(subscriber);
    let shown = tokio::time::timeout(LIMIT, work.with_current_subscriber()).await;
    (shown.expect("it ends"), log.text())
}

/// The first token of etcd's simple kind in a text: sixteen letters, a dot and a number.
fn simple_token(text: &str) -> Option<&str> {
    const LETTERS: usize = 16;
    let is_word = |byte: u8| byte.is_ascii_alphanumeric();
    let bytes = text.as_bytes();
    bytes.iter().enumerate().filter(|(_, byte)| **byte == b'.').find_map(|(dot, _)| {
        let from = dot.checked_sub(LETTERS)?;
        let begins = from == 0 || !is_word(bytes[from - 1]);
        let letters = bytes[from..dot].iter().all(u8::is_ascii_alphabetic);
        let number = bytes.get(dot + 1).is_some_and(u8::is_ascii_digit);
        (begins && letters && number).then(|| &text[from..=dot + 1])
    })
}

#[tokio::test]
async fn the_password_and_the_token_of_etcd_are_in_no_output() {
    let Some(servers) = available(Cluster::start(1)) else { return };
    let address = servers.addresses()[0];
    let raw = Raw::connect([address.to_string()], None).await.expect("valid");
    raw.auth_client().user_add("root", "other", None).await.expect("added");
    raw.auth_client().user_grant_role("root", "root").await.expect("granted");
    raw.auth_client().user_add("ann", CANARY, None).await.expect("added");
    raw.auth_client().role_add("app").await.expect("added");
    for prefix in ["/app/", "//app"] {
        let all = Permission::new(PermissionType::Readwrite, prefix).with_prefix();
        raw.auth_client().role_grant_permission("app", all).await.expect("granted");
    }
    raw.auth_client().user_grant_role("ann", "app").await.expect("granted");
    raw.auth_client().auth_enable().await.expect("enabled");

    let url = format!("etcd://ann:{CANARY}@{address}/app?session=5s");
    let config = Config::new(&url).expect("valid");
    let (said, log) = logged(async {
        let said = work(&config, &path("/n")).await;
        said + &refused(&url.replace(CANARY, "canary-7f3a92")).await
    })
    .await;

    assert!(log.contains("verb"), "nothing was logged: {log}");
    for text in [&said, &log] {
        assert!(!text.contains("canary-7f3a9"), "{text}");
        assert_eq!(simple_token(text), None, "{text}");
    }
    // The pattern matches a real token.
    let token = raw.auth_client().authenticate("ann".to_owned(), CANARY.to_owned()).await;
    let token = token.map(|answer| format!("token: {}", answer.token())).unwrap_or_default();
    assert!(simple_token(&token).is_some(), "{token}");
}

#[tokio::test]
async fn the_passwords_of_zookeeper_are_in_no_output() {
    let Some(servers) = available(Ensemble::start(1)) else { return };
    let links = Links::start(&servers.addresses()).expect("free ports");
    let address = links.addresses()[0];

    let url = format!("zk://ann:{CANARY}@{address}/app?session=5s&acl=creator");
    let config = Config::new(&url).expect("valid");
    let (said, log) = logged(async {
        let said = work(&config, &path("/n")).await;
        said + &refused(&url.replace(CANARY, "canary-7f3a92")).await
    })
    .await;

    assert!(log.contains("verb"), "nothing was logged: {log}");
    let passwords: Vec<_> =
        links.sessions().iter().filter_map(|session| links.password(*session)).collect();
    assert!(!passwords.is_empty() && passwords.iter().all(|password| password.len() == 16));
    for text in [&said, &log] {
        assert!(!text.contains("canary-7f3a9"), "{text}");
        for password in &passwords {
            for spelled in spellings(password) {
                assert!(!text.contains(&spelled), "a session's password, as {spelled}: {text}");
            }
        }
    }
}

/// The usual ways to print bytes.
fn spellings(bytes: &[u8]) -> Vec<String> {
    let hex = |upper: bool| {
        bytes.iter().fold(String::new(), |text, byte| {
            text + &if upper { format!("{byte:02X}") } else { format!("{byte:02x}") }
        })
    };
    let list = format!("{bytes:?}");
    let list = list.trim_matches(['[', ']']).to_owned();
    vec![hex(false), hex(true), list, bytes.escape_ascii().to_string()]
}
