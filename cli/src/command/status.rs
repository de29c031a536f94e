//! `status`: the store, each of its servers, and the session.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use synod::{Client, Path, Scheme};
use tokio::time::{Instant, timeout};

use crate::args::Common;
use crate::failure::{Failure, UNREACHABLE, sentence};
use crate::output;
use crate::progress::Progress;
use crate::settings::Settings;

/// The exit code if a server does not answer, and the store does.
const PARTLY: u8 = 1;

pub(crate) async fn run(common: &Common, limit: Duration) -> Result<(), Failure> {
    let settings = Settings::of(common)?;
    let config = settings.config()?;
    let hosts: Vec<String> = match config.url.scheme() {
        Scheme::ZooKeeper { .. } | Scheme::Etcd { .. } => config.url.hosts().to_vec(),
        // A store without servers.
        _ => Vec::new(),
    };
    let has_source =
        config.servers.is_some() || config.url.parameters().any(|(name, _)| name == SOURCE);
    let all = async {
        let whole = probe(&settings, limit).await;
        let servers = match &whole.0 {
            Ok(answers) if has_source => answers.servers.clone(),
            _ => hosts,
        };
        let asked = servers.iter().map(|server| {
            let settings = alone(&settings, server);
            async move { probe(&settings, limit).await }
        });
        let each = join_all(asked).await;
        (whole, servers.into_iter().zip(each).collect::<Vec<_>>())
    };
    let (whole, each) = Progress::waiting("connecting", all).await;
    let store = config.url.to_string();
    if common.json {
        output::object(&json!({
            "store": store,
            "session": whole.session(),
            "servers": each.iter().map(|(server, probe)| probe.server(server)).collect::<Vec<_>>(),
        }))?;
    } else {
        output::line(&format!("store    {store}"))?;
        output::line(&format!("session  {}", whole.text(true)))?;
        for (server, probe) in &each {
            output::line(&format!("server   {}  {}", server.escape_debug(), probe.text(false)))?;
        }
    }
    let silent = each.iter().filter(|(_, probe)| probe.0.is_err()).count();
    match &whole.0 {
        Err((code, _)) => Err(Failure::Exit(*code, None)),
        Ok(_) if silent > 0 => Err(Failure::Exit(PARTLY, None)),
        Ok(_) => Ok(()),
    }
}

/// The setting of the source of the servers, also in the URL.
const SOURCE: &str = "servers";

/// The settings for one of the servers alone.
fn alone(settings: &Settings, server: &str) -> Settings {
    let (url, query) = settings.url().split_once('?').unwrap_or((settings.url(), ""));
    let start = url.find("://").map_or(0, |at| at + "://".len());
    let end = url[start..].find('/').map_or(url.len(), |at| start + at);
    let start = url[start..end].rfind('@').map_or(start, |at| start + at + 1);
    let mut url = format!("{}{server}{}", &url[..start], &url[end..]);
    let is_source = |pair: &&str| pair.split('=').next() == Some(SOURCE);
    let others: Vec<&str> = query.split('&').filter(|pair| !is_source(pair)).collect();
    if !query.is_empty() && !others.is_empty() {
        url = format!("{url}?{}", others.join("&"));
    }
    settings.without(SOURCE).with_url(&url)
}

/// The result of a session that was opened and of a read: what the store told, or the exit code and
/// the reason.
struct Probe(Result<Answers, (u8, String)>);

struct Answers {
    id: String,
    ttl: Duration,
    servers: Vec<String>,
    /// The time until the session was open.
    open: Duration,
    /// The time of a read.
    read: Duration,
}

async fn probe(settings: &Settings, limit: Duration) -> Probe {
    let late = || (UNREACHABLE, format!("no answer within {}", humantime::format_duration(limit)));
    let asked = async {
        let config = settings.config()?;
        let begin = Instant::now();
        let client = config.connect().await?;
        let open = begin.elapsed();
        let answers = ask(&client, open).await;
        // A session that cannot be closed expires.
        let _closed = client.close().await.is_ok();
        answers
    };
    let asked = timeout(limit, asked).await;
    Probe(asked.map_or_else(
        |_late| Err(late()),
        |done| {
            done.map_err(|failure: Failure| {
                let text = match &failure {
                    Failure::Store(error) => sentence(error),
                    Failure::Plain(text) => text.clone(),
                    other => format!("{other:?}"),
                };
                (failure.code(), text)
            })
        },
    ))
}

async fn ask(client: &Client, open: Duration) -> Result<Answers, Failure> {
    let session = client.session().await?;
    let begin = Instant::now();
    client.exists(&Path::root()).await?;
    let (info, read) = (session.info(), begin.elapsed());
    let (id, servers) = (info.id.to_string(), client.servers());
    Ok(Answers { id, ttl: info.ttl, servers, open, read })
}

impl Probe {
    fn text(&self, is_session: bool) -> String {
        match &self.0 {
            Err((_, why)) => why.clone(),
            Ok(answers) => {
                let (open, read) = (millis(answers.open), millis(answers.read));
                let times = format!("connected in {open:.1}ms, read in {read:.1}ms");
                if !is_session {
                    return format!("answers, {times}");
                }
                let ttl = humantime::format_duration(answers.ttl);
                format!("open, {times}, time to live {ttl}, id {}", answers.id)
            }
        }
    }

    fn session(&self) -> Value {
        match &self.0 {
            Err((_, why)) => json!({ "open": false, "error": why }),
            Ok(answers) => json!({
                "open": true,
                "id": answers.id,
                "ttl_ms": millis(answers.ttl),
                "connect_ms": millis(answers.open),
                "read_ms": millis(answers.read),
            }),
        }
    }

    fn server(&self, server: &str) -> Value {
        match &self.0 {
            Err((_, why)) => json!({ "server": server, "answers": false, "error": why }),
            Ok(answers) => json!({
                "server": server,
                "answers": true,
                "connect_ms": millis(answers.open),
                "read_ms": millis(answers.read),
            }),
        }
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_reached_with_the_settings_of_the_store() {
        for (url, server, alone_url) in [
            ("zk://a:1,b:2/app?acl=open", "b:2", "zk://b:2/app?acl=open"),
            ("etcds://u:p%40,@a,[::1]:2?x=a@b,c", "[::1]:2", "etcds://u:p%40,@[::1]:2?x=a@b,c"),
            ("etcd://a,b", "b", "etcd://b"),
            ("zk:///app?acl=open&servers=file:/a&tick=1s", "b:1", "zk://b:1/app?acl=open&tick=1s"),
            ("etcd://a?servers=file:/a", "b:1", "etcd://b:1"),
            ("etcd://a?servers=follow", "b:1", "etcd://b:1"),
        ] {
            let common = Common { store: Some(url.to_owned()), ..Common::default() };
            let settings = Settings::of(&common).map_err(|_| ()).expect("a URL");
            assert_eq!(alone(&settings, server).url(), alone_url);
        }
    }
}
