//! [`Plan`]: the backend and the options to open for a [`Config`]. A contradiction is an error.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use synod_core::client::{Client, ClientOptions};
use synod_core::error::Result;
#[cfg(feature = "etcd")]
use synod_core::error::{Error, ErrorKind};
use synod_core::layer::namespace::NamespacedBackend;
use synod_core::layer::trace::TracedBackend;
use synod_core::path::Path;
use synod_core::store::{Backend, SessionOptions};

use crate::address::Address;
use crate::config::Config;
use crate::scheme::{Scheme, invalid};
use crate::servers::ServersFrom;
use crate::target::{Target, Tls, duration};
use crate::{backend, registry};

/// The backend to open, its options, and the namespace in it.
struct Plan {
    target: Target,
    options: ClientOptions,
    namespace: Path,
}

/// The settings that the parameters of the URL may contain.
#[derive(Default)]
struct Said {
    session: Option<Duration>,
    timeout: Option<Duration>,
    connect: Option<Duration>,
    lazy: Option<bool>,
    servers: Option<ServersFrom>,
    tls: Option<Tls>,
}

impl Config {
    /// Connects: opens a session and keeps one open from then on. A [lazy](Config::lazy) config
    /// returns before there is one.
    ///
    /// # Errors
    ///
    /// [`Invalid`](synod_core::error::ErrorKind::Invalid) if the config contradicts itself,
    /// [`Unsupported`](synod_core::error::ErrorKind::Unsupported) if the backend is not compiled
    /// in, and any error of opening the first session.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a session that a dropped call leaves open expires after its TTL.
    pub async fn connect(&self) -> Result<Client> {
        let plan = Plan::of(self)?;
        let options = plan.options.clone();
        Client::open(plan.open()?, options).await
    }

    /// The backend alone, for programs that open sessions themselves.
    ///
    /// # Errors
    ///
    /// The errors of [`Config::connect`], except for errors of the connection.
    pub fn backend(&self) -> Result<Arc<dyn Backend>> {
        Plan::of(self)?.open()
    }

    /// The backend of a directory, for the calls that only it has, such as backups.
    ///
    /// # Errors
    ///
    /// [`Invalid`](synod_core::error::ErrorKind::Invalid) if the config contradicts itself, or is
    /// that of another store.
    #[cfg(all(feature = "file", target_os = "linux"))]
    pub fn file_backend(&self) -> Result<synod_file::FileBackend> {
        let plan = Plan::of(self)?;
        if plan.target.scheme != Scheme::File {
            let scheme = plan.target.scheme.as_str();
            return Err(invalid(format!("{scheme}:// is no directory, as file:///var/lib/app is")));
        }
        backend::file_backend(plan.target)
    }

    /// Reads the status of the first member of etcd that answers: its version, the leader, and the
    /// alarms of the cluster. No session is opened.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](synod_core::error::ErrorKind::Unsupported) if the URL is not of etcd,
    /// [`Denied`](synod_core::error::ErrorKind::Denied) if the user may not read the status, and
    /// the errors of [`Config::connect`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    #[cfg(feature = "etcd")]
    pub async fn member_status(&self) -> Result<synod_etcd::MemberStatus> {
        let target = Plan::of(self)?.target;
        if !matches!(target.scheme, Scheme::Etcd { .. }) {
            let error = Error::new(ErrorKind::Unsupported, "reading the status of a member");
            return Err(error.because("only etcd has members: the URL begins with etcd://"));
        }
        synod_etcd::MemberStatus::of(backend::etcd_options(target)?).await
    }
}

impl Plan {
    fn of(config: &Config) -> Result<Self> {
        let url = &config.url;
        let (said, parameters) = Said::of(url)?;
        let mut options = ClientOptions::default();
        if let Some(ttl) = once("session", config.session, said.session)? {
            options = options.session(SessionOptions::new(ttl));
        }
        if let Some(timeout) = once("timeout", config.timeout, said.timeout)? {
            options = options.timeout(timeout);
        }
        if let Some(connect) = once("connect", config.connect, said.connect)? {
            options = options.connect_timeout(connect);
        }
        if let Some(lazy) = once("lazy", config.lazy, said.lazy)? {
            options = options.lazy(lazy);
        }
        if let Some(session) = &config.resume {
            options = options.resume(session.clone());
        }
        if let Some(retry) = &config.retry {
            retry.validate()?;
            options = options.retry(retry.clone());
        }
        if let Some(retry) = &config.session_retry {
            retry.validate()?;
            options = options.session_retry(retry.clone());
        }
        let (path, directory) = match url.scheme() {
            Scheme::File => (None, Some(PathBuf::from(url.path().as_str()))),
            _ => (Some(url.path().clone()).filter(|path| !path.is_root()), None),
        };
        let namespace = once("namespace", config.namespace.clone(), path)?;
        let credentials = config.credentials.clone();
        let credentials = once("credentials", credentials, url.credentials().cloned())?;
        let all = [config.identities.as_slice(), url.identities()];
        let [config_has, url_has] = all.map(|all| (!all.is_empty()).then(|| all.to_vec()));
        let identities = once("identities", config_has, url_has)?.unwrap_or_default();
        if !identities.is_empty() && !matches!(url.scheme(), Scheme::ZooKeeper { .. }) {
            let scheme = url.scheme().as_str();
            return Err(invalid(format!("a client of {scheme}:// has no further identities")));
        }
        let tls = tls(url.scheme(), once("tls", config.tls.clone(), said.tls)?)?;
        let servers = once("servers", config.servers.clone(), said.servers)?;
        let (scheme, hosts) = (url.scheme(), url.hosts().to_vec());
        check_servers(scheme, &hosts, servers.as_ref())?;
        let target =
            Target { scheme, hosts, directory, servers, credentials, identities, tls, parameters };
        Ok(Self { target, options, namespace: namespace.unwrap_or_else(Path::root) })
    }
}

impl Plan {
    /// The backend in two layers: tracing with the paths that its store sees, then the namespace if
    /// there is one.
    fn open(self) -> Result<Arc<dyn Backend>> {
        let traced = TracedBackend::new(open(self.target)?);
        Ok(if self.namespace.is_root() {
            Arc::new(traced)
        } else {
            Arc::new(NamespacedBackend::new(traced, self.namespace))
        })
    }
}

/// The backend of a target, if it is compiled in.
fn open(target: Target) -> Result<Arc<dyn Backend>> {
    match target.scheme {
        Scheme::Mem => backend::mem(target),
        Scheme::File => backend::file(target),
        Scheme::ZooKeeper { .. } => backend::zookeeper(target),
        Scheme::Etcd { .. } => backend::etcd(target),
        Scheme::Registered(scheme) => registry::open(scheme, target),
    }
}

impl Said {
    /// The settings of a URL, and the remaining parameters, which are for its backend.
    fn of(url: &Address) -> Result<(Self, Vec<(String, String)>)> {
        let (mut said, mut others) = (Self::default(), Vec::new());
        for (key, value) in url.parameters() {
            match key {
                "session" => said.session = Some(duration(key, value)?),
                "timeout" => said.timeout = Some(duration(key, value)?),
                "connect" => said.connect = Some(duration(key, value)?),
                "lazy" => said.lazy = Some(truth(key, value)?),
                "servers" if url.scheme().has_ports() => said.servers = Some(value.parse()?),
                "ca" => said.tls.get_or_insert_default().ca = Some(value.into()),
                "certificate" => said.tls.get_or_insert_default().certificate = Some(value.into()),
                "key" => said.tls.get_or_insert_default().key = Some(value.into()),
                _ => others.push((key.to_owned(), value.to_owned())),
            }
        }
        Ok((said, others))
    }
}

fn check_servers(scheme: Scheme, hosts: &[String], servers: Option<&ServersFrom>) -> Result<()> {
    let needs_hosts = servers.is_none_or(ServersFrom::needs_hosts);
    match servers {
        _ if scheme.has_ports() && hosts.is_empty() && needs_hosts => Err(invalid(
            "a host is missing: name the servers, or their file, as in \
             ?servers=file:/etc/app/servers",
        )),
        Some(_) if !scheme.has_ports() => {
            Err(invalid(format!("{}:// has no list of servers", scheme.as_str())))
        }
        _ => Ok(()),
    }
}

fn truth(key: &str, value: &str) -> Result<bool> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(invalid(format!("{key} is true or false, as in ?{key}=true"))),
    }
}

/// A setting from the config or from the URL, but not from both.
fn once<T>(what: &str, config: Option<T>, url: Option<T>) -> Result<Option<T>> {
    if config.is_some() && url.is_some() {
        return Err(invalid(format!(
            "{what} is said in the URL and in the config; say it in one of them"
        )));
    }
    Ok(config.or(url))
}

fn tls(scheme: Scheme, tls: Option<Tls>) -> Result<Tls> {
    match tls {
        Some(_) if !may_use_tls(scheme) => Err(invalid(format!(
            "there are TLS files, and {}:// does not use TLS; write zks:// or etcds://",
            scheme.as_str()
        ))),
        Some(tls) if tls.certificate.is_some() != tls.key.is_some() => {
            Err(invalid("a TLS certificate needs its key, and a key its certificate"))
        }
        tls => Ok(tls.unwrap_or_default()),
    }
}

/// A registered store that does not use TLS rejects the files when it is opened.
fn may_use_tls(scheme: Scheme) -> bool {
    scheme.is_secure() || matches!(scheme, Scheme::Registered(_))
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("target", &self.target)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use synod_core::error::ErrorKind;
    use synod_core::retry::Retry;

    use super::*;

    fn plan(json: &str) -> Result<Plan, String> {
        let config: Config = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let shown = format!("{config:?}");
        assert!(!shown.contains("canary"), "{shown}");
        Plan::of(&config).map_err(|error| format!("{error} {error:?}"))
    }

    #[track_caller]
    fn refused(json: &str, because: &str) {
        let why = plan(json).expect_err(json);
        assert!(why.contains(because), "{json}: {why}");
        assert!(!why.contains("canary"), "{why}");
    }

    #[test]
    fn what_is_said_in_the_url_and_in_the_config_comes_together() {
        let said = r#"{ "url": "mem://name/app?session=2s&connect=1s", "timeout": "3s",
            "retry": { "policy": "never" }, "lazy": true,
            "session_retry": { "policy": "until-elapsed", "limit": "1h" } }"#;
        let plan = plan(said).expect("fine");
        assert_eq!(plan.options.session.ttl, Duration::from_secs(2));
        assert_eq!(plan.options.connect_timeout, Duration::from_secs(1));
        assert_eq!(plan.options.refused_timeout, Duration::from_secs(1));
        assert_eq!(plan.options.timeout, Duration::from_secs(3));
        assert_eq!(plan.options.retry, Retry::Never);
        let hour = Retry::until_elapsed(Duration::from_secs(3_600));
        assert_eq!((plan.options.lazy, plan.options.session_retry), (true, Some(hour)));
        assert_eq!(plan.namespace.as_str(), "/app");
        assert_eq!(plan.target.hosts, ["name"]);
    }

    #[test]
    fn the_files_of_a_connection_may_stand_in_the_url() {
        let said = r#"{ "url": "zks://h?ca=/etc/ca.pem&certificate=me.pem&key=my%20key.pem" }"#;
        let tls = plan(said).expect("fine").target.tls;
        let named = [tls.ca, tls.certificate, tls.key].map(|file| file.expect("said"));
        assert_eq!(named, ["/etc/ca.pem", "me.pem", "my key.pem"].map(PathBuf::from));
    }

    #[test]
    fn the_servers_may_be_in_a_file() {
        let shown = |json: &str| format!("{:?}", plan(json).expect("fine").target.servers);
        for json in [
            r#"{ "url": "zk:///app?servers=file:/a/b" }"#,
            r#"{ "url": "etcd://h:1", "servers": "file:/a/b" }"#,
        ] {
            assert!(shown(json).contains("the file /a/b"), "{}", shown(json));
        }
        for json in [
            r#"{ "url": "zk://h/app?servers=follow" }"#,
            r#"{ "url": "etcds://h:1", "servers": "follow" }"#,
        ] {
            assert!(shown(json).contains("Ensemble"), "{}", shown(json));
        }
        assert_eq!(shown(r#"{ "url": "etcd://h:1" }"#), "None");
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        refused(r#"{ "url": "mem://?session=1s", "session": "1s" }"#, "session is said");
        refused(r#"{ "url": "mem://?lazy=true", "lazy": true }"#, "lazy is said");
        refused(r#"{ "url": "zk:///?servers=file:a", "servers": "file:b" }"#, "servers is said");
        refused(r#"{ "url": "mem://", "servers": "file:b" }"#, "no list of servers");
        refused(r#"{ "url": "mem:///a", "namespace": "/b" }"#, "namespace is said");
        refused(
            r#"{ "url": "zk://u:canary-7f3a@h", "credentials": { "user": "u", "password": "canary" } }"#,
            "credentials is said",
        );
        refused(
            r#"{ "url": "zk://h?identity=u:canary-7f3a",
                 "identities": [{ "user": "u", "password": "canary" }] }"#,
            "identities is said",
        );
        for scheme in ["mem", "etcd"] {
            let url = format!(r#"{{ "url": "{scheme}://h?identity=u:canary-7f3a" }}"#);
            refused(&url, "no further identities");
        }
        refused(r#"{ "url": "mem://", "tls": {} }"#, "does not use TLS");
        refused(r#"{ "url": "zks://h", "tls": { "key": "k" } }"#, "needs its");
        refused(r#"{ "url": "etcds://h?key=k" }"#, "needs its");
        refused(r#"{ "url": "zk://h?ca=c" }"#, "does not use TLS");
        refused(r#"{ "url": "zks://h?ca=c", "tls": { "ca": "c" } }"#, "tls is said");
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        refused(r#"{ "url": "mem://?session=0s" }"#, "more than zero");
        refused(r#"{ "url": "mem://?session=soon" }"#, "is a duration");
        refused(r#"{ "url": "mem://?lazy=yes" }"#, "true or false");
        for url in ["zk://", "etcds:///app", "zk://u:canary-7f3a@"] {
            refused(&format!(r#"{{ "url": "{url}" }}"#), "a host is missing");
        }
        for servers in ["file:", "", "/etc/servers", "Follow", "follow:"] {
            refused(&format!(r#"{{ "url": "zk:///?servers={servers}" }}"#), "servers is follow");
        }
        refused(r#"{ "url": "zk://", "servers": "a" }"#, "servers is follow");
        refused(r#"{ "url": "zk:///app", "servers": "follow" }"#, "a host is missing");
        refused(r#"{ "url": "mem://", "servers": "follow" }"#, "no list of servers");
        refused(r#"{ "url": "mem://", "colour": 1 }"#, "unknown field");
        refused(r#"{ "url": "ftp://h" }"#, "starts with mem://");
        refused(r#"{ "url": "mem://", "namespace": "/a/" }"#, "does not end with /");
        refused(r#"{ "url": "mem://", "retry": { "policy": "times", "times": 0 } }"#, "zero");
        refused(r#"{ "url": "mem://", "credentials": { "user": "u" } }"#, "password");
    }

    #[test]
    fn only_the_backend_refuses_parameters_that_it_does_not_know() {
        let plan = plan(r#"{ "url": "mem://?colour=blue" }"#).expect("not known before");
        let error = plan.target.no_more_parameters(&[]).expect_err("no backend knows colours");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("\"colour\"; it knows session, timeout, connect, lazy"));
        assert!(!error.to_string().contains("certificate"), "{error}");
    }
}
