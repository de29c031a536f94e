//! `status`: the store, each of its servers, their leader and their alarms, and the session.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::{join, join_all};
use serde_json::{Value, json};
use synod::{Client, Path, Scheme};
use tokio::time::{Instant, timeout};

use crate::args::Common;
use crate::failure::{Failure, UNREACHABLE, sentence};
use crate::output;
use crate::progress::Progress;
use crate::server_report::{Alarm, ServerReport};
use crate::settings::Settings;

/// The exit code if the store answers, and a server does not, or an alarm is active.
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
        let servers = match &whole.session {
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
    let (store, cluster) = (settings.shown_url()?, Cluster::of(&each));
    if common.json {
        output::object(&json!({
            "store": store,
            "session": whole.session(),
            "servers": each.iter().map(|(server, probe)| probe.server(server)).collect::<Vec<_>>(),
            "leader": cluster.leader,
            "alarms": cluster.alarms.as_ref().map(|all| all.iter().map(alarm).collect::<Vec<_>>()),
            "leases": cluster.leases,
        }))?;
    } else {
        output::line(&format!("store    {store}"))?;
        output::line(&format!("session  {}", whole.text(true)))?;
        for (server, probe) in &each {
            output::line(&format!("server   {}  {}", server.escape_debug(), probe.text(false)))?;
            if let (Ok(_), Some(why)) = (&probe.session, &probe.report.unknown) {
                output::line(&format!("         its version and role are not known: {why}"))?;
            }
        }
        cluster.print()?;
    }
    let is_silent = each.iter().any(|(_, probe)| probe.session.is_err());
    let is_alarmed = cluster.alarms.is_some_and(|alarms| !alarms.is_empty());
    match &whole.session {
        Err((code, _)) => Err(Failure::Exit(*code, None)),
        Ok(_) if is_silent || is_alarmed => Err(Failure::Exit(PARTLY, None)),
        Ok(_) => Ok(()),
    }
}

/// The facts about all servers together. A value that no server reports is `None`.
#[derive(Debug, Default)]
struct Cluster {
    /// The leader: as in the URL, or its name if it is not one of these servers.
    leader: Option<String>,
    alarms: Option<BTreeSet<Alarm>>,
    leases: Option<u64>,
}

impl Cluster {
    fn of(each: &[(String, Probe)]) -> Self {
        let mut cluster = Self::default();
        for (server, Probe { report, .. }) in each {
            if report.role.as_deref() == Some(LEADER) {
                cluster.leader = Some(server.clone());
            }
            if let Some(alarms) = &report.alarms {
                cluster.alarms.get_or_insert_default().extend(alarms.iter().cloned());
            }
            cluster.leases = cluster.leases.max(report.leases);
        }
        let named = || each.iter().find_map(|(_, probe)| probe.report.leader.clone());
        cluster.leader = cluster.leader.or_else(named);
        cluster
    }

    fn print(&self) -> Result<(), Failure> {
        if let Some(leader) = &self.leader {
            output::line(&format!("leader   {}", leader.escape_debug()))?;
        }
        if let Some(leases) = self.leases {
            output::line(&format!("leases   {leases}"))?;
        }
        if let Some(alarms) = &self.alarms {
            for (name, member) in alarms {
                output::line(&format!("alarm    {name} at {}", member.escape_debug()))?;
            }
            if alarms.is_empty() {
                output::line("alarms   none")?;
            }
        }
        Ok(())
    }
}

fn alarm((name, member): &Alarm) -> Value {
    json!({ "alarm": name, "member": member })
}

/// The role of a server that leads the others.
const LEADER: &str = "leader";

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
struct Probe {
    session: Result<Answers, (u8, String)>,
    report: ServerReport,
}

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
    let of_config = async {
        let config = settings.config().ok()?;
        timeout(limit, ServerReport::of_config(&config)).await.ok()?
    };
    let (session, of_config) = join(session(settings, limit), of_config).await;
    let (session, of_client) = match session {
        Ok((answers, report)) => (Ok(answers), report),
        Err(why) => (Err(why), None),
    };
    Probe { session, report: of_config.or(of_client).unwrap_or_default() }
}

/// Opens a session and reads in it, within a limit. Returns the report of the server, too, if that
/// needs a session; or the exit code and the reason.
async fn session(
    settings: &Settings,
    limit: Duration,
) -> Result<(Answers, Option<ServerReport>), (u8, String)> {
    let asked = async {
        let mut config = settings.config()?;
        let has_limit =
            config.connect.is_some() || config.url.parameters().any(|(name, _)| name == "connect");
        if !has_limit {
            // Earlier than the limit, so that the reason of the store is known.
            config.connect = Some(limit.saturating_sub(limit / 10));
        }
        let begin = Instant::now();
        let client = config.connect().await?;
        let open = begin.elapsed();
        let answers = ask(&client, open).await;
        let report = ServerReport::of_client(&client, config.url.scheme()).await;
        // A session that cannot be closed expires.
        let _closed = client.close().await.is_ok();
        Ok((answers?, report))
    };
    let late = || (UNREACHABLE, format!("no answer within {}", humantime::format_duration(limit)));
    timeout(limit, asked).await.unwrap_or_else(|_late| Err(Failure::Told)).map_err(|failure| {
        let text = match &failure {
            Failure::Store(error) => sentence(error),
            Failure::Plain(text) => text.clone(),
            Failure::Told => return late(),
            other => format!("{other:?}"),
        };
        (failure.code(), text)
    })
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
        match &self.session {
            // A server may report about itself although it opens no session.
            Err((_, why)) => match self.report.text().strip_prefix(", ") {
                Some(report) => format!("{report}, opens no session: {why}"),
                None => why.clone(),
            },
            Ok(answers) => {
                let (open, read) = (millis(answers.open), millis(answers.read));
                let times = format!("connected in {open:.1}ms, read in {read:.1}ms");
                if !is_session {
                    return format!("answers{}, {times}", self.report.text());
                }
                let ttl = humantime::format_duration(answers.ttl);
                format!("open, {times}, time to live {ttl}, id {}", answers.id)
            }
        }
    }

    fn session(&self) -> Value {
        match &self.session {
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
        let ServerReport { version, role, connections, unknown, .. } = &self.report;
        let times = self.session.as_ref().ok().map(|it| [it.open, it.read].map(millis));
        json!({
            "server": server,
            "answers": self.session.is_ok(),
            "error": self.session.as_ref().err().map(|(_, why)| why),
            "connect_ms": times.map(|[connect, _]| connect),
            "read_ms": times.map(|[_, read]| read),
            "version": version,
            "role": role,
            "connections": connections,
            "unknown": unknown,
        })
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    fn answers(report: ServerReport) -> Probe {
        let (open, read, ttl) = <(Duration, Duration, Duration)>::default();
        let answers = Answers { id: String::new(), ttl, servers: Vec::new(), open, read };
        Probe { session: Ok(answers), report }
    }

    fn role(role: &str) -> ServerReport {
        ServerReport { role: Some(role.to_owned()), ..ServerReport::default() }
    }

    #[test]
    fn the_leader_and_the_alarms_are_those_of_all_servers() {
        let session = || Err((UNREACHABLE, "no answer".to_owned()));
        let report = ServerReport::default;
        let silent = || ("c:1".to_owned(), Probe { session: session(), report: report() });
        let full = ("NOSPACE".to_owned(), "m2".to_owned());
        let report = |leases, alarms: &[Alarm], role_of: &str| ServerReport {
            leader: Some("m3".to_owned()),
            leases: Some(leases),
            alarms: Some(alarms.to_vec()),
            ..role(role_of)
        };
        let followers = [
            ("a:1".to_owned(), answers(report(3, &[], "follower"))),
            ("b:1".to_owned(), answers(report(4, from_ref(&full), "follower"))),
            silent(),
        ];
        let cluster = Cluster::of(&followers);
        assert_eq!((cluster.leader.as_deref(), cluster.leases), (Some("m3"), Some(4)));
        assert_eq!(cluster.alarms, Some(BTreeSet::from([full])));

        let ensemble = [
            ("a:1".to_owned(), answers(role("follower"))),
            ("b:1".to_owned(), answers(role(LEADER))),
        ];
        let cluster = Cluster::of(&ensemble);
        assert_eq!((cluster.leader.as_deref(), cluster.alarms), (Some("b:1"), None));
        let none = Cluster::of(&[silent(), ("a:1".to_owned(), answers(role("standalone")))]);
        assert_eq!((none.leader, none.leases), (None, None));
    }

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
