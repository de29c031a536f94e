//! [`EtcdOptions`]: the servers and the credentials.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use synod_core::error::{Error, ErrorKind, Result};
use synod_core::store::{ServerList, ServerSource};

use crate::encryption::Encryption;
use crate::tls::Tls;
use crate::wire::Connect;

/// The options of connections to an etcd cluster.
///
/// # Examples
///
/// ```
/// use synod_etcd::{EtcdBackend, EtcdOptions, Tls};
///
/// let options = EtcdOptions::new(["10.0.0.1:2379", "10.0.0.2:2379", "10.0.0.3:2379"])
///     .tls(Tls::new())
///     .user("app", "secret");
/// assert!(!format!("{options:?}").contains("secret"));
/// let backend = EtcdBackend::new(options)?;
/// # Ok::<(), synod_core::error::Error>(())
/// ```
#[derive(Clone)]
pub struct EtcdOptions {
    hosts: Vec<String>,
    servers: Option<Arc<dyn ServerSource>>,
    follows_members: bool,
    pub(crate) user: Option<(String, SecretString)>,
    tls: Option<Tls>,
    /// Made of `tls` for a backend.
    pub(crate) encryption: Option<Encryption>,
    pub(crate) timeout: Duration,
    /// Opens connections, if they are not sockets.
    pub(crate) way: Option<Arc<dyn Connect>>,
    plaintext_auth: bool,
}

impl EtcdOptions {
    /// Options for the members of a cluster, each `host` or `host:port`; the default port is 2379.
    pub fn new<H: Into<String>>(hosts: impl IntoIterator<Item = H>) -> Self {
        let hosts = hosts.into_iter().map(Into::into).collect();
        Self {
            hosts,
            servers: None,
            follows_members: false,
            user: None,
            tls: None,
            encryption: None,
            timeout: Duration::from_secs(10),
            way: None,
            plaintext_auth: false,
        }
    }

    /// Sets the source of the members, which is read again while clients use the backend. Without
    /// hosts the first session waits for it; with hosts, they are the members until it was read.
    ///
    /// A client whose member is not in the list any more continues its session at another member.
    /// If none of the list answers, it returns to the member that it left.
    pub fn servers(mut self, source: impl ServerSource) -> Self {
        self.servers = Some(Arc::new(source));
        self
    }

    /// Sets whether the members are those of the cluster's own list, at their client URLs. It is
    /// read with each session, once in ten seconds, and when a member does not answer. The hosts
    /// remain as the last resort, also if the list names addresses that this client cannot reach.
    ///
    /// A member that is not a host is used only if it is of the same cluster, and its certificate
    /// is checked against its own name, unless there is a [server name](crate::Tls::server_name).
    pub fn follow_members(mut self, follows: bool) -> Self {
        self.follows_members = follows;
        self
    }

    /// Sets user and password. The password is sent over encrypted connections only, or to this
    /// machine: see [`EtcdOptions::plaintext_auth`].
    pub fn user(mut self, name: impl Into<String>, password: impl Into<SecretString>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// Sets whether the password may be sent to other machines over connections that are not
    /// encrypted, where the network can read it. By default it may not.
    pub fn plaintext_auth(mut self, allowed: bool) -> Self {
        self.plaintext_auth = allowed;
        self
    }

    /// Sets the upper limit for any call. No call takes longer than the session's time to live.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how connections are encrypted. By default they are not.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Opens connections in another way than as sockets.
    #[cfg(feature = "scripted")]
    pub(crate) fn over(self, way: Arc<dyn Connect>) -> Self {
        Self { way: Some(way), ..self }
    }

    /// The members, each `host:port`. Those of a source are validated as the hosts are.
    pub(crate) fn server_list(&self) -> Result<ServerList> {
        if self.hosts.is_empty() && self.servers.is_none() {
            return Err(invalid("an etcd cluster has at least one member"));
        }
        if self.follows_members && self.servers.is_some() {
            return Err(invalid("the members are of a source, or of the cluster's list; say one"));
        }
        if let Some(fault) = self.tls.as_ref().and_then(Tls::fault) {
            return Err(unusable(fault));
        }
        let local_only = self.user.is_some() && self.tls.is_none() && !self.plaintext_auth;
        let hosts =
            self.hosts.iter().map(|host| member(host, local_only)).collect::<Result<_>>()?;
        let check = move |host: &str| member(host, local_only);
        Ok(match &self.servers {
            Some(source) => ServerList::following(hosts, source.clone(), check),
            None if self.follows_members => ServerList::of_ensemble(hosts, check),
            None => ServerList::fixed(hosts),
        })
    }

    /// The same options with the encryption, which all sessions share.
    pub(crate) fn with_encryption(mut self) -> Result<Self> {
        self.encryption = self.tls.as_ref().map(Encryption::new).transpose().map_err(unusable)?;
        Ok(self)
    }

    /// The URL of a member, as etcd's client takes it.
    pub(crate) fn url(&self, member: &str) -> String {
        format!("{}{member}", self.scheme())
    }

    /// The beginning of the URLs of members.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https://" } else { "http://" }
    }

    pub(crate) fn secrets(&self) -> Option<(&str, &str)> {
        self.user.as_ref().map(|(name, password)| (name.as_str(), password.expose_secret()))
    }
}

/// A member as `host:port`. With `local_only` it must be on this machine.
fn member(host: &str, local_only: bool) -> Result<String> {
    let strange = |c: char| c.is_whitespace() || c.is_control() || "/@?#\\".contains(c);
    if host.is_empty() || host.contains(strange) {
        return Err(invalid("a member of an etcd cluster is written host:port"));
    }
    if local_only && !is_this_machine(host) {
        return Err(Error::new(ErrorKind::Invalid, "connecting").because(format!(
            "the password would be sent to {host} in plain text: use TLS, or allow it with \
             EtcdOptions::plaintext_auth (in a URL, ?plaintext=allow)"
        )));
    }
    // An IPv6 address has its colons within brackets.
    let has_port = host.rsplit_once(']').map_or(host, |(_, rest)| rest).contains(':');
    let port = if has_port { "" } else { ":2379" };
    Ok(format!("{host}{port}"))
}

/// True if data sent to a host stays on this machine.
fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn unusable(why: &'static str) -> Error {
    let why = format!("the TLS settings cannot be used: {why}");
    Error::new(ErrorKind::Invalid, "connecting").because(why)
}

fn invalid(why: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, "connecting").because(why)
}

impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("hosts", &self.hosts)
            .field("servers", &self.servers)
            .field("follows_members", &self.follows_members)
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("tls", &self.tls)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl EtcdOptions {
        fn urls(&self) -> Result<Vec<String>> {
            Ok(self.server_list()?.get().iter().map(|member| self.url(member)).collect())
        }
    }

    #[test]
    fn members_are_hosts_with_or_without_a_port() {
        let urls = |hosts: &[&str]| EtcdOptions::new(hosts.iter().copied()).urls();
        assert_eq!(
            urls(&["a", "b:1", "[::1]", "[::1]:1"]).expect("fine"),
            ["http://a:2379", "http://b:1", "http://[::1]:2379", "http://[::1]:1"]
        );
        let secure = EtcdOptions::new(["a"]).tls(Tls::new()).urls();
        assert_eq!(secure.expect("fine"), ["https://a:2379"]);
        for wrong in [&[][..], &[""], &["a", ""], &["http://a"], &["u:p@a"], &["a b"]] {
            assert_eq!(urls(wrong).expect_err("wrong").kind(), ErrorKind::Invalid, "{wrong:?}");
        }
    }

    #[test]
    fn tls_without_a_certificate_to_trust_is_refused() {
        let urls = EtcdOptions::new(["a"]).tls(Tls::trusting("")).urls();
        let error = urls.expect_err("it trusts nobody");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(
            error.to_string().contains("no certificate in PEM among the authorities"),
            "{error}"
        );
    }

    #[test]
    fn a_password_leaves_this_machine_encrypted_or_by_permission() {
        let to = |host: &str| EtcdOptions::new([host]).user("u", "canary");
        for host in ["localhost", "localhost:1", "127.0.0.1:1", "127.1.2.3", "[::1]:1", "[::1]"] {
            assert!(to(host).urls().is_ok(), "{host}");
        }
        let far = ["10.0.0.1:1", "db", "localhost.example", "127.0.0.1.example:1", "[2001:db8::1]"];
        for host in far {
            let error = to(host).urls().expect_err("it would be sent in plain text");
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(host), "{error}");
            assert!(to(host).tls(Tls::new()).urls().is_ok());
            assert!(to(host).plaintext_auth(true).urls().is_ok());
            assert!(EtcdOptions::new([host]).urls().is_ok(), "there is no password");
        }
        let mixed = EtcdOptions::new(["localhost", "db"]).user("u", "canary");
        assert!(mixed.urls().is_err(), "each host counts");
    }

    #[test]
    fn no_secret_is_shown() {
        let tls = Tls::new().identity("certificate", "canary");
        let options = EtcdOptions::new(["a"]).user("u", "canary").tls(tls);
        let shown = format!("{options:?} {options:#?}");
        assert!(!shown.contains("canary"), "{shown}");
        assert_eq!(options.secrets(), Some(("u", "canary")));
    }
}
