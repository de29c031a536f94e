//! A password from a URL or a config is in no output of any kind.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;

use synod::Config;

use crate::logged::Log;
use crate::secret::{CANARY, shown};

mod logged;
mod secret;

#[track_caller]
fn keeps_the_secret(said: &str) {
    assert!(!said.contains(CANARY), "{said}");
}

/// All texts about a config, and about connecting with it.
async fn all_that_is_said(config: &Config) -> String {
    let mut said = format!("{config:?} {config:#?} {} {:?}", config.url, config.url.credentials());
    match config.backend() {
        Ok(backend) => write!(said, "{backend:?}").unwrap(),
        Err(error) => said.push_str(&shown(&error)),
    }
    match config.connect().await {
        Ok(client) => {
            write!(said, "{client:?} {:?}", client.session().await).unwrap();
            client.close().await.unwrap();
        }
        Err(error) => said.push_str(&shown(&error)),
    }
    said
}

#[tokio::test]
async fn a_password_is_in_no_output() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(log.clone())
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);

    for scheme in ["mem", "zk", "zks", "etcd", "etcds"] {
        // No server listens on port 1.
        let url = format!("{scheme}://ann:{CANARY}@127.0.0.1:1/app?connect=300ms");
        keeps_the_secret(&all_that_is_said(&Config::new(&url).unwrap()).await);

        let json = format!(
            r#"{{ "url": "{scheme}://127.0.0.1:1?connect=300ms",
                 "credentials": {{ "user": "ann", "password": "{CANARY}" }} }}"#
        );
        keeps_the_secret(&all_that_is_said(&serde_json::from_str(&json).unwrap()).await);
    }
    for identities in [
        format!(r#""zk://127.0.0.1:1?connect=300ms&identity=ann:{CANARY}&identity=bob:{CANARY}""#),
        format!(
            r#""zk://127.0.0.1:1?connect=300ms",
                "identities": [{{ "user": "ann", "password": "{CANARY}" }}]"#
        ),
        format!(r#""mem://?identity=ann:{CANARY}""#),
        // A directory has no users: it refuses them, and names none.
        format!(r#""file:///dev/null/store?identity=ann:{CANARY}""#),
        format!(
            r#""file:///dev/null/store",
                "credentials": {{ "user": "ann", "password": "{CANARY}" }}"#
        ),
    ] {
        let json = format!(r#"{{ "url": {identities} }}"#);
        keeps_the_secret(&all_that_is_said(&serde_json::from_str(&json).unwrap()).await);
    }
    let broken = [
        format!("zk://ann:{CANARY}"),
        format!("zk://h?identity={CANARY}"),
        format!("zk://h?identity={CANARY}@x"),
        format!("zk://{CANARY}@h"),
        format!("zk://ann:{CANARY}@h?session=never"),
        format!("ann:{CANARY}@zk://h"),
        format!("file://ann:{CANARY}@/dev/null/store"),
        format!("file://ann:{CANARY}@h/dev/null/store"),
        CANARY.to_owned(),
    ];
    for url in broken {
        match Config::new(&url) {
            Ok(config) => keeps_the_secret(&all_that_is_said(&config).await),
            Err(error) => keeps_the_secret(&shown(&error)),
        }
    }

    // The log works at all: a session in memory logs its calls.
    let client = synod::connect("mem://").await.unwrap();
    let missing = client.get(&"/a".parse().unwrap()).await.unwrap();
    assert!(missing.is_none());
    client.close().await.unwrap();
    let log = log.text();
    assert!(log.contains("verb"), "{log}");
    keeps_the_secret(&log);
}
