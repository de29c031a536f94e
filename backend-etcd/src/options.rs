//! [`EtcdOptions`]: where the servers are, and who we are to them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use synod_core::error::{Error, ErrorKind, Result};

use crate::tls::Tls;
use crate::wire::Connect;

/// How to reach an etcd cluster.
///
/// # Examples
///
/// ```
/// use synod_etcd::{EtcdBackend, EtcdOptions};
///
/// let options = EtcdOptions::new(["10.0.0.1:2379", "10.0.0.2:2379", "10.0.0.3:2379"])
///     .user("app", "secret");
/// assert!(!format!("{options:?}").contains("secret"));
/// let backend = EtcdBackend::new(options)?;
/// # Ok::<(), synod_core::error::Error>(())
/// ```
#[derive(Clone)]
pub struct EtcdOptions {
    hosts: Vec<String>,
    pub(crate) user: Option<(String, SecretString)>,
    pub(crate) tls: Option<Tls>,
    pub(crate) timeout: Duration,
    /// How connections are opened, if not as sockets.
    pub(crate) way: Option<Arc<dyn Connect>>,
}

impl EtcdOptions {
    /// The members of a cluster, each as `host` or `host:port`; the port is 2379 if nothing is
    /// said.
    pub fn new<H: Into<String>>(hosts: impl IntoIterator<Item = H>) -> Self {
        let hosts = hosts.into_iter().map(Into::into).collect();
        Self { hosts, user: None, tls: None, timeout: Duration::from_secs(10), way: None }
    }

    /// Says who we are.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<SecretString>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// How long a call may take, at most. No call takes longer than the session's time to live.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How connections are encrypted; not at all if nothing is said.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Opens connections in another way than as sockets.
    #[cfg(feature = "scripted")]
    pub(crate) fn over(self, way: Arc<dyn Connect>) -> Self {
        Self { way: Some(way), ..self }
    }

    /// The members as etcd's client wants them.
    pub(crate) fn urls(&self) -> Result<Vec<String>> {
        if self.hosts.is_empty() {
            return Err(invalid("an etcd cluster has at least one member"));
        }
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        self.hosts
            .iter()
            .map(|host| {
                let strange = |c: char| c.is_whitespace() || c.is_control() || "/@?#\\".contains(c);
                if host.is_empty() || host.contains(strange) {
                    return Err(invalid("a member of an etcd cluster is written host:port"));
                }
                // The colons of an address of the sixth version are within brackets.
                let has_port =
                    host.rsplit_once(']').map_or(&**host, |(_, rest)| rest).contains(':');
                let port = if has_port { "" } else { ":2379" };
                Ok(format!("{scheme}://{host}{port}"))
            })
            .collect()
    }

    pub(crate) fn secrets(&self) -> Option<(&str, &str)> {
        self.user.as_ref().map(|(name, password)| (name.as_str(), password.expose_secret()))
    }
}

fn invalid(why: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, "connecting").because(why)
}

impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("hosts", &self.hosts)
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("tls", &self.tls)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn no_secret_is_shown() {
        let tls = Tls::new().identity("certificate", "canary");
        let options = EtcdOptions::new(["a"]).user("u", "canary").tls(tls);
        let shown = format!("{options:?} {options:#?}");
        assert!(!shown.contains("canary"), "{shown}");
        assert_eq!(options.secrets(), Some(("u", "canary")));
    }
}
