//! [`Plan`]: what a [`Config`] comes to, every contradiction refused.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use synod_core::client::ClientOptions;
use synod_core::error::Result;
use synod_core::path::Path;
use synod_core::store::{Backend, SessionOptions};

use crate::address::{Address, Credentials, Scheme, invalid};
use crate::backend;
use crate::config::{Config, Tls};

/// What to open, how, and where in it.
pub(crate) struct Plan {
    pub(crate) target: Target,
    pub(crate) options: ClientOptions,
    pub(crate) namespace: Path,
}

/// What a backend is told.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) scheme: Scheme,
    pub(crate) hosts: Vec<String>,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) tls: Tls,
    /// Parameters of the URL that only this backend can know.
    pub(crate) parameters: Vec<(String, String)>,
}

/// The durations that may stand in the URL.
#[derive(Default)]
struct Durations {
    session: Option<Duration>,
    deadline: Option<Duration>,
    connect: Option<Duration>,
}

impl Plan {
    pub(crate) fn of(config: &Config) -> Result<Self> {
        let url = &config.url;
        let (said, parameters) = Durations::of(url)?;
        let mut options = ClientOptions::default();
        if let Some(ttl) = once("session", config.session, said.session)? {
            options = options.session(SessionOptions::new(ttl));
        }
        if let Some(deadline) = once("deadline", config.deadline, said.deadline)? {
            options = options.deadline(deadline);
        }
        if let Some(connect) = once("connect", config.connect, said.connect)? {
            options = options.connect_deadline(connect);
        }
        if let Some(retry) = &config.retry {
            retry.validate()?;
            options = options.retry(retry.clone());
        }
        let path = Some(url.path().clone()).filter(|path| !path.is_root());
        let namespace = once("namespace", config.namespace.clone(), path)?;
        let credentials = config.credentials.clone();
        let credentials = once("credentials", credentials, url.credentials().cloned())?;
        let tls = tls(url.scheme(), config.tls.clone())?;
        let (scheme, hosts) = (url.scheme(), url.hosts().to_vec());
        let target = Target { scheme, hosts, credentials, tls, parameters };
        Ok(Self { target, options, namespace: namespace.unwrap_or_else(Path::root) })
    }
}

impl Target {
    /// The backend, if it is compiled in.
    pub(crate) fn open(self) -> Result<Arc<dyn Backend>> {
        match self.scheme {
            Scheme::Mem => backend::mem(self),
            Scheme::ZooKeeper { .. } => backend::zookeeper(self),
            Scheme::Etcd { .. } => backend::etcd(self),
        }
    }

    /// Refuses every parameter that is left over. `known` are those that this backend takes.
    pub(crate) fn no_more_parameters(&self, known: &[&str]) -> Result<()> {
        let unknown = self.parameters.iter().find(|(key, _)| !known.contains(&key.as_str()));
        let Some((key, _)) = unknown else { return Ok(()) };
        let all = ["session", "deadline", "connect"].iter().chain(known).copied();
        let all = all.collect::<Vec<_>>().join(", ");
        let scheme = self.scheme.as_str();
        Err(invalid(format!("{scheme}:// knows no parameter {key:?}; it knows {all}")))
    }
}

impl Durations {
    /// Those of a URL, and the parameters that are none of them.
    fn of(url: &Address) -> Result<(Self, Vec<(String, String)>)> {
        let (mut said, mut others) = (Self::default(), Vec::new());
        for (key, value) in url.parameters() {
            match key {
                "session" => said.session = Some(duration(key, value)?),
                "deadline" => said.deadline = Some(duration(key, value)?),
                "connect" => said.connect = Some(duration(key, value)?),
                _ => others.push((key.to_owned(), value.to_owned())),
            }
        }
        Ok((said, others))
    }
}

fn duration(key: &str, value: &str) -> Result<Duration> {
    match humantime::parse_duration(value) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        Ok(_) => Err(invalid(format!("{key} is more than zero, as in {key}=10s"))),
        Err(_) => Err(invalid(format!("{key} is a duration, as in {key}=10s or {key}=500ms"))),
    }
}

/// What was said in the config or in the URL, but not in both.
fn once<T>(what: &str, config: Option<T>, url: Option<T>) -> Result<Option<T>> {
    if config.is_some() && url.is_some() {
        return Err(invalid(format!(
            "{what} is said in the URL and in the config; say it in one of them"
        )));
    }
    Ok(config.or(url))
}

fn tls(scheme: Scheme, tls: Option<Tls>) -> Result<Tls> {
    let secure = matches!(scheme, Scheme::ZooKeeper { tls: true } | Scheme::Etcd { tls: true });
    match tls {
        Some(_) if !secure => Err(invalid(format!(
            "there are TLS files, and {}:// does not use TLS; write zks:// or etcds://",
            scheme.as_str()
        ))),
        Some(tls) if tls.certificate.is_some() != tls.key.is_some() => {
            Err(invalid("a TLS certificate needs its key, and a key its certificate"))
        }
        tls => Ok(tls.unwrap_or_default()),
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("target", &self.target)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}
