//! [`ZkOptions`]: where the servers are, and who we are to them.

use std::fmt;
use std::time::Duration;

use secrecy::SecretString;
use synod_core::error::{Error, ErrorKind, Result};

use crate::tls::Tls;

/// Where the servers are, who we are to them, and who may touch what we make.
///
/// `Debug` hides the password.
#[derive(Clone)]
#[non_exhaustive]
pub struct ZkOptions {
    /// The servers, each `host:port` or `host`.
    pub hosts: Vec<String>,
    /// User and password.
    pub credentials: Option<(String, SecretString)>,
    /// How the servers are told of them.
    pub login: Login,
    /// How connections are encrypted; not at all if nothing is said.
    pub tls: Option<Tls>,
    /// Who may touch what is made. Without credentials it must be said.
    pub access: Option<Access>,
    /// The longest beat (`tickTime`) of the servers: a server may know of a sign of life that much
    /// later than another one answered it.
    pub tick: Duration,
}

/// How the servers are told who we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Login {
    /// User and password as they are. The servers know nobody: any password is one, and makes another
    /// user.
    Digest,
    /// SASL, mechanism DIGEST-MD5: the servers have a list of users. Needs the feature `sasl`: without
    /// it, [`ZkBackend::new`](crate::ZkBackend::new) refuses it as
    /// [`Unsupported`](synod_core::error::ErrorKind::Unsupported).
    Sasl,
}

/// Who may touch the nodes that are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Whoever has the same credentials, and nobody else.
    Creator,
    /// Everybody who reaches a server.
    Open,
}

impl ZkOptions {
    /// These servers, each `host:port` or `host`; nobody in particular.
    pub fn new<H: Into<String>>(hosts: impl IntoIterator<Item = H>) -> Self {
        let hosts = hosts.into_iter().map(Into::into).collect();
        let tick = Duration::from_secs(2);
        let login = Login::Digest;
        Self { hosts, credentials: None, login, tls: None, access: None, tick }
    }

    /// Who we are.
    pub fn credentials(
        mut self,
        user: impl Into<String>,
        password: impl Into<SecretString>,
    ) -> Self {
        self.credentials = Some((user.into(), password.into()));
        self
    }

    /// How the servers are told who we are.
    pub fn login(mut self, login: Login) -> Self {
        self.login = login;
        self
    }

    /// How connections are encrypted.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Who may touch what is made.
    pub fn access(mut self, access: Access) -> Self {
        self.access = Some(access);
        self
    }

    /// The longest beat of the servers.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// The ports of the servers.
    pub(crate) fn ports(&self) -> Vec<u16> {
        let port = |host: &String| with_port(host).rsplit_once(':')?.1.parse().ok();
        self.hosts.iter().filter_map(port).collect()
    }

    /// Refuses what cannot work, and decides what was left open.
    pub(crate) fn checked(mut self) -> Result<(Self, Access)> {
        if self.hosts.is_empty() {
            return Err(invalid("no servers are named"));
        }
        let odd = |c: char| c == ',' || c == '/' || c.is_whitespace() || c.is_control();
        if self.hosts.iter().any(|host| host.is_empty() || host.contains(odd)) {
            return Err(invalid("a server is host:port or host, and nothing else"));
        }
        if let Some((user, _)) = &self.credentials
            && (user.is_empty() || user.contains(':'))
        {
            return Err(invalid("a user's name is not empty and holds no colon"));
        }
        if self.tls.is_some() && !cfg!(feature = "tls") {
            return Err(Error::new(ErrorKind::Unsupported, DOING)
                .because("this program was built without the feature `tls` of synod"));
        }
        if self.login == Login::Sasl {
            if !cfg!(feature = "sasl") {
                return Err(Error::new(ErrorKind::Unsupported, DOING)
                    .because("this program was built without the feature `sasl` of synod"));
            }
            if self.credentials.is_none() {
                return Err(invalid(
                    "who is to log in by SASL is not said: give user and password",
                ));
            }
        }
        let known = self.credentials.is_some()
            || self.tls.as_ref().is_some_and(|tls| tls.identity.is_some());
        let access = match (self.access, known) {
            (Some(Access::Creator), false) => {
                return Err(invalid(
                    "only its creator may touch a node, and who that is is not said: give user and password",
                ));
            }
            (Some(access), _) => access,
            (None, true) => Access::Creator,
            (None, false) => {
                return Err(invalid(
                    "it is not said who may touch what is made: give user and password, or let \
                     everybody who reaches the servers with Access::Open (in a URL, ?acl=open)",
                ));
            }
        };
        self.access = Some(access);
        Ok((self, access))
    }
}

/// A server with its port, the usual one if none was said.
pub(crate) fn with_port(host: &str) -> String {
    const USUAL: u16 = 2181;

    match host.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() && !host.ends_with(']') => host.to_owned(),
        _ => format!("{host}:{USUAL}"),
    }
}

const DOING: &str = "reading the options for ZooKeeper";

fn invalid(why: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, DOING).because(why)
}

impl fmt::Debug for ZkOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkOptions")
            .field("hosts", &self.hosts)
            .field("user", &self.credentials.as_ref().map(|(user, _)| user))
            .field("login", &self.login)
            .field("tls", &self.tls)
            .field("access", &self.access)
            .field("tick", &self.tick)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_let_in_by_default() {
        let refused = ZkOptions::new(["localhost:2181"]).checked().expect_err("nobody said so");
        assert!(refused.to_string().contains("?acl=open"), "{refused}");
        let known = ZkOptions::new(["localhost"]).credentials("ann", "canary-7f3a".to_owned());
        assert_eq!(known.clone().checked().expect("valid").1, Access::Creator);
        assert!(!format!("{known:?}").contains("canary"), "{known:?}");
        let open = ZkOptions::new(["[::1]:2181"]).access(Access::Open);
        assert_eq!(open.checked().expect("valid").1, Access::Open);
    }

    #[test]
    fn odd_servers_and_users_are_refused() {
        for hosts in [vec![], vec![""], vec!["a,b"], vec!["tcp://a"], vec!["a/b"], vec!["a b"]] {
            let refused = ZkOptions::new(hosts.clone()).access(Access::Open).checked();
            assert_eq!(refused.expect_err("odd").kind(), ErrorKind::Invalid, "{hosts:?}");
        }
        for user in ["", "a:b"] {
            let options = ZkOptions::new(["h"]).credentials(user, "canary-7f3a".to_owned());
            let refused = options.checked().expect_err("odd");
            assert!(!format!("{refused} {refused:?}").contains("canary"));
        }
        assert!(ZkOptions::new(["h"]).access(Access::Creator).checked().is_err());
    }
}
